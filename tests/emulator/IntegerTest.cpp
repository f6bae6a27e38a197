// Integer and bit instructions against formulas written from the PTX ISA's descriptions.
#include "tests/emulator/Harness.h"

#include <algorithm>
#include <functional>

namespace rho::emulator::test {
namespace {

using Formula = std::function<uint64_t(uint64_t, uint64_t, uint64_t)>;

void expectEach(const std::string &code, int width, const std::vector<Case> &cases,
                const Formula &formula) {
  std::vector<uint64_t> results = evaluate(code, width, cases);
  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    auto [a, b, c] = cases[i];
    ASSERT_EQ(results[i], formula(a, b, c))
        << code << " of 0x" << std::hex << a << ", 0x" << b << ", 0x" << c;
  }
}

int64_t s32(uint64_t x) { return int32_t(x); }
uint64_t u32(int64_t x) { return uint32_t(x); }

TEST(Integer, AddSubMulWrap) {
  expectEach("add.s32 %x32, %a32, %b32;", 32, integerCases(32),
             [](auto a, auto b, auto) { return u32(int64_t(a + b)); });
  expectEach("sub.u16 %x16, %a16, %b16;", 16, integerCases(16),
             [](auto a, auto b, auto) { return (a - b) & 0xffff; });
  expectEach("mul.lo.s32 %x32, %a32, %b32;", 32, integerCases(32),
             [](auto a, auto b, auto) { return u32(int64_t(a * b)); });
  expectEach("mul.lo.u16 %x16, %a16, %b16;", 16, integerCases(16),
             [](auto a, auto b, auto) { return (a * b) & 0xffff; });
  expectEach("mul.lo.u64 %x64, %a64, %b64;", 64, integerCases(64),
             [](auto a, auto b, auto) { return a * b; });
  expectEach("mad.lo.s64 %x64, %a64, %b64, %c64;", 64, integerCases(64),
             [](auto a, auto b, auto c) { return a * b + c; });
}

TEST(Integer, HighAndWideProducts) {
  expectEach("mul.hi.u32 %x32, %a32, %b32;", 32, integerCases(32),
             [](auto a, auto b, auto) { return a * b >> 32; });
  expectEach("mul.hi.s32 %x32, %a32, %b32;", 32, integerCases(32),
             [](auto a, auto b, auto) { return u32(s32(a) * s32(b) >> 32); });
  expectEach("mul.hi.u64 %x64, %a64, %b64;", 64, integerCases(64), [](auto a, auto b, auto) {
    return uint64_t(static_cast<unsigned __int128>(a) * b >> 64);
  });
  expectEach("mul.wide.s32 %x64, %a32, %b32;", 64, integerCases(32),
             [](auto a, auto b, auto) { return uint64_t(s32(a) * s32(b)); });
  expectEach("mul.wide.u16 %x32, %a16, %b16;", 32, integerCases(16),
             [](auto a, auto b, auto) { return a * b; });
  expectEach("mad.wide.s16 %x32, %a16, %b16, %c32;", 32, integerCases(16),
             [](auto a, auto b, auto c) { return u32(int64_t(int16_t(a)) * int16_t(b) + s32(c)); });
  expectEach("mad.hi.s32 %x32, %a32, %b32, %c32;", 32, integerCases(32),
             [](auto a, auto b, auto c) { return u32((s32(a) * s32(b) >> 32) + s32(c)); });
}

TEST(Integer, DivisionRoundsToZeroAndSurvivesZero) {
  auto cases = integerCases(32);
  expectEach("div.s32 %x32, %a32, %b32;", 32, cases, [](auto a, auto b, auto) -> uint64_t {
    return s32(b) == 0 ? 0xffffffffu : u32(s32(a) / s32(b));
  });
  expectEach("rem.s32 %x32, %a32, %b32;", 32, cases, [](auto a, auto b, auto) -> uint64_t {
    return s32(b) == 0 ? 0xffffffffu : u32(s32(a) % s32(b));
  });
  expectEach("div.u64 %x64, %a64, %b64;", 64, integerCases(64),
             [](auto a, auto b, auto) { return b == 0 ? ~uint64_t(0) : a / b; });
  EXPECT_EQ(evaluate("div.s64 %x64, %a64, %b64;", 64, {{uint64_t(1) << 63, ~uint64_t(0), 0}})[0],
            uint64_t(1) << 63);
}

TEST(Integer, MinMaxAbsNegSaturate) {
  auto cases = integerCases(32);
  expectEach("min.s32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) { return u32(std::min(s32(a), s32(b))); });
  expectEach("max.u32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) { return std::max(a, b); });
  expectEach("abs.s32 %x32, %a32;", 32, cases,
             [](auto a, auto, auto) { return u32(std::abs(s32(a))); });
  expectEach("neg.s64 %x64, %a64;", 64, integerCases(64), [](auto a, auto, auto) { return 0 - a; });
  auto clamp = [](int64_t x) {
    return u32(std::clamp<int64_t>(x, -(int64_t(1) << 31), (int64_t(1) << 31) - 1));
  };
  expectEach("add.sat.s32 %x32, %a32, %b32;", 32, cases,
             [&](auto a, auto b, auto) { return clamp(s32(a) + s32(b)); });
  expectEach("sub.sat.s32 %x32, %a32, %b32;", 32, cases,
             [&](auto a, auto b, auto) { return clamp(s32(a) - s32(b)); });
  expectEach("sad.u32 %x32, %a32, %b32, %c32;", 32, cases,
             [](auto a, auto b, auto c) { return u32(int64_t((a > b ? a - b : b - a) + c)); });
}

TEST(Integer, Dp4aMultipliesBytesOfBothSigns) {
  auto cases = integerCases(32);
  expectEach("dp4a.s32.u32 %x32, %a32, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    int64_t sum = s32(c);
    for (int i = 0; i < 4; ++i)
      sum += int64_t(int8_t(a >> 8 * i)) * uint8_t(b >> 8 * i);
    return u32(sum);
  });
  expectEach("dp4a.s32.s32 %x32, %a32, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    int64_t sum = s32(c);
    for (int i = 0; i < 4; ++i)
      sum += int64_t(int8_t(a >> 8 * i)) * int8_t(b >> 8 * i);
    return u32(sum);
  });
}

TEST(Bits, LogicAndShifts) {
  auto cases = integerCases(32);
  expectEach("and.b32 %x32, %a32, %b32;", 32, cases, [](auto a, auto b, auto) { return a & b; });
  expectEach("or.b16 %x16, %a16, %b16;", 16, integerCases(16),
             [](auto a, auto b, auto) { return a | b; });
  expectEach("xor.b64 %x64, %a64, %b64;", 64, integerCases(64),
             [](auto a, auto b, auto) { return a ^ b; });
  expectEach("not.b32 %x32, %a32;", 32, cases, [](auto a, auto, auto) { return u32(int64_t(~a)); });
  expectEach("shl.b32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) -> uint64_t { return b >= 32 ? 0 : u32(int64_t(a << b)); });
  expectEach("shr.u32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) -> uint64_t { return b >= 32 ? 0 : a >> b; });
  expectEach("shr.s32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) { return u32(s32(a) >> std::min<uint64_t>(b, 31)); });
  expectEach("shr.s16 %x16, %a16, %b32;", 16, integerCases(16), [](auto a, auto b, auto) {
    return uint64_t(uint16_t(int16_t(a) >> std::min<uint64_t>(b, 15)));
  });
  expectEach(
      "shl.b64 %x64, %a64, %b32;", 64, integerCases(64),
      [](auto a, auto b, auto) -> uint64_t { return uint32_t(b) >= 64 ? 0 : a << uint32_t(b); });
}

TEST(Bits, Lop3FollowsItsTable) {
  std::mt19937_64 random = repeatable(3);
  auto cases = integerCases(32, 50);
  for (int i = 0; i < 24; ++i) {
    unsigned table = i < 4 ? std::array{0xeau, 0x6au, 0xc0u, 0x96u}[size_t(i)] : random() & 255;
    expectEach("lop3.b32 %x32, %a32, %b32, %c32, " + std::to_string(table) + ";", 32, cases,
               [table](auto a, auto b, auto c) {
                 uint64_t result = 0;
                 for (int bit = 0; bit < 32; ++bit) {
                   unsigned index = unsigned(a >> bit & 1) << 2 | unsigned(b >> bit & 1) << 1 |
                                    unsigned(c >> bit & 1);
                   result |= uint64_t(table >> index & 1) << bit;
                 }
                 return result;
               });
  }
}

uint8_t byteOf(uint64_t a, uint64_t b, unsigned selector) {
  uint8_t bytes[8];
  for (int i = 0; i < 4; ++i) {
    bytes[i] = uint8_t(a >> 8 * i);
    bytes[i + 4] = uint8_t(b >> 8 * i);
  }
  uint8_t byte = bytes[selector & 7];
  return selector & 8 ? uint8_t(byte & 0x80 ? 0xff : 0) : byte;
}

TEST(Bits, PrmtSelectsBytesInEveryMode) {
  auto cases = integerCases(32);
  expectEach("prmt.b32 %x32, %a32, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i)
      result |= uint64_t(byteOf(a, b, unsigned(c >> 4 * i & 15))) << 8 * i;
    return result;
  });
  // The table of the ISA: bytes d.b3 d.b2 d.b1 d.b0 for selectors 0 to 3.
  struct Mode {
    const char *name;
    unsigned bytes[4][4];
  };
  const Mode modes[] = {
      {"f4e", {{3, 2, 1, 0}, {4, 3, 2, 1}, {5, 4, 3, 2}, {6, 5, 4, 3}}},
      {"b4e", {{5, 6, 7, 0}, {6, 7, 0, 1}, {7, 0, 1, 2}, {0, 1, 2, 3}}},
      {"rc8", {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}},
      {"ecl", {{3, 2, 1, 0}, {3, 2, 1, 1}, {3, 2, 2, 2}, {3, 3, 3, 3}}},
      {"ecr", {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 0}, {3, 2, 1, 0}}},
      {"rc16", {{1, 0, 1, 0}, {3, 2, 3, 2}, {1, 0, 1, 0}, {3, 2, 3, 2}}},
  };
  for (const Mode &mode : modes)
    expectEach("prmt.b32." + std::string(mode.name) + " %x32, %a32, %b32, %c32;", 32, cases,
               [&](auto a, auto b, auto c) {
                 uint64_t result = 0;
                 for (int i = 0; i < 4; ++i)
                   result |= uint64_t(byteOf(a, b, mode.bytes[c & 3][3 - i])) << 8 * i;
                 return result;
               });
}

TEST(Bits, FieldsFollowTheIsasLoops) {
  std::vector<Case> cases;
  std::mt19937_64 random = repeatable(5);
  for (uint64_t position : {0, 1, 5, 16, 31, 32, 40, 255})
    for (uint64_t length : {0, 1, 4, 16, 31, 32, 33, 255})
      cases.push_back({random() & 0xffffffff, position, length});
  auto bfe = [](bool isSigned) {
    return [isSigned](uint64_t a, uint64_t b, uint64_t c) {
      // The ISA's description of bfe, bit by bit.
      unsigned pos = b & 255, len = c & 255, msb = 31;
      unsigned sbit = !isSigned || len == 0 ? 0 : unsigned(a >> std::min(pos + len - 1, msb) & 1);
      uint64_t d = 0;
      for (unsigned i = 0; i <= msb; ++i)
        d |= uint64_t(i < len && pos + i <= msb ? unsigned(a >> (pos + i) & 1) : sbit) << i;
      return d;
    };
  };
  expectEach("bfe.u32 %x32, %a32, %b32, %c32;", 32, cases, bfe(false));
  expectEach("bfe.s32 %x32, %a32, %b32, %c32;", 32, cases, bfe(true));
  expectEach("bfi.b32 %x32, %a32, 0x12345678, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    uint64_t f = 0x12345678;
    for (unsigned i = 0; i < (c & 255) && (b & 255) + i <= 31; ++i) {
      unsigned at = unsigned(b & 255) + i;
      f = (f & ~(uint64_t(1) << at)) | (a >> i & 1) << at;
    }
    return f;
  });
}

TEST(Bits, CountsAndFunnelShifts) {
  auto cases = integerCases(32);
  auto countBits = [](uint64_t a) {
    uint64_t n = 0;
    for (; a; a &= a - 1)
      ++n;
    return n;
  };
  auto leading = [](uint64_t a, int width) {
    uint64_t n = 0;
    for (int i = width - 1; i >= 0 && !(a >> i & 1); --i)
      ++n;
    return n;
  };
  expectEach("popc.b32 %x32, %a32;", 32, cases, [&](auto a, auto, auto) { return countBits(a); });
  expectEach("popc.b64 %x32, %a64;", 32, integerCases(64),
             [&](auto a, auto, auto) { return countBits(a); });
  expectEach("clz.b32 %x32, %a32;", 32, cases, [&](auto a, auto, auto) { return leading(a, 32); });
  expectEach("bfind.u32 %x32, %a32;", 32, cases, [&](auto a, auto, auto) -> uint64_t {
    return a == 0 ? 0xffffffff : 31 - leading(a, 32);
  });
  expectEach("bfind.s32 %x32, %a32;", 32, cases, [&](auto a, auto, auto) -> uint64_t {
    uint64_t m = s32(a) < 0 ? uint32_t(~a) : a;
    return m == 0 ? 0xffffffff : 31 - leading(m, 32);
  });
  expectEach("brev.b32 %x32, %a32;", 32, cases, [](auto a, auto, auto) {
    uint64_t r = 0;
    for (int i = 0; i < 32; ++i)
      r |= (a >> i & 1) << (31 - i);
    return r;
  });
  expectEach("shf.l.wrap.b32 %x32, %a32, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    unsigned n = c & 31;
    return n == 0 ? b : uint32_t(b << n | a >> (32 - n));
  });
  expectEach("shf.r.clamp.b32 %x32, %a32, %b32, %c32;", 32, cases, [](auto a, auto b, auto c) {
    uint64_t n = std::min<uint64_t>(c, 32);
    return n == 0 ? a : n == 32 ? b : uint32_t(b << (32 - n) | a >> n);
  });
}

