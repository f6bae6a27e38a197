#include "tests/tool/LspSession.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rho::test {

using nlohmann::json;

LspSession::LspSession(std::vector<std::string> options) {
  std::signal(SIGPIPE, SIG_IGN);
  int toServer[2], fromServer[2];
  if (pipe2(toServer, O_CLOEXEC) != 0 || pipe2(fromServer, O_CLOEXEC) != 0)
    std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, toServer[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fromServer[1], STDOUT_FILENO);
  std::string tool = RHO_TOOL, command = "lsp";
  std::vector<char *> argv = {tool.data(), command.data()};
  for (std::string &option : options)
    argv.push_back(option.data());
  argv.push_back(nullptr);
  if (posix_spawn(&child, RHO_TOOL, &actions, nullptr, argv.data(), environ) != 0)
    std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(toServer[0]);
  close(fromServer[1]);
  in = toServer[1];
  out = fromServer[0];
}

LspSession::~LspSession() {
  if (child != 0)
    finish();
  close(out);
}

void LspSession::sendRaw(const std::string &bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    ssize_t count = write(in, bytes.data() + sent, bytes.size() - sent);
    if (count <= 0)
      return;
    sent += static_cast<size_t>(count);
  }
}

void LspSession::sendText(const std::string &text) {
  sendRaw("Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
}

bool LspSession::fill() {
  // The limit is there for a server that hangs.
  pollfd waiting = {out, POLLIN, 0};
  char chunk[1 << 16];
  if (poll(&waiting, 1, 120000) != 1)
    return false;
  ssize_t count = read(out, chunk, sizeof chunk);
  if (count <= 0)
    return false;
  received.append(chunk, static_cast<size_t>(count));
  return true;
}

json LspSession::receive() {
  size_t header = 0;
  while ((header = received.find("\r\n\r\n")) == std::string::npos)
    if (!fill()) {
      ADD_FAILURE() << "the server says nothing";
      return nullptr;
    }
  std::string start = "Content-Length: ";
  EXPECT_TRUE(received.starts_with(start)) << received;
  size_t length = std::stoul(received.substr(start.size(), header - start.size()));
  received.erase(0, header + 4);
  while (received.size() < length)
    if (!fill()) {
      ADD_FAILURE() << "the server's message breaks off";
      return nullptr;
    }
  json message = json::parse(received.substr(0, length));
  received.erase(0, length);
  EXPECT_EQ(message["jsonrpc"], "2.0");
  return message;
}

json LspSession::request(const std::string &method, json params) {
  int id = nextId++;
  send({{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}});
  json answer = receive();
  EXPECT_EQ(answer.value("id", json()), json(id)) << answer;
  return answer;
}

void LspSession::notify(const std::string &method, json params) {
  send({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}});
}

void LspSession::start(const json &capabilities) {
  json answer = request("initialize", {{"processId", nullptr}, {"capabilities", capabilities}});
  EXPECT_TRUE(answer.contains("result")) << answer;
  notify("initialized", json::object());
}

json LspSession::open(const std::string &uri, const std::string &text, int version) {
  notify("textDocument/didOpen",
         {{"textDocument",
           {{"uri", uri}, {"languageId", "rho"}, {"version", version}, {"text", text}}}});
  json published = receive();
  EXPECT_EQ(published["method"], "textDocument/publishDiagnostics");
  EXPECT_EQ(published["params"]["uri"], uri);
  EXPECT_EQ(published["params"]["version"], version);
  return published["params"]["diagnostics"];
}

json LspSession::change(const std::string &uri, const std::string &text, int version) {
  notify("textDocument/didChange", {{"textDocument", {{"uri", uri}, {"version", version}}},
                                    {"contentChanges", json::array({{{"text", text}}})}});
  json published = receive();
  EXPECT_EQ(published["params"]["uri"], uri);
  EXPECT_EQ(published["params"]["version"], version);
  return published["params"]["diagnostics"];
}

json LspSession::ask(const std::string &method, const std::string &uri, int line, int character) {
  return request(method, {{"textDocument", {{"uri", uri}}},
                          {"position", {{"line", line}, {"character", character}}}});
}

int LspSession::finish() {
  close(in);
  int status = 0;
  pid_t ended = waitpid(child, &status, 0);
  child = 0;
  return ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace rho::test
