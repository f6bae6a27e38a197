// Talks to the built `rho lsp` over its pipes as an editor does.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <sys/types.h>
#include <vector>

namespace rho::test {

inline constexpr char uri[] = "file:///nowhere/a%20b.rho"; // of a text without a file

inline nlohmann::json place(int line, int character) {
  return {{"line", line}, {"character", character}};
}
inline nlohmann::json range(int line, int begin, int end) {
  return {{"start", place(line, begin)}, {"end", place(line, end)}};
}
inline int errorOf(const nlohmann::json &answer) {
  return answer.value("error", nlohmann::json::object()).value("code", 0);
}

class LspSession {
public:
  // With options of `rho lsp`.
  explicit LspSession(std::vector<std::string> options = {});
  ~LspSession();
  LspSession(const LspSession &) = delete;
  LspSession &operator=(const LspSession &) = delete;

  // With the header that a message has.
  void send(const nlohmann::json &message) { sendText(message.dump()); }
  void sendText(const std::string &text);
  void sendRaw(const std::string &bytes);

  // The next message of the server; null, and a failure of the test, when none comes.
  nlohmann::json receive();
  // Sends a request and gives its whole answer; fails when another message comes before it.
  nlohmann::json request(const std::string &method, nlohmann::json params);
  void notify(const std::string &method, nlohmann::json params);

  // initialize, with what the editor can do, and initialized.
  void start(const nlohmann::json &capabilities = nlohmann::json::object());
  // Opens a text and gives the diagnostics that are published for it.
  nlohmann::json open(const std::string &uri, const std::string &text, int version = 1);
  nlohmann::json change(const std::string &uri, const std::string &text, int version);
  // A request about a place of a text.
  nlohmann::json ask(const std::string &method, const std::string &uri, int line, int character);

  // Closes the server's input; its exit code, -1 when it ended by a signal.
  int finish();

private:
  bool fill(); // reads more; false at the end
  pid_t child = 0;
  int in = -1, out = -1; // of the server
  int nextId = 1;
  std::string received;
};

} // namespace rho::test
