// Every decode sequence, run over all of its inputs against the value expression.
#include "compiler/decode/Affine.h"
#include "compiler/decode/PairTable.h"
#include "compiler/decode/Remap.h"
#include "compiler/decode/ScaleSequence.h"

#include "dsl/Evaluate.h"
#include "tests/compiler/DecodedWords.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace rho::compiler {
namespace {

using test::formatOf;

dsl::Format bare(const std::string &element) {
  return formatOf("format f { element: " + element +
                  " scale: f32 per channel value = element * scale }");
}

const dsl::Expr &elementOf(const dsl::Format &format) { return *format.value->operands[0]; }

// A word with code `code` at a place and noise elsewhere: a decode must not let codes touch.
uint32_t wordWith(uint32_t code, const DecodeSequence &decode, size_t r, size_t s, uint32_t noise) {
  for (size_t b = 0; b < decode.bits[r][s].size(); ++b) {
    int at = decode.bits[r][s][b].bit;
    noise = (noise & ~(1u << at)) | (decode.stored(code) >> b & 1) << at;
  }
  return noise;
}

struct DecodeCase {
  std::string element, mmaType;
};

class BareElement : public testing::TestWithParam<DecodeCase> {};

TEST_P(BareElement, DecodesEveryCodeInEveryPlace) {
  auto [element, mmaType] = GetParam();
  dsl::Format format = bare(element);
  std::optional<DecodeSequence> sequence = decodeSequence(format, elementOf(format), mmaType);
  ASSERT_TRUE(sequence);
  DecodeSequence decode = withoutScale(*sequence, mmaType);
  std::mt19937 random(1);
  int bits = format.element().type.bits();
  for (size_t r = 0; r < decode.registers(); ++r)
    for (size_t s = 0; s < decode.perRegister(); ++s)
      for (uint32_t code = 0; code < 1u << bits; ++code)
        for (int repeat = 0; repeat < 16; ++repeat) {
          if (std::isnan(format.element().type.decode(code)))
            continue; // packing refuses such codes
          uint32_t word = wordWith(code, decode, r, s, random());
          double value =
              subElement(decode.program.run({word}, {})[r], static_cast<int>(s), mmaType);
          ASSERT_EQ(value, std::ldexp(format.element().type.decode(code), decode.log2Factor))
              << "code " << code << " register " << r << " sub-element " << s;
        }
}

INSTANTIATE_TEST_SUITE_P(
    All, BareElement,
    testing::Values(DecodeCase{"s4", "f16"}, DecodeCase{"s4", "bf16"}, DecodeCase{"u4", "f16"},
                    DecodeCase{"u4", "bf16"}, DecodeCase{"e2m1", "f16"}, DecodeCase{"e2m1", "bf16"},
                    DecodeCase{"s4", "e4m3"}, DecodeCase{"u4", "e4m3"}, DecodeCase{"e2m1", "e4m3"},
                    DecodeCase{"s4", "s8"}, DecodeCase{"s4", "s4"}, DecodeCase{"s8", "s8"},
                    DecodeCase{"e4m3", "e4m3"}),
    [](const auto &info) { return info.param.element + "_" + info.param.mmaType; });

// Published counts and their sources: docs/DECODE.md.
TEST(Decode, SequencesAreNoLongerThanPublishedOnes) {
  auto length = [](const char *element, const char *type) {
    dsl::Format format = bare(element);
    return decodeSequence(format, elementOf(format), type)->instructions();
  };
  EXPECT_EQ(length("s4", "f16"), 9);     // Marlin: 9
  EXPECT_EQ(length("u4", "f16"), 7);     // Marlin: 9
  EXPECT_EQ(length("s4", "bf16"), 9);    // Marlin: 11
  EXPECT_EQ(length("u4", "bf16"), 9);    // Marlin: 11
  EXPECT_EQ(length("s4", "s8"), 3);      // COMET's zero extension: 3
  EXPECT_EQ(length("e2m1", "f16"), 9);   // Marlin: 15
  EXPECT_EQ(length("e2m1", "bf16"), 12); // Marlin: 15 and 4 multiplications
  EXPECT_EQ(length("s4", "e4m3"), 7);    // Marlin: 11
  EXPECT_EQ(length("u4", "e4m3"), 3);
  EXPECT_EQ(length("e2m1", "e4m3"), 5); // Marlin: 7
  EXPECT_EQ(length("s8", "f16"), 4);    // of 4 codes; Marlin: 4
}

const char *const liquidQuant =
    "format lq { element: u4 step: u8 per k[64] origin: u8 per k[64] channel: f32 per channel "
    "value = s8((element * step + origin) ^ 0x80) * channel "
    "require element * step + origin <= 255 "
    "encode { channel = absmax(x) / 119 step = (max(x / channel) - min(x / channel)) / 15 "
    "origin = 128 + min(x / channel) } }";

// All 16 codes with every step and origin that the requirement admits, four different codes in
// every register.
TEST(Decode, LiquidQuantIsExactForEveryValidCode) {
  dsl::Format format = formatOf(liquidQuant);
  const dsl::Expr &core = *format.value->operands[0];
  std::optional<DecodeSequence> decode = decodeSequence(format, core, "s8");
  ASSERT_TRUE(decode);
  EXPECT_LE(decode->instructions(), 7) << "LiquidGEMM, section 5.3: 7 instructions for 8 codes";
  ASSERT_EQ(decode->params.size(), 4u);
  std::mt19937 random(2);
  for (uint32_t step = 0; step < 256; ++step)
    for (uint32_t origin = 0; origin < 256; ++origin) {
      uint32_t largest = 16;
      for (uint32_t code = 0; code < 16; ++code) {
        uint32_t codes[] = {code, step, origin, 0x3f800000};
        if (!dsl::fulfils(format, codes)) {
          largest = code;
          break;
        }
      }
      if (largest == 0)
        continue;
      std::vector<uint32_t> params;
      for (const DecodeParam &param : decode->params) {
        uint32_t code = param.component == 1 ? step : origin;
        params.push_back(param.form == DecodeParam::Form::Byte ? code : code * 0x01010101u);
      }
      for (uint32_t code = 0; code < largest; ++code) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i)
          word |= (i % 2 ? code : random() % largest) << (4 * i);
        std::vector<uint32_t> registers = decode->program.run({word}, params);
        for (size_t r = 0; r < 2; ++r)
          for (int s = 0; s < 4; ++s) {
            uint32_t codes[] = {(word >> (4 * decode->position(r, static_cast<size_t>(s)))) & 0xf,
                                step, origin, 0x3f800000};
            ASSERT_EQ(subElement(registers[r], s, "s8"), dsl::evaluate(format, codes))
                << "code " << codes[0] << " step " << step << " origin " << origin;
          }
      }
    }
}

