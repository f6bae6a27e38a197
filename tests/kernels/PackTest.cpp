#include "tests/kernels/Layouts.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include <algorithm>
#include <bit>
#include <cmath>

using namespace rho;
using namespace rho::compiler;
using namespace rho::test;

namespace {

void setBit(std::vector<uint8_t> &bytes, int64_t bit, uint32_t value) {
  bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | value << (bit % 8));
}

// The definition in compiler/Layout.h, read literally: bit by bit.
std::vector<uint8_t> packNaively(const WeightLayout &layout, const QuantizedMatrix &weight) {
  std::vector<uint8_t> bytes(layout.bytes);
  for (const LayoutSection &section : layout.sections) {
    const Component &component = weight.format->components[section.component];
    int64_t rows = component.extent == Extent::Tensor && section.unitN == 1 ? 1 : layout.n;
    int64_t units = unitsOf(component, layout.k), copies = 1;
    if (component.extent == Extent::Group)
      copies = component.group / section.unitK;
    int64_t stored = copies > 1 ? divideUp(layout.k, section.unitK) : units;
    int64_t tileBytes = (section.tileN * section.tileK * section.codeBits + 7) / 8;
    for (int64_t tile = 0; tile < section.tilesN * section.tilesK; ++tile) {
      int64_t place = 0; // of those that exist
      for (int64_t position = 0; position >> section.order.size() == 0; ++position) {
        int64_t n = 0, unit = 0;
        for (size_t i = 0; i < section.order.size(); ++i)
          (section.order[i].axis == Axis::N ? n : unit) += (position >> i & 1)
                                                           << section.order[i].bit;
        if (n >= section.tileN)
          continue;
        n += tile / section.tilesK * section.tileN;
        unit += tile % section.tilesK * section.tileK;
        uint32_t code = 0;
        if (n < rows) // past the last unit what is in it
          code = weight.components[section.component].get(n / section.unitN * units +
                                                          std::min(unit, stored - 1) / copies);
        const auto unitBits = static_cast<int64_t>(section.unitBits.size());
        if (unitBits == 0)
          code =
              code >> section.shift & static_cast<uint32_t>((uint64_t(1) << section.codeBits) - 1);
        code ^= section.codeXor;
        if (!section.codeTable.empty())
          code = section.codeTable[code];
        const int64_t begin = (section.offset + tile * tileBytes) * 8;
        for (int bit = 0; bit < section.codeBits && unitBits == 0; ++bit)
          setBit(bytes, begin + place * section.codeBits + bit, code >> bit & 1);
        const int64_t codes = unitBits / section.codeBits;
        for (int64_t at = 0; at < unitBits; ++at)
          if (section.unitBits[static_cast<size_t>(at)] / 8 == place % codes)
            setBit(bytes, begin + place / codes * unitBits + at,
                   code >> section.unitBits[static_cast<size_t>(at)] % 8 & 1);
        ++place;
      }
    }
  }
  return bytes;
}

// The bits of so many codes in any order, as LayoutSection::unitBits has them.
std::vector<uint8_t> shuffledBits(int codes, int codeBits, std::mt19937 &random) {
  std::vector<uint8_t> bits;
  for (int code = 0; code < codes; ++code)
    for (int bit = 0; bit < codeBits; ++bit)
      bits.push_back(static_cast<uint8_t>(code * 8 + bit));
  std::shuffle(bits.begin(), bits.end(), random);
  return bits;
}

// The element in planes of so many bits each, low bits first, every plane in an order of its own.
WeightLayout inPlanes(WeightLayout layout, const std::vector<int> &planes, uint32_t seed) {
  LayoutSection whole = layout.sections[0];
  layout.sections.erase(layout.sections.begin());
  int shift = 0;
  for (int bits : planes) {
    LayoutSection plane = whole;
    plane.shift = shift;
    plane.codeBits = bits;
    plane.codeXor = whole.codeXor >> shift & ((1U << bits) - 1);
    plane.offset = layout.bytes;
    plane.order = randomOrder(std::countr_zero(static_cast<uint64_t>(whole.tileN)),
                              std::countr_zero(static_cast<uint64_t>(whole.tileK)), ++seed);
    plane.bytes = plane.tilesN * plane.tilesK * ((plane.tileN * plane.tileK * bits + 7) / 8);
    layout.bytes = (plane.offset + plane.bytes + 255) / 256 * 256;
    layout.sections.push_back(plane);
    shift += bits;
  }
  return layout;
}

