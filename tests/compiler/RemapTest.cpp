// Decodes of elements with a remapped code, run over all codes and selectors.
#include "compiler/decode/Remap.h"
#include "compiler/LayoutMap.h"
#include "compiler/decode/PairTable.h"
#include "compiler/decode/ScaleSequence.h"
#include "compiler/decode/TableSearch.h"
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
          const std::vector<uint32_t> params = parametersOf(*decode, format, codes, mmaType);
          for (uint32_t code = 0; code < 16; ++code) {
            codes[0] = code;
            // A number of the row is computed with the power of two that was left out.
            decodeInEachPlace(
                *decode, decode->stored(code), params, mmaType, random, [&](double number) {
                  ASSERT_EQ(number,
                            std::ldexp(dsl::evaluate(format, codes.data()), decode->log2Factor))
                      << "code " << code << " selector " << selector;
                });
          }
        }
      // Bytes hold no numbers with a fraction, and codes of floats are none that add up.
      EXPECT_EQ(decodeSequence(format, *format.value, "s8").has_value(),
                std::string(special.type) == "u4");
      EXPECT_FALSE(decodeSequence(format, *format.value, "e4m3"));
    }
}

// The same by a table of pairs for each code of the selector, which kernels fill.
TEST(Remap, TablesOfPairsHaveEveryCodeOfEverySelector) {
  struct Special {
    const char *entries, *selector, *type;
    size_t tables;
    int roundings; // to bf16
  };
  for (const Special &special : {Special{"5, -5, special, -special", "u2 per k[16]", "u4", 4, 0},
                                 Special{"5, -7, special, 4.5", "u2 per k[128]", "u3", 4, 0},
                                 Special{"-5, special", "u1 per k[64]", "e4m3", 2, 0},
                                 Special{"special, 7", "u1 per k[64]", "f16", 2, 1}})
    for (const std::string mmaType : {"f16", "bf16"}) {
      const dsl::Format format =
          formatOf(std::string("format f { element: e2m1 remap 8 to [") + special.entries +
                   "] by selector selector: " + special.selector + " special: " + special.type +
                   " per tensor value = element encode { selector = 0 special = 8 } }");
      const dsl::ElementType type = dsl::ElementType::get(special.type),
                             operand = dsl::ElementType::get(mmaType);
      std::optional<DecodeSequence> decode = pairDecode(format, *format.value, mmaType);
      ASSERT_TRUE(decode) << special.entries;
      EXPECT_EQ(decode->instructions(), 8);
      EXPECT_EQ(decode->roundings, mmaType == "f16" ? 0 : special.roundings);
      EXPECT_TRUE(isCheaper(*decode, *decodeSequence(format, *format.value, mmaType)));
      DecodeProgram program = decode->program;
      ASSERT_EQ(program.lanes.size(), 16 * special.tables);
      EXPECT_EQ(DecodeProgram::parse(program.print()).value(), program);
      std::mt19937 random(2);
      for (uint32_t selector = 0; selector < special.tables; ++selector) {
        std::vector<uint32_t> codes{8, selector, type.encode(7)}, params;
        // What the kernel knows, and constants, which stand there.
        const auto own = static_cast<uint16_t>(operand.encode(dsl::evaluate(format, codes.data())));
        uint16_t &lane = program.lanes[16 * selector + 8];
        EXPECT_TRUE(lane == 0 || lane == own);
        lane = own;
        for (const DecodeParam &param : decode->params)
          params.push_back(parameterOf(param, format, codes, mmaType));
        for (uint32_t code = 0; code < 16; ++code)
          for (size_t r = 0; r < decode->registers(); ++r)
            for (size_t s = 0; s < 2; ++s) {
              codes[0] = code;
              const std::vector<uint32_t> words = wordsWith(code, *decode, r, s, random);
              ASSERT_EQ(subElement(program.run(words, params)[r], s, mmaType),
                        dsl::evaluate(format, codes.data()))
                  << "code " << code << " selector " << selector;
            }
      }
    }
  // Not of more tables, other widths, or sums.
  for (const char *format :
       {"format f { element: e2m1 remap 8 to [5, 7, 8, 9, -5, -7, -8, -9] by s s: u3 per k[64] "
        "value = element encode { s = 0 } }",
        "format f { element: e3m2 remap 32 to [5, -5] by s s: u1 per k[64] "
        "value = element encode { s = 0 } }",
        "format f { element: e2m1 remap 8 to [5, -5] by s s: u1 per k[64] "
        "value = element + 1 encode { s = 0 } }"}) {
    const dsl::Format other = formatOf(format);
    EXPECT_FALSE(pairDecode(other, *other.value, "f16")) << format;
  }
}