TEST(Decode, OperandsOfFewerThanSixteenBitsHoldNoScale) {
  dsl::Format format = formatOf("format f { element: e2m1 scale: e4m3 per k[32] "
                                "value = element * scale }");
  for (const char *mmaType : {"e4m3", "f16"}) {
    std::optional<DecodeSequence> decode = decodeSequence(format, elementOf(format), mmaType);
    ASSERT_TRUE(decode);
    EXPECT_EQ(withScale(*decode, format, 1, mmaType).has_value(), std::string(mmaType) == "f16");
  }
}

TEST(Decode, BytesThatCouldCarryHaveNoSequence) {
  std::string text = liquidQuant;
  text.erase(text.find("require"), std::string("require element * step + origin <= 255 ").size());
  dsl::Format format = formatOf(text);
  EXPECT_FALSE(decodeSequence(format, *format.value->operands[0], "s8"));
}

TEST(Decode, ARequirementSaysTheSameInEveryOrder) {
  const std::string text = liquidQuant, written = "element * step + origin <= 255";
  auto decodeWith = [&](const std::string &requirement) {
    std::string changed = text;
    const dsl::Format format =
        formatOf(changed.replace(changed.find(written), written.size(), requirement));
    return decodeSequence(format, *format.value->operands[0], "s8");
  };
  for (const char *same :
       {"origin + element * step <= 255", "step * element + origin <= 255",
        "255 - step * element - origin >= 0", "element * step + origin - 128 <= 127",
        "2 * element * step + origin - element * step <= 255",
        "-(origin + element * step) >= -255"}) {
    const std::optional<DecodeSequence> decode = decodeWith(same);
    ASSERT_TRUE(decode) << same;
    EXPECT_EQ(decode->instructions(), 7) << same;
  }
  for (const char *other :
       {"element * step + origin <= 256", "origin <= 255", "element * step <= 255",
        "element * step - origin <= 255", "element * step + origin >= 0",
        "2 * element * step + origin <= 255", "element * step + origin + 1 <= 257"})
    EXPECT_FALSE(decodeWith(other)) << other;
}

