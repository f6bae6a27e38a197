// Sessions with the language server: messages, texts and what is wrong with these.
#include "tests/tool/LspSession.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

using namespace rho::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

// --- life

TEST(LspTest, BeginsAndEndsAsTheProtocolSays) {
  LspSession session;
  EXPECT_EQ(errorOf(session.request("textDocument/hover", json::object())), -32002);
  session.notify("textDocument/didOpen", json::object());
  json capabilities = session.request("initialize", {{"processId", 1}})["result"]["capabilities"];
  EXPECT_EQ(capabilities["textDocumentSync"]["change"], 1);
  EXPECT_EQ(capabilities["completionProvider"]["triggerCharacters"].size(), 7U);
  for (const char *provider : {"hoverProvider", "definitionProvider", "documentFormattingProvider",
                               "documentSymbolProvider"})
    EXPECT_EQ(capabilities[provider], true) << provider;
  EXPECT_EQ(errorOf(session.request("initialize", json::object())), -32600);
  EXPECT_EQ(errorOf(session.request("textDocument/rename", json::object())), -32601);
  session.notify("$/setTrace", {{"value", "off"}});
  session.notify("workspace/didChangeConfiguration", json::object());
  json answer = session.request("shutdown", nullptr);
  EXPECT_TRUE(answer.contains("result") && answer["result"].is_null()) << answer;
  EXPECT_EQ(errorOf(session.request("textDocument/hover", json::object())), -32600);
  session.notify("exit", nullptr);
  EXPECT_EQ(session.finish(), 0);
}

// As the protocol recommends servers to be started.
TEST(LspTest, OptionsOfTheProtocolChangeNothing) {
  LspSession session({"--stdio", "--clientProcessId=17"});
  session.start();
  session.request("shutdown", nullptr);
  session.notify("exit", nullptr);
  EXPECT_EQ(session.finish(), 0);
}

TEST(LspTest, AnEndWithoutShutdownIsAFailure) {
  LspSession exiting;
  exiting.start();
  exiting.notify("exit", nullptr);
  EXPECT_EQ(exiting.finish(), 1);
  LspSession closed;
  closed.start();
  EXPECT_EQ(closed.finish(), 1);
  LspSession cut;
  cut.sendRaw("Content-Length: 100\r\n\r\n{");
  EXPECT_EQ(cut.finish(), 1);
}

// --- messages

TEST(LspTest, WhatIsNoRequestIsAnswered) {
  LspSession session;
  auto codeOf = [&](const std::string &text) {
    session.sendText(text);
    json answer = session.receive();
    EXPECT_TRUE(answer["id"].is_null() || answer["id"] == 7) << answer;
    return errorOf(answer);
  };
  EXPECT_EQ(codeOf("{"), -32700);
  EXPECT_EQ(codeOf(""), -32700);
  EXPECT_EQ(codeOf("\xff\xfe{}"), -32700);
  EXPECT_EQ(codeOf("{\"id\": 1e999}"), -32700);
  EXPECT_EQ(codeOf(std::string(100000, '[')), -32700);
  EXPECT_EQ(codeOf(std::string(100000, '[') + std::string(100000, ']')), -32700);
  for (const char *text :
       {"[]", "null", "3", "\"initialize\"", "{}", R"({"jsonrpc":"2.0","id":7})",
        R"({"jsonrpc":"1.0","id":7,"method":"initialize"})", R"({"id":7,"method":"initialize"})",
        R"({"jsonrpc":"2.0","id":7,"method":3})",
        R"({"jsonrpc":"2.0","id":null,"method":"initialize"})",
        R"({"jsonrpc":"2.0","id":{},"method":"initialize"})",
        R"([{"jsonrpc":"2.0","id":7,"method":"initialize"}])"})
    EXPECT_EQ(codeOf(text), -32600) << text;
  // Answers to nothing and unknown notifications are silent; the next request is answered.
  session.sendText(R"({"jsonrpc":"2.0","id":9,"result":null})");
  session.sendText(R"({"jsonrpc":"2.0","method":"$/unknown"})");
  session.start();
  session.sendText(R"({"jsonrpc":"2.0","id":"text","method":"what"})");
  json answer = session.receive();
  EXPECT_EQ(answer["id"], "text");
  EXPECT_EQ(errorOf(answer), -32601);
}

TEST(LspTest, HeadersAreReadAsTheyCome) {
  LspSession session;
  std::string text = R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{}})";
  session.sendRaw("Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:" +
                  std::to_string(text.size()) + "\n\n" + text);
  EXPECT_TRUE(session.receive().contains("result"));
  for (const char *header :
       {"hello\r\n\r\n", "Content-Length: -1\r\n\r\n", "Content-Length: 1x\r\n\r\n",
        "Content-Length: "
        "99999999999999999999999\r\n\r\n"}) {
    LspSession lost;
    lost.sendRaw(header);
    EXPECT_EQ(errorOf(lost.receive()), -32700) << header;
    EXPECT_EQ(lost.finish(), 1);
  }
  LspSession endless;
  endless.sendRaw(std::string(100000, 'a'));
  EXPECT_EQ(errorOf(endless.receive()), -32700);
}