// As its definition says, bit by bit; the layout is that of its text.
void expectPacks(const WeightLayout &layout, const QuantizedMatrix &weight) {
  Result<WeightLayout> read = WeightLayout::parse(layout.print());
  ASSERT_TRUE(read.ok()) << read.error().str();
  EXPECT_EQ(*read, layout);
  std::vector<uint8_t> packed(layout.bytes, 0xcd);
  Status status = pack(layout, weight, packed.data());
  ASSERT_TRUE(status.ok()) << status.error().str();
  EXPECT_EQ(packed, packNaively(layout, weight));
}

struct Case {
  std::string_view element;
  int64_t n, k;
  int bitsN, bitsK;
};

class PackTest : public testing::TestWithParam<Case> {};

TEST_P(PackTest, equalsTheDefinitionBitByBit) {
  Case c = GetParam();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::shared_ptr<Format> format = fourLevels(c.element);
    QuantizedMatrix weight = randomMatrix(format, c.n, c.k, seed);
    WeightLayout layout = makeLayout(*format, c.n, c.k, c.bitsN, c.bitsK, seed);
    expectPacks(layout, weight);
  }
}

INSTANTIATE_TEST_SUITE_P(
    widthsAndEdges, PackTest,
    testing::Values(Case{"s4", 64, 128, 4, 6}, Case{"s4", 1, 1, 3, 7}, Case{"u4", 33, 129, 5, 5},
                    Case{"s8", 17, 100, 3, 6}, Case{"e2m1", 40, 96, 3, 5}, Case{"u3", 19, 70, 2, 4},
                    Case{"s5", 9, 65, 1, 2}, Case{"u7", 5, 33, 0, 0}, Case{"s6", 8, 64, 3, 3},
                    Case{"f16", 12, 48, 2, 5}, Case{"s2", 70, 200, 6, 7}, Case{"f32", 3, 20, 1, 3}),
    [](const auto &info) {
      const Case &c = info.param;
      return std::string(c.element) + "_" + std::to_string(c.n) + "x" + std::to_string(c.k);
    });

// Sections one after the other, of as many bytes as their tiles have.
void placeSections(WeightLayout &layout) {
  layout.bytes = 0;
  for (LayoutSection &section : layout.sections) {
    section.offset = layout.bytes;
    section.bytes = section.tilesN * section.tilesK *
                    ((section.tileN * section.tileK * section.codeBits + 7) / 8);
    layout.bytes = (section.offset + section.bytes + 255) / 256 * 256;
  }
}

TEST(PackTest, TilesOfAnyNumberOfRowsEqualTheDefinitionBitByBit) {
  for (std::string_view element : {"s4", "u3", "e4m3"})
    for (int64_t rows : {3, 5, 6, 7, 12}) {
      std::shared_ptr<Format> format = fourLevels(element);
      QuantizedMatrix weight = randomMatrix(format, 37, 150, 1);
      int bits = std::bit_width(static_cast<uint64_t>(rows - 1));
      WeightLayout layout = makeLayout(*format, 37, 150, bits, 5, static_cast<uint32_t>(rows));
      for (LayoutSection &section : layout.sections)
        if (section.tileN > 1) {
          section.tileN = rows;
          section.tilesN = divideUp(layout.n, rows);
        }
      placeSections(layout);
      expectPacks(layout, weight);
    }
}

TEST(PackTest, PlanesAndCopiesEqualTheDefinitionBitByBit) {
  struct Planes {
    std::string_view element;
    std::vector<int> bits;
  };
  for (const Planes &planes : {Planes{"s3", {2, 1}}, Planes{"u5", {4, 1}}, Planes{"s6", {4, 2}},
                               Planes{"s7", {4, 2, 1}}, Planes{"e4m3", {2, 4, 2}}}) {
    std::shared_ptr<Format> format = fourLevels(planes.element);
    QuantizedMatrix weight = randomMatrix(format, 37, 150, 1);
    WeightLayout layout = inPlanes(makeLayout(*format, 37, 150, 3, 5, 2), planes.bits, 3);
    for (LayoutSection &section : layout.sections) {
      if (section.component == 2)
        section.codeBits = 8; // its 6 bits in a byte
      if (section.component != 4)
        continue;
      section.unitN = 64; // each of the 37 rows has a copy of the tensor's
      section.tileN = 8;
      section.tilesN = 5;
      section.order = randomOrder(3, 0, 1);
    }
    placeSections(layout);
    expectPacks(layout, weight);
  }
}