// Where two special values are the negative ones of the others, the sign is left to the scale, in
// whose byte the selector lies, and two tables are enough.
TEST(Remap, SignsAreLeftToScales) {
  struct Special {
    const char *entries, *where;
    int bit; // of the selector, that is the sign; -1: none
  };
  for (const Special &special :
       {Special{"5, -5, special, -special", "in block", 0},
        Special{"5, special, -5, -special", "in block", 1}, Special{"-7, 7, 9, -9", "in block", 0},
        Special{"5, -5, special, -8", "in block", -1},
        Special{"5, -5, special, -special", "per k[16]", -1}})
    for (const std::string mmaType : {"f16", "bf16"}) {
      const bool reads = std::string(special.entries).find("special") != std::string::npos;
      const dsl::Format format = formatOf(
          std::string("format f { element: e2m1 remap 8 to [") + special.entries +
          "] by selector block: ue3m3 per k[16] selector: u2 " + special.where +
          (reads ? " special: u4 per tensor value = element * block encode { special = 8 } }"
                 : " value = element * block }"));
      const dsl::Expr &core = *format.value->operands[0];
      std::optional<DecodeSequence> decode =
          withScale(*pairDecode(format, core, mmaType), format, 1, mmaType);
      ASSERT_TRUE(decode);
      const ScaleSign sign = decode->scaleSign;
      EXPECT_EQ(sign.selector, special.bit < 0 ? 0 : 2);
      EXPECT_EQ(decode->program.tables(), special.bit < 0 ? 4 : 2);
      EXPECT_EQ(decode->instructions(), 12);
      if (special.bit < 0)
        continue;
      EXPECT_EQ(sign.bit, special.bit);
      const DecodeProgram multipliers = multiplierSequence(*decode, format, 1, mmaType);
      const std::vector<uint32_t> negated = negatedCodes(format);
      DecodeProgram program = decode->program;
      std::mt19937 random(2);
      for (uint32_t table = 0; table < 2; ++table) { // as kernels fill them
        std::vector<uint32_t> codes{8, dsl::ElementType::get("ue3m3").encode(1),
                                    sign.codeOfTable(table), 9};
        program.lanes[16 * table + 8] = static_cast<uint16_t>(
            dsl::ElementType::get(mmaType).encode(dsl::evaluate(format, codes.data())));
      }
      for (uint32_t selector = 0; selector < 4; ++selector)
        for (uint32_t scale = 0; scale < 64; ++scale) {
          const bool isNegated = (selector >> sign.bit & 1) != 0;
          const uint32_t byte = scale | selector << format.components[2].shift,
                         table = selector >> (1 - sign.bit) & 1;
          for (int place = 0; place < 4; ++place) {
            const uint32_t noise = static_cast<uint32_t>(random()) & ~(0xffU << (8 * place));
            const uint32_t multiplier =
                multipliers.run({noise | byte << (8 * place)}, {})[static_cast<size_t>(place)];
            const uint32_t at = table * DecodeProgram::pairBytes;
            for (uint32_t code = 0; code < 16; ++code) {
              const size_t r = code % 4, s = code / 4 % 2;
              const std::vector<uint32_t> words =
                  wordsWith(isNegated ? negated[code] : code, *decode, r, s, random);
              const std::vector<uint32_t> codes{code, scale, selector, 9};
              ASSERT_EQ(subElement(program.run(words, {at, at, 0, multiplier, multiplier})[r], s,
                                   mmaType),
                        std::ldexp(dsl::evaluate(format, codes.data()), decode->log2Factor))
                  << special.entries << " code " << code << " selector " << selector;
            }
          }
        }
    }
}

