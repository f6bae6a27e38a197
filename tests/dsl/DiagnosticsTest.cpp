// Every registered error is provoked by a test, and its rendering is what people read.
#include "dsl/Findings.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <regex>

namespace rho {
namespace {

// All test sources and goldens as one text.
const std::string &testTexts() {
  static const std::string all = [] {
    std::string texts;
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(test::sourceDir() / "tests"))
      if (entry.is_regular_file() && entry.path().filename() != "DiagnosticsTest.cpp")
        texts += test::readText(entry.path()).value_or("");
    // Literals that are divided into lines, as the compiler joins them.
    texts = std::regex_replace(texts, std::regex("\"\\s*\n\\s*\""), "");
    return std::regex_replace(texts, std::regex("\\\\\""), "\"");
  }();
  return all;
}

// A test that checks the whole rendered text contains "[id]", and all that stands between
// arguments.
TEST(Diagnostics, EveryRegisteredErrorIsCheckedByATest) {
  auto expectInTests = [](DiagId id, const std::string &part) {
    EXPECT_NE(testTexts().find(part), std::string::npos)
        << name(id) << " is provoked by no test that checks its whole text: '" << part << "'";
  };
  for (DiagId id : allDiagIds()) {
    expectInTests(id, "[" + std::string(name(id)) + "]");
    const std::string whole(text(id));
    const std::regex argument("\\{[0-9]\\}");
    for (std::sregex_token_iterator part(whole.begin(), whole.end(), argument, -1), end;
         part != end; ++part)
      expectInTests(id, *part);
  }
}

TEST(Diagnostics, TextsAreLowerCaseWithoutFullStop) {
  for (DiagId id : allDiagIds()) {
    std::string message(text(id));
    ASSERT_GE(message.size(), 2u);
    auto isUpper = [](char c) { return c >= 'A' && c <= 'Z'; };
    EXPECT_FALSE(isUpper(message[0]) && !isUpper(message[1])) << message; // NVRTC is a name
    EXPECT_NE(message.back(), '.') << message;
  }
}

TEST(Diagnostics, CaretStandsBelowItsPlaceBehindTabs) {
  SourceMap sources;
  uint32_t file = sources.add("a.rho", "first\n\tvalue\t= µ scale\r\nlast");
  Diagnostic found = makeDiagnostic(DiagId::unexpected_character, {"'$'"}, {file, 18, 23}, sources);
  EXPECT_EQ(found.rendered, "a.rho:2:13: error: unexpected character '$' [unexpected_character]\n"
                            "\tvalue\t= µ scale\n"
                            "\t     \t    ^~~~~");
  EXPECT_EQ(found.message, "unexpected character '$'");
}

TEST(Diagnostics, ControlCharactersOfNamesAreShown) {
  EXPECT_EQ(makeDiagnostic(DiagId::unexpected_character, {std::string("\x1b[31m\0\x7f\n\tb", 10)})
                .message,
            "unexpected character \\x1b[31m\\x00\\x7f\n\tb");
}

TEST(Diagnostics, PlacesAtTheEndOfTheTextHaveACaret) {
  SourceMap sources;
  uint32_t file = sources.add("a.rho", "ab\n");
  auto rendered = [&](uint32_t at) {
    return makeDiagnostic(DiagId::unterminated_string, {}, {file, at, at}, sources).rendered;
  };
  std::string rest = ": error: string without closing quote, a string ends on the line on which it "
                     "begins [unterminated_string]\n";
  EXPECT_EQ(rendered(2), "a.rho:1:3" + rest + "ab\n  ^");
  EXPECT_EQ(rendered(3), "a.rho:2:1" + rest + "\n^");
}

TEST(Diagnostics, LongLinesAreShownAroundTheCaret) {
  SourceMap sources;
  std::string line(1000, 'a');
  line[500] = '$';
  uint32_t file = sources.add("a.rho", line);
  Diagnostic found =
      makeDiagnostic(DiagId::unexpected_character, {"'$'"}, {file, 500, 501}, sources);
  EXPECT_EQ(found.rendered,
            "a.rho:1:501: error: unexpected character '$' [unexpected_character]\n..." +
                std::string(60, 'a') + "$" + std::string(99, 'a') + "...\n   " +
                std::string(60, ' ') + "^");
}

TEST(Diagnostics, WithoutAPlaceThereIsOnlyTheMessage) {
  Error error = makeError(DiagId::module_not_found, {"a{0}b.rho", "{0}"});
  EXPECT_EQ(error.str(), "error: cannot read file 'a{0}b.rho': {0} [module_not_found]\n");
  // A span outside of the sources is no reason to crash.
  SourceMap none;
  EXPECT_EQ(makeDiagnostic(DiagId::module_not_found, {"a", "b"}, {7, 3, 4}, none).rendered,
            "error: cannot read file 'a': b [module_not_found]");
}

TEST(Diagnostics, ManyErrorsAreSortedAndCut) {
  SourceMap sources;
  uint32_t file = sources.add("a.rho", std::string(300, '$'));
  dsl::Findings findings(sources);
  for (uint32_t i = 0; i < 150; ++i)
    findings.add(DiagId::unexpected_character, {"'$'"}, {file, 200 - i, 201 - i});
  Error error = findings.takeSorted();
  ASSERT_EQ(error.diagnostics.size(), 101u);
  for (size_t i = 1; i < 100; ++i)
    EXPECT_LT(error.diagnostics[i - 1].span.begin, error.diagnostics[i].span.begin);
  EXPECT_EQ(error.diagnostics.back().rendered,
            "error: more than 100 errors, the others are not shown [too_many_errors]");
}

TEST(Diagnostics, HintsNameTheNearest) {
  EXPECT_EQ(dsl::hint("scal", {"element", "scale"}), "did you mean 'scale'");
  EXPECT_EQ(dsl::hint("zero", {"element", "scale"}), "known are element, scale");
  EXPECT_EQ(dsl::hint("zero", {}), "none is declared");
  EXPECT_EQ(dsl::suggestion("fromat", {"format", "gemm"}), ", did you mean 'format'"); // swapped
  EXPECT_EQ(dsl::suggestion("e4m33", {"e4m3", "e3m2"}), ", did you mean 'e4m3'");
  EXPECT_EQ(dsl::suggestion("s9", {"s4", "s8"}), ""); // equally near
  EXPECT_EQ(dsl::suggestion("element_scale", {"element_abcd", "element_scala"}),
            ", did you mean 'element_scala'");
  EXPECT_EQ(dsl::suggestion("accumulators", {"operand", "excumulatrix"}), ""); // four edits
  EXPECT_EQ(dsl::suggestion(std::string(65, 'a'), {std::string(64, 'a')}), "");
  EXPECT_EQ(dsl::listed("tiles", {"tile", "warps"}), "tile, warps, did you mean 'tile'");
  EXPECT_EQ(dsl::shown("a\nb"), "a\\x0ab");
  EXPECT_EQ(dsl::visible("\xef\xbb\xbf\xc3\xa9\xe2\x80\xae\xf0\x9f\x98\x80"),
            "\\u{feff}\xc3\xa9\\u{202e}\xf0\x9f\x98\x80");
  EXPECT_EQ(dsl::visible("\xff\xc3(\xe2\x80\xed\xa0\x80\xc0\xaf"),
            "\\xff\\xc3(\\xe2\\x80\\xed\\xa0\\x80\\xc0\\xaf");
  EXPECT_EQ(dsl::shown(std::string(47, 'a') + "\xc3\xa9"), std::string(47, 'a') + "...");
}

} // namespace
} // namespace rho
