// Decodes of e4m3(element * scale): over all codes and scales, and executed on the emulator.
#include "compiler/decode/RoundedProduct.h"
#include "dsl/Evaluate.h"
#include "tests/compiler/DecodedWords.h"
#include "tests/compiler/EmulatedGemm.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rho::compiler {
namespace {

using test::formatOf;

dsl::Format rounded(const std::string &element, const std::string &scale,
                    const std::string &more = "") {
  return formatOf("format w { element: " + element + " scale: " + scale +
                  " channel: f32 per channel value = e4m3(element * scale) * channel " + more +
                  " encode { scale = absmax(x) channel = 1 } }");
}

// The first factor of the value.
const dsl::Expr &coreOf(const dsl::Format &format) { return *format.value->operands[0]; }

std::vector<uint32_t> parametersOf(const DecodeSequence &decode, const dsl::Format &format,
                                   double scale) {
  std::vector<uint32_t> params;
  for (const DecodeParam &param : decode.params) {
    const double number = param.number.terms[0].factor * scale;
    const uint32_t pair = DecodeProgram::number("f16", number).value;
    params.push_back(param.form == DecodeParam::Form::Number
                         ? pair
                         : productsSequence(format.element().type, param.form).run({}, {pair})[0]);
  }
  return params;
}

struct Rounded {
  std::string element, scale, require;
  int instructions, codes;
};
std::ostream &operator<<(std::ostream &out, const Rounded &test) {
  return out << test.element << " " << test.scale;
}
class RoundedProducts : public testing::TestWithParam<Rounded> {};

TEST_P(RoundedProducts, AreThoseOfTheValue) {
  const auto &[element, scaleText, require, instructions, codes] = GetParam();
  const dsl::Format format = rounded(element, scaleText, require);
  const std::optional<DecodeSequence> decode = decodeSequence(format, coreOf(format), "e4m3");
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->instructions() * codes, instructions * decode->codes)
      << decode->program.print();
  EXPECT_EQ(decode->log2Factor, 0);
  const std::vector<bool> allowed = dsl::allowedElements(format);
  const dsl::ElementType scaleType = format.components[1].type;
  std::mt19937 random(1);
  for (uint32_t scaleCode = 0; scaleCode < 1U << scaleType.bits(); ++scaleCode) {
    const double scale = scaleType.decode(scaleCode);
    if (!std::isfinite(scale))
      continue;
    const std::vector<uint32_t> params = parametersOf(*decode, format, scale);
    for (uint32_t code = 0; code < 1U << format.element().type.bits(); ++code) {
      if (!allowed.empty() && !allowed[code])
        continue;
      const uint32_t each[] = {code, scaleCode, 0};
      const double value = dsl::evaluate(coreOf(format), format, each);
      for (size_t r = 0; r < decode->registers(); ++r)
        for (size_t s = 0; s < decode->perRegister(); ++s) {
          const std::vector<uint32_t> words =
              wordsWith(decode->stored(code), *decode, r, s, random);
          ASSERT_EQ(subElement(decode->program.run(words, params)[r], s, "e4m3"), value)
              << code << " times " << scale;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RoundedProducts,
    testing::Values(Rounded{"s4", "e4m3 per k[128]", "require element >= -7", 7, 8},
                    Rounded{"e2m1", "ue4m3 per k[64]", "", 7, 8},
                    Rounded{"e2m1", "e4m3 per channel", "", 7, 8},
                    Rounded{"s4", "e4m3 per k[128]", "", 19, 8},
                    Rounded{"s4", "e4m3 per k[32]", "require element >= -7", 19, 8},
                    Rounded{"e2m1", "ue4m3 per k[16]", "", 23, 8},
                    Rounded{"u4", "ue4m3 per k[128]", "", 19, 8},
                    Rounded{"s2", "e4m3 per k[64]", "", 37, 16}));

bool hasDecode(const dsl::Format &format) {
  return decodeSequence(format, coreOf(format), "e4m3").has_value();
}

TEST(RoundedProducts, NothingIsRoundedTwice) {
  EXPECT_FALSE(hasDecode(rounded("s4", "f16 per k[128]")));  // 14 digits
  EXPECT_FALSE(hasDecode(rounded("s4", "bf16 per k[128]"))); // beyond f16
  EXPECT_FALSE(hasDecode(rounded("s4", "e8m0 per k[128]")));
  EXPECT_FALSE(hasDecode(rounded("s4", "e4m3 per k[8]")));
  EXPECT_TRUE(hasDecode(rounded("s6", "e4m3 per k[128]")));
  EXPECT_FALSE(hasDecode(rounded("u8", "e4m3 per k[128]"))); // 12 digits
}

// One kernel of each family and role, groups as fine as they may be, edges of all extents.
TEST(RoundedProducts, AreMultipliedAsTheyAre) {
  const std::string formats = R"(
format by_table {
  element: s4 scale: e4m3 per k[64] channel: f32 per channel
  value = e4m3(element * scale) * channel
  require element >= -7
  encode { channel = absmax(x) / 448 scale = absmax(x / channel) / 7 }
}
format by_conversion {
  element: e2m1 scale: ue4m3 per k[16] tensor: f32 per tensor
  value = e4m3(element * scale) * tensor
  encode { tensor = absmax(x) / 448 scale = absmax(x / tensor) / 6 }
}
format by_halves {
  element: s3 scale: ue4m3 per k[48] channel: f32 per channel
  value = e4m3(element * scale) * channel
  encode { channel = absmax(x) / 448 scale = absmax(x / channel) / 3 }
}
)";
  for (const char *weight : {"by_table", "by_conversion", "by_halves"})
    for (const auto &[target, schedule, m] : {std::tuple("sm_89", "", 17),
                                              {"sm_89", "scales: operand", 1},
                                              {"sm_90", "roles: uniform split_k: 2", 33},
                                              {"sm_90a", "", 3},
                                              {"sm_90a", "roles: imfp", 40},
                                              {"sm_90a", "roles: excp", 40},
                                              {"sm_90a", "roles: imfp split_k: stream", 70},
                                              {"sm_120a", "", 9}})
      test::expectWithinBound({.weight = weight,
                               .activation = "fp8_token",
                               .output = "f32",
                               .schedule = schedule,
                               .target = target,
                               .shape = {m, 200, 400},
                               .formats = formats});
}

} // namespace
} // namespace rho::compiler