// A scale of sums takes it too, whatever unit holds the selector.
TEST(Remap, SignsAreLeftToScalesOfSums) {
  for (const auto &[scale, entries, bit] :
       {std::tuple{"ue4m10", "5, -5, 8, -8", 0}, std::tuple{"ue4m10", "5, 8, -5, -8", 1},
        std::tuple{"u6", "5, -5, 8, -8", 0}, std::tuple{"ue4m10", "5, -5, 8, -7", -1}}) {
    const dsl::Format format =
        formatOf(std::string("format f { element: e2m1 remap 8 to [") + entries +
                 "] by selector scale: " + scale +
                 " per k[128] selector: u2 in scale value = element * scale }");
    DecodeSequence decode = *pairDecode(format, *format.value->operands[0], "f16");
    leaveSignsToScale(decode, format, 1);
    EXPECT_EQ(decode.scaleSign.selector, bit < 0 ? 0 : 2);
    EXPECT_EQ(decode.scaleSign.bit, std::max(bit, 0));
    EXPECT_EQ(decode.program.tables(), bit < 0 ? 4 : 2);
  }
}

// Three words by tables, one by permutations, of codes that are stored as the latter want. Both
// have what groups with a negative scale hold.
TEST(PairTables, AreMixedWithPermutations) {
  for (const std::string text :
       {"format f { element: codebook [-1, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.08, 0.2, 0.25, "
        "0.34, 0.44, 0.56, 0.72, 1] scale: f16 per k[64] value = element * scale }",
        "format f { element: e2m1 remap 8 to [5, -5, 8, -8] by selector scale: ue4m10 per k[128] "
        "selector: u2 in scale value = element * scale }",
        "format f { element: e2m1 remap 8 to [5, -5, 8, -7] by selector scale: ue4m10 per k[128] "
        "selector: u2 in scale value = element * scale }"})
    for (const std::string mmaType : {"f16", "bf16"}) {
      const dsl::Format format = formatOf(text);
      const dsl::Expr &core = *format.value->operands[0];
      const DecodeSequence registers = *decodeSequence(format, core, mmaType);
      DecodeSequence pairs = *pairDecode(format, core, mmaType, registers.log2Factor);
      leaveSignsToScale(pairs, format, 1);
      const std::optional<DecodeSequence> mixed = mixedDecode(pairs, registers);
      ASSERT_TRUE(mixed);
      EXPECT_EQ(mixed->codes, 32);
      EXPECT_EQ(mixed->program.lookups(), 12);
      EXPECT_EQ(mixed->instructions(), 3 * pairs.instructions() + registers.instructions());
      const ScaleSign sign = mixed->scaleSign;
      const uint32_t selectors = format.element().remap ? 4 : 1;
      DecodeProgram program = mixed->program;
      for (uint32_t table = 0; format.element().remap && table < program.tables(); ++table) {
        const std::vector<uint32_t> codes{8, format.components[1].type.encode(1),
                                          sign.codeOfTable(table)};
        program.lanes[16 * table + mixed->stored(8)] = static_cast<uint16_t>(
            dsl::ElementType::get(mmaType).encode(dsl::evaluate(format, codes.data())));
      }
      std::mt19937 random(5);
      for (uint32_t selector = 0; selector < selectors; ++selector) {
        const uint32_t bare = sign.selector == 0 ? selector : selector & ~(1U << sign.bit);
        const uint32_t table = sign.selector == 0 ? selector : selector >> (1 - sign.bit) & 1;
        std::vector<uint32_t> params;
        for (const DecodeParam &param : mixed->params)
          params.push_back(param.form == DecodeParam::Form::Pairs
                               ? placeInTables(table)
                               : parameterOf(param, format, {0, 0, selector}, mmaType));
        for (size_t r = 0; r < mixed->registers(); ++r)
          for (uint32_t code = 0; code < 16; ++code)
            for (size_t s = 0; s < 2; ++s) {
              const std::vector<uint32_t> codes{code, format.components[1].type.encode(1), bare};
              const double value = dsl::evaluate(format, codes.data());
              const dsl::ElementType operand = dsl::ElementType::get(mmaType);
              ASSERT_EQ(subElement(program.run(wordsWith(mixed->stored(code), *mixed, r, s, random),
                                               params)[r],
                                   s, mmaType),
                        operand.decode(operand.encode(std::ldexp(value, mixed->log2Factor))))
                  << text << " register " << r << " code " << code << " selector " << selector;
            }
      }
    }
}