TEST(LspTest, AHugeMessageIsSkipped) {
  LspSession session;
  session.sendText(std::string((16 << 20) + 1, ' '));
  EXPECT_EQ(errorOf(session.receive()), -32600);
  session.start();
  // The largest source file and one byte more.
  EXPECT_EQ(session.open(uri, std::string(1 << 20, '\n')), json::array());
  json found = session.change(uri, std::string((1 << 20) + 1, '\n'), 2);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["code"], "file_too_large");
  EXPECT_TRUE(session.ask("textDocument/hover", uri, 0, 0)["result"].is_null());
  EXPECT_TRUE(session.ask("textDocument/definition", uri, 0, 0)["result"].is_null());
  EXPECT_EQ(session.ask("textDocument/completion", uri, 0, 0)["result"], json::array());
}

TEST(LspTest, WrongParametersAreAnswered) {
  LspSession session;
  session.start();
  session.open(uri, "format a {\n}\n");
  for (const char *method :
       {"textDocument/hover", "textDocument/definition", "textDocument/completion",
        "textDocument/formatting", "textDocument/documentSymbol"}) {
    EXPECT_EQ(errorOf(session.request(method, nullptr)), -32602) << method;
    EXPECT_EQ(errorOf(session.request(method, json::array({1}))), -32602) << method;
    EXPECT_EQ(errorOf(session.request(method, {{"textDocument", {{"uri", "file:///x"}}}})), -32602);
  }
  for (const json &position :
       {json(), json(3), json{{"line", 1}}, json{{"line", -1}, {"character", 0}},
        json{{"line", 0.5}, {"character", 0}}, json{{"line", "0"}, {"character", 0}}})
    EXPECT_EQ(errorOf(session.request("textDocument/hover",
                                      {{"textDocument", {{"uri", uri}}}, {"position", position}})),
              -32602)
        << position;
  // Places behind the end are the end.
  EXPECT_FALSE(session.ask("textDocument/hover", uri, 0, 1 << 30).contains("error"));
  EXPECT_FALSE(session.ask("textDocument/completion", uri, 1 << 30, 1 << 30).contains("error"));
  // Notifications have no answer, right or wrong.
  session.notify("textDocument/didOpen", {{"textDocument", 3}});
  session.notify("textDocument/didChange", {{"textDocument", {{"uri", uri}}}});
  session.notify("textDocument/didChange",
                 {{"textDocument", {{"uri", uri}}}, {"contentChanges", {{{"text", 3}}}}});
  session.notify("textDocument/didChange",
                 {{"textDocument", {{"uri", uri}}},
                  {"contentChanges", {{{"range", range(0, 0, 0)}, {"text", "x"}}}}});
  session.notify("textDocument/didClose", {{"textDocument", {{"uri", "file:///x"}}}});
  EXPECT_EQ(session.ask("textDocument/definition", uri, 0, 7)["result"]["range"], range(0, 7, 8));
}

// --- diagnostics

TEST(LspTest, AllErrorsHaveTheirPlaceInUtf16) {
  LspSession session;
  session.start();
  json found = session.open(uri, "// \xf0\x9f\x98\x80\nformat a {\n  element: s9 // \xc3\xa9\n"
                                 "  scale: \xf0\x9f\x98\x80 f16 per row\n  value = elem\n}\n");
  ASSERT_EQ(found.size(), 4U) << found;
  EXPECT_EQ(found[0]["code"], "unknown_name");
  EXPECT_EQ(found[0]["severity"], 1);
  EXPECT_EQ(found[0]["source"], "rho");
  EXPECT_EQ(found[0]["range"], range(2, 11, 13));
  EXPECT_THAT(found[0]["message"].get<std::string>(), HasSubstr("unknown type 's9'"));
  EXPECT_EQ(found[1]["code"], "unexpected_character");
  EXPECT_EQ(found[1]["range"], range(3, 9, 11));  // two UTF-16 units
  EXPECT_EQ(found[2]["range"], range(3, 20, 23)); // row
  EXPECT_EQ(found[3]["range"], range(4, 10, 14)); // elem
  EXPECT_EQ(
      session.change(uri, "gemm g {\r\n  weight: f16\r\n  activation: f16\r\n  output: f8}", 2)
          .at(0)["range"],
      range(3, 10, 12));
  EXPECT_EQ(session.change(uri, "", 3), json::array());
  session.notify("textDocument/didClose", {{"textDocument", {{"uri", uri}}}});
  EXPECT_EQ(session.receive()["params"], (json{{"uri", uri}, {"diagnostics", json::array()}}));
}