TEST(Compare, SetpCoversSignsAndCombinations) {
  auto cases = integerCases(32);
  expectEach("setp.lt.s32 %q, %a32, %b32;", 1, cases,
             [](auto a, auto b, auto) { return s32(a) < s32(b); });
  expectEach("setp.hi.u32 %q, %a32, %b32;", 1, cases, [](auto a, auto b, auto) { return a > b; });
  expectEach("setp.ls.u32 %q, %a32, %b32;", 1, cases, [](auto a, auto b, auto) { return a <= b; });
  expectEach("setp.ge.u64 %q, %a64, %b64;", 1, integerCases(64),
             [](auto a, auto b, auto) { return a >= b; });
  expectEach("setp.lt.u32 %p1, %b32, %c32; setp.eq.or.s32 %q, %a32, %b32, %p1;", 1, cases,
             [](auto a, auto b, auto c) { return a == b || b < c; });
  expectEach("setp.lt.u32 %p1, %b32, %c32; setp.ne.and.b32 %p2|%q, %a32, %b32, !%p1;", 1, cases,
             [](auto a, auto b, auto c) { return a == b && b >= c; });
  expectEach("setp.lt.u32 %p1, %a32, %b32; setp.lt.u32 %p2, %b32, %c32; xor.pred %q, %p1, %p2;", 1,
             cases, [](auto a, auto b, auto c) { return (a < b) != (b < c); });
  expectEach("setp.lt.u32 %p1, %a32, %b32; not.pred %p2, %p1; mov.pred %q, %p2;", 1, cases,
             [](auto a, auto b, auto) { return a >= b; });
  expectEach("setp.lt.u32 %p1, %a32, %b32; selp.b32 %x32, %a32, %c32, %p1;", 32, cases,
             [](auto a, auto b, auto c) { return a < b ? a : c; });
  expectEach("slct.b32.s32 %x32, %a32, %b32, %c32;", 32, cases,
             [](auto a, auto b, auto c) { return s32(c) >= 0 ? a : b; });
  expectEach("set.gt.u32.s32 %x32, %a32, %b32;", 32, cases,
             [](auto a, auto b, auto) { return s32(a) > s32(b) ? 0xffffffffu : 0u; });
}

TEST(Move, PacksAndUnpacks) {
  auto cases = integerCases(16);
  expectEach("mov.b32 %x32, {%a16, %b16};", 32, cases,
             [](auto a, auto b, auto) { return a | b << 16; });
  expectEach("mov.b32 {%h1, %h2}, %a32; mov.b32 %x32, {%h2, %h1};", 32, integerCases(32),
             [](auto a, auto, auto) { return u32(int64_t(a >> 16 | a << 16)); });
  expectEach("mov.b64 {%r1, _}, %a64; mov.b32 %x32, %r1;", 32, integerCases(64),
             [](auto a, auto, auto) { return a & 0xffffffff; });
  expectEach("mov.b64 {%h1, %h2, %h3, %h4}, %a64; mov.b64 %x64, {%h4, %h3, %h2, %h1};", 64,
             integerCases(64), [](auto a, auto, auto) {
               return a >> 48 | (a >> 32 & 0xffff) << 16 | (a >> 16 & 0xffff) << 32 | a << 48;
             });
}

} // namespace
} // namespace rho::emulator::test
