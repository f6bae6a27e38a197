#include "tests/kernels/Layouts.h"

#include <gtest/gtest.h>

#include <functional>

using namespace rho;
using namespace rho::compiler;
using namespace rho::test;

namespace {

TEST(LayoutTextTest, roundTripsRandomBitPermutations) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    WeightLayout layout = makeLayout(*fourLevels("s4"), 100 + seed, 1000 + 17 * seed,
                                     static_cast<int>(seed % 7), static_cast<int>(seed % 9), seed);
    Result<WeightLayout> back = WeightLayout::parse(layout.print());
    ASSERT_TRUE(back.ok()) << back.error().str();
    EXPECT_EQ(*back, layout);
    EXPECT_EQ(back->print(), layout.print());
  }
}

TEST(LayoutTextTest, isTheDocumentedText) {
  auto format = productFormat("int4", {component("element", "s4", Extent::Element)});
  WeightLayout layout = makeLayout(*format, 3, 5, 1, 1, 0);
  layout.sections[0].order = {{Axis::K, 0}, {Axis::N, 0}};
  EXPECT_EQ(layout.print(),
            "weight n=3 k=5 bytes=256\n"
            "section component=0 offset=0 bytes=12 shift=0 bits=4 tile_n=2 "
            "tile_k=2 unit_k=1 unit_n=1 tiles_n=2 tiles_k=3 negated_by=0 negated_bit=0 "
            "xor=0x8 table=- unit=- no_sign=0 sum=- order=k0,n0\n");
}

std::string layoutError(const std::string &text) {
  Result<WeightLayout> layout = WeightLayout::parse(text);
  return layout.ok() ? "parsed" : layout.error().str();
}

