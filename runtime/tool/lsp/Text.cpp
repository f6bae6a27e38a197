#include "runtime/tool/lsp/Text.h"

#include <algorithm>
#include <charconv>

namespace rho::tool::lsp {

namespace {

// Of the character that begins with this byte; none of a byte that continues one.
size_t utf16Units(char byte) {
  auto value = static_cast<unsigned char>(byte);
  if ((value & 0xc0) == 0x80)
    return 0;
  return value >= 0xf0 ? 2 : 1;
}

bool isPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/-._~").find(c) != std::string_view::npos;
}

} // namespace

LineIndex::LineIndex(std::string_view text) : text(text), starts{0} {
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n' || (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n')))
      starts.push_back(i + 1);
}

size_t LineIndex::lineEnd(size_t line) const {
  size_t end = line + 1 < starts.size() ? starts[line + 1] : text.size();
  while (end > starts[line] && (text[end - 1] == '\n' || text[end - 1] == '\r'))
    --end;
  return end;
}

Position LineIndex::position(size_t offset) const {
  offset = std::min(offset, text.size());
  auto after = std::upper_bound(starts.begin(), starts.end(), offset);
  Position position{static_cast<size_t>(after - starts.begin()) - 1, 0};
  for (size_t i = starts[position.line]; i < offset; ++i)
    position.character += utf16Units(text[i]);
  return position;
}

size_t LineIndex::offset(Position position) const {
  if (position.line >= starts.size())
    return text.size();
  size_t at = starts[position.line], end = lineEnd(position.line);
  for (size_t units = 0; at < end; ++at) {
    units += utf16Units(text[at]);
    if (units > position.character)
      break;
  }
  return at;
}

std::optional<std::string> pathOfUri(std::string_view uri) {
  constexpr std::string_view scheme = "file:"; // in letters of any case
  auto isSame = [](char c, char wanted) {
    return (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) == wanted;
  };
  const std::string_view begin = uri.substr(0, scheme.size());
  if (!std::equal(begin.begin(), begin.end(), scheme.begin(), scheme.end(), isSame))
    return std::nullopt;
  uri.remove_prefix(scheme.size());
  if (uri.starts_with("//"))
    uri.remove_prefix(std::min(uri.find('/', 2), uri.size())); // the host's name
  if (!uri.starts_with('/'))
    return std::nullopt;
  std::string path;
  for (size_t i = 0; i < uri.size(); ++i) {
    unsigned code = 0;
    const char *digits = uri.data() + i + 1;
    if (uri[i] == '%' && i + 2 < uri.size() &&
        std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      path += static_cast<char>(code);
      i += 2;
    } else {
      path += uri[i];
    }
  }
  return path;
}

std::string uriOfPath(std::string_view path) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string uri = "file://";
  for (char c : path) {
    auto byte = static_cast<unsigned char>(c);
    if (isPlain(c))
      uri += c;
    else
      uri += {'%', digits[byte >> 4], digits[byte & 15]};
  }
  return uri;
}

} // namespace rho::tool::lsp