TEST(LspTest, ImportsReadOpenTextsFirst) {
  LspSession session;
  session.start();
  std::string folder = "file://" + scratchFolder();
  std::string user = folder + "user.rho", middle = folder + "middle.rho",
              base = folder + "base.rho";
  std::string importing = "// what\nimport \"./middle.rho\"\n"
                          "gemm g {\n  weight: w\n  activation: f16\n  output: f16\n}\n";
  json found = session.open(user, importing);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["code"], "import_not_found");
  EXPECT_EQ(found[0]["range"], range(1, 0, 21));

  // base.rho is a file, middle.rho only a text of the editor.
  std::ofstream(scratchFolder() + "base.rho")
      << "format w {\n  element: s4\n  value = element\n}\n";
  auto nextOf = [&](const std::string &expected) {
    json published = session.receive();
    EXPECT_EQ(published["params"]["uri"], expected) << published;
    return published["params"]["diagnostics"];
  };
  EXPECT_EQ(session.open(middle, "import \"base.rho\"\n"), json::array());
  EXPECT_EQ(nextOf(user), json::array());
  EXPECT_EQ(session.ask("textDocument/definition", user, 3, 10)["result"],
            (json{{"uri", base}, {"range", range(0, 7, 8)}}));

  // An error two files away stands at the import.
  session.notify("textDocument/didOpen",
                 {{"textDocument", {{"uri", base}, {"text", "format w {\n  element: s4\n}\n"}}}});
  EXPECT_EQ(nextOf(base)[0]["range"], range(0, 7, 8));
  EXPECT_EQ(nextOf(middle)[0]["range"], range(0, 0, 17));
  found = nextOf(user);
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0]["code"], "missing_value");
  EXPECT_EQ(found[0]["range"], range(1, 0, 21));
  EXPECT_THAT(found[0]["message"].get<std::string>(),
              HasSubstr("base.rho': format 'w' has no value"));
  EXPECT_EQ(found[0]["relatedInformation"][0]["location"],
            (json{{"uri", base}, {"range", range(0, 7, 8)}}));

  // Closing it leaves the file, which is right.
  session.notify("textDocument/didClose", {{"textDocument", {{"uri", base}}}});
  EXPECT_EQ(nextOf(base), json::array());
  EXPECT_EQ(nextOf(middle), json::array());
  EXPECT_EQ(nextOf(user), json::array());

  // So does saving another text over it.
  std::ofstream(scratchFolder() + "base.rho")
      << "format v {\n  element: s4\n  value = element\n}\n";
  session.notify("textDocument/didSave", {{"textDocument", {{"uri", middle}}}});
  EXPECT_EQ(nextOf(user)[0]["range"], range(3, 10, 11));
}

TEST(LspTest, ATextWithoutAFileHasNoImports) {
  LspSession session;
  session.start();
  json found = session.open("untitled:Untitled-1", "import \"/etc/passwd\"\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["code"], "import_not_found");
}

TEST(LspTest, PlacesInATextWithoutAFileHaveItsUri) {
  LspSession session;
  session.start();
  const std::string untitled = "untitled:Untitled-1";
  json found = session.open(untitled, "format w(G: int) {\n  element: s4\n  scale: f16 per k[G]\n"
                                      "  value = element * scale\n}\nformat v = w(4)\n");
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0]["relatedInformation"][0]["location"],
            (json{{"uri", untitled}, {"range", range(5, 11, 15)}}));
}

TEST(LspTest, FilesThatOthersChangeAreReadAgain) {
  LspSession session;
  session.start({{"workspace", {{"didChangeWatchedFiles", {{"dynamicRegistration", true}}}}}});
  json asked = session.receive();
  EXPECT_EQ(asked["method"], "client/registerCapability");
  json registration = asked["params"]["registrations"][0];
  EXPECT_EQ(registration["method"], "workspace/didChangeWatchedFiles");
  EXPECT_EQ(registration["registerOptions"],
            (json{{"watchers", json::array({{{"globPattern", "**/*.rho"}}})}}));
  session.send({{"jsonrpc", "2.0"}, {"id", asked["id"]}, {"result", nullptr}});

  const std::string user = "file://" + put("user.rho", ""), imported = "watched.rho";
  const std::string path = put(imported, "format w {\n  element: s4\n  value = element\n}\n");
  EXPECT_EQ(session.open(user, "import \"watched.rho\"\nformat v = w\n"), json::array());
  put(imported, "format other {\n  element: s4\n  value = element\n}\n");
  session.notify("workspace/didChangeWatchedFiles",
                 {{"changes", json::array({{{"uri", "file://" + path}, {"type", 2}}})}});
  EXPECT_EQ(session.receive()["params"]["diagnostics"][0]["range"], range(1, 11, 12));
}

} // namespace
