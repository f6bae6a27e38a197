// The files of kernels/formats inside the binary: what `import "rho:nvfp4"` reads, wherever the
// importing text is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// A path that begins with it names a file of the library, without its ending.
inline constexpr std::string_view libraryPrefix = "rho:";

struct LibraryFile {
  std::string_view name; // "nvfp4"
  std::string_view text;
};
std::span<const LibraryFile> libraryFiles(); // in order of name
std::optional<std::string_view> libraryText(std::string_view name);
std::vector<std::string> libraryNames();

} // namespace rho::dsl
