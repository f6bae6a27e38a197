// Decodes of elements with a remapped code, run over all codes and selectors.
#include "compiler/decode/Remap.h"
#include "tests/compiler/DecodedWords.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

namespace rho::compiler {
namespace {

using test::formatOf;

// Of a special value of any f16 by tables of both bytes, of small multiples by tables of one.
TEST(Remap, EveryCodeOfEverySelectorInEveryPlace) {
  struct Special {
    const char *type;
    std::vector<double> values;
    int code, instructions;
    std::vector<const char *> operands;
  };
  for (const Special &special :
       {Special{"f16", {7.5, -0.25, 0.0}, 8, 25, {"f16", "bf16"}},
        Special{"u4", {7, 9, 15, 0}, 8, 19, {"f16", "bf16"}},
        Special{"u4", {8}, 3, 19, {"f16", "bf16"}}, Special{"u4", {7, 9, 15, 0}, 8, 13, {"s8"}}})
    for (const std::string mmaType : special.operands) {
      dsl::Format format =
          formatOf("format f { element: e2m1 remap " + std::to_string(special.code) +
                   " to [5, -5, special, -special] by selector selector: u2 per "
                   "k[16] special: " +
                   special.type +
                   " per tensor value = element "
                   "encode { selector = 0 special = 8 } }");
      dsl::ElementType type = dsl::ElementType::get(special.type);
      std::optional<DecodeSequence> decode = remappedDecode(format, mmaType);
      ASSERT_TRUE(decode);
      EXPECT_TRUE(DecodeProgram::parse(decode->program.print()).ok());
      EXPECT_LE(decode->instructions() * 8 / decode->codes, special.instructions) << mmaType;
      std::mt19937 random(2);
      for (uint32_t selector = 0; selector < 4; ++selector)
        for (double value : special.values) {
          std::vector<uint32_t> codes{0, selector, type.encode(value)};
          std::vector<uint32_t> params;
          for (const DecodeParam &param : decode->params)
            params.push_back(parameterOf(param, format, codes, mmaType));
          for (uint32_t code = 0; code < 16; ++code)
            for (size_t r = 0; r < decode->registers(); ++r)
              for (size_t s = 0; s < decode->perRegister(); ++s) {
                codes[0] = code;
                std::vector<uint32_t> words =
                    wordsWith(decode->stored(code), *decode, r, s, random);
                // A number of the row is computed with the power of two that was left out.
                ASSERT_EQ(subElement(decode->program.run(words, params)[r], s, mmaType),
                          std::ldexp(dsl::evaluate(format, codes.data()), decode->log2Factor))
                    << "code " << code << " selector " << selector;
              }
        }
      // Bytes hold no numbers with a fraction, and codes of floats are none that add up.
      EXPECT_EQ(decodeSequence(format, *format.value, "s8").has_value(),
                std::string(special.type) == "u4");
      EXPECT_FALSE(decodeSequence(format, *format.value, "e4m3"));
    }
}

// Whatever power of two the other codes have in the operand: what a code stands for is rounded to
// the operand's type once, as it would be alone.
TEST(Remap, SpecialValuesAreRoundedOnceBesideAnyElement) {
  for (const char *element : {"s3", "u5", "s6", "s8", "e2m2", "e3m2", "e2m3", "e4m3"})
    for (const std::string mmaType : {"f16", "bf16"}) {
      dsl::Format format = formatOf(std::string("format f { element: ") + element +
                                    " remap 4 to [5, -0.0923, 0.001, special] by s s: u2 per k[64] "
                                    "special: f16 per tensor value = element encode { s = 0 "
                                    "special = 0.5 } }");
      dsl::ElementType operand = dsl::ElementType::get(mmaType), type = format.element().type;
      std::optional<DecodeSequence> decode = remappedDecode(format, mmaType);
      ASSERT_TRUE(decode) << element << mmaType;
      std::mt19937 random(3);
      for (uint32_t selector = 0; selector < 4; ++selector)
        for (uint32_t code = 0; code < 1U << type.bits(); ++code)
          for (size_t r = 0; r < decode->registers(); ++r)
            for (size_t s = 0; s < decode->perRegister(); ++s) {
              std::vector<uint32_t> codes{code, selector,
                                          dsl::ElementType::get("f16").encode(0.06298828125)};
              std::vector<uint32_t> params;
              for (const DecodeParam &param : decode->params)
                params.push_back(parameterOf(param, format, codes, mmaType));
              double value = dsl::evaluate(format, codes.data());
              if (std::isnan(value))
                continue;
              std::vector<uint32_t> words = wordsWith(decode->stored(code), *decode, r, s, random);
              ASSERT_EQ(subElement(decode->program.run(words, params)[r], s, mmaType),
                        std::ldexp(operand.decode(operand.encode(value)), decode->log2Factor))
                  << element << " " << mmaType << " code " << code << " selector " << selector;
            }
    }
}

// Special values that are literals: in e4m3, too.
TEST(Remap, LiteralsAreOperandsOf8Bits) {
  dsl::Format format = formatOf("format f { element: e2m1 remap 8 to [5, -5, 8, -7] by s "
                                "s: u2 per k[128] value = element encode { s = 0 } }");
  for (const std::string mmaType : {"s8", "e4m3"}) {
    std::optional<DecodeSequence> decode = decodeSequence(format, *format.value, mmaType);
    ASSERT_TRUE(decode);
    EXPECT_EQ(decode->instructions(), 13);
    std::mt19937 random(2);
    for (uint32_t selector = 0; selector < 4; ++selector)
      for (uint32_t code = 0; code < 16; ++code)
        for (size_t r = 0; r < decode->registers(); ++r)
          for (size_t s = 0; s < decode->perRegister(); ++s) {
            std::vector<uint32_t> codes{code, selector}, params;
            for (const DecodeParam &param : decode->params)
              params.push_back(parameterOf(param, format, codes, mmaType));
            std::vector<uint32_t> words = wordsWith(code, *decode, r, s, random);
            ASSERT_EQ(subElement(decode->program.run(words, params)[r], s, mmaType),
                      std::ldexp(dsl::evaluate(format, codes.data()), decode->log2Factor))
                << mmaType << " code " << code << " selector " << selector;
          }
  }
}

} // namespace
} // namespace rho::compiler
