// Source texts and positions in them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace rho {

// A half-open range of bytes of one source text. Spans never take part in comparing or printing
// declarations: moving a declaration does not change it.
struct Span {
  static constexpr uint32_t none = UINT32_MAX;
  uint32_t file = none; // index into the SourceMap
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const Span &, const Span &) = default;
};

// The texts that one module was read from. A text stays where it is: tokens point into it.
class SourceMap {
public:
  // Adds a text under the name that messages show. Returns its index.
  uint32_t add(std::string name, std::string text);
  const std::string &name(uint32_t file) const { return files[file].name; }
  const std::string &text(uint32_t file) const { return files[file].text; }
  size_t size() const { return files.size(); }
  // 1-based line and column (in bytes) of a position.
  struct LineColumn {
    uint32_t line, column;
  };
  LineColumn lineColumn(uint32_t file, uint32_t offset) const;
  // The text of a 1-based line without its newline.
  std::string_view line(uint32_t file, uint32_t line) const;

private:
  struct File {
    std::string name, text;
    std::vector<uint32_t> lineStarts;
  };
  std::deque<File> files;
};

} // namespace rho