// Addresses: a lane's, the codes' byte, which comes later, and what a selector's code names.
TEST(Remap, SelectorsNameTables) {
  std::mt19937 random(4);
  for (int bits : {1, 2})
    for (int storedBits : {8, 16})
      for (int shift = 0; shift + bits <= storedBits; ++shift) {
        const int codes = 32 / storedBits;
        const DecodeProgram program = tablePlacesSequence(bits, storedBits, shift, codes);
        for (int i = 0; i < 16; ++i) {
          const auto word = static_cast<uint32_t>(random());
          const uint32_t lane = 4 * (word % 32);
          const std::vector<uint32_t> places = program.run({word}, {lane * 0x01010101U});
          for (int code = 0; code < codes; ++code) {
            const uint32_t table = word >> (code * storedBits + shift) & ((1U << bits) - 1);
            ASSERT_EQ(places[static_cast<size_t>(code)] & 0xffff00ffU,
                      lane + table % 2 * DecodeProgram::pairBytes +
                          table / 2 * DecodeProgram::tableStride)
                << bits << " of " << storedBits << " at " << shift;
          }
        }
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
      for (uint32_t code = 0; code < 16; ++code) {
        const std::vector<uint32_t> codes{code, selector};
        decodeInEachPlace(
            *decode, code, parametersOf(*decode, format, codes, mmaType), mmaType, random,
            [&](double number) {
              ASSERT_EQ(number, std::ldexp(dsl::evaluate(format, codes.data()), decode->log2Factor))
                  << mmaType << " code " << code << " selector " << selector;
            });
      }
  }
}

// Of one sign, as they are declared or as a scale leaves them, as many operands have their top bit
// set as have not. 2 of the instructions are those that put the special value into its table.
TEST(Remap, LiteralsOfOneSignTakeFewerInstructions) {
  struct Special {
    const char *entries;
    bool ofScale, fewer;
  };
  for (const Special &special :
       {Special{"5, 8, 7, 9", false, true}, Special{"-5, -8, -7, -9", false, true},
        Special{"5, -5, 8, -8", true, true}, Special{"-5, 5, -8, 8", true, true},
        Special{"5, 8, -5, -8", true, true}, Special{"5, -5, -8, 8", true, false},
        Special{"5, 0, 8, 9", false, false}, Special{"5, -5, 8, -7", true, false}})
    for (const std::string mmaType : {"s8", "e4m3"}) {
      const dsl::Format format =
          formatOf(std::string("format f { element: e2m1 remap 8 to [") + special.entries +
                   "] by s scale: ue4m10 per k[128] s: u2 in scale value = element * scale }");
      const std::optional<DecodeSequence> decode =
          special.ofScale ? remappedOfOneSign(format, mmaType, 1)
                          : decodeSequence(format, *format.value->operands[0], mmaType);
      ASSERT_EQ(decode.has_value(), special.fewer || !special.ofScale) << special.entries;
      if (!decode)
        continue;
      EXPECT_EQ(decode->instructions(), special.fewer ? 11 : 13) << special.entries;
      const ScaleSign sign = decode->scaleSign;
      EXPECT_EQ(sign.selector, special.ofScale ? 2 : 0);
      const std::vector<uint32_t> negated = negatedCodes(format);
      std::mt19937 random(2);
      for (uint32_t selector = 0; selector < 4; ++selector) {
        const bool isNegated = sign.selector != 0 && (selector >> sign.bit & 1) != 0;
        const double factor =
            std::ldexp(isNegated != decode->opposite ? -1.0 : 1.0, decode->log2Factor);
        std::vector<uint32_t> codes{0, format.components[1].type.encode(1), selector};
        const std::vector<uint32_t> params = parametersOf(*decode, format, codes, mmaType);
        for (uint32_t code = 0; code < 16; ++code) {
          codes[0] = code;
          const uint32_t stored = decode->stored(isNegated ? negated[code] : code);
          decodeInEachPlace(*decode, stored, params, mmaType, random, [&](double number) {
            ASSERT_EQ(number, dsl::evaluate(format, codes.data()) * factor)
                << special.entries << " " << mmaType << " code " << code << " selector "
                << selector;
          });
        }
      }
    }
}

} // namespace
} // namespace rho::compiler
