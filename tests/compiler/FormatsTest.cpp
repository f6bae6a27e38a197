// Every class of values that a format can have, executed on the emulator against the exact
// reference: widths of elements, tables, zero points, offsets, levels of scales, blocks of rows.
#include "tests/compiler/EmulatedGemm.h"

#include <gtest/gtest.h>

#include <array>

namespace rho::test {
namespace {

struct Weight {
  std::string name, declaration;
};

Weight product(const std::string &name, const std::string &element, const std::string &scale) {
  return {name, "format " + name + " { element: " + element + " scale: " + scale +
                    " value = element * scale }\n"};
}

struct Way {
  const char *schedule, *target;
  GemmShape shape;
};
constexpr Way uniform{
    "roles: uniform tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 2", "sm_80", {5, 70, 328}};
constexpr Way warpgroups{
    "roles: imfp tile: 32 x 64 x 128 warps: 1 x 4 pipeline: 2", "sm_90a", {9, 80, 256}};
constexpr Way narrow{
    "roles: imfp tile: 16 x 32 x 128 warps: 1 x 2 x 2 pipeline: 4", "sm_90a", {9, 80, 256}};
constexpr Way three{// warpgroups
                    "roles: imfp tile: 32 x 192 x 128 warps: 1 x 12 pipeline: 2",
                    "sm_90a",
                    {9, 200, 256}};
constexpr Way decodedApart{
    "roles: excp tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 2", "sm_90a", {9, 80, 256}};
constexpr Way vectors{"roles: gemv tile: 2 x 32 x 128 warps: 1 x 1 x 4", "sm_80", {2, 70, 328}};

void expectWithinBound(const Weight &weight, const std::string &activation, const Way &way,
                       const std::string &scales = "") {
  SCOPED_TRACE(weight.name + " x " + activation + " " + way.schedule);
  test::expectWithinBound({weight.name, activation, "f32", way.schedule + scales, way.target,
                           way.shape, weight.declaration});
}

const char *const ways[] = {"f16", "bf16"};

class Widths : public testing::TestWithParam<int> {};

// Integer elements of every width, in planes where it is no power of two. Which activation meets
// which sign in which family takes turns.
TEST_P(Widths, OfElementsAreWithinTheBound) {
  int bits = GetParam();
  std::array families{uniform, warpgroups, vectors, narrow, three};
  int turn = bits;
  for (const char *sign : {"s", "u"})
    for (const char *activation : {"f16", "bf16", "int8_token"}) {
      bool isByte = std::string(activation) == "int8_token";
      if (isByte && sign[0] == 'u' && bits == 8)
        continue; // exceeds s8
      Weight weight = product("w", sign + std::to_string(bits), "f16 per k[64]");
      expectWithinBound(weight, activation,
                        families[static_cast<size_t>(turn++) % families.size()]);
    }
}
INSTANTIATE_TEST_SUITE_P(All, Widths, testing::Range(2, 9),
                         [](const auto &info) { return "bits" + std::to_string(info.param); });

TEST(Widths, InEveryFamily) {
  Weight weight = product("w", "u7", "f16 per k[64]"); // three planes
  for (const Way &way : {uniform, warpgroups, narrow, three, decodedApart, vectors})
    for (const char *activation : {"f16", "int8_token"})
      expectWithinBound(weight, activation, way);
}

TEST(Widths, WithFourBitActivations) {
  for (const char *element : {"s2", "s3", "u3"})
    expectWithinBound(product("w", element, "f16 per k[64]"), "int4_token", uniform);
}

TEST(Floats, AreWithinTheBound) {
  for (const char *element : {"e2m3", "e3m2", "e4m3", "e5m2"})
    for (const char *activation : ways)
      expectWithinBound(product("w", element, "f32 per k[128]"), activation,
                        activation[0] == 'f' ? uniform : warpgroups);
  expectWithinBound(product("w", "e3m2", "f32 per channel"), "fp8_token", warpgroups);
}

// Finite elements above 65504: f16 holds them times a power of two alone.
TEST(Floats, BeyondF16AreWithinTheBound) {
  for (const char *element : {"e5m1", "e5m2f", "ue5m2f", "e5m0"})
    for (const Way &way : {uniform, narrow, vectors})
      expectWithinBound(product("w", element, "f16 per k[64]"), "f16", way);
}

// Tables of numbers that are subnormal in f16, or 0.
TEST(Codebooks, OfSmallNumbersAreWithinTheBound) {
  for (const char *element :
       {"codebook [-1e-8, -5e-9, 5e-9, 1e-8]", "codebook [-1e-6, -7e-7, 3e-7, 1e-6]",
        "codebook [-3e5, -1.1e5, 1e5, 2.3e5]"})
    for (const char *activation : ways)
      expectWithinBound(product("w", element, "f32 per k[64]"), activation, uniform);
}

// Operands that are the codes themselves, alone and with scales.
TEST(Floats, OfSixteenBitsAreWithinTheBound) {
  for (const char *type : ways) {
    for (const Way &way : {uniform, warpgroups, narrow, three, decodedApart, vectors})
      expectWithinBound({type, ""}, type, way);
    for (const Way &way : {uniform, warpgroups})
      expectWithinBound({"w", std::string("format w { element: ") + type +
                                  " scale: f32 per k[64] value = element * scale "
                                  "encode { scale = absmax(x) } }\n"},
                        type, way, " scales: accumulator");
  }
}

TEST(Codebooks, AreWithinTheBound) {
  std::string normal =
      "codebook [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, "
      "-0.0910500, 0, 0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, "
      "0.5626170, 0.7229568, 1.0]";
  for (const char *activation : ways)
    expectWithinBound(product("nf4", normal, "f32 per k[64]"), activation,
                      activation[0] == 'f' ? uniform : warpgroups);
  std::string odd = "codebook [-15, -9, -5, -1, 1, 5, 9, 15]";
  for (const char *activation : {"f16", "int8_token", "fp8_token"})
    expectWithinBound(product("odd", odd, "f16 per k[64]"), activation, warpgroups);
  expectWithinBound(product("odd", odd, "f16 per k[64]"), "f16", vectors);
}

// Types of scales, in both places where these may be applied.
TEST(Scales, OfEveryKindAreWithinTheBound) {
  for (const char *scale : {"e8m0 per k[32]", "ue4m3 per k[16]", "e3m3 per k[32]", "u6 per k[32]",
                            "s8 per k[64]", "e4m3 per k[32]"}) {
    std::string type(scale, std::string(scale).find(' '));
    std::string rule = type == "e8m0" ? " encode { scale = bit_floor(absmax(x)) / 4 }"
                       : type == "u6" || type == "s8" ? " encode { scale = 1 }"
                                                      : "";
    Weight weight{"w", "format w { element: e2m1 scale: " + std::string(scale) +
                           " value = element * scale" + rule + " }\n"};
    expectWithinBound(weight, "bf16", uniform, " scales: operand");
    expectWithinBound(weight, "f16", warpgroups, " scales: accumulator");
  }
  expectWithinBound(product("w", "e2m1", "e8m0 per k[32]"), "bf16", vectors);
}

TEST(Scales, OfSeveralLevelsAreWithinTheBound) {
  Weight weight{"w", "format w { element: s6 fine: s8 per k[16] d: f16 per k[128] "
                     "value = element * fine * d "
                     "encode { d = absmax(x) / 31 / 127 fine = absmax(x / d) / 31 } }\n"};
  expectWithinBound(weight, "bf16", uniform, " scales: operand");
  expectWithinBound(weight, "f16", uniform, " scales: accumulator");
  expectWithinBound(weight, "bf16", warpgroups, " scales: operand");
  expectWithinBound(weight, "bf16", vectors, " scales: operand");
}

// Of scales with more than 8 bits it is not known how small they are: operands of f16 have no room
// for a factor of 1/2^24 that a decode of integers leaves out.
TEST(Scales, OfManyBitsInOperandsAreWithinTheBound) {
  const std::string factors[] = {
      "scale: e5m3i per k[8] value = element * scale",
      "scale: e4m7 per k[8] value = element * scale",
      "scale: ue4m6 per k[16] value = element * scale",
      "scale: f16 per k[16] step: u1 per k[16] value = element * scale * "
      "step encode { step = 1 scale = absmax(x) / 3 }",
      "scale: e4m7 per k[8] step: e3m2 per k[64] value = element * scale "
      "* step encode { step = 1 scale = absmax(x) / 3 }"};
  for (const char *element : {"u2", "u4", "e2m1"})
    for (const std::string &factor : factors)
      for (const Way &way : {uniform, warpgroups})
        expectWithinBound(
            {"w", "format w { element: " + std::string(element) + " " + factor + " }\n"}, "f16",
            way);
}

// The only decode of these numbers leaves out more than a scale of f16 can take.
TEST(Scales, BesideADecodeThatLeavesOutTooMuchAreWithinTheBound) {
  const Weight weight{"w", "format w { element: s8 s: f16 per k[128] value = (element * 2 | 1) * s "
                           "encode { s = absmax(x) / 100 } }\n"};
  for (const char *activation : {"f16", "int4_token"})
    for (const Way &way : {uniform, warpgroups})
      expectWithinBound(weight, activation, way);
}

// Several factors of the element are one function of it.
TEST(Elements, InSeveralFactorsAreWithinTheBound) {
  for (const char *value :
       {"element * element", "(element - 8) * element", "element * scale * element"})
    for (const char *activation : {"f16", "bf16", "int8_token"}) {
      const bool hasScale = std::string_view(value).find("scale") != std::string_view::npos;
      const Weight weight{"w", "format w { element: " + std::string(value[0] == '(' ? "u4" : "s4") +
                                   " scale: f16 per k[64] value = " + value +
                                   (hasScale ? "" : " * scale") +
                                   " encode { scale = absmax(x) / 64 } }\n"};
      for (const Way &way : {uniform, warpgroups})
        expectWithinBound(weight, activation, way);
    }
}

// A special value of the tensor with the selector in its spare bits, or that is the selector.
TEST(Remap, OfANumberThatStandsBesideTheSelectorIsWithinTheBound) {
  for (const std::string components :
       {"remap 8 to [sp, -sp] by sel s: f16 per k[16] sp: e3m3 per tensor sel: u1 in sp value = "
        "element * s encode { sp = 5 sel = best(0, 1) }",
        "remap 8 to [sel, 2] by sel s: f16 per k[16] sel: u1 per tensor value = element * s "
        "encode { sel = best(0, 1) }"})
    for (const Way &way : {uniform, warpgroups, vectors})
      expectWithinBound({"w", "format w { element: s4 " + components + " }\n"}, "f16", way);
}

// What is applied to sums leaves numbers of any size to operands: f16 has no room for these.
TEST(Scales, OfManyBitsBesideOthersAreWithinTheBound) {
  Weight group{"w",
               "format w { element: s4 block: f16 per k[32] all: f32 per tensor value = element * "
               "block * all encode { all = absmax(x) / 7 / 57344 block = absmax(x / all) / 7 } "
               "}\n"};
  for (const Way &way : {uniform, warpgroups, narrow})
    expectWithinBound(group, "f16", way);
  Weight sum{"w",
             "format w { element: u4 d: f32 per k[32] m: f32 per k[32] outer: f32 per channel "
             "value = (element * d + m) * outer encode { outer = absmax(x) / 120000 d = (max(x / "
             "outer) - min(x / outer)) / 15 m = min(x / outer) } }\n"};
  expectWithinBound(sum, "int8_token", uniform);
}

// Activations that are stored as numbers beside a factor of their own.
TEST(Activations, WithLiteralFactorsAreWithinTheBound) {
  Weight weight{"int4_g128",
                "format low { element: s3 scale: f32 per token value = element * scale * "
                "0.125 encode { scale = absmax(x) / 0.375 } }\n"};
  expectWithinBound(weight, "low", uniform);
  expectWithinBound({"int4_g128", ""}, "razer_g128", uniform);
}

// Kernels have groups of a power of two, of which a declared one may have several.
TEST(Groups, OfAnySizeAreWithinTheBound) {
  for (const char *group : {"48", "80", "144", "192"})
    for (const Way &way : {uniform, warpgroups, vectors})
      expectWithinBound(product("w", "s4", std::string("f16 per k[") + group + "]"), "f16", way);
  for (const char *group : {"96", "160", "224"})
    for (const Way &way : {uniform, warpgroups, decodedApart})
      expectWithinBound(product("w", "s4", std::string("f16 per k[") + group + "]"), "int8_token",
                        way);
  expectWithinBound(product("w", "s4", "f16 per k[48]"), "int8_token", uniform);
  Weight book{"w",
              "format w { element: codebook [-1.6, -0.9, -0.45, -0.1, 0.2, 0.55, 1, 1.7] "
              "fine: u4 per k[48] coarse: f16 per channel value = element * fine * coarse }\n"};
  for (const Way &way : {uniform, warpgroups, narrow, three, vectors})
    expectWithinBound(book, "f16", way);
  Weight zeros{"w", "format w { element: u4 scale: f16 per k[96] zero: u4 per k[48] "
                    "value = (element - zero) * scale }\n"};
  for (const Way &way : {uniform, warpgroups, vectors})
    expectWithinBound(zeros, "bf16", way);
}

// The halves of an instruction's k are of two groups.
TEST(Groups, OfHalfAnInstructionAreWithinTheBound) {
  for (const char *group : {"8", "24", "40"})
    for (const Way &way : {uniform, warpgroups, narrow, decodedApart})
      expectWithinBound(product("w", "s4", std::string("f16 per k[") + group + "]"), "f16", way);
  Weight fine{"w", "format w { element: e2m1 block: e4m3 per k[8] value = element * block }\n"};
  Weight levels{"w", "format w { element: s6 fine: u4 per k[8] d: f16 per k[128] "
                     "value = element * fine * d "
                     "encode { d = absmax(x) / 31 / 15 fine = absmax(x / d) / 31 } }\n"};
  Weight bytes{
      "w", "format w { element: u8 block: e4m3 per k[8] zero: u8 per k[8] "
           "value = (element - zero) * block encode { block = absmax(x) / 127 zero = 128 } }\n"};
  for (const Weight &weight : {fine, levels, bytes})
    for (const Way &way : {uniform, warpgroups})
      expectWithinBound(weight, "bf16", way);
  // Their products are rounded.
  for (const char *scale : {"f32 per k[8]", "f16 per k[24]"})
    for (const char *element : {"s4", "e2m1"})
      for (const Way &way : {uniform, warpgroups})
        expectWithinBound(product("w", element, scale), "bf16", way);
  Weight zeros{"w", "format w { element: u4 zero: u4 per k[16] scale: f16 per channel "
                    "value = (element - zero) * scale }\n"};
  Weight remapped{"w", "format w { element: e2m1 remap 8 to [5, -5] by s s: u1 per k[16] "
                       "scale: f16 per channel value = element * scale encode { s = best(0, 1) } "
                       "}\n"};
  for (const Weight &weight : {zeros, remapped})
    for (const Way &way : {uniform, warpgroups, vectors})
      expectWithinBound(weight, "int8_token", way);
  expectWithinBound(zeros, "fp8_token", warpgroups);
}

TEST(ZeroPoints, AreWithinTheBound) {
  Weight group{"w", "format w { element: u4 scale: f16 per k[64] zero: u4 per k[64] "
                    "value = (element - zero) * scale }\n"};
  for (const char *activation : {"f16", "bf16", "int8_token"})
    for (const Way &way : {uniform, warpgroups})
      expectWithinBound(group, activation, way);
  expectWithinBound(group, "int8_token", vectors);
  Weight wide{"w", "format w { element: u3 scale: f16 per channel zero: u8 per channel "
                   "value = (element + 3 - zero) * scale encode { scale = absmax(x) / 4 "
                   "zero = 7 } require element + 3 - zero >= -128 }\n"};
  for (const char *activation : {"f16", "int8_token"})
    expectWithinBound(wide, activation, uniform);
  Weight tensor{"w",
                "format w { element: s5 scale: f16 per k[128] zero: s4 per tensor "
                "value = (element - zero) * scale encode { scale = absmax(x) / 15 zero = 2 } }\n"};
  for (const Way &way : {uniform, warpgroups, narrow, three, vectors})
    expectWithinBound(tensor, "int8_token", way);
}

TEST(Offsets, AreWithinTheBound) {
  Weight one{"w", "format w { element: u4 scale: f16 per k[32] offset: f16 per k[32] "
                  "value = element * scale + offset }\n"};
  Weight two{"w", "format w { element: u4 fine: u6 per k[32] low: u6 per k[32] d: f16 per k[256] "
                  "dmin: f16 per k[256] value = element * (d * fine) - dmin * low encode { "
                  "d = (max(x) - min(x)) / 15 / 63 dmin = absmax(x) / 63 "
                  "fine = (max(x) - min(x)) / d / 15 low = max(0, -min(x) / dmin) } }\n"};
  for (const Weight &weight : {one, two})
    for (const char *activation : ways)
      for (const Way &way : {uniform, warpgroups})
        expectWithinBound(weight, activation, way);
  expectWithinBound(two, "f16", vectors);
  expectWithinBound(two, "f16", decodedApart);
}

// LiquidQuant's integers in operands of 16 bits.
TEST(Steps, AreWithinTheBoundInFloat) {
  for (const char *activation : ways)
    expectWithinBound({"liquidquant", ""}, activation, uniform);
}

TEST(RemappedCodes, AreWithinTheBound) {
  Weight weight{"w", "format w { element: e2m1 remap 8 to [5, -5, special, -special] by selector "
                     "block: ue3m3 per k[16] selector: u2 in block special: f16 per tensor "
                     "tensor: f32 per tensor value = element * block * tensor encode { "
                     "tensor = absmax(x) / 6 / 30 special = 8 block = absmax(x / tensor) / 6 "
                     "selector = best(0, 1, 2, 3) } }\n"};
  for (const char *activation : ways)
    for (const Way &way : {uniform, warpgroups})
      expectWithinBound(weight, activation, way);
  expectWithinBound(weight, "f16", vectors);
}

// The special value of the tensor as an integer, and constants, with a scale of 14 bits as well.
TEST(RemappedCodes, OfShippedFormatsAreWithinTheBound) {
  for (const char *name : {"razer_g16", "razer_g128", "razer_g128_searched"})
    for (const char *activation : ways) {
      expectWithinBound({name, ""}, activation, vectors);
      expectWithinBound(
          {name, ""}, activation,
          {"roles: gemv tile: 4 x 16 x 256 warps: 1 x 1 x 4", "sm_90a", {4, 50, 700}});
      expectWithinBound({name, ""}, activation, activation[0] == 'f' ? uniform : warpgroups,
                        " scales: accumulator");
    }
}

// Factors of a value in the spare bits of another, wherever they are applied.
TEST(SpareBits, HoldFactorsOfAnyPlacement) {
  Weight weight{"w", "format w { element: s4 scale: ue4m6 per k[64] step: u5 in scale "
                     "row: ue3m2 per channel half: ue2m1 in row all: ue5m8 per tensor u: u2 in all "
                     "value = element * scale * step * row * half * all * u encode { u = 3 "
                     "all = absmax(x) / 1000 half = 2 row = 1.5 step = 5 "
                     "scale = absmax(x / all / u / half / row) / 7 / 5 } }\n"};
  for (const Way &way : {uniform, warpgroups, vectors})
    for (const char *scales : {" scales: operand", " scales: accumulator"})
      expectWithinBound(weight, "bf16", way, scales);
  // Beside the element: parameters of a decode to bytes.
  Weight linear{"w", "format w { element: u4 step: u3 per k[64] low: u5 in step scale: f32 per "
                     "channel value = s8(element * step + low - 16) * scale "
                     "encode { scale = absmax(x) / 100 step = 5 low = 3 } }\n"};
  for (const Way &way : {uniform, warpgroups, vectors})
    expectWithinBound(linear, "int8_token", way);
}

// As Q3_K stores them, and with a mean of the scales (QLoRA).
TEST(Factors, ThatAreSumsAreWithinTheBound) {
  const Weight less{"w", "format w { element: s3 scale: u6 per k[16] d: f16 per k[256] "
                         "value = element * (d * (scale - 32)) "
                         "encode { d = absmax(x) / 4 / 31 scale = 32 + absmax(x / d) / 4 } }\n"};
  const Weight mean{"w", "format w { element: u4 zero: u4 per k[64] s: u8 per k[64] outer: f32 per "
                         "k[256] mean: f32 per tensor "
                         "value = (element - zero) * (s * outer + mean) "
                         "encode { mean = 0.0001 outer = absmax(x) / 15 / 255 "
                         "s = (max(x) - min(x)) / 15 / outer zero = 8 } }\n"};
  for (const Weight &weight : {less, mean})
    for (const char *activation : ways)
      for (const Way &way : {uniform, warpgroups})
        expectWithinBound(weight, activation, way);
}

TEST(Groups, ThatAreFinerThanWgmmaForCodesAreWithinTheBound) {
  constexpr Way planned{"pipeline: 3", "sm_90a", {9, 80, 384}};
  for (const char *group : {"f16 per k[16]", "f16 per k[48]"})
    for (const char *element : {"s4", "s8"})
      expectWithinBound(product("w", element, group), "int8_token", planned);
}

TEST(Blocks, OfRowsAreWithinTheBound) {
  Weight weight = product("w", "e4m3", "f32 per n[32] k[128]");
  expectWithinBound(weight, "fp8_token", warpgroups);
  expectWithinBound(weight, "f16", uniform);
  expectWithinBound(product("w", "s4", "f16 per n[3] k[64]"), "int8_token", vectors);
}

} // namespace
} // namespace rho::test
