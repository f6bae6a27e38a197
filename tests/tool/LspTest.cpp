// Sessions with the language server.
#include "tests/tool/LspSession.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace rho::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr char uri[] = "file:///nowhere/a%20b.rho";

json place(int line, int character) { return {{"line", line}, {"character", character}}; }
json range(int line, int begin, int end) {
  return {{"start", place(line, begin)}, {"end", place(line, end)}};
}
int errorOf(const json &answer) { return answer.value("error", json::object()).value("code", 0); }
// What a hover says.
std::string markdown(const json &answer) {
  EXPECT_TRUE(answer["result"].is_object()) << answer;
  return answer["result"].is_object() ? answer["result"]["contents"]["value"].get<std::string>()
                                      : "";
}

// --- life

TEST(LspTest, BeginsAndEndsAsTheProtocolSays) {
  LspSession session;
  EXPECT_EQ(errorOf(session.request("textDocument/hover", json::object())), -32002);
  session.notify("textDocument/didOpen", json::object());
  json capabilities = session.request("initialize", {{"processId", 1}})["result"]["capabilities"];
  EXPECT_EQ(capabilities["textDocumentSync"]["change"], 1);
  for (const char *provider : {"hoverProvider", "definitionProvider", "documentFormattingProvider"})
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
  for (const char *method : {"textDocument/hover", "textDocument/definition",
                             "textDocument/completion", "textDocument/formatting"}) {
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

// --- places

TEST(LspTest, HoverDerivesWhatADeclarationMeans) {
  LspSession session;
  session.start();
  std::string gemm = "file://" + shipped("kernels/gemms/liquidquant_int8.rho");
  EXPECT_EQ(session.open(gemm, contentOf(shipped("kernels/gemms/liquidquant_int8.rho"))),
            json::array());
  // weight: liquidquant
  json answer = session.ask("textDocument/hover", gemm, 6, 12);
  EXPECT_EQ(answer["result"]["range"], range(6, 10, 21));
  std::string text = markdown(answer);
  EXPECT_THAT(text, HasSubstr("```rho\nformat liquidquant {\n  element: u4\n"));
  EXPECT_THAT(text, HasSubstr("\n4.25 bits per element\n"));
  EXPECT_THAT(text, HasSubstr("- `element: u4`, 4 bits per element\n"));
  EXPECT_THAT(text,
              HasSubstr("- `step: u8 per k[64]`, 0.125 bits per element; encoded as `max((max(x "
                        "/ channel) - min(x / channel)) / 15, 1)`\n"));
  EXPECT_THAT(text, HasSubstr("- `channel: f32 per channel`, 0 bits per element"));
  EXPECT_THAT(markdown(session.ask("textDocument/hover", gemm, 5, 6)), // the gemm's name
              HasSubstr("- weight `liquidquant`: 4.25 bits per element\n"
                        "- activation `int8_token`: 8 bits per element\n"));
  EXPECT_EQ(markdown(session.ask("textDocument/hover", gemm, 8, 10)), // f16
            "`f16`: floating point, 5 bits of exponent, 10 of mantissa, 16 bits, -65504 to 65504");
  EXPECT_EQ(markdown(session.ask("textDocument/hover", gemm, 6, 2)),
            "`weight`: the format of the n x k operand, packed ahead of time");
  EXPECT_THAT(markdown(session.ask("textDocument/hover", gemm, 2, 9)), // the import
              HasSubstr("- format `liquidquant`\n"));
  EXPECT_TRUE(session.ask("textDocument/hover", gemm, 0, 5)["result"].is_null()); // a comment
}

TEST(LspTest, HoverAndDefinitionInsideOfAFormat) {
  LspSession session;
  session.start();
  std::string text = "format w {\n"
                     "  element: s4\n"
                     "  channel: f16 per channel\n"
                     "  value = f16(element) * channel\n"
                     "  encode {\n"
                     "    channel = absmax(x) / 7\n"
                     "  }\n"
                     "}\n";
  EXPECT_EQ(session.open(uri, text), json::array());
  auto hover = [&](int line, int character) {
    return markdown(session.ask("textDocument/hover", uri, line, character));
  };
  auto definition = [&](int line, int character) {
    return session.ask("textDocument/definition", uri, line, character)["result"];
  };
  EXPECT_EQ(hover(1, 11), "`s4`: signed integer, 4 bits, -8 to 7");
  EXPECT_THAT(hover(2, 2), HasSubstr("`channel: f16 per channel`, 0 bits per element"));
  EXPECT_EQ(hover(2, 15), "`per`: what shares one value of the component");
  EXPECT_EQ(hover(2, 20), "`channel`: a row of a weight"); // the extent, not the component
  EXPECT_THAT(hover(3, 11), HasSubstr("`f16`: floating point"));
  EXPECT_EQ(definition(2, 20), json());
  EXPECT_EQ(definition(3, 16), (json{{"uri", uri}, {"range", range(1, 2, 9)}}));
  EXPECT_EQ(definition(3, 32)["range"], range(2, 2, 9)); // behind the name
  EXPECT_EQ(definition(5, 5)["range"], range(2, 2, 9));
  EXPECT_THAT(hover(5, 14), HasSubstr("`absmax`: the largest magnitude"));
  EXPECT_THAT(hover(5, 21), HasSubstr("`x`: the number that is encoded"));
  EXPECT_THAT(hover(0, 8), HasSubstr("\n4 bits per element\n"));
  // With an error in it there is the text as it is written.
  session.change(uri, "format w {\n  element:s4\n  scale: f16 per k[0]\n value = element\n}\n", 2);
  EXPECT_EQ(hover(2, 3), "```rho\nscale: f16 per k[0]\n```\n");
  EXPECT_THAT(hover(0, 7), HasSubstr("  element:s4\n"));
  EXPECT_EQ(definition(3, 12)["range"], range(1, 2, 9));
}

TEST(LspTest, DefinitionsInOtherFiles) {
  LspSession session;
  session.start();
  std::string file = shipped("kernels/gemms/int4_g128_int8.rho"), gemm = "file://" + file;
  session.open(gemm, contentOf(file));
  std::string format = "file://" + shipped("kernels/formats/int4_g128.rho");
  EXPECT_EQ(session.ask("textDocument/definition", gemm, 5, 12)["result"],
            (json{{"uri", format}, {"range", range(0, 0, 0)}}));              // the import
  json found = session.ask("textDocument/definition", gemm, 9, 12)["result"]; // weight
  EXPECT_EQ(found["uri"], format);
  std::string text = contentOf(shipped("kernels/formats/int4_g128.rho"));
  int line = static_cast<int>(
      std::count(text.begin(), text.begin() + static_cast<long>(text.find("\nformat ")) + 1, '\n'));
  EXPECT_EQ(found["range"], range(line, 7, 16));
}

TEST(LspTest, FormattingIsThatOfFmt) {
  LspSession session;
  session.start();
  auto format = [&] {
    return session.request("textDocument/formatting",
                           {{"textDocument", {{"uri", uri}}}, {"options", {{"tabSize", 8}}}});
  };
  session.open(uri, "gemm g{ // \xf0\x9f\x98\x80\nweight:f16} // \xf0\x9f\x98\x80");
  EXPECT_EQ(format()["result"],
            json::array({{{"range", {{"start", place(0, 0)}, {"end", place(1, 17)}}},
                          {"newText", "gemm g { // \xf0\x9f\x98\x80\n  weight: f16\n} // "
                                      "\xf0\x9f\x98\x80\n"}}}));
  session.change(uri, "gemm g {}\n", 2);
  EXPECT_EQ(format()["result"], json::array());
  session.change(uri, "gemm {", 3);
  json answer = format(); // a diagnostic says why
  EXPECT_TRUE(answer.contains("result") && answer["result"].is_null()) << answer;
}

// Of a text that the server does not have the old one would replace what the user typed.
TEST(LspTest, WhatDidNotArriveIsNotFormatted) {
  LspSession session;
  session.start();
  auto format = [&] {
    return session.request("textDocument/formatting", {{"textDocument", {{"uri", uri}}}});
  };
  session.open(uri, "gemm  g {}\n");
  const auto refuses = [&] {
    json answer = format();
    EXPECT_EQ(errorOf(answer), -32803) << answer;
    EXPECT_EQ(answer["error"]["message"], "the last change of this text did not arrive, as a whole "
                                          "text of at most 16777216 bytes would");
    session.change(uri, "gemm  g {}\n", 2);
    EXPECT_EQ(format()["result"][0]["newText"], "gemm g {}\n");
  };
  session.notify("textDocument/didChange",
                 {{"textDocument", {{"uri", uri}}},
                  {"contentChanges", {{{"range", range(0, 0, 4)}, {"text", "format"}}}}});
  refuses();
  session.notify("textDocument/didChange",
                 {{"textDocument", {{"uri", uri}}},
                  {"contentChanges", {{{"range", nullptr}, {"text", "gemm  h {}\n"}}}}});
  session.receive(); // what is wrong with it
  EXPECT_EQ(format()["result"][0]["newText"], "gemm h {}\n");
}

// Comments may have what JSON cannot say; editors send it all the same.
TEST(LspTest, WhatIsNoCharacterIsReplaced) {
  LspSession session;
  session.start();
  auto change = [&](const std::string &comment) {
    session.sendText(
        R"({"jsonrpc":"2.0","method":"textDocument/didChange","params":{"textDocument":)"
        R"({"uri":"file:///nowhere/a%20b.rho"},"contentChanges":[{"text":"// )" +
        comment + R"(\\ud83d\nformat a"}]}})");
    json published = session.receive();
    EXPECT_EQ(published["params"]["uri"], uri) << published;
    return published["params"]["diagnostics"][0]["range"];
  };
  auto refused = [&] {
    json answer = session.request("textDocument/formatting", {{"textDocument", {{"uri", uri}}}});
    return answer.contains("error") && answer["error"]["message"] ==
                                           "this text has halves of surrogate pairs or bytes that "
                                           "are no UTF-8, which formatting "
                                           "would replace";
  };
  // The first change opens a text whose opening did not arrive.
  for (const char *half : {"\\ud83d", "\\uDE00", "\\ud83d\\ud83d\\ude00", "\\ude00\\u0041", "\xe9",
                           "\xed\xa0\xbd", "\xf0\x9f"}) {
    EXPECT_EQ(change(half), range(1, 8, 8)) << half;
    EXPECT_TRUE(refused()) << half;
  }
  EXPECT_EQ(change("\\ud83d\\ude00"), range(1, 8, 8));
  EXPECT_FALSE(refused());
  session.sendText(R"({"jsonrpc":"2.0","method":"textDocument/didChange","params":{\ud83d})");
  EXPECT_EQ(errorOf(session.receive()), -32700);
}

