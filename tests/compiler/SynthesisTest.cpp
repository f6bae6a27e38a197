// The search for decode sequences: what it finds for known types and for ones that nobody foresaw,
// and the table of docs/DECODE.md.
#include "compiler/decode/Synthesis.h"
#include "compiler/decode/LaneForms.h"
#include "tests/compiler/Published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

namespace rho::compiler {
namespace {

using test::anyFactor, test::published, test::Published;

std::vector<double> valuesOf(const char *name) {
  return compiler::valuesOf(dsl::ElementType::get(name));
}

// NF4: Dettmers et al., "QLoRA", 2023, appendix E, rounded to the operand type.
std::vector<double> normalFloat4(const char *mmaType) {
  std::vector<double> values = {-1.0,
                                -0.6961928009986877,
                                -0.5250730514526367,
                                -0.39491748809814453,
                                -0.28444138169288635,
                                -0.18477343022823334,
                                -0.09105003625154495,
                                0.0,
                                0.07958029955625534,
                                0.16093020141124725,
                                0.24611230194568634,
                                0.33791524171829224,
                                0.44070982933044434,
                                0.5626170039176941,
                                0.7229568362236023,
                                1.0};
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  for (double &value : values)
    value = type.decode(type.encode(value));
  return values;
}

// Independent of proveDecode(): words of random codes, all registers at once.
void expectDecodes(const DecodeSequence &decode, const std::vector<double> &values,
                   const char *mmaType) {
  dsl::ElementType type = dsl::ElementType::get(mmaType);
  std::mt19937 random(1);
  const auto count = static_cast<size_t>(decode.program.words());
  std::vector<int> holders(32 * count);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> words(count);
    std::vector<double> expected;
    for (const auto &reg : decode.bits)
      for (const std::vector<CodeBit> &places : reg) {
        uint32_t code = random() % values.size();
        while (std::isnan(values[code]))
          code = random() % values.size();
        for (size_t b = 0; b < places.size(); ++b) {
          const auto word = static_cast<size_t>(places[b].word);
          words[word] |= (decode.stored(code) >> b & 1) << places[b].bit;
          holders[32 * word + static_cast<size_t>(places[b].bit)] += round == 0;
        }
        expected.push_back(std::ldexp(values[code], decode.log2Factor));
      }
    std::vector<uint32_t> registers = decode.program.run(words, {});
    size_t next = 0;
    for (uint32_t reg : registers)
      for (int at = 0; at < 32; at += type.bits())
        ASSERT_EQ(type.decode(reg >> at & ((1u << type.bits()) - 1)), expected[next++])
            << decode.program.print();
  }
  EXPECT_EQ(holders, std::vector<int>(32 * count, 1))
      << "a bit of a word stands for none or two bits";
}

const InstructionRates rates;
const InstructionRates ampereRates = {.bf16 = 2}; // compute capability 8.0
const InstructionRates adaRates = {.f16 = 2, .bf16 = 2};
const InstructionRates blackwellRates = {.logic = 1, .f16 = 2, .bf16 = 2}; // 12.0

TEST(Synthesis, EveryAlternativeDecodesEveryCode) {
  for (const char *mmaType : {"f16", "bf16", "e4m3", "s8"})
    for (const char *element : {"s4", "u4", "e2m1"})
      for (const SynthesizedDecode &found :
           synthesizeDecode(valuesOf(element), mmaType, anyFactor, rates)) {
        SCOPED_TRACE(std::string(element) + " to " + mmaType);
        expectDecodes(found.sequence, valuesOf(element), mmaType);
      }
}

// Codes whose bits divide no word's: instructions for 32 of them.
TEST(Synthesis, UnitsOfSeveralWordsDecodeEveryCode) {
  struct Unit {
    const char *element, *mmaType;
    int instructions;
  };
  for (const Unit &unit :
       {Unit{"s3", "f16", 38},    Unit{"s3", "bf16", 47},   Unit{"s3", "s8", 17},
        Unit{"u3", "e4m3", 17},   Unit{"s5", "f16", 44},    Unit{"s5", "bf16", 51},
        Unit{"s5", "s8", 19},     Unit{"u5", "f16", 35},    Unit{"s6", "f16", 46},
        Unit{"s6", "bf16", 46},   Unit{"s6", "s8", 18},     Unit{"u6", "bf16", 34},
        Unit{"s7", "f16", 49},    Unit{"s7", "bf16", 51},   Unit{"s7", "s8", 21},
        Unit{"e2m3", "f16", 44},  Unit{"e2m3", "bf16", 46}, Unit{"e2m3", "e4m3", 18},
        Unit{"e3m2", "bf16", 42}, Unit{"e1m1", "f16", 38},  Unit{"e5m1", "bf16", 51}}) {
    SCOPED_TRACE(std::string(unit.element) + " to " + unit.mmaType);
    const DecodeSequence &found =
        knownDecodes(valuesOf(unit.element), unit.mmaType, anyFactor).at(0).sequence;
    EXPECT_EQ(found.instructions() * 32 / found.codes, unit.instructions);
    EXPECT_TRUE(found.isScattered());
    expectDecodes(found, valuesOf(unit.element), unit.mmaType);
  }
}

// Each bit of a unit stands once in the words of its planes.
TEST(Synthesis, UnitsAreScatteredOverThePlanes) {
  for (const char *element : {"s3", "s5", "s6", "s7"}) {
    const DecodeSequence &found = knownDecodes(valuesOf(element), "bf16", -24).at(0).sequence;
    const int bits = dsl::ElementType::get(element).bits();
    std::set<uint8_t> held;
    size_t all = 0;
    const std::vector<CodePlane> planes = planesOf(bits);
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      const std::vector<uint8_t> unit = found.unitBits(plane);
      EXPECT_EQ(unit.size(), static_cast<size_t>(found.codes * planes[plane].bits));
      held.insert(unit.begin(), unit.end());
      all += unit.size();
    }
    EXPECT_EQ(held.size(), all);
    EXPECT_EQ(all, static_cast<size_t>(found.codes * bits));
    EXPECT_LT(*held.rbegin() / 8, found.codes);
  }
}

