// What the language server says of places in texts, and of whole texts.
#include "tests/tool/LspSession.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace rho::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

// What a hover says.
std::string markdown(const json &answer) {
  EXPECT_TRUE(answer["result"].is_object()) << answer;
  return answer["result"].is_object() ? answer["result"]["contents"]["value"].get<std::string>()
                                      : "";
}

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

TEST(LspTest, PathsReplaceWhatIsBetweenQuotes) {
  LspSession session;
  session.start();
  session.open("untitled:a", "// \xf0\x9f\x98\x80\nimport \"rho:nv\"\n");
  json items = session.ask("textDocument/completion", "untitled:a", 1, 14)["result"];
  const auto found = std::find_if(items.begin(), items.end(),
                                  [](const json &item) { return item["label"] == "rho:nvfp4"; });
  ASSERT_NE(found, items.end()) << items;
  EXPECT_EQ((*found)["textEdit"], (json{{"range", range(1, 8, 14)}, {"newText", "rho:nvfp4"}}));
}

TEST(LspTest, SymbolsAreDeclarationsAndWhatTheyHave) {
  LspSession session;
  session.start();
  session.open(uri, "import \"rho:nvfp4\"\n"
                    "format w(G: int = 32) {\n  element: s4\n  scale: f16 per k[G]\n"
                    "  value = element * scale\n  residual fix: s4 / 16 per n[16] k[64]\n}\n"
                    "format p {\n  partition per k[64] {\n    low: w\n    high: f16\n  }\n}\n"
                    "gemm g {\n  weight: w\n}\ndevice d {\n  sms: 4\n}\nformat\n");
  json all = session.request("textDocument/documentSymbol", {{"textDocument", {{"uri", uri}}}});
  auto names = [](const json &symbols) {
    std::string text;
    for (const json &symbol : symbols)
      text += symbol["name"].get<std::string>() + std::to_string(symbol["kind"].get<int>()) + " ";
    return text;
  };
  EXPECT_EQ(names(all["result"]), "w23 p23 g12 d19 ");
  const json w = all["result"][0];
  EXPECT_EQ(w["range"], (json{{"start", place(1, 0)}, {"end", place(6, 1)}}));
  EXPECT_EQ(w["selectionRange"], range(1, 7, 8));
  EXPECT_EQ(names(w["children"]), "element8 scale8 fix8 ");
  EXPECT_EQ(w["children"][1]["range"], range(3, 2, 21));
  EXPECT_EQ(names(all["result"][1]["children"]), "low8 high8 ");
  EXPECT_EQ(all["result"][2]["children"], json::array());
  session.change(uri, std::string((1 << 20) + 1, '\n'), 2);
  EXPECT_EQ(
      session.request("textDocument/documentSymbol", {{"textDocument", {{"uri", uri}}}})["result"],
      json::array());
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
