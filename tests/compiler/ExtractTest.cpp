// Decodes of any element and of what is linear in it, run over all of their inputs against the
// value expression.
#include "compiler/decode/Extract.h"
#include "compiler/decode/Affine.h"
#include "compiler/decode/ElementCore.h"
#include "dsl/Evaluate.h"
#include "tests/compiler/DecodedWords.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

namespace rho::compiler {
namespace {

using test::formatOf;

std::vector<std::string> elements() {
  std::vector<std::string> names;
  for (int bits = 2; bits <= 8; ++bits)
    for (const char *kind : {"s", "u"})
      names.push_back(kind + std::to_string(bits));
  for (const char *name : {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2f", "e1m1", "e2m0", "e3m1", "e1m4",
                           "ue2m1", "ue4m3", "ue3m5", "e5m1"})
    names.push_back(name);
  names.push_back("codebook [-1, 3]");
  names.push_back("codebook [-7, -1.5, 0, 12]");
  names.push_back("codebook [-7, -1.5, 0, 12, 1, 2, 3, 4]");
  names.push_back("codebook [-9, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8]");
  names.push_back(
      "codebook [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, "
      "-0.0910500, 0, 0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, "
      "0.7229568, 1.0]");
  return names;
}

// Whether the type's numbers are the operand type's own.
bool isExact(dsl::ElementType type, const std::string &mmaType) {
  dsl::ElementType operand = dsl::ElementType::get(mmaType);
  for (uint32_t code = 0; code < 1u << type.bits(); ++code) {
    double value = type.decode(code);
    if (std::isfinite(value) && operand.decode(operand.encode(value)) != value)
      return false;
  }
  return true;
}

// An element of so many bits, of which the low ones lie in a plane of their own, 0 where a block is
// not stored.
TEST(Extract, DecodesHighAndLowBitsFromTwoPlanes) {
  struct Planes {
    int high, low;
    std::string mmaType;
    int mostInstructions; // for 8 codes
  };
  for (const Planes &planes :
       {Planes{4, 4, "s8", 4}, Planes{4, 4, "f16", 12}, Planes{4, 4, "bf16", 12},
        Planes{4, 2, "s8", 12}, Planes{4, 2, "f16", 24}, Planes{2, 4, "s8", 12},
        Planes{2, 2, "bf16", 24}, Planes{2, 2, "s8", 12}}) {
    dsl::ElementType type = dsl::ElementType::get("s" + std::to_string(planes.high + planes.low));
    SCOPED_TRACE(std::string(type.name()) + " to " + planes.mmaType);
    std::optional<DecodeSequence> decode = extractRefined(type, planes.mmaType, planes.low);
    ASSERT_TRUE(decode);
    EXPECT_LE(decode->instructions() * 8, planes.mostInstructions * decode->codes);
    EXPECT_EQ(decode->stored(0) & ((1U << planes.low) - 1), 0U); // what is read of other blocks
    int highWords = decode->codes * planes.high / 32;
    std::mt19937 random(1);
    std::set<std::pair<int, int>> places;
    for (size_t r = 0; r < decode->registers(); ++r)
      for (size_t s = 0; s < decode->perRegister(); ++s) {
        const std::vector<CodeBit> &bits = decode->bits[r][s];
        for (size_t b = 0; b < bits.size(); ++b) {
          EXPECT_TRUE(places.emplace(bits[b].word, bits[b].bit).second);
          EXPECT_EQ(bits[b].word < highWords, static_cast<int>(b) >= planes.low);
        }
        for (uint32_t code = 0; code < 1U << type.bits(); ++code) {
          std::vector<uint32_t> words = wordsWith(decode->stored(code), *decode, r, s, random);
          ASSERT_EQ(subElement(decode->program.run(words, {})[r], s, planes.mmaType),
                    std::ldexp(type.decode(code), decode->log2Factor))
              << "code " << code << " register " << r << " sub-element " << s;
        }
      }
  }
  EXPECT_FALSE(extractRefined(dsl::ElementType::get("u8"), "s8", 4));
  EXPECT_FALSE(extractRefined(dsl::ElementType::get("s8"), "s4", 4));
}

TEST(Extract, DecodesEveryCodeOfEveryElementInEveryPlace) {
  for (const std::string &name : elements())
    for (const std::string mmaType : {"f16", "bf16", "e4m3", "s8", "s4"}) {
      std::optional<dsl::ElementType> type = dsl::ElementType::fromName(name);
      if (!type || type->bits() < 2)
        continue;
      SCOPED_TRACE(name + " to " + mmaType);
      dsl::ElementType operand = dsl::ElementType::get(mmaType);
      std::optional<DecodeSequence> decode = extractElement(*type, mmaType);
      // What is exact must have a decode; what is not is rounded, where operands have 16 bits.
      if (isExact(*type, mmaType) && operand.bits() > 4)
        EXPECT_TRUE(decode);
      if (!decode)
        continue;
      EXPECT_EQ(decode->roundings > 0, !isExact(*type, mmaType) && decode->log2Factor == 0);
      std::mt19937 random(1);
      std::set<std::pair<int, int>> places;
      for (size_t r = 0; r < decode->registers(); ++r)
        for (size_t s = 0; s < decode->perRegister(); ++s) {
          for (CodeBit bit : decode->bits[r][s])
            EXPECT_TRUE(places.emplace(bit.word, bit.bit).second) << "a bit stands for two codes";
          for (uint32_t code = 0; code < 1u << type->bits(); ++code) {
            double value = type->decode(code);
            if (!std::isfinite(value))
              continue;
            if (decode->roundings > 0)
              value = operand.decode(operand.encode(value));
            std::vector<uint32_t> words = wordsWith(decode->stored(code), *decode, r, s, random);
            ASSERT_EQ(subElement(decode->program.run(words, {})[r], s, mmaType),
                      std::ldexp(value, decode->log2Factor))
                << "code " << code << " register " << r << " sub-element " << s;
          }
        }
      EXPECT_EQ(places.size(), static_cast<size_t>(decode->codes * type->bits()));
    }
}

// A unit's planes lie so that a layout can tell the order of codes in each of them by bits of their
// coordinates.
TEST(Extract, PlacesOfCodesAreLinear) {
  for (const std::string &name : elements())
    for (const char *mmaType : {"f16", "e4m3", "s8", "s4"}) {
      std::optional<dsl::ElementType> type = dsl::ElementType::fromName(name);
      if (!type || type->bits() < 2)
        continue;
      std::optional<DecodeSequence> decode = extractElement(*type, mmaType);
      if (!decode)
        continue;
      for (size_t plane = 0; plane < planesOf(type->bits()).size(); ++plane)
        for (size_t r = 0; r < decode->registers(); ++r)
          for (size_t s = 0; s < decode->perRegister(); ++s) {
            int expected = decode->position(0, 0, plane);
            for (size_t bit = 1; bit < decode->registers(); bit *= 2)
              if (r & bit)
                expected ^= decode->position(bit, 0, plane) ^ decode->position(0, 0, plane);
            for (size_t bit = 1; bit < decode->perRegister(); bit *= 2)
              if (s & bit)
                expected ^= decode->position(0, bit, plane) ^ decode->position(0, 0, plane);
            ASSERT_EQ(decode->position(r, s, plane), expected) << name << " to " << mmaType;
          }
    }
}

// The parts of a program make what the whole makes.
TEST(DecodeProgram, PartsEqualTheWhole) {
  std::mt19937 random(4);
  for (const char *name : {"s3", "u5", "s7", "e3m2"}) {
    DecodeProgram program = extractElement(dsl::ElementType::get(name), "f16")->program;
    std::vector<uint32_t> words;
    for (int i = 0; i < program.words(); ++i)
      words.push_back(random());
    std::vector<uint32_t> whole = program.run(words, {});
    for (size_t first = 0; first < whole.size(); first += 4) {
      DecodeProgram part = program.part(first, 4);
      EXPECT_LT(part.instructions.size(), program.instructions.size());
      EXPECT_EQ(part.run(words, {}),
                std::vector<uint32_t>(whole.begin() + static_cast<std::ptrdiff_t>(first),
                                      whole.begin() + static_cast<std::ptrdiff_t>(first) + 4));
      Result<DecodeProgram> parsed = DecodeProgram::parse(part.print());
      ASSERT_TRUE(parsed.ok());
      EXPECT_EQ(*parsed, part);
    }
  }
}

// --- what is computed of the element alone

struct CoreCase {
  const char *element, *value, *mmaType;
  int instructions; // for 32 codes
};

class ElementCores : public testing::TestWithParam<CoreCase> {};

TEST_P(ElementCores, AreDecodedAsTypesOfTheirNumbers) {
  CoreCase test = GetParam();
  dsl::Format format = formatOf(std::string("format f { element: ") + test.element +
                                " value = " + test.value + " }");
  std::optional<DecodeSequence> decode = decodeSequence(format, *format.value, test.mmaType);
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->roundings, 0);
  EXPECT_EQ(decode->instructions() * 32, test.instructions * decode->codes);
  std::mt19937 random(3);
  for (uint32_t code = 0; code < 1U << format.element().type.bits(); ++code)
    for (size_t r = 0; r < decode->registers(); ++r)
      for (size_t s = 0; s < decode->perRegister(); ++s) {
        std::vector<uint32_t> words = wordsWith(decode->stored(code), *decode, r, s, random);
        ASSERT_EQ(subElement(decode->program.run(words, {})[r], s, test.mmaType),
                  std::ldexp(dsl::evaluate(format, &code), decode->log2Factor))
            << "code " << code << " register " << r << " sub-element " << s;
      }
}

INSTANTIATE_TEST_SUITE_P(
    All, ElementCores,
    testing::Values(
        // Those of s4: as long as its own.
        CoreCase{"u4", "element - 8", "s8", 12}, CoreCase{"u4", "element - 8", "f16", 36},
        CoreCase{"u4", "element - 8", "bf16", 36}, CoreCase{"u4", "element - 8", "e4m3", 28},
        CoreCase{"u4", "element - 8", "s4", 4}, CoreCase{"u4", "s8(element ^ 8) - 8", "s8", 12},
        CoreCase{"s4", "(element ^ 3) + 8", "s8", 12}, CoreCase{"u8", "element - 128", "s8", 8},
        CoreCase{"u8", "element - 128", "f16", 32},
        // Codes of several words.
        CoreCase{"u3", "element - 4", "f16", 38}, CoreCase{"u5", "element - 16", "bf16", 51},
        CoreCase{"u6", "element - 32", "s8", 18},
        // No type's numbers.
        CoreCase{"u4", "2 * element - 15", "s8", 12}, CoreCase{"u4", "2 * element - 15", "f16", 28},
        CoreCase{"u4", "2 * element - 15", "bf16", 44},
        CoreCase{"u4", "2 * element - 15", "e4m3", 20}, CoreCase{"u2", "3 * element - 4", "s8", 18},
        CoreCase{"u4", "element * 0.5 - 3.75", "f16", 28},
        CoreCase{"e2m1", "element + 0.25", "bf16", 48},
        // Of fractions, by way of f16 or by tables.
        CoreCase{"e2m3", "element", "s8", 84}, CoreCase{"e1m3", "element", "s8", 80},
        CoreCase{"codebook [-4, -2, -1, -0.5, 0, 0.5, 1.5, 3]", "element", "s8", 25},
        CoreCase{"codebook [-4, -2, -1, -0.0009765625, 0, 0.5, 1.5, 3]", "element", "e4m3", 25},
        // Small tables.
        CoreCase{"codebook [-1, -0.5, 0.25, 1]", "element", "s8", 18},
        CoreCase{"codebook [-1, -0.5, 0.25, 1]", "element", "e4m3", 18}),
    [](const auto &info) {
      std::string name =
          std::string(info.param.element) + "_" + info.param.value + "_" + info.param.mmaType;
      std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name + std::to_string(info.index);
    });

// Whatever way they are found.
TEST(ElementCores, OfEveryTypeInOperandsOf8Bits) {
  int found = 0;
  for (const std::string &element : elements())
    for (const std::string mmaType : {"s8", "e4m3"}) {
      if (dsl::ElementType::get(element).bits() < 2)
        continue; // no element
      dsl::Format format = formatOf("format f { element: " + element + " value = element }");
      std::optional<DecodeSequence> decode = decodeSequence(format, *format.value, mmaType);
      std::mt19937 random(5);
      for (uint32_t code = 0; decode && code < 1U << format.element().type.bits(); ++code)
        for (size_t r = 0; r < decode->registers(); ++r) {
          double value = dsl::evaluate(format, &code);
          size_t s = random() % decode->perRegister();
          std::vector<uint32_t> words = wordsWith(decode->stored(code), *decode, r, s, random);
          if (std::isfinite(value)) {
            ASSERT_EQ(subElement(decode->program.run(words, {})[r], s, mmaType),
                      std::ldexp(value, decode->log2Factor))
                << element << " " << mmaType << " code " << code;
          }
        }
      found += decode ? 1 : 0;
    }
  EXPECT_EQ(found, 41);
}

TEST(ElementCores, HaveSoManyDigits) {
  auto digits = [](const std::string &text) {
    dsl::Format format = formatOf("format f { " + text + " }");
    return significantBits(format, *format.value);
  };
  EXPECT_EQ(digits("element: s4 value = element"), 3); // -8 is a power of two
  EXPECT_EQ(digits("element: e4m3 value = element"), 4);
  EXPECT_EQ(digits("element: u4 value = 3 * element - 1"), 6);    // 44
  EXPECT_EQ(digits("element: u4 value = 0.25 * element + 8"), 6); // 8.75 and 11.75
  EXPECT_EQ(digits("element: codebook [0, 0.5, 1.25, 3] value = element"), 3);
  EXPECT_EQ(digits("element: f16 value = element"), 11);
  EXPECT_EQ(digits("element: u4 zero: u4 per k[64] value = element - zero encode { zero = 8 }"), 4);
  EXPECT_EQ(digits("element: e2m1 remap 8 to [5, 4.125] by s s: u1 per k[64] value = element "
                   "encode { s = best(0, 1) }"),
            6); // 4.125 = 33 / 8
  EXPECT_FALSE(digits("element: u4 low: f16 per k[64] value = element + low encode { low = 1 }"));
}

// --- what is linear in the element

struct AffineCase {
  const char *name, *format, *mmaType;
  bool exact;
};

class AffineCores : public testing::TestWithParam<AffineCase> {};

TEST_P(AffineCores, EqualTheValueForAllCodes) {
  AffineCase test = GetParam();
  dsl::Format format = formatOf(std::string("format f { ") + test.format + " }");
  std::optional<DecodeSequence> decode = affineDecode(format, *format.value, test.mmaType);
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->roundings == 0, test.exact);
  EXPECT_TRUE(DecodeProgram::parse(decode->program.print()).ok());
  std::mt19937 random(7);
  std::string mmaType = test.mmaType;
  dsl::ElementType operand = dsl::ElementType::get(mmaType);
  int checked = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<uint32_t> codes{0};
    for (size_t i = 1; i < format.components.size(); ++i) {
      dsl::ElementType type = format.components[i].type;
      codes.push_back(type.bits() > 8 ? type.encode(0.01 + (random() % 1000) / 250.0)
                                      : random() & ((1u << type.bits()) - 1));
    }
    std::vector<uint32_t> params;
    for (const DecodeParam &param : decode->params)
      params.push_back(parameterOf(param, format, codes, mmaType));
    for (uint32_t code = 0; code < 1u << format.element().type.bits(); ++code) {
      codes[0] = code;
      if (!dsl::fulfils(format, codes.data()))
        continue;
      size_t r = random() % decode->registers(), s = random() % decode->perRegister();
      // Other codes of the register must be such as stand beside this one.
      std::vector<uint32_t> words(static_cast<size_t>(decode->codes) *
                                  format.element().type.bits() / 32);
      for (const auto &reg : decode->bits)
        for (const auto &places : reg)
          for (size_t b = 0; b < places.size(); ++b)
            words[static_cast<size_t>(places[b].word)] |= (decode->stored(code) >> b & 1)
                                                          << places[b].bit;
      double exact = dsl::evaluate(format, codes.data());
      double found = std::ldexp(subElement(decode->program.run(words, params)[r], s, mmaType),
                                -decode->log2Factor);
      if (test.exact) {
        ASSERT_EQ(found, exact) << "code " << code;
      } else {
        double magnitude = std::abs(exact) + 2 * std::abs(exact - dsl::evaluate(format, [&] {
                                                            static std::vector<uint32_t> zero;
                                                            zero = codes;
                                                            zero[0] = 0;
                                                            return zero.data();
                                                          }()));
        double u = std::ldexp(1.0, -operand.mantissaBits() - 1);
        std::optional<Affine> affine = affineCore(format, *format.value);
        for (const RowNumber::Term &term : affine->offset.terms) {
          double product = std::abs(term.factor);
          for (int component : term.components)
            product *= std::abs(format.components[static_cast<size_t>(component)].type.decode(
                codes[static_cast<size_t>(component)]));
          magnitude += product;
        }
        ASSERT_NEAR(found, exact, 2.01 * u * magnitude + std::ldexp(1.0, -24) * 20);
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 500);
}

constexpr const char *liquid =
    "element: u4 step: u8 per k[64] origin: u8 per k[64] "
    "value = s8((element * step + origin) ^ 0x80) require element * step + origin <= 255 "
    "encode { step = 1 origin = 2 }";
constexpr const char *zeroU4 = "element: u4 zero: u4 per k[64] value = element - zero "
                               "encode { zero = 8 }";
constexpr const char *zeroU2 = "element: u2 zero: u2 per k[64] value = element - zero "
                               "encode { zero = 2 }";
constexpr const char *zeroAndOne = "element: u3 zero: u3 per k[64] value = element - (zero + 1) "
                                   "encode { zero = 3 }";
constexpr const char *doubled = "element: u4 zero: u5 per k[64] value = 2 * element - zero "
                                "encode { zero = 15 }";
constexpr const char *zeroU3 = "element: u3 zero: s8 per k[64] value = element + zero "
                               "require element + zero <= 127 require element + zero >= -128 "
                               "encode { zero = 1 }";
constexpr const char *zeroS5 = "element: s5 zero: s6 per k[64] value = 2 * element - zero - 3 "
                               "encode { zero = 1 }";
constexpr const char *steps =
    "element: u4 step: u8 per k[64] zero: u4 per k[64] value = (element - zero) * step "
    "require (element - zero) * step <= 127 require (element - zero) * step >= -128 "
    "encode { step = 1 zero = 2 }";
constexpr const char *zeroU8 = "element: u8 zero: u8 per k[64] value = element - zero "
                               "encode { zero = 1 }";
constexpr const char *offset = "element: u4 scale: f16 per k[32] offset: f16 per k[32] "
                               "value = element * scale + offset "
                               "encode { scale = 1 offset = 1 }";
constexpr const char *twoLevels =
    "element: u5 scale: u6 per k[32] low: u6 per k[32] d: f16 per k[256] dmin: f16 per k[256] "
    "value = element * (d * scale) - dmin * low "
    "encode { scale = 1 low = 1 d = 1 dmin = 1 }";

INSTANTIATE_TEST_SUITE_P(
    All, AffineCores,
    testing::Values(
        AffineCase{"liquid", liquid, "s8", true}, AffineCase{"liquid", liquid, "f16", true},
        AffineCase{"liquid", liquid, "bf16", true}, AffineCase{"zeroU4", zeroU4, "s8", true},
        AffineCase{"steps", steps, "s8", true}, AffineCase{"zeroU4", zeroU4, "f16", true},
        AffineCase{"zeroU4", zeroU4, "bf16", true}, AffineCase{"zeroU3", zeroU3, "s8", true},
        AffineCase{"zeroU3", zeroU3, "f16", true}, AffineCase{"zeroS5", zeroS5, "s8", true},
        AffineCase{"zeroS5", zeroS5, "bf16", true}, AffineCase{"zeroU8", zeroU8, "f16", true},
        AffineCase{"zeroU8", zeroU8, "bf16", true}, AffineCase{"zeroU4", zeroU4, "e4m3", true},
        AffineCase{"zeroU2", zeroU2, "e4m3", true}, AffineCase{"zeroU2", zeroU2, "bf16", true},
        AffineCase{"zeroAndOne", zeroAndOne, "e4m3", true},
        AffineCase{"zeroAndOne", zeroAndOne, "f16", true},
        AffineCase{"doubled", doubled, "f16", true}, AffineCase{"doubled", doubled, "bf16", true},
        AffineCase{"offset", offset, "f16", false}, AffineCase{"offset", offset, "bf16", false},
        AffineCase{"twoLevels", twoLevels, "f16", false},
        AffineCase{"twoLevels", twoLevels, "bf16", false}),
    [](const auto &info) { return std::string(info.param.name) + "_" + info.param.mmaType; });

// A zero point goes into the multiply-add that ends the decode of the element.
TEST(Affine, ZeroPointsTakeNoInstructionOfTheirOwn) {
  dsl::Format format = formatOf(std::string("format f { ") + zeroU4 + " }");
  for (auto [mmaType, instructions] : {std::pair{"f16", 9}, {"bf16", 9}, {"e4m3", 15}, {"s8", 9}})
    EXPECT_EQ(decodeSequence(format, *format.value, mmaType)->instructions(), instructions)
        << mmaType;
}

// A slope takes what a decode to bf16 leaves out where no code can make a number of it that bf16
// does not hold; then no instruction of its own restores it.
TEST(Affine, SlopesTakeFactorsThatTheyHaveRoomFor) {
  const auto decodeOf = [](const std::string &types, const std::string &slope = "d") {
    const std::string more = slope == "d" ? "" : " s = 1";
    dsl::Format format = formatOf("format f { element: u4 " + types + " value = element * (" +
                                  slope + ") + m encode { d = 1 m = 1" + more + " } }");
    return *affineDecode(format, *format.value, "bf16");
  };
  // Slopes of rows whose codes lie lower in a word take 2^4 besides, where there is room for that.
  const DecodeSequence free = decodeOf("d: f16 per k[32] m: f16 per k[32]");
  EXPECT_EQ(free.instructions(), 9);
  EXPECT_EQ(free.log2Factor, smallestUsefulLog2);
  const std::string integer = "d: f16 per k[256] m: f16 per k[32] s: ";
  EXPECT_EQ(decodeOf(integer + "u6 per k[32]", "d * s").instructions(), 9);
  EXPECT_EQ(decodeOf(integer + "u6 per k[32]", "d * s").log2Factor, smallestKeptLog2);
  EXPECT_EQ(decodeOf(integer + "u7 per k[32]", "d * s").instructions(), 11);
  EXPECT_EQ(decodeOf(integer + "u7 per k[32]", "d * s").log2Factor, -25);
  for (const char *wide :
       {"d: f32 per k[32] m: f16 per k[32]", "d: bf16 per k[32] m: f16 per k[32]",
        "d: f16 per k[32] m: bf16 per k[32]", "d: e8m0 per k[32] m: f16 per k[32]"}) {
    EXPECT_EQ(decodeOf(wide).instructions(), 15) << wide;
    EXPECT_EQ(decodeOf(wide).log2Factor, 0) << wide;
  }
  const auto numberIn = [&](double slope, double offset, uint32_t code, size_t r) {
    std::vector<uint32_t> params, words(1);
    for (const DecodeParam &param : free.params) {
      const RowNumber::Term &term = param.number.terms[0];
      const double value = term.factor * (term.components[0] == 1 ? slope : offset);
      params.push_back(dsl::ElementType::get("bf16").encode(value) * 0x10001U);
    }
    free.put(free.stored(code), r, 0, words);
    return std::ldexp(subElement(free.program.run(words, params)[r], 0, "bf16"), -free.log2Factor);
  };
  for (size_t r = 0; r < 4; ++r) {
    // The largest and the least of f16, as bf16 holds them.
    EXPECT_EQ(numberIn(65504, 0, 15, r), 65536 * 15);
    EXPECT_EQ(numberIn(-65504, 65504, 15, r), -65536 * 14);
    EXPECT_EQ(numberIn(0x1p-24, 0, 15, r), 0x1p-24 * 15);
    EXPECT_EQ(numberIn(0, 0x1p-24, 15, r), 0x1p-24);
  }
}

TEST(Affine, ToBytesOnlyWhatFitsThem) {
  for (const char *text : {zeroU8, offset})
    for (const char *mmaType : {"s8", "e4m3"})
      EXPECT_FALSE(affineDecode(formatOf(std::string("format f { ") + text + " }"),
                                *formatOf(std::string("format f { ") + text + " }").value,
                                mmaType));
}

TEST(RowNumber, PrintsAndParsesBack) {
  RowNumber number{{{0.1, {3, 1}, 0, 0}, {-8, {}, 0, 0}, {5, {2}, 4, 3}}};
  EXPECT_EQ(number.print(), "0.1*#3*#1 + -8 + 5*#2*[#4=3]");
  EXPECT_EQ(RowNumber::parse(number.print()), number);
  EXPECT_EQ(RowNumber::parse("0"), RowNumber{});
  for (const char *text :
       {"", "x", "1*", "1*#0", "1*#a", "1 + ", "1 +2", "1*[#0=1]", "1*[#1=1", "1*[#1]"})
    EXPECT_FALSE(RowNumber::parse(text)) << text;
}

} // namespace
} // namespace rho::compiler
