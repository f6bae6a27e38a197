// What the language server offers at a place: the words that are right there, and no others.
#include "runtime/tool/Files.h"
#include "runtime/tool/lsp/Language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

using namespace rho;
using namespace rho::tool::lsp;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

namespace {

// What completes a text at its `|`.
std::vector<std::string> completed(std::string text) {
  const size_t place = text.find('|');
  text.erase(place, 1);
  const View view(text, "/a/b.rho", nullptr);
  std::vector<std::string> labels;
  for (const Completion &completion : completionsAt(view, place))
    labels.push_back(completion.label);
  return labels;
}

TEST(CompletionTest, EntriesOfAScheduleHaveTheirOwnWords) {
  auto words = [](const std::string &entry) {
    return completed("gemm g {\n  schedule {\n    " + entry + ": |\n  }\n}\n");
  };
  EXPECT_THAT(words("roles"), ElementsAre("uniform", "imfp", "excp", "gemv"));
  EXPECT_THAT(words("packing"), ElementsAre("tiles", "panels"));
  EXPECT_THAT(words("balance"), ElementsAre("tiles", "cost"));
  EXPECT_THAT(words("split_k"), ElementsAre("stream"));
  EXPECT_THAT(words("launch"), ElementsAre("serial", "dependent"));
  EXPECT_THAT(words("tile"), IsEmpty());
  EXPECT_THAT(words("unknown"), IsEmpty());
}

TEST(CompletionTest, CopiesAreOfWhatIsDeclared) {
  const std::string declared = "import \"rho:nvfp4\"\nformat f(G: int = 16) {\n  element: s4\n}\n"
                               "gemm g {\n}\n";
  const std::string behind = "gemm k = g\n";
  EXPECT_THAT(completed(declared + "format output = |\n" + behind),
              AllOf(IsSupersetOf({"f", "nvfp4", "f16", "bf16", "f32"}), Not(Contains("output")),
                    Not(Contains("g")), Not(Contains("gemm"))));
  EXPECT_THAT(completed(declared + "gemm h = |\n" + behind), ElementsAre("g", "k"));
  EXPECT_THAT(completed(declared + "format h = f\n|"), Contains("gemm"));
  EXPECT_THAT(completed("format f(base: format = |"), ElementsAre("f16", "bf16", "f32"));
  for (const char *word : {"format", "gemm", "device", "import"})
    EXPECT_THAT(completed(std::string(word) + " |"), IsEmpty()) << word;
  EXPECT_THAT(completed("import \"a.rho\"\n|"), Contains("format"));
  EXPECT_THAT(completed("form|"), Contains("format"));
  EXPECT_THAT(completed("what |"), Contains("format"));
}

TEST(CompletionTest, DevicesHaveTargetsAndRates) {
  EXPECT_THAT(
      completed("device tensor {\n  target: |\n}\n"),
      AllOf(IsSupersetOf({"sm_80", "sm_90a", "sm_100a", "sm_121a"}), Not(Contains("clock"))));
  for (const char *value : {"sms: |", "product: \"|\"", "product: \"|"})
    EXPECT_THAT(completed("device d {\n  " + std::string(value) + "\n}\n"), IsEmpty()) << value;
  EXPECT_THAT(completed("device tensor {\n  |\n}\n"), IsSupersetOf({"target", "clock", "mma"}));
  for (const char *block : {"tensor", "mma"})
    EXPECT_THAT(completed("device d {\n  throughput {\n    ffma: 1\n  }\n  " + std::string(block) +
                          " {\n    f16: 3\n    |\n  }\n}\n"),
                ElementsAre("f16", "bf16", "e4m3", "s8", "s4", "e2m1", "e4m3_scaled"));
  EXPECT_THAT(completed("device d {\n  tensor {\n    f16: 3\n  }\n  throughput {\n    |\n  }\n}\n"),
              AllOf(Contains("ffma"), Not(Contains("f16"))));
}

TEST(CompletionTest, PartsAreFormatsOrBitsBelowTheElement) {
  auto residual = [](const std::string &element) {
    return completed("format w {\n  value = element\n}\nformat f {\n  element: " + element +
                     "\n  residual fix: |\n}\n");
  };
  EXPECT_THAT(residual("s4"), AllOf(IsSupersetOf({"w", "f16", "s2", "s3", "s4"}),
                                    Not(Contains("s5")), Not(Contains("u4"))));
  EXPECT_THAT(residual("s6"), AllOf(Contains("s2"), Not(Contains("s3"))));
  EXPECT_THAT(residual("u4"), AllOf(Contains("w"), Not(Contains("s2"))));
  EXPECT_THAT(completed("format w {\n}\nformat p {\n  partition per k[32] {\n    low: |\n  }\n}\n"),
              ElementsAre("f16", "bf16", "f32", "w"));
}

// In a format with one component per tensor, one per group and one beside it, and parameters.
std::vector<std::string> inFormat(const std::string &entry) {
  return completed("format w(G: int = 32, T: type = f16, F: format = f16) {\n  element: e2m1\n"
                   "  scale: ue3m3 per k[16]\n  special: f16 per tensor\n  " +
                   entry + "\n}\n");
}

TEST(CompletionTest, ClausesOfComponents) {
  EXPECT_THAT(inFormat("a: |"),
              AllOf(IsSupersetOf({"T", "u2", "f16", "codebook"}), Not(Contains("remap")),
                    Not(Contains("G")), Not(Contains("in"))));
  EXPECT_THAT(inFormat("a: u2 |"),
              AllOf(IsSupersetOf({"per", "in", "value"}), Not(Contains("remap"))));
  EXPECT_THAT(completed("format w {\n  element: e2m1 |\n}\n"),
              AllOf(IsSupersetOf({"remap", "value"}), Not(Contains("per"))));
  EXPECT_THAT(completed("format w {\n  element: codebook [1, 2, 3, 4] |\n}\n"), Contains("remap"));
  EXPECT_THAT(inFormat("a: u2 per |"), ElementsAre("k", "n", "m", "channel", "token", "tensor"));
  EXPECT_THAT(inFormat("a: u2 per k[|]"), ElementsAre("G"));
  EXPECT_THAT(inFormat("a: u2 per k|"), Contains("k"));
  EXPECT_THAT(inFormat("a: u2 per n[16] |"), ElementsAre("k"));
  EXPECT_THAT(inFormat("a: u2 per n[16] k|"), ElementsAre("k"));
  for (const char *whole :
       {"a: u2 per k[16] |", "a: u2 per n[16] k[16] |", "a: u2 per token |", "a: u2 in scale |"})
    EXPECT_THAT(inFormat(whole), AllOf(Contains("value"), Not(Contains("per")))) << whole;
  EXPECT_THAT(inFormat("a: u2 in |"), ElementsAre("scale", "special"));
  EXPECT_THAT(inFormat("a: codebook [|"), ElementsAre("G"));
  EXPECT_THAT(inFormat("a: codebook |"), IsEmpty());
}

TEST(CompletionTest, ClausesOfRemaps) {
  auto element = [](const std::string &behind) {
    return completed("format w(G: int = 8) {\n  element: e2m1 " + behind +
                     "\n  scale: f16 per tensor\n  choice: u2 per k[16]\n}\n");
  };
  EXPECT_THAT(element("remap |"), ElementsAre("G"));
  EXPECT_THAT(element("remap 8 |"), ElementsAre("to"));
  EXPECT_THAT(element("remap 8 to |"), IsEmpty());
  for (const char *open : {"remap 8 to [|", "remap 8 to [5, -|", "remap 8 to [5, |"})
    EXPECT_THAT(element(open), ElementsAre("G", "scale", "choice")) << open;
  EXPECT_THAT(element("remap 8 to [5 |"), IsEmpty());
  EXPECT_THAT(element("remap 8 to [5, -5] |"), ElementsAre("by"));
  EXPECT_THAT(element("remap 8 to [5, -5] by |"), ElementsAre("scale", "choice"));
  EXPECT_THAT(element("remap 8 to [5, -5] by choice |"),
              AllOf(Contains("value"), Not(Contains("by"))));
}

TEST(CompletionTest, ExpressionsHaveTheOperandsOfTheirPlace) {
  for (const char *value : {"value = |", "value = element * |", "value = f16(|", "require |"})
    EXPECT_THAT(inFormat(value),
                AllOf(IsSupersetOf({"element", "scale", "s8", "f16", "G", "T"}), Not(Contains("x")),
                      Not(Contains("absmax")), Not(Contains("best")), Not(Contains("F")),
                      Not(Contains("per")), Not(Contains("partition"))))
        << value;
  EXPECT_THAT(inFormat("value = element |"), AllOf(Contains("encode"), Not(Contains("scale"))));
  EXPECT_THAT(inFormat("value = (element |"), IsEmpty());
  EXPECT_THAT(inFormat("require element |"), IsEmpty());
  EXPECT_THAT(inFormat("require element <= |"), ElementsAre("G"));
  EXPECT_THAT(inFormat("require element <= -|"), ElementsAre("G"));
  EXPECT_THAT(inFormat("require element <= 3 |"), Contains("value"));
  EXPECT_THAT(inFormat("encode {\n    |"), ElementsAre("scale", "special"));
  EXPECT_THAT(inFormat("encode {\n    scale = |"),
              AllOf(IsSupersetOf({"special", "absmax", "best", "x", "f16", "e4m3", "G", "T"}),
                    Not(Contains("element")), Not(Contains("s8")), Not(Contains("scale")),
                    Not(Contains("residual"))));
  EXPECT_THAT(inFormat("encode {\n    scale = max(|"), AllOf(Contains("x"), Not(Contains("best"))));
  EXPECT_THAT(inFormat("encode {\n    scale = 1\n    |"), ElementsAre("scale", "special"));
  EXPECT_THAT(inFormat("encode {\n    scale = max(1 |"), IsEmpty());
  EXPECT_THAT(inFormat("encode {\n  }\n  |"), Contains("require"));
}

TEST(CompletionTest, ClausesOfParts) {
  EXPECT_THAT(inFormat("partition |"), ElementsAre("per"));
  EXPECT_THAT(inFormat("partition per |"), ElementsAre("k", "n", "m", "tensor"));
  EXPECT_THAT(inFormat("partition per tensor |"), ElementsAre("k"));
  EXPECT_THAT(inFormat("partition per n[|"), ElementsAre("G"));
  EXPECT_THAT(inFormat("partition per k[8] |"), IsEmpty());
  auto part = [](const std::string &behind) {
    return inFormat("partition per k[128] {\n    low: f16\n    high: " + behind);
  };
  EXPECT_THAT(inFormat("partition per k[128] {\n    |"), IsEmpty());
  EXPECT_THAT(inFormat("partition per k[128] {\n    low: f16 |"), IsEmpty());
  EXPECT_THAT(part("|"), ElementsAre("f16", "bf16", "f32", "T", "F"));
  EXPECT_THAT(part("f16 |"), ElementsAre("where", "budget"));
  for (const char *rule : {"f16 where |", "f16 where max(x) >= |", "f16 where max(|"})
    EXPECT_THAT(part(rule), ElementsAre("absmax", "min", "max", "bit_floor", "x", "G")) << rule;
  EXPECT_THAT(part("f16 where max(x) |"), IsEmpty());
  EXPECT_THAT(part("f16 where max(x) >= 1 |"), ElementsAre("budget"));
  EXPECT_THAT(part("f16 where max(x) >= 1 budget |"), ElementsAre("G"));
  EXPECT_THAT(part("f16 budget 1 |"), IsEmpty());
  EXPECT_THAT(part("f16 budget 1% |"), IsEmpty());
  EXPECT_THAT(inFormat("residual |"), IsEmpty());
  EXPECT_THAT(inFormat("residual fix |"), IsEmpty());
  EXPECT_THAT(inFormat("residual fix: f16 |"), ElementsAre("per"));
  EXPECT_THAT(inFormat("residual fix: s4 / |"), ElementsAre("G"));
  EXPECT_THAT(inFormat("residual fix: s4 / 16 |"), ElementsAre("per"));
  EXPECT_THAT(inFormat("residual fix: s4 / 16 per |"), ElementsAre("k", "n", "m", "tensor"));
  EXPECT_THAT(inFormat("residual fix: f16 per k[8] |"), IsSupersetOf({"where", "budget", "value"}));
  EXPECT_THAT(inFormat("residual fix: f16 per k[8] where max(x) >= 1 |"),
              AllOf(IsSupersetOf({"budget", "value"}), Not(Contains("where"))));
  EXPECT_THAT(inFormat("residual fix: f16 per k[8] budget 1% |"),
              AllOf(Contains("value"), Not(Contains("budget"))));
}

TEST(CompletionTest, ArgumentsAreOfTheirParameters) {
  const std::string declared = "format int4(G: int = 128, T: type = f16, F: format = f16) {\n}\n";
  EXPECT_THAT(completed(declared + "gemm g(H: int = 3) {\n  weight: int4(|"),
              ElementsAre("H", "G", "T", "F"));
  for (const char *value : {"G = |", "G = -|", "-|", "T = codebook [|"})
    EXPECT_THAT(completed(declared + "gemm g(H: int = 3) {\n  weight: int4(" + value),
                ElementsAre("H"))
        << value;
  EXPECT_THAT(completed(declared + "gemm g {\n  weight: int4(3, |"),
              AllOf(IsSupersetOf({"s8", "codebook", "T", "F"}), Not(Contains("G"))));
  EXPECT_THAT(completed(declared + "gemm g {\n  weight: int4(T = f16, |"), ElementsAre("G", "F"));
  EXPECT_THAT(completed(declared + "gemm g {\n  weight: int4(3 |"), IsEmpty());
  EXPECT_THAT(completed(declared + "gemm g {\n  weight: none(|"), IsEmpty());
  EXPECT_THAT(completed(declared + "gemm g {\n  weight: int4(3) |"), Contains("activation"));
  EXPECT_THAT(completed(declared + "format a = int4(|"), ElementsAre("G", "T", "F"));
  EXPECT_THAT(completed(declared + "format a = int4(F = |"),
              ElementsAre("f16", "bf16", "f32", "int4"));
  EXPECT_THAT(completed(declared + "format p {\n  residual fix: int4(|"),
              ElementsAre("G", "T", "F"));
  EXPECT_THAT(completed(declared + "format p {\n  partition per k[8] {\n    low: int4(|"),
              ElementsAre("G", "T", "F"));
  EXPECT_THAT(completed("gemm g(N: int) {\n}\ngemm h = g(|"), ElementsAre("N"));
  EXPECT_THAT(completed("format a(G: |"), ElementsAre("int", "type", "format"));
  EXPECT_THAT(completed("format a(|"), IsEmpty());
  EXPECT_THAT(completed("format a(G: int = |"), IsEmpty());
  EXPECT_THAT(completed("format a(T: type = |"), Contains("s4"));
  EXPECT_THAT(completed("format a(G: int) |"), IsEmpty());
}

TEST(CompletionTest, ParametersStandInGemms) {
  auto gemm = [](const std::string &entry) {
    return completed("gemm g(T: type = f16, F: format = f16, N: int = 3) {\n  " + entry + "\n}\n");
  };
  EXPECT_THAT(gemm("output: |"), ElementsAre("f16", "bf16", "f32", "T"));
  EXPECT_THAT(gemm("weight: |"), ElementsAre("f16", "bf16", "f32", "T", "F"));
  EXPECT_THAT(gemm("schedule {\n    pipeline: |"), ElementsAre("N"));
  EXPECT_THAT(gemm("schedule {\n    split_k: |"), ElementsAre("stream", "N"));
  EXPECT_THAT(gemm("schedule {\n    tile: 16 x |"), ElementsAre("N"));
  EXPECT_THAT(gemm("schedule {\n    tile: 16 |"), IsSupersetOf({"x", "warps"}));
  EXPECT_THAT(gemm("schedule {\n    roles: |"), Not(Contains("N")));
}

TEST(CompletionTest, CommentsHaveNone) {
  for (const char *text :
       {"// |", "gemm g {\n  weight: // |\n}\n", "format a { // b|\n}\n", "// a // |\nformat"})
    EXPECT_THAT(completed(text), IsEmpty()) << text;
  EXPECT_THAT(completed("// a\n|"), Contains("format"));
}

TEST(CompletionTest, ImportsAreFilesAndTheLibrary) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "rho-completion-imports";
  fs::remove_all(folder);
  fs::create_directories(folder / "deep");
  for (const char *name : {"own.rho", "other.rho", "deep/third.rho", "notes.txt", ".hidden.rho"})
    ASSERT_TRUE(tool::writeText((folder / name).string(), "").ok());
  auto paths = [&](std::string text, const dsl::FileReader &reader) {
    const size_t place = text.find('|');
    text.erase(place, 1);
    const View view(text, (folder / "own.rho").string(), reader);
    std::vector<std::string> labels;
    for (const Completion &one : completionsAt(view, place)) {
      const Span inside = one.replaced.value_or(Span{});
      EXPECT_EQ(text.substr(inside.begin - 1, 1), "\"");
      EXPECT_THAT(text.substr(inside.end, 1), testing::AnyOf("\"", "\n", ""));
      if (!one.label.starts_with("rho:"))
        labels.push_back(one.label);
      else if (one.label == "rho:nvfp4")
        labels.emplace_back("library");
    }
    return labels;
  };
  EXPECT_THAT(paths("import \"|\"\n", dsl::readSource),
              testing::UnorderedElementsAre("library", "other.rho", "deep/"));
  EXPECT_THAT(paths("import \"ot|h\"\n", dsl::readSource), Contains("other.rho"));
  EXPECT_THAT(paths("import \"deep/|", dsl::readSource), ElementsAre("library", "deep/third.rho"));
  EXPECT_THAT(paths("import \"none/|\"", dsl::readSource), ElementsAre("library"));
  EXPECT_THAT(paths("import \"|\"\n", nullptr), ElementsAre("library"));
  EXPECT_THAT(paths("import |\"a.rho\"", dsl::readSource), IsEmpty());
  fs::remove_all(folder);
}