// Types that no construction was made for.
TEST(Synthesis, FindsDecodesOfAnyTable) {
  std::vector<double> odd, scattered = {0, 1, 2, 3, 5, 8, 13, 21, -1, -2, -4, -7, 30, 31, 17, 100};
  for (int i = 0; i < 16; ++i)
    odd.push_back(2 * i - 15);
  std::vector<double> xored;
  for (int i = 0; i < 16; ++i)
    xored.push_back((i ^ 5) * 3 - 7);
  const std::vector<double> equal(16, 5);
  for (const char *mmaType : {"f16", "bf16", "s8"})
    for (const std::vector<double> &values : {odd, scattered, xored, equal}) {
      std::vector<SynthesizedDecode> found = synthesizeDecode(values, mmaType, -24, rates);
      ASSERT_FALSE(found.empty()) << mmaType;
      expectDecodes(found[0].sequence, values, mmaType);
    }
  // Odd numbers are a sign and a magnitude whose lowest bit is always set: 1 LOP3 to a register,
  // and with bits in the right places of the word not even a shift for each.
  EXPECT_EQ(synthesizeDecode(odd, "s8", -24, rates)[0].sequence.instructions(), 3);
  EXPECT_LE(synthesizeDecode(odd, "f16", -24, rates)[0].sequence.instructions(), 7);
  EXPECT_LE(synthesizeDecode(xored, "f16", 0, rates)[0].sequence.instructions(), 10);
}

TEST(Synthesis, CodebooksAreByteTables) {
  for (const char *mmaType : {"f16", "bf16"}) {
    std::vector<double> values = normalFloat4(mmaType);
    std::vector<SynthesizedDecode> found = synthesizeDecode(values, mmaType, -24, rates);
    ASSERT_FALSE(found.empty());
    EXPECT_LE(found[0].sequence.instructions(), 21);
    expectDecodes(found[0].sequence, values, mmaType);
  }
}