std::shared_ptr<Format> scaledBy48() {
  return productFormat("w", {component("element", "s4", Extent::Element),
                             component("scale", "f16", Extent::Group, 48)});
}
// Of 13 x 200 numbers: five groups, the last one short, whose codes are there for each unitK.
WeightLayout layoutOfCopies(const Format &format, int64_t unitK) {
  WeightLayout layout = makeLayout(format, 13, 200, 2, 5, 1);
  LayoutSection &scale = layout.sections[1];
  scale.unitK = unitK;
  scale.tileK = 4;
  scale.tilesK = (200 + 4 * unitK - 1) / (4 * unitK);
  scale.order = randomOrder(2, 2, 3);
  scale.bytes = scale.tilesN * scale.tilesK * 4 * 4 * 2;
  layout.bytes = (scale.offset + scale.bytes + 255) / 256 * 256;
  return layout;
}

TEST(PackTest, CopiesAlongKEqualTheDefinitionBitByBit) {
  for (int64_t unitK : {16, 8, 48}) {
    std::shared_ptr<Format> format = scaledBy48();
    expectPacks(layoutOfCopies(*format, unitK), randomMatrix(format, 13, 200, 1));
  }
}

// Where a bit of a group's selector says so, the numbers of its codes are stored negated.
TEST(PackTest, NegatesGroups) {
  auto format = productFormat("w", {component("element", "e2m1", Extent::Element),
                                    component("scale", "ue3m3", Extent::Group, 16),
                                    component("sign", "u2", Extent::Group, 48)});
  const int64_t rows = 13, k = 200;
  const QuantizedMatrix weight = randomMatrix(format, rows, k, 1);
  const WeightLayout plain = makeLayout(*format, rows, k, 2, 5, 1);
  for (int bit : {0, 1}) {
    WeightLayout layout = plain;
    layout.sections[0].negatedBy = 2;
    layout.sections[0].negatedBit = bit;
    EXPECT_EQ(WeightLayout::parse(layout.print()).value(), layout);
    QuantizedMatrix negated = weight;
    for (int64_t i = 0; i < rows * k; ++i) {
      const uint32_t code = weight.components[0].get(i),
                     sign = weight.components[2].get(i / k * 5 + i % k / 48);
      if ((sign >> bit & 1) != 0 && code % 8 != 0)
        negated.components[0].set(i, code ^ 8);
    }
    std::vector<uint8_t> packed(layout.bytes), expected(layout.bytes);
    ASSERT_TRUE(pack(layout, weight, packed.data()).ok());
    ASSERT_TRUE(pack(plain, negated, expected.data()).ok());
    EXPECT_EQ(packed, expected);
  }
  auto refusal = [&](const std::shared_ptr<Format> &format, size_t section, int by, int bit) {
    WeightLayout layout = makeLayout(*format, rows, k, 2, 5, 1);
    layout.sections[section].negatedBy = by;
    layout.sections[section].negatedBit = bit;
    std::vector<uint8_t> out(layout.bytes);
    return pack(layout, randomMatrix(format, rows, k, 1), out.data()).error().str();
  };
  auto expected = [](int section, const std::string &what) {
    return "error: a weight and its packed layout do not fit: section of component " +
           std::to_string(section) + ": " + what + " [layout_mismatch]\n";
  };
  EXPECT_EQ(refusal(format, 1, 2, 0),
            expected(1, "only elements of a weight without a residual are negated"));
  EXPECT_EQ(refusal(format, 0, 3, 0),
            expected(0, "the format has no component 3 to be negated by"));
  EXPECT_EQ(refusal(format, 0, 2, 2), expected(0, "it is negated by bit 2, 'sign' has 2"));
  auto lopsided = productFormat("w", {component("element", "s4", Extent::Element),
                                      component("sign", "u2", Extent::Group, 48)});
  EXPECT_EQ(refusal(lopsided, 0, 1, 0), expected(0, "its numbers have no opposites"));
}

