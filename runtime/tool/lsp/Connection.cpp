#include "runtime/tool/lsp/Connection.h"

#include "runtime/ReadNumber.h"

#include <algorithm>
#include <optional>

namespace rho::tool::lsp {

namespace {

constexpr size_t maxHeaderBytes = 4096; // of one line

// A line without its end; none at the end of the stream or when it is too long.
std::optional<std::string> readLine(std::FILE *in) {
  std::string line;
  for (int c = std::fgetc(in); c != EOF && line.size() < maxHeaderBytes; c = std::fgetc(in)) {
    if (c == '\n') {
      if (line.ends_with('\r'))
        line.pop_back();
      return line;
    }
    line += static_cast<char>(c);
  }
  return std::nullopt;
}

bool isLength(std::string_view name) {
  constexpr std::string_view length = "content-length";
  return std::equal(name.begin(), name.end(), length.begin(), length.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

// The value of the header, when it is Content-Length.
std::optional<size_t> lengthIn(std::string_view line) {
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || !isLength(line.substr(0, colon)))
    return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
  line.remove_suffix(line.size() - (line.find_last_not_of(" \t") + 1));
  return readNumber<size_t>(line);
}

} // namespace

Connection::Outcome Connection::read(std::string &message) {
  std::optional<size_t> length;
  bool any = false;
  while (true) {
    std::optional<std::string> line = readLine(in);
    if (!line)
      return std::feof(in) && !any ? Outcome::End : Outcome::BadHeader;
    if (line->empty())
      break;
    any = true;
    if (std::optional<size_t> found = lengthIn(*line))
      length = found;
  }
  if (!length)
    return Outcome::BadHeader;
  bool keep = *length <= maxMessageBytes;
  message.clear();
  char chunk[1 << 14];
  for (size_t left = *length; left > 0;) {
    size_t got = std::fread(chunk, 1, std::min(left, sizeof chunk), in);
    if (got == 0)
      return Outcome::End;
    if (keep)
      message.append(chunk, got);
    left -= got;
  }
  return keep ? Outcome::Message : Outcome::TooLarge;
}

bool Connection::write(std::string_view message) {
  return std::fprintf(out, "Content-Length: %zu\r\n\r\n", message.size()) > 0 &&
         std::fwrite(message.data(), 1, message.size(), out) == message.size() &&
         std::fflush(out) == 0;
}

} // namespace rho::tool::lsp