// e4m3 has codes that are no numbers: of 4 codes in a word.
TEST(Synthesis, CodesWithoutANumberAreNoObstacle) {
  for (auto [mmaType, instructions] : {std::pair{"f16", 5}, {"bf16", 7}}) {
    const SynthesizedDecode &found = knownDecodes(valuesOf("e4m3"), mmaType, -24).at(0);
    EXPECT_EQ(found.sequence.codes, 4U);
    EXPECT_EQ(found.sequence.instructions(), instructions) << mmaType;
    EXPECT_TRUE(proveDecode(found.sequence, valuesOf("e4m3"), mmaType));
  }
}

TEST(Synthesis, IsDeterministic) {
  std::string first = describe(synthesizeDecode(valuesOf("e2m1"), "f16", -24, rates), 10);
  EXPECT_EQ(describe(synthesizeDecode(valuesOf("e2m1"), "f16", -24, rates), 10), first);
  EXPECT_NE(first.find("chosen: 9 instructions for 8 codes, 12 cycles"), std::string::npos)
      << first;
}

// What is not exact in the operand type has no sequence.
TEST(Synthesis, FindsNothingForInexactValues) {
  std::vector<double> values = valuesOf("s4");
  values[3] = 3 + 1.0 / 4096;
  EXPECT_TRUE(synthesizeDecode(values, "f16", anyFactor, rates).empty());
  EXPECT_TRUE(synthesizeDecode(normalFloat4("f16"), "e4m3", anyFactor, rates).empty());
}

// A wrong sequence is not proved.
TEST(Synthesis, ProofsFindWrongCodesAndNeighbours) {
  DecodeSequence right = knownDecodes(valuesOf("s4"), "f16", -24)[0].sequence;
  std::vector<double> values = valuesOf("s4");
  EXPECT_TRUE(proveDecode(right, values, "f16"));
  DecodeSequence wrong = right;
  wrong.codeXor ^= 1;
  EXPECT_FALSE(proveDecode(wrong, values, "f16"));
  wrong = right;
  std::swap(wrong.bits[0][0][0], wrong.bits[1][0][0]);
  EXPECT_FALSE(proveDecode(wrong, values, "f16"));
  wrong = right;
  for (DecodeInstr &instr : wrong.program.instructions)
    for (DecodeProgram::Operand &operand : instr.operands)
      if (operand == DecodeProgram::constant(0x000f000f))
        operand.value = 0x001f000f; // lets a neighbour's bit in
  EXPECT_NE(wrong.program, right.program);
  EXPECT_FALSE(proveDecode(wrong, values, "f16"));
}

// A lane of 1024 + u, in the last bits of an f16: the exponent trick is among the forms.
TEST(LaneForms, HoldTheExponentTrick) {
  bool found = false;
  for (const LaneForm &form : laneForms(valuesOf("u4"), dsl::ElementType::get("f16"), true))
    if (form.places == 0xf && form.affine && form.constant == 0x6400) {
      found = true;
      EXPECT_EQ(form.slope, 1);
      EXPECT_EQ(form.offset, -1024);
    }
  EXPECT_TRUE(found);
}

// Of codes that stand for 0 and 1 alone three bits are never set: they have no places of their own.
TEST(LaneForms, AreFewWhereBitsAreNeverSet) {
  const double none = std::nan("");
  std::vector<double> bit(16, none), ternary(16, none);
  bit[0] = ternary[0] = 0;
  bit[1] = ternary[1] = 1;
  ternary[15] = -1;
  for (const std::vector<double> &values : {bit, ternary}) {
    EXPECT_LT(laneForms(values, dsl::ElementType::get("f16"), true).size(), 20U);
    EXPECT_EQ(knownDecodes(values, "f16", -24).at(0).sequence.instructions(), 7);
  }
}

