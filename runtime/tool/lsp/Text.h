// Places and files as editors name them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::tool::lsp {

// Both from 0; characters are UTF-16 code units.
struct Position {
  size_t line = 0, character = 0;
};

// Bytes of a UTF-8 text <-> positions. Lines end in \n, \r\n or \r.
class LineIndex {
public:
  explicit LineIndex(std::string_view text);
  Position position(size_t offset) const;
  // Positions behind the end of a line or of the text mean that end.
  size_t offset(Position position) const;

private:
  size_t lineEnd(size_t line) const; // without what ends it

  std::string_view text;
  std::vector<size_t> starts;
};

// The path of a URI of a file, file:///a or file:/a; none of any other.
std::optional<std::string> pathOfUri(std::string_view uri);
std::string uriOfPath(std::string_view path);

} // namespace rho::tool::lsp
