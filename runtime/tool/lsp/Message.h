// Messages of JSON-RPC as values.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace rho::tool::lsp {

using Json = nlohmann::json;

// Codes of JSON-RPC and of the protocol.
enum class Code {
  ParseError = -32700,
  InvalidRequest = -32600,
  MethodNotFound = -32601,
  InvalidParams = -32602,
  InternalError = -32603,
  ServerNotInitialized = -32002,
  RequestFailed = -32803,
};

struct Failure {
  Code code;
  std::string message;
};
using Reply = std::variant<Json, Failure>;

struct Message {
  Json json;
  bool repaired = false; // what is no character was replaced
};

// What JSON text says. Halves of surrogate pairs and bytes that are no UTF-8, which editors pass on
// from texts that have them, become U+FFFD. A failure where it is no JSON or nests too deep to be
// walked.
std::variant<Message, Failure> parseMessage(const std::string &text);

// The value at a path of names; null where there is none.
const Json *at(const Json &json, std::initializer_list<const char *> path);
std::optional<std::string> textAt(const Json &json, std::initializer_list<const char *> path);
std::optional<size_t> countAt(const Json &json, std::initializer_list<const char *> path);

} // namespace rho::tool::lsp