TEST(Throughput, TheBusiestPipeDecides) {
  EXPECT_EQ(cycles({.logic = 4, .f16 = 4}, rates), 8);
  EXPECT_EQ(cycles({.logic = 5, .f16 = 4}, rates), 10);
  EXPECT_EQ(cycles({.logic = 4, .f16 = 4, .shiftLeft = 1}, rates), 9); // beside multiplications
  EXPECT_EQ(cycles({.multiply = 6}, rates), 12);
  EXPECT_EQ(cycles({.logic = 4, .bf16 = 6}, ampereRates), 12);
}

// What the rates of other architectures would choose, where that is not what is in use.
TEST(Throughput, RatesOfOtherArchitectures) {
  std::vector<std::string> others;
  for (const char *element : {"s2", "s3", "s4", "s5", "s6", "s7", "e2m1", "e2m3", "e3m2"})
    for (const char *mmaType : {"f16", "bf16"})
      for (auto [name, own] :
           {std::pair{"8.0", ampereRates}, {"8.6", adaRates}, {"12.0", blackwellRates}}) {
        const DecodeProgram used =
                                knownDecodes(valuesOf(element), mmaType, -24)[0].sequence.program,
                            best = synthesizeDecode(valuesOf(element), mmaType, -24, own)[0]
                                       .sequence.program;
        if (countInstructions(used).total() != countInstructions(best).total() ||
            cycles(countInstructions(used), own) != cycles(countInstructions(best), own))
          others.push_back(std::string(element) + " to " + mmaType + " on " + name + ": " +
                           std::to_string(countInstructions(best).total()) + " instructions, " +
                           std::to_string(cycles(countInstructions(best), own)) + " cycles for " +
                           std::to_string(countInstructions(used).total()) + ", " +
                           std::to_string(cycles(countInstructions(used), own)));
      }
  EXPECT_THAT(others,
              testing::ElementsAre("s3 to bf16 on 8.0: 41 instructions, 48 cycles for 47, 48",
                                   "s3 to bf16 on 8.6: 41 instructions, 48 cycles for 47, 48",
                                   "s3 to bf16 on 12.0: 41 instructions, 41 cycles for 47, 47",
                                   "s5 to bf16 on 12.0: 48 instructions, 48 cycles for 51, 51",
                                   "e2m3 to bf16 on 12.0: 30 instructions, 30 cycles for 31, 31"));
}

std::string row(const std::string &element, const char *mmaType, const SynthesizedDecode &found,
                int instructions, const std::string &source) {
  std::ostringstream out;
  out << "| " << element << " | " << mmaType << " | 2^" << found.sequence.log2Factor << " | "
      << found.sequence.instructions() * 8 / found.sequence.codes << " | ";
  if (instructions > 0)
    out << instructions;
  else
    out << "none known";
  out << " | " << source << " |\n";
  return out.str();
}

// "s4 from -7": what a requirement leaves of the codes.
std::vector<double> numbersOf(std::string_view element) {
  const std::string type(element.substr(0, element.find(' ')));
  std::vector<double> numbers = valuesOf(type.c_str());
  if (type != element)
    numbers[8] = std::nan("");
  return numbers;
}

// docs/DECODE.md has the table that this makes.
TEST(Synthesis, IsNoLongerThanWhatIsPublished) {
  std::string table;
  for (const Published &known : published) {
    const SynthesizedDecode &found =
        knownDecodes(numbersOf(known.element), known.mmaType, known.leastLog2).at(0);
    if (known.instructions > 0)
      EXPECT_LE(found.sequence.instructions() * 8 / found.sequence.codes, known.instructions)
          << known.element << " to " << known.mmaType;
    table += row(known.element, known.mmaType, found, known.instructions, known.source);
  }
  for (const char *mmaType : {"f16", "bf16"})
    table += row("NF4", mmaType, synthesizeDecode(normalFloat4(mmaType), mmaType, -24, rates).at(0),
                 0, "");
  std::ifstream file(std::string(RHO_SOURCE_DIR) + "/docs/DECODE.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos) << "docs/DECODE.md lacks\n" << table;
}

} // namespace
} // namespace rho::compiler