class ScaleCodes : public testing::TestWithParam<DecodeCase> {};

TEST_P(ScaleCodes, EveryScaleInEveryPlace) {
  auto [element, mmaType] = GetParam();
  dsl::ElementType type = dsl::ElementType::get(element);
  int stored = type.bits() <= 8 ? 8 : 16;
  int log2 = stored == 8 ? scaleHeadroom(type, mmaType) : 0;
  std::optional<DecodeProgram> sequence = scaleSequence(type, mmaType, log2);
  ASSERT_TRUE(sequence);
  std::mt19937 random(3);
  int perWord = 32 / stored;
  ASSERT_EQ(static_cast<int>(sequence->outputs.size()), perWord);
  for (uint32_t code = 0; code < (1u << type.bits()); ++code) {
    double value = type.decode(code);
    if (!std::isfinite(value))
      continue; // packing refuses such scales
    for (int place = 0; place < perWord; ++place) {
      // What is stored beside a code, in its unit too, is not part of the number.
      uint32_t mask = ((1ull << type.bits()) - 1) << (place * stored);
      uint32_t word = (random() & ~mask) | (code << (place * stored));
      uint32_t reg = sequence->run({word}, {})[place];
      ASSERT_EQ(subElement(reg, 0, mmaType), std::ldexp(value, log2)) << "code " << code;
      ASSERT_EQ(reg >> 16, reg & 0xffff);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaleCodes,
                         testing::Values(DecodeCase{"e4m3", "f16"}, DecodeCase{"e4m3", "bf16"},
                                         DecodeCase{"ue4m3", "f16"}, DecodeCase{"ue4m3", "bf16"},
                                         DecodeCase{"ue3m3", "f16"}, DecodeCase{"ue3m3", "bf16"},
                                         DecodeCase{"ue4m4", "f16"}, DecodeCase{"ue2m2", "bf16"},
                                         DecodeCase{"ue5m3", "bf16"}, DecodeCase{"e5m2", "bf16"},
                                         DecodeCase{"e3m4", "f16"}, DecodeCase{"e2m5", "bf16"},
                                         DecodeCase{"f16", "f16"}, DecodeCase{"bf16", "bf16"}),
                         [](const auto &info) {
                           return info.param.element + "_" + info.param.mmaType;
                         });

// Powers of two with all exponents of bf16 are moved by an addition. What lies beside a code,
// however large, is not part of the number.
TEST(ScaleCodes, PowersOfTwoTakeAFactorByAnAddition) {
  dsl::ElementType type = dsl::ElementType::get("e8m0");
  std::mt19937 random(3);
  for (int log2 : {1, 24, 102}) {
    std::optional<DecodeProgram> sequence = scaleSequence(type, "bf16", log2);
    ASSERT_TRUE(sequence);
    EXPECT_EQ(sequence->instructions.size(), 9u);
    for (uint32_t code = 0; code + static_cast<uint32_t>(log2) < 255; ++code)
      for (int place = 0; place < 4; ++place) {
        uint32_t mask = 0xffU << (place * 8);
        uint32_t word = (random() & ~mask) | code << (place * 8);
        uint32_t reg = sequence->run({word}, {})[static_cast<size_t>(place)];
        ASSERT_EQ(subElement(reg, 0, "bf16"), std::ldexp(type.decode(code), log2)) << code;
        ASSERT_EQ(reg >> 16, reg & 0xffff);
      }
  }
  EXPECT_FALSE(scaleSequence(type, "bf16", 0)); // where code 0 is 2^-127
  EXPECT_FALSE(scaleSequence(type, "f16", 24));
}

// Bytes with exponents of their own for subnormal scales: in every place one bitwise operation for
// two of them, where multiplications took two more each.
TEST(ScaleCodes, BytesWithAllExponentsAreMultipliersByOneOperation) {
  for (const char *name : {"ue4m3", "ue3m3", "ue4m2"})
    for (int log2 : {119, 125}) {
      const dsl::ElementType type = dsl::ElementType::get(name);
      std::optional<ScaleTable> table = scaleTable(type, "bf16", log2);
      const double largest = std::ldexp(type.maxFinite(), log2);
      ASSERT_EQ(table.has_value(), largest < 0x1p128 && log2 + 126 + type.leastExponent() > 127)
          << name << log2;
      if (!table)
        continue;
      EXPECT_EQ(std::set<int>(table->codes.begin(), table->codes.end()).size(), 256u);
      std::optional<DecodeProgram> sequence = scaleSequence(type, "bf16", log2, *table);
      ASSERT_TRUE(sequence);
      EXPECT_EQ(sequence->instructions.size(), 8u);
      EXPECT_EQ(scaleSequence(type, "bf16", log2)->instructions.size(), 12u);
      for (uint32_t code = 1; code < 1U << type.bits(); ++code)
        for (int place = 0; place < 4 && std::isfinite(type.decode(code)); ++place) {
          const uint32_t word = ~(0xffU << (place * 8)) | uint32_t(table->codes[code])
                                                              << (place * 8);
          const uint32_t reg = sequence->run({word}, {})[static_cast<size_t>(place)];
          ASSERT_EQ(subElement(reg, 0, "bf16"), std::ldexp(type.decode(code), log2)) << code;
          ASSERT_EQ(reg >> 16, reg & 0xffff);
        }
    }
  const auto e4m3 = dsl::ElementType::get("e4m3"), ue4m3 = dsl::ElementType::get("ue4m3");
  EXPECT_FALSE(scaleTable(e4m3, "bf16", 119)); // with a sign no byte is left
  EXPECT_FALSE(scaleTable(ue4m3, "bf16", 0));  // one multiplication
  EXPECT_FALSE(scaleTable(ue4m3, "f16", 7));
}

// Elements times powers of two that leave them normal numbers of bf16 are exact.
TEST(Decode, ProductsWithPowersOfTwoAreExact) {
  for (const char *element : {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2"}) {
    dsl::Format format = formatOf("format f { element: " + std::string(element) +
                                  " scale: e8m0 per k[32] value = element * scale }");
    std::optional<DecodeSequence> bare =
        decodeSequence(format, *format.value->operands[0], "bf16", -1000);
    ASSERT_TRUE(bare);
    std::optional<DecodeSequence> decode = withScale(*bare, format, 1, "bf16");
    ASSERT_TRUE(decode) << element;
    EXPECT_EQ(decode->log2Factor, smallestUsefulLog2);
    std::optional<DecodeProgram> scales =
        scaleSequence(format.components[1].type, "bf16", decode->scaleLog2);
    ASSERT_TRUE(scales);
    const dsl::ElementType type = format.element().type;
    for (uint32_t scale = 0; scale + static_cast<uint32_t>(decode->scaleLog2) < 255; ++scale) {
      uint32_t multiplier = scales->run({scale * 0x01010101U}, {})[0];
      for (uint32_t code = 0; code < 1U << type.bits(); ++code) {
        const double value =
            std::ldexp(type.decode(code), static_cast<int>(scale) - 127 + decode->log2Factor);
        if (!std::isfinite(value) || (value != 0 && std::abs(value) < 0x1p-126))
          continue;
        std::vector<uint32_t> words(static_cast<size_t>(decode->program.words()), 0);
        decode->put(decode->stored(code), 1, 0, words);
        std::vector<uint32_t> held = decode->program.run(words, {multiplier, multiplier});
        ASSERT_EQ(subElement(held[1], 0, "bf16"), value) << element << code << ", " << scale;
      }
    }
  }
}

// NVFP4's element times block scale is exact in both operand types, for all pairs of codes.
class Nvfp4Products : public testing::TestWithParam<std::string> {};

TEST_P(Nvfp4Products, AreExact) {
  dsl::Format format = formatOf("format f { element: e2m1 block: " + GetParam() +
                                " per k[16] tensor: f32 per tensor "
                                "value = element * block * tensor }");
  for (const char *mmaType : {"f16", "bf16"}) {
    const dsl::Expr &core = *format.value->operands[0]->operands[0];
    dsl::ElementType scaleType = multiplierType(format, 1);
    std::optional<DecodeSequence> bareDecode =
        decodeSequence(format, core, mmaType, leastScaledLog2(scaleType, mmaType));
    ASSERT_TRUE(bareDecode);
    std::optional<DecodeSequence> decode = withScale(*bareDecode, format, 1, mmaType);
    ASSERT_TRUE(decode);
    int carried = decode->log2Factor - bareDecode->log2Factor;
    const bool tabled = !decode->scaleTable.codes.empty();
    EXPECT_EQ(tabled, std::string(mmaType) == "bf16");
    std::optional<DecodeProgram> scales =
        scaleSequence(scaleType, mmaType, carried, decode->scaleTable);
    ASSERT_TRUE(scales);
    std::mt19937 random(5);
    for (uint32_t code = 0; code < 16; ++code)
      for (uint32_t scale = 0; scale < 1U << scaleType.bits(); ++scale) {
        if (!std::isfinite(scaleType.decode(scale)) || (tabled && scale == 0 && code != 0))
          continue; // of elements that a scale of 0 multiplies packing leaves code 0
        uint32_t byte = tabled ? decode->scaleTable.codes[scale] : scale;
        uint32_t multiplier = scales->run({byte * 0x01010101u}, {})[0];
        for (size_t r = 0; r < 4; ++r) {
          uint32_t word = wordWith(code, *decode, r, 0, random());
          uint32_t held = decode->program.run({word}, {multiplier, multiplier})[r];
          ASSERT_EQ(subElement(held, 0, mmaType),
                    std::ldexp(format.element().type.decode(code) * scaleType.decode(scale),
                               decode->log2Factor))
              << mmaType << " code " << code << " scale " << scale;
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Nvfp4Products, testing::Values("e4m3", "ue4m3"),
                         [](const auto &info) { return info.param; });

// A decode that ends in a multiply-add, as tables of bytes do, takes a scale of few digits in it,
// and gives what a product of its own, rounded once, gives.
class ScaledLines : public testing::TestWithParam<std::string> {};

TEST_P(ScaledLines, AreProductsRoundedOnce) {
  const std::string &mmaType = GetParam();
  dsl::ElementType operand = dsl::ElementType::get(mmaType);
  dsl::Format format = formatOf("format f { element: e2m1 remap 8 to [5, -5] by selector "
                                "block: ue3m3 per k[16] selector: u1 in block "
                                "value = element * block }");
  DecodeSequence plain = *remappedDecode(format, mmaType);
  RowNumber number{{{.factor = 1, .components = {1}}}};
  constexpr int fewDigits = 4, manyDigits = 7;
  auto added = [&](double largest, int digits) {
    return numberScaled(plain, number, largest, digits, false, mmaType).instructions() -
           plain.instructions();
  };
  EXPECT_EQ(added(1, fewDigits), 2); // of each row half
  EXPECT_EQ(added(1, manyDigits), 4);
  const double tooLarge = operand.maxFinite() / 100; // the offset's product would be infinite
  EXPECT_EQ(added(tooLarge, fewDigits), 4);
  DecodeSequence scaled = numberScaled(plain, number, 1, fewDigits, false, mmaType);
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    uint32_t word = random(), special = random() % 0x80 * 0x01010101;
    double scale = std::ldexp(8 + random() % 8, static_cast<int>(random() % 20) - 20);
    uint32_t pair = operand.encode(scale) * 0x10001;
    std::vector<uint32_t> parameters(plain.params.size(), special);
    std::vector<uint32_t> numbers = plain.program.run({word}, parameters);
    parameters.resize(scaled.params.size(), pair);
    std::vector<uint32_t> products = scaled.program.run({word}, parameters);
    for (size_t r = 0; r < numbers.size(); ++r)
      for (int sub : {0, 1}) {
        double product = subElement(numbers[r], sub, mmaType) * scale;
        int log2 = scaled.log2Factor - plain.log2Factor;
        ASSERT_EQ(subElement(products[r], sub, mmaType),
                  operand.decode(operand.encode(std::ldexp(product, log2))))
            << "register " << r << " of " << word << " by " << scale;
      }
  }
}

// A line that falls leaves its sign to no power of two.
TEST_P(ScaledLines, KeepTheSignOfTheSlope) {
  const std::string &mmaType = GetParam();
  const dsl::ElementType operand = dsl::ElementType::get(mmaType);
  for (const std::string element : {"u3", "s3", "e3m2", "ue2m2"})
    for (const std::string value : {"3.5 - element", "element / -2 + 0.25", "element - 3.5"}) {
      const dsl::Format format =
          formatOf("format f { element: " + element + " block: e4m3 per k[16] value = (" + value +
                   ") * block encode { block = absmax(x) } }");
      const std::optional<DecodeSequence> plain =
          decodeSequence(format, *format.value->operands[0], mmaType);
      ASSERT_TRUE(plain) << element << " " << value;
      constexpr int digits = 4;
      const RowNumber number{{{.factor = 1, .components = {1}}}};
      const DecodeSequence scaled = numberScaled(*plain, number, 1, digits, false, mmaType);
      std::vector<uint32_t> params; // where the block's scale is 0.5
      for (const DecodeParam &param : scaled.params)
        params.push_back(operand.encode(0.5 * param.number.terms.at(0).factor) * 0x10001);
      std::mt19937 random(3);
      for (int repeat = 0; repeat < 200; ++repeat) {
        std::vector<uint32_t> words;
        for (int i = 0; i < plain->program.words(); ++i)
          words.push_back(static_cast<uint32_t>(random()));
        const std::vector<uint32_t> numbers = plain->program.run(words, {}),
                                    products = scaled.program.run(words, params);
        for (size_t r = 0; r < numbers.size(); ++r)
          for (int sub : {0, 1}) {
            const double expected = std::ldexp(subElement(numbers[r], sub, mmaType) * 0.5,
                                               scaled.log2Factor - plain->log2Factor);
            ASSERT_EQ(subElement(products[r], sub, mmaType),
                      operand.decode(operand.encode(expected)))
                << element << " " << value;
          }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, ScaledLines, testing::Values("f16", "bf16"),
                         [](const auto &info) { return info.param; });

// Whatever 16 numbers a code stands for, in every place, by 12 instructions.
TEST(PairTable, HasTheNumbersOfAllCodes) {
  for (const char *element :
       {"codebook [-1, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, "
        "0.72, 1]",
        "s4", "u4", "e2m1"})
    for (const char *mmaType : {"f16", "bf16"}) {
      dsl::Format format =
          formatOf("format f { element: " + std::string(element) + " value = element }");
      std::optional<DecodeSequence> decode = pairDecode(format, *format.value, mmaType);
      ASSERT_TRUE(decode) << element;
      EXPECT_EQ(decode->instructions(), 8);
      EXPECT_EQ(decode->roundings, element[0] == 'c' ? 1 : 0);
      EXPECT_EQ(isCheaper(*decode, *decodeSequence(format, *format.value, mmaType)),
                element[0] == 'c');
      const dsl::ElementType operand = dsl::ElementType::get(mmaType);
      std::mt19937 random(3);
      for (uint32_t code = 0; code < 16; ++code)
        for (size_t r = 0; r < decode->registers(); ++r)
          for (size_t s = 0; s < 2; ++s) {
            uint32_t word = wordWith(code, *decode, r, s, random());
            EXPECT_EQ(
                subElement(decode->program.run({word}, {0, 0})[r], static_cast<int>(s), mmaType),
                operand.decode(operand.encode(format.element().type.decode(code))));
          }
    }
  // As small as a decode by permutations may have them: with its factor they are no zeros.
  dsl::Format small = formatOf("format f { element: codebook [-13e-7, -9e-7, -6e-7, -5e-7, -4e-7, "
                               "-3e-7, -2e-7, -1e-7, 0, 1e-7, 2e-7, 3e-7, 4e-7, 6e-7, 9e-7, 13e-7] "
                               "value = element }");
  const DecodeSequence usual = *decodeSequence(small, *small.value, "f16");
  EXPECT_GT(usual.log2Factor, 0);
  const DecodeSequence scaled = *pairDecode(small, *small.value, "f16", usual.log2Factor);
  EXPECT_EQ(scaled.log2Factor, usual.log2Factor);
  const double number = std::ldexp(
      subElement(scaled.program.run({0x99999999}, {0, 0})[0], 0, "f16"), -scaled.log2Factor);
  EXPECT_NEAR(number, 1e-7, 1e-7 * 0x1p-11);
  dsl::Format wide = formatOf("format f { element: s8 value = element }"),
              large = formatOf("format f { element: codebook [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "
                               "11, 12, 13, 14, 1e6] value = element }");
  EXPECT_FALSE(pairDecode(wide, *wide.value, "f16"));
  EXPECT_FALSE(pairDecode(large, *large.value, "f16"));
  EXPECT_TRUE(pairDecode(large, *large.value, "bf16"));
  EXPECT_FALSE(pairDecode(large, *large.value, "e4m3"));
}

TEST(DecodeProgram, PrintsAndParsesBack) {
  dsl::Format format = formatOf(liquidQuant),
              plain = formatOf("format f { element: e2m1 value = element }");
  for (const DecodeProgram &program :
       {decodeSequence(format, *format.value->operands[0], "s8")->program,
        pairDecode(plain, *plain.value, "bf16")->program}) {
    Result<DecodeProgram> parsed = DecodeProgram::parse(program.print());
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, program);
  }
}

TEST(DecodeProgram, RefusesWhatIsNoProgram) {
  auto message = [](const char *text) {
    Result<DecodeProgram> parsed = DecodeProgram::parse(text);
    return parsed.ok() ? "accepted" : parsed.error().str();
  };
  EXPECT_EQ(message("params 0; t0 = and w0 t1; out t0"),
            "error: malformed decode program at ' t0 = and w0 t1' [bad_decode_program]\n");
  EXPECT_EQ(message("params 0; t0 = nand w0 w0; out t0"),
            "error: malformed decode program at ' t0 = nand w0 w0' [bad_decode_program]\n");
  EXPECT_EQ(message("params 1; t0 = and w0 p1; out t0"),
            "error: malformed decode program at ' t0 = and w0 p1' [bad_decode_program]\n");
  EXPECT_EQ(message("params 0; t0 = shl w0 0x1"),
            "error: malformed decode program at 'no 'out' at its end' [bad_decode_program]\n");
  EXPECT_EQ(message("params 0; lanes 0x1 0x2; t0 = pair w0; out t0"),
            "error: malformed decode program at ' lanes 0x1 0x2' [bad_decode_program]\n");
  std::string lanes; // of three tables
  for (int i = 0; i < 48; ++i)
    lanes += " 0x1";
  EXPECT_EQ(message(("params 0; lanes" + lanes + "; t0 = pair w0 w0; out t0").c_str()),
            "error: malformed decode program at ' lanes" + lanes + "' [bad_decode_program]\n");
  EXPECT_EQ(message(""),
            "error: malformed decode program at 'no 'out' at its end' [bad_decode_program]\n");
}

} // namespace
} // namespace rho::compiler