// Codes renamed by a table, and their bits anywhere in a word.
TEST(PackTest, RenamedAndScatteredCodesEqualTheDefinitionBitByBit) {
  std::mt19937 random(5);
  for (std::string_view element : {"s4", "e2m1", "u2", "s8"})
    for (bool renamed : {false, true})
      for (bool scattered : {false, true}) {
        std::shared_ptr<Format> format = fourLevels(element);
        QuantizedMatrix weight = randomMatrix(format, 37, 150, 1);
        WeightLayout layout = makeLayout(*format, 37, 150, 3, 5, 2);
        LayoutSection &section = layout.sections[0];
        if (renamed) {
          section.codeXor = 0;
          section.codeTable.resize(size_t(1) << section.codeBits);
          std::iota(section.codeTable.begin(), section.codeTable.end(), 0);
          std::shuffle(section.codeTable.begin(), section.codeTable.end(), random);
        }
        if (scattered)
          section.unitBits = shuffledBits(32 / section.codeBits, section.codeBits, random);
        expectPacks(layout, weight);
      }
}

// Bits of codes anywhere in the words of a unit, in sections of 4, 2 and 1 bits for each code.
TEST(PackTest, CodesScatteredOverSectionsEqualTheDefinitionBitByBit) {
  std::mt19937 random(6);
  struct Unit {
    std::string_view element;
    std::vector<int> planes;
    int codes;
  };
  for (const Unit &unit : {Unit{"s3", {2, 1}, 32}, Unit{"u5", {4, 1}, 32}, Unit{"e2m3", {4, 2}, 16},
                           Unit{"s7", {4, 2, 1}, 32}})
    for (bool renamed : {false, true}) {
      std::shared_ptr<Format> format = fourLevels(unit.element);
      QuantizedMatrix weight = randomMatrix(format, 37, 150, 1);
      WeightLayout layout = inPlanes(makeLayout(*format, 37, 150, 3, 5, 2), unit.planes, 7);
      const int bits = format->element().type.bits();
      std::vector<uint8_t> table(renamed ? size_t(1) << bits : 0), scattered;
      std::iota(table.begin(), table.end(), 0);
      std::shuffle(table.begin(), table.end(), random);
      scattered = shuffledBits(unit.codes, bits, random);
      const std::vector<AxisBit> order = layout.sections.back().order;
      auto next = scattered.begin();
      for (LayoutSection &section : layout.sections) {
        if (section.component != 0)
          continue;
        section.codeXor = renamed ? 0 : 5;
        section.codeTable = table;
        section.order = order;
        const std::ptrdiff_t held = int64_t{section.codeBits} * unit.codes;
        section.unitBits.assign(next, next + held);
        next += held;
      }
      ASSERT_EQ(next, scattered.end());
      expectPacks(layout, weight);
      if (!renamed)
        continue;
      for (LayoutSection &section : layout.sections)
        if (section.component == 0)
          section.codeTable = {1, 0};
      std::vector<uint8_t> out(layout.bytes);
      const Status status = pack(layout, weight, out.data());
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().str(),
                "error: a weight and its packed layout do not fit: section of component 0: '" +
                    format->element().name + "' has codes of " + std::to_string(bits) +
                    " bits [layout_mismatch]\n");
    }
}