// Whether a token is a name that is declared there, one of a unit or of the many types that nobody
// lists.
bool isOfNoList(const Outline &outline, size_t token) {
  const Declaration &in = *outline.declarationOf(token);
  auto isAmong = [&](const std::vector<size_t> &names) {
    return std::find(names.begin(), names.end(), token) != names.end();
  };
  const bool isUnit =
      outline.keyword(in) == "device" && outline.tokens[token + 1].kind != dsl::TokenKind::Colon &&
      outline.tokens[token - 1].kind != dsl::TokenKind::Colon && !outline.isEntry(token);
  const std::string name(outline.tokens[token].text);
  const std::vector<std::string> all = dsl::ElementType::allNames();
  const bool isUncommon =
      dsl::ElementType::fromName(name) && std::find(all.begin(), all.end(), name) == all.end();
  return token == in.name || isUnit || isUncommon || isAmong(in.parameters) || isAmong(in.parts) ||
         (outline.keyword(in) == "format" && isAmong(in.components));
}

// Every name in right texts was offered where it stands.
TEST(CompletionTest, OffersWhatRightTextsSay) {
  size_t names = 0;
  auto check = [&](const std::string &text, const std::string &path) {
    const View view(text, path, dsl::readSource);
    const Outline &outline = view.outline(0);
    for (size_t i = 0; i + 1 < outline.tokens.size(); ++i) {
      const dsl::Token &token = outline.tokens[i];
      if (token.kind != dsl::TokenKind::Name || isOfNoList(outline, i))
        continue;
      ++names;
      std::vector<std::string> labels;
      for (const Completion &one : completionsAt(view, token.span.begin))
        labels.push_back(one.label);
      EXPECT_THAT(labels, Contains(std::string(token.text)))
          << path << ", in front of '" << text.substr(token.span.begin, 40) << "'";
    }
  };
  const std::string root = std::string(RHO_SOURCE_DIR) + "/";
  for (const char *folder : {"kernels", "tests/dsl/pass"})
    for (const auto &entry : std::filesystem::recursive_directory_iterator(root + folder))
      if (entry.path().extension() == ".rho")
        check(tool::readText(entry.path().string()).value(), entry.path().string());
  EXPECT_GT(names, 2000U);
}

} // namespace