// Where an instance is used is what its errors are about.
TEST(LspTest, ErrorsInInstancesNameTheUse) {
  LspSession session;
  session.start();
  const std::string used = "gemm g {\n  weight: w(4)\n  activation: f16\n  output: f16\n}\n";
  json found = session.open(uri, "format w(G: int) {\n  element: s4\n  scale: f16 per k[G]\n"
                                 "  value = element * scale\n}\n" +
                                     used);
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0]["range"], range(2, 19, 20));
  EXPECT_EQ(found[0]["relatedInformation"],
            json::array({{{"location", {{"uri", uri}, {"range", range(6, 10, 14)}}},
                          {"message", "in 'w(4)', used here"}}}));
  found = session.change(uri,
                         "import \"rho:int4_group\"\ngemm g {\n  weight: int4_group(4)\n"
                         "  activation: f16\n  output: f16\n}\n",
                         2);
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0]["range"], range(2, 10, 23));
  EXPECT_THAT(found[0]["message"].get<std::string>(), HasSubstr("in 'rho:int4_group': "));
  EXPECT_EQ(found[0]["relatedInformation"].size(), 1U) << found; // nothing inside the binary
}

// A link to an open text leads to what the editor shows.
TEST(LspTest, ImportsReadOpenTextsUnderAllTheirNames) {
  LspSession session;
  session.start();
  std::ofstream(scratchFolder() + "real.rho") << "format w {\n  element: s4\n}\n";
  std::filesystem::create_symlink("real.rho", scratchFolder() + "link.rho");
  const std::string folder = "file://" + scratchFolder();
  EXPECT_EQ(session.open(folder + "real.rho", "format w {\n  element: s4\n  value = element\n}\n"),
            json::array());
  EXPECT_EQ(session.open(folder + "user.rho", "import \"link.rho\"\ngemm g {\n  weight: w\n"
                                              "  activation: f16\n  output: f16\n}\n"),
            json::array());
}