TEST(PackTest, refusesWhatDoesNotFit) {
  auto format = productFormat("int4", {component("element", "s4", Extent::Element),
                                       component("scale", "f16", Extent::Group, 16)});
  QuantizedMatrix weight = randomMatrix(format, 8, 32, 1);
  WeightLayout layout = makeLayout(*format, 8, 32, 2, 4, 1);
  std::vector<uint8_t> out(layout.bytes);
  auto packError = [&](const WeightLayout &layout, const QuantizedMatrix &weight) {
    Status status = pack(layout, weight, out.data());
    return status.ok() ? "packed" : status.error().str();
  };
  auto expected = [](const std::string &what) {
    return "error: a weight and its packed layout do not fit: " + what + " [layout_mismatch]\n";
  };
  EXPECT_EQ(packError(layout, randomMatrix(format, 8, 31, 1)),
            expected("the weight is 8 x 31, the layout is for 8 x 32"));
  WeightLayout changed = layout;
  changed.sections.pop_back();
  EXPECT_EQ(packError(changed, weight),
            expected("it has 0 bits of each code of 'scale', which has 16"));
  changed = layout;
  changed.sections[1].unitK = 32;
  EXPECT_EQ(packError(changed, weight),
            expected("section of component 1: one code stands for 32 columns, of 'scale' for 16"));
  changed = layout;
  changed.sections[0].tilesK = 1;
  EXPECT_EQ(packError(changed, weight),
            expected("section of component 0: its tiles do not cover 'element'"));
  changed = layout;
  changed.sections[0].codeBits = 3;
  changed.sections[0].codeXor = 0;
  EXPECT_EQ(packError(changed, weight),
            expected("it has 3 bits of each code of 'element', which has 4"));
  changed = layout;
  changed.sections[1].unitN = 4;
  EXPECT_EQ(packError(changed, weight),
            expected("section of component 1: one code stands for 4 rows, 'scale' has 8 for 8"));
  changed = layout;
  changed.sections[0].codeBits = 2;
  changed.sections[0].codeXor = 0;
  changed.sections.push_back(changed.sections[0]);
  changed.sections[2].shift = 3;
  changed.sections[2].offset = layout.bytes;
  changed.bytes = 2 * layout.bytes;
  EXPECT_EQ(packError(changed, weight), expected("component 0: its sections hold bit 2 nowhere"));
  QuantizedMatrix wide = weight;
  wide.components[0].set(5, 16);
  EXPECT_EQ(packError(layout, wide), expected("code 5 of 'element' is 16, 's4' has 4 bits"));
  auto floats = productFormat("fp8", {component("element", "e4m3", Extent::Element)});
  QuantizedMatrix none = randomMatrix(floats, 8, 32, 1);
  for (int64_t i = 0; i < 8 * 32; ++i)
    none.components[0].set(i, i == 77 ? 0xff : i == 99 ? 0x7f : 0x7e);
  std::vector<uint8_t> bytes(256);
  Status status = pack(makeLayout(*floats, 8, 32, 2, 4, 1), none, bytes.data());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().str(),
            expected("code 77 of 'element' is 255, no finite number in 'e4m3'"));
  QuantizedMatrix lacking = weight;
  lacking.components[1] = CodeArray(16, 3);
  EXPECT_EQ(packError(layout, lacking),
            expected("'scale' has 3 codes of 2 bytes, 16 of 2 are needed"));
}

// require EXPR <= 100 over u4 element, u8 scale and u8 offset.
std::shared_ptr<Format> guarded(ExprPtr expr) {
  auto format = productFormat("guarded", {component("element", "u4", Extent::Element),
                                          component("scale", "u8", Extent::Group, 16),
                                          component("offset", "u8", Extent::Group, 32)});
  format->requirements.push_back({std::move(expr), true, 100, {}});
  return format;
}

TEST(PackTest, refusesCodesThatBreakARequirementAndNamesTheFirst) {
  ExprPtr scaleAndOffset = binary(Expr::Op::Add, componentExpr(1), componentExpr(2));
  ExprPtr withElement = binary(
      Expr::Op::Add, binary(Expr::Op::Mul, componentExpr(0), componentExpr(1)), componentExpr(2));
  for (bool readsElement : {false, true}) {
    std::shared_ptr<Format> format = guarded(readsElement ? withElement : scaleAndOffset);
    QuantizedMatrix weight = randomMatrix(format, 200, 100, 1);
    for (int64_t i = 0; i < weight.components[1].size(); ++i)
      weight.components[1].set(i, static_cast<uint32_t>(i % 5));
    for (int64_t i = 0; i < weight.components[2].size(); ++i)
      weight.components[2].set(i, static_cast<uint32_t>(i % 25));
    WeightLayout layout = makeLayout(*format, 200, 100, 3, 5, 1);
    std::vector<uint8_t> out(layout.bytes);
    Status fine = pack(layout, weight, out.data());
    EXPECT_TRUE(fine.ok()) << fine.error().str();
    // Groups of 32: 4 a row. Of 16: 7 a row. The later breach must not win.
    weight.components[2].set(int64_t(190) * 4, 255);
    weight.components[2].set(int64_t(150) * 4 + 2, 101);
    Status status = pack(layout, weight, out.data());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().str(),
              "error: the codes at n=150, k=64 break a requirement of format 'guarded', every "
              "number of a packed weight must fulfil it [pack_breaks_requirement]\n");
    if (readsElement) {
      weight.components[2].set(int64_t(150) * 4 + 2, 90);
      weight.components[2].set(int64_t(190) * 4, 0);
      for (int64_t i = 0; i < weight.components[0].size(); ++i)
        weight.components[0].set(i, 1);
      weight.components[1].set(int64_t(150) * 7 + 5, 3);
      weight.components[0].set(int64_t(150) * 100 + 93, 4);
      EXPECT_NE(pack(layout, weight, out.data()).error().str().find("n=150, k=93"),
                std::string::npos);
    }
  }
}

} // namespace
