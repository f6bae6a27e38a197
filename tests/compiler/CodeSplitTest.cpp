// Special values as sums of two codes: which there are, and the program that takes them out of a
// register, over all codes in all places.
#include "compiler/decode/CodeSplit.h"
#include "dsl/Evaluate.h"
#include "dsl/Module.h"

#include <gtest/gtest.h>

#include <set>

namespace rho::compiler {
namespace {

const dsl::ElementType e2m1 = dsl::ElementType::get("e2m1");

dsl::Format formatWith(const std::string &components) {
  Result<dsl::Module> module =
      dsl::parseModule("format w { " + components + " value = element * scale }", "t.rho", nullptr);
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return module->formats.at(0);
}

// RaZeR, appendix D.3, lists what two e2m1 numbers give beyond those of one.
TEST(CodePair, AreThoseOfThePaper) {
  std::set<double> sums, single;
  for (uint32_t code = 0; code < 16; ++code)
    single.insert(e2m1.decode(code));
  for (int quarter = -60; quarter <= 60; ++quarter) {
    double value = quarter / 4.0;
    std::optional<CodePair> pair = codePair(e2m1, value);
    if (!pair)
      continue;
    EXPECT_EQ(e2m1.decode(pair->main) + e2m1.decode(pair->rest), value);
    EXPECT_LE(std::abs(e2m1.decode(pair->main)), std::abs(value)); // of one sign
    EXPECT_EQ(pair->rest == 0, single.contains(value)) << value;
    if (!single.contains(value))
      sums.insert(value);
  }
  std::set<double> published;
  for (double value : {2.5, 3.5, 4.5, 5.0, 5.5, 6.5, 7.0, 7.5, 8.0, 9.0, 10.0, 12.0})
    published.insert({value, -value});
  EXPECT_EQ(sums, published);
}

// Sums of both operands' numbers are the values, whatever the register's other codes are.
void expectSplits(const dsl::Format &format, const std::vector<double> &stored) {
  std::string problem;
  CodeSplit split = splitCodes(format, problem);
  ASSERT_EQ(problem, "");
  ASSERT_EQ(split.stored.size(), stored.size());
  std::vector<uint32_t> words, codes(format.components.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    CodePair pair = *codePair(e2m1, stored[i]);
    words.push_back(pair.main | pair.rest << 4);
    codes[static_cast<size_t>(split.stored[i])] = dsl::ElementType::get("f16").encode(stored[i]);
  }
  for (size_t i = 1; i < format.components.size(); ++i)
    if (format.components[i].name == "scale")
      codes[i] = format.components[i].type.encode(1);
  std::vector<uint32_t> tables = split.tables.run(words, {});
  for (uint32_t selector = 0; selector < format.element().remap->entries.size(); ++selector) {
    codes[static_cast<size_t>(split.selector)] = selector;
    std::vector<uint32_t> parameters{CodeSplit::pickedSelector | selector};
    parameters.insert(parameters.end(), tables.begin(), tables.end());
    for (uint32_t others : {0U, ~0U, 0x88888888U, 0x77777777U, 0x3c96a51eU})
      for (uint32_t code = 0; code < 16; ++code)
        for (int place = 0; place < 32; place += 4) {
          uint32_t word = (others & ~(15U << place)) | code << place;
          std::vector<uint32_t> parts = split.split.run({word}, parameters);
          for (int at = 0; at < 32; at += 4) {
            codes[0] = word >> at & 15;
            ASSERT_EQ(e2m1.decode(parts[0] >> at & 15) + e2m1.decode(parts[1] >> at & 15),
                      dsl::evaluate(format, codes.data()))
                << "code " << codes[0] << " selector " << selector;
          }
        }
  }
}

TEST(CodeSplit, EveryCodeOfEverySelectorInEveryPlace) {
  expectSplits(
      formatWith("element: e2m1 remap 8 to [5, -5, 8, -8] by selector scale: ue3m3 per k[16] "
                 "selector: u2 in scale"),
      {});
  // A special value of the tensor's own, and another code remapped.
  for (double special : {7.0, 9.0, -2.5, 3.0})
    expectSplits(formatWith("element: e2m1 remap 13 to [5, -special, special, -8] by selector "
                            "scale: ue3m3 per k[16] selector: u2 in scale special: f16 per tensor "
                            "encode { special = 8 }"),
                 {special});
  // Two words of a table.
  expectSplits(
      formatWith("element: e2m1 remap 8 to [5, -5, 7, -7, 8, -8, other, -other] by selector "
                 "scale: ue2m3 per k[16] selector: u3 in scale other: f16 per tensor "
                 "encode { other = 8 }"),
      {10});
}

TEST(CodeSplit, OfTheOperandsOwnNumbersNeedsNoRest) {
  std::string problem;
  EXPECT_FALSE(splitCodes(formatWith("element: e2m1 remap 8 to [3, -3] by selector "
                                     "scale: ue3m3 per k[16] selector: u1 in scale"),
                          problem)
                   .hasRest);
  EXPECT_EQ(problem, "");
}

} // namespace
} // namespace rho::compiler