TEST(LspTest, NamesAreThoseOfTheirPlace) {
  LspSession session;
  session.start();
  const std::string text = "format f(G: int = 32) {\n  element: s4\n  scale: f16 per k[G]\n"
                           "  value = element * scale\n}\n"
                           "format uniform(G: int) = f(G = G)\n"
                           "gemm wrap {\n  weight: uniform(G = 64)\n  activation: f16\n"
                           "  output: f16\n  schedule {\n    roles: uniform\n  }\n}\n"
                           "format wrap {\n  element: s4\n  value = element\n}\n"
                           "gemm copy = wrap\n";
  EXPECT_EQ(session.open(uri, text), json::array());
  auto definition = [&](int line, int character) {
    return session.ask("textDocument/definition", uri, line, character)["result"];
  };
  EXPECT_EQ(definition(5, 27)["range"], range(0, 9, 10));  // the argument's name
  EXPECT_EQ(definition(5, 31)["range"], range(5, 15, 16)); // its value
  EXPECT_EQ(definition(7, 18)["range"], range(5, 15, 16));
  EXPECT_EQ(definition(11, 11), json()); // roles, no format
  EXPECT_EQ(definition(18, 12)["range"], range(6, 5, 9));
}

TEST(LspTest, CompletionKnowsThePlace) {
  LspSession session;
  session.start();
  session.open(uri,
               "format w {\n  element: s4\n  scale: f\n  value = \n}\ngemm g {\n  \n  weight: \n"
               "  output: \n  schedule {\n    tile: 1 x 32 x 64\n    \n    roles: \n  }\n}\n\n");
  auto labels = [&](int line, int character) {
    std::vector<std::string> found;
    json answer = session.ask("textDocument/completion", uri, line, character);
    for (const json &item : answer["result"])
      found.push_back(item["label"]);
    return found;
  };
  using testing::Contains;
  using testing::ElementsAre;
  using testing::IsSupersetOf;
  using testing::Not;
  EXPECT_THAT(labels(15, 0), IsSupersetOf({"import", "format", "gemm"}));
  EXPECT_THAT(labels(2, 10), IsSupersetOf({"f16", "u8", "e4m3"}));
  EXPECT_THAT(labels(3, 10), IsSupersetOf({"element", "scale", "u8"}));
  EXPECT_THAT(labels(6, 2), IsSupersetOf({"weight", "schedule"}));
  EXPECT_THAT(labels(7, 10), IsSupersetOf({"w", "f16", "bf16"}));
  EXPECT_THAT(labels(8, 10), ElementsAre("f16", "bf16", "f32"));
  EXPECT_THAT(labels(12, 11), IsSupersetOf({"imfp", "gemv"}));
  EXPECT_THAT(labels(11, 4), IsSupersetOf({"tile", "warps"}));
  EXPECT_THAT(labels(11, 4), Not(Contains("weight")));
  session.change(uri,
                 "format w {\n  element: s4\n  scale: f16 per k[32]\n  \n}\n"
                 "format v {\n  element: s4\n  scale: f16 per n[16] \n}\n"
                 "format p {\n  partition per k[32] {\n    low: \n  }\n}\n"
                 "format r {\n  element: s4\n  residual fix: \n}\n"
                 "gemm g(F: format) {\n  weight: \n}\n",
                 2);
  EXPECT_THAT(labels(3, 2), IsSupersetOf({"value", "encode", "require"}));
  EXPECT_THAT(labels(3, 2), Not(Contains("channel")));
  EXPECT_THAT(labels(7, 23), ElementsAre("k"));
  EXPECT_THAT(labels(11, 9), IsSupersetOf({"w", "v"}));
  EXPECT_THAT(labels(11, 9), Not(Contains("s4")));
  EXPECT_THAT(labels(16, 16), Contains("w"));
  EXPECT_THAT(labels(19, 10), IsSupersetOf({"F", "w", "f16"}));
}

TEST(LspTest, EveryShippedFileIsWithoutDiagnostics) {
  LspSession session;
  session.start();
  int count = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(shipped("kernels")))
    if (entry.path().extension() == ".rho") {
      EXPECT_EQ(session.open("file://" + entry.path().string(), contentOf(entry.path())),
                json::array())
          << entry.path();
      ++count;
    }
  EXPECT_GT(count, 25);
}

} // namespace