TEST(LayoutTextTest, namesTheLineAndWhatIsWrong) {
  const std::string head = "weight n=3 k=5 bytes=256\n";
  const std::string section = "section component=0 offset=0 bytes=12 shift=0 bits=4 tile_n=2 "
                              "tile_k=2 unit_k=1 unit_n=1 tiles_n=2 tiles_k=3 negated_by=0 "
                              "negated_bit=0 xor=0x8 table=- unit=- no_sign=0 sum=- order=";
  auto expected = [](int line, const std::string &what) {
    return "error: line " + std::to_string(line) + " of a weight layout cannot be read: " + what +
           " [layout_text_invalid]\n";
  };
  EXPECT_EQ(layoutError(""), expected(1, "'weight' is missing"));
  EXPECT_EQ(layoutError("weight k=5\n"), expected(1, "'n=' is missing"));
  EXPECT_EQ(layoutError("weight n=0 k=5 bytes=256\n"),
            expected(1, "'n' is not a number from 1 to 2147483648"));
  EXPECT_EQ(layoutError("weight n=3 k=5 bytes=256 more=1\n"),
            expected(1, "nothing may follow its last field"));
  EXPECT_EQ(layoutError(head + section + "k0,n0"), expected(2, "the line does not end"));
  EXPECT_EQ(layoutError(head + section + "k0;n0\n"),
            expected(2, "'order' is not a list such as k0,k1,n0"));
  EXPECT_EQ(layoutError(head + section + "k0,k0\n"),
            expected(2, "the order names a bit twice or beyond a tile"));
  EXPECT_EQ(layoutError(head + section + "k0,n1\n"),
            expected(2, "the order does not name each bit of a 2 x 2 tile once"));
  EXPECT_EQ(layoutError(head + section + "k0,n0\n" + section + "k0,n0\n"),
            expected(1, "component 0: its sections hold bit 0 twice"));
  std::string wide = section + "k0,n0\n";
  wide.replace(wide.find("0x8"), 3, "0x10");
  EXPECT_EQ(layoutError(head + wide), expected(2, "xor 0x10 is wider than a code"));
  for (const char *table : {"1,2", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,14", "0"}) {
    std::string twice = section + "k0,n0\n";
    twice.replace(twice.find("xor=0x8 table=-"), 15, std::string("xor=0x0 table=") + table);
    EXPECT_EQ(layoutError(head + twice), expected(2, "'table' does not rename codes of 4 bits"));
  }
  auto withUnit = [&](const std::string &unit) {
    std::string changed = section + "k0,n0\n";
    return head + changed.replace(changed.find("unit=-"), 6, "unit=" + unit);
  };
  // No words, a bit twice, bits of a ninth code, and more codes than a tile of 4 has.
  std::string bits;
  for (int code = 0; code < 8; ++code)
    for (int bit = 0; bit < 4; ++bit)
      bits += (bits.empty() ? "" : ",") + std::to_string(code * 8 + bit);
  for (const std::string &unit :
       {std::string("0,1,2"), "1" + bits.substr(1), "64" + bits.substr(1), bits})
    EXPECT_EQ(layoutError(withUnit(unit)),
              expected(2, "'unit' does not scatter codes of which it has 4 bits"));
  EXPECT_EQ(layoutError(withUnit("0,,2")),
            expected(2, "'table' and 'unit' are not lists such as 1,0"));
  std::string unaligned = section + "k0,n0\n";
  unaligned.replace(unaligned.find("offset=0"), 8, "offset=8");
  EXPECT_EQ(layoutError(head + unaligned), expected(2, "offset 8 is not a multiple of 256"));
  std::string small = section + "k0,n0\n";
  small.replace(small.find("bytes=12"), 8, "bytes=11");
  EXPECT_EQ(layoutError(head + small), expected(2, "its tiles have 12 bytes, the section has 11"));
  EXPECT_EQ(layoutError("weight n=3 k=5 bytes=8\n" + section + "k0,n0\n"),
            expected(1, "sections overlap or end past 8 bytes"));
}

// Codes of 3 bits, scattered over sections of 2 and 1 bits of each.
WeightLayout scatteredLayout() {
  WeightLayout layout = makeLayout(*fourLevels("s3"), 100, 256, 3, 5, 7);
  layout.sections[0].codeXor = 0;
  LayoutSection rest = layout.sections[0];
  layout.sections[0].codeBits = 2;
  rest.codeBits = 1;
  rest.shift = 2;
  rest.offset = layout.bytes;
  layout.bytes += rest.bytes;
  for (int i = 0; i < 96; ++i)
    (i < 64 ? layout.sections[0] : rest)
        .unitBits.push_back(static_cast<uint8_t>(i / 3 * 8 + i % 3));
  layout.sections.push_back(rest);
  return layout;
}

TEST(LayoutTextTest, sectionsOfScatteredCodesHoldEachBitOnce) {
  ASSERT_TRUE(WeightLayout::parse(scatteredLayout().print()).ok());
  auto problem = [](const std::function<void(LayoutSection &, LayoutSection &)> &change) {
    WeightLayout layout = scatteredLayout();
    change(layout.sections.front(), layout.sections.back());
    return layoutError(layout.print());
  };
  auto expected = [](const std::string &what) {
    return "error: line 1 of a weight layout cannot be read: component 0: " + what +
           " [layout_text_invalid]\n";
  };
  EXPECT_EQ(problem([](auto &, auto &rest) { rest.unitBits.clear(); }),
            expected("its sections have units of different codes"));
  EXPECT_EQ(problem([](auto &first, auto &rest) { rest.unitBits[0] = first.unitBits[0]; }),
            expected("its sections hold a bit twice"));
  EXPECT_EQ(problem([](auto &, auto &rest) { rest.unitBits[0] = 3; }),
            expected("its codes have no bit 3"));
}

TEST(LayoutTextTest, survivesEveryCutAndEveryChangedByte) {
  for (const WeightLayout &whole :
       {makeLayout(*fourLevels("s4"), 100, 256, 3, 5, 7), scatteredLayout()}) {
    std::string text = whole.print();
    for (size_t length = 0; length < text.size(); ++length)
      if (length == 0 || text[length - 1] != '\n')
        EXPECT_FALSE(WeightLayout::parse(std::string_view(text).substr(0, length)).ok()) << length;
    for (size_t at = 0; at < text.size(); ++at)
      for (char byte : {'\0', '\n', '9', '-', '=', '\xff'}) {
        std::string changed = text;
        changed[at] = byte;
        Result<WeightLayout> layout = WeightLayout::parse(changed);
        if (layout)
          EXPECT_EQ(WeightLayout::parse(layout->print()).value(), *layout);
      }
  }
}

} // namespace
