#include "runtime/tool/lsp/Message.h"

#include "dsl/Utf8.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace rho::tool::lsp {

namespace {

constexpr int maxNesting = 64; // of a message; none of the protocol comes near it

std::variant<Json, Failure> parseJson(const std::string &text) {
  bool tooDeep = false;
  Json parsed = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json &) {
        tooDeep = tooDeep || depth > maxNesting;
        return !tooDeep;
      },
      false);
  if (tooDeep)
    return Failure{Code::ParseError, "the message nests deeper than " + std::to_string(maxNesting)};
  if (parsed.is_discarded())
    return Failure{Code::ParseError, "the message is not JSON"};
  return parsed;
}

constexpr size_t escapeBytes = 6; // of \u1234

// Of the escape that a text begins with; none: it begins with no other than a short one.
std::optional<uint32_t> escapedUnit(std::string_view text) {
  uint32_t unit = 0;
  if (!text.starts_with("\\u") || text.size() < escapeBytes)
    return std::nullopt;
  const char *end = text.data() + escapeBytes;
  return std::from_chars(text.data() + 2, end, unit, 16).ptr == end ? std::optional(unit)
                                                                    : std::nullopt;
}

constexpr bool isHigh(uint32_t unit) { return unit >= 0xd800 && unit < 0xdc00; }
constexpr bool isLow(uint32_t unit) { return unit >= 0xdc00 && unit < 0xe000; }

// Backslashes are in strings alone.
std::string repaired(std::string_view text) {
  std::string out;
  auto take = [&](size_t bytes) {
    bytes = std::min(bytes, text.size());
    out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  };
  while (!text.empty()) {
    if (const std::optional<uint32_t> unit = escapedUnit(text)) {
      const bool isPair = isHigh(*unit) && isLow(escapedUnit(text.substr(escapeBytes)).value_or(0));
      if (!isPair && (isHigh(*unit) || isLow(*unit))) {
        out += "\\ufffd";
        text.remove_prefix(escapeBytes);
      } else {
        take(isPair ? 2 * escapeBytes : escapeBytes);
      }
    } else if (text.starts_with("\\\\")) { // behind which a `u` is a letter
      take(2);
    } else if (const size_t bytes = dsl::firstCharacter(text).bytes; bytes != 0) {
      take(bytes);
    } else {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    }
  }
  return out;
}

} // namespace

std::variant<Message, Failure> parseMessage(const std::string &text) {
  std::variant<Json, Failure> parsed = parseJson(text);
  if (auto *json = std::get_if<Json>(&parsed))
    return Message{std::move(*json)};
  parsed = parseJson(repaired(text));
  if (auto *json = std::get_if<Json>(&parsed))
    return Message{std::move(*json), true};
  return std::get<Failure>(parsed);
}

const Json *at(const Json &json, std::initializer_list<const char *> path) {
  const Json *found = &json;
  for (const char *name : path) {
    if (!found->is_object() || !found->contains(name))
      return nullptr;
    found = &(*found)[name];
  }
  return found;
}

std::optional<std::string> textAt(const Json &json, std::initializer_list<const char *> path) {
  const Json *found = at(json, path);
  return found && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::optional<size_t> countAt(const Json &json, std::initializer_list<const char *> path) {
  const Json *found = at(json, path);
  return found && found->is_number_unsigned() ? std::optional(found->get<size_t>()) : std::nullopt;
}

} // namespace rho::tool::lsp
