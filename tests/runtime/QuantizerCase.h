// What the tests of quantizers share: a format, how its codes are stored, and where.
#pragma once

#include "dsl/Division.h"
#include "dsl/StoredValues.h"
#include "runtime/Handles.h"
#include "runtime/Quantizer.h"
#include "runtime/QuantizerSource.h"
#include "runtime/Scalar.h"
#include "tests/runtime/Declarations.h"

#include <bit>

namespace rho {

// How codes are stored where that is not as the format has them.
struct StoredCodes {
  int elementBits = 0; // 0: those of the element
  int groupsPerWord = 1;
  std::vector<uint8_t> columnBits = {};
};

// The format named `a` of a text that declares formats.
inline std::shared_ptr<const dsl::Format> activationOf(const std::string &text) {
  Module module = parsed(
      (text +
       " format w { element: s4 value = element } gemm g { weight: w activation: a output: f32 }")
          .c_str());
  return std::make_shared<const dsl::Format>(module.impl().module.gemms[0].activation);
}

inline compiler::ActivationLayout layoutOf(const dsl::Format &format, int64_t k,
                                           const std::vector<StoredCodes> &stored,
                                           int64_t tileK = 64) {
  if (format.partition) {
    compiler::ActivationLayout layout{.k = k, .tileK = std::min(tileK, format.partition->blocks.k)};
    for (size_t part = 0; part < format.partition->parts.size(); ++part)
      layout.parts.push_back(layoutOf(*format.partition->parts[part].format, k,
                                      {part < stored.size() ? stored[part] : StoredCodes{}}));
    return layout;
  }
  const StoredCodes codes = stored.empty() ? StoredCodes{} : stored[0];
  const int bits = codes.elementBits ? codes.elementBits : format.element().type.bits();
  const int64_t unit = int64_t{1} << codes.columnBits.size();
  return {k, bits, (roundUp(k, unit) * bits / 8 + 16) / 16 * 16, codes.groupsPerWord,
          codes.columnBits};
}

// Buffers for m rows.
inline Activations::Impl buffersFor(const Device &device,
                                    std::shared_ptr<const dsl::Format> declared,
                                    std::shared_ptr<const dsl::Format> format,
                                    const compiler::ActivationLayout &layout, int64_t m) {
  Activations::Impl out;
  out.backend = device.impl().backend;
  out.declared = std::move(declared);
  out.format = std::move(format);
  out.layout = layout;
  out.m = m;
  EXPECT_EQ(errorText(out.allocate()), "");
  return out;
}

// m rows of k numbers, `stride` apart, as bits of a type.
inline Buffer inputOf(const Device &device, const std::vector<float> &x, int64_t m, int64_t k,
                      int64_t stride, ScalarType type) {
  const int64_t width = scalarBytes(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(m * stride * width));
  for (int64_t i = 0; i < m * k; ++i) {
    float number = x[static_cast<size_t>(i)];
    uint32_t code = std::bit_cast<uint32_t>(number);
    if (type != ScalarType::F32)
      code = dsl::ElementType::get(type == ScalarType::F16 ? "f16" : "bf16").encode(number);
    std::memcpy(bytes.data() + (i / k * stride + i % k) * width, &code, static_cast<size_t>(width));
  }
  Buffer data = must(device.allocate(static_cast<int64_t>(bytes.size())));
  EXPECT_TRUE(data.write(bytes.data(), data.bytes()));
  return data;
}

// A choice as Gemm::chooseParts makes it, of buffers without a gemm.
inline void choose(Activations::Impl &out, const std::vector<uint8_t> &choice) {
  out.memory->choice = choice;
  const std::vector<int32_t> wide(choice.begin(), choice.end());
  const std::vector<int32_t> table = tileTable(*out.format, choice, out.layout);
  EXPECT_TRUE(out.memory->scratch.write(wide.data(), static_cast<int64_t>(wide.size()) * 4,
                                        quantizerChoiceOffset));
  EXPECT_TRUE(out.memory->tiles.write(table.data(), out.memory->tiles.bytes()));
}

// Codes as Gemm::fixComponent gives them.
inline void fix(Activations::Impl &out, const std::map<int, uint32_t> &given) {
  out.memory->given = given;
  for (const auto &[index, code] : given)
    EXPECT_TRUE(out.backend->write(
        out.quantized[static_cast<size_t>(index)], &code,
        componentBytes(out.declared->components[static_cast<size_t>(index)].type)));
}

// The first byte that differs, padding included; empty: none.
inline std::string difference(const Activations::Impl &a, const Activations::Impl &b) {
  auto compare = [](const Buffer &left, const Buffer &right, const std::string &what) {
    std::vector<uint8_t> x(static_cast<size_t>(left.bytes())), y(x.size());
    if (x.empty())
      return std::string();
    EXPECT_TRUE(left.read(x.data(), left.bytes()) && right.read(y.data(), right.bytes()));
    auto [at, other] = std::mismatch(x.begin(), x.end(), y.begin());
    return at == x.end() ? ""
                         : what + ", byte " + std::to_string(at - x.begin()) + ": " +
                               std::to_string(*at) + " and " + std::to_string(*other);
  };
  std::string found = compare(a.memory->tiles, b.memory->tiles, "table of tiles");
  for (size_t i = 0; i < a.memory->components.size() && found.empty(); ++i)
    found =
        compare(a.memory->components[i], b.memory->components[i], "component " + std::to_string(i));
  return found;
}

struct QuantizerCase {
  std::string formats;
  std::vector<StoredCodes> stored = {}; // of each part
  std::vector<uint8_t> choice = {};     // of the first blocks, and so on; empty: by the numbers
  std::map<int, uint32_t> given = {};   // codes of components per tensor
  std::string numbers = {};             // stored in place of codes: their type
};

inline std::shared_ptr<const dsl::Format> storedAs(const QuantizerCase &test,
                                                   std::shared_ptr<const dsl::Format> format) {
  if (test.numbers.empty())
    return format;
  return std::make_shared<const dsl::Format>(
      dsl::valuesAs(dsl::ElementType::get(test.numbers), *format, false));
}

inline std::vector<uint8_t> choiceFor(const QuantizerCase &test, const dsl::Format &format,
                                      int64_t k) {
  std::vector<uint8_t> choice;
  if (!test.choice.empty())
    for (int64_t at = 0; at < k; at += format.partition->blocks.k)
      choice.push_back(test.choice[choice.size() % test.choice.size()]);
  return choice;
}

inline std::vector<QuantizerCase> quantizerCases() {
  const std::string s4 = "format low { element: s4 scale: f32 per token value = element * scale } ";
  const std::string s8 =
      "format high { element: s8 scale: f32 per token value = element * scale } ";
  auto mix = [](const std::string &parts, int block) {
    return "format a { partition per tensor k[" + std::to_string(block) + "] { " + parts + " } }";
  };
  return {
      {"format a { element: s4 scale: f16 per k[64] value = element * scale }", {{8}}},
      {"format a { element: e5m2 scale: ue3m3 per k[32] value = element * scale encode { scale = "
       "max(min(absmax(x), 8), e3m2(min(x)) / 2) / 4 } }"},
      // Places of codes change across groups.
      {"format a { element: s8 scale: f16 per k[24] value = element * scale }",
       {{8, 1, {4, 0, 1, 2, 3}}}},
      {"format a { element: bf16 value = element }"},
      // Extremes of quotients by what is negative.
      {"format a { element: s8 block: f16 per k[16] row: f32 per token value = element * block * "
       "row encode { row = min(x) / 127 block = max(max(x / row), -min(x / row)) / 127 } }"},
      // Two levels, the best of two candidates for each.
      {"format a { element: e2m1 block: e4m3 per k[16] row: f32 per token value = element * block "
       "* row encode { row = best(absmax(x) / 6 / 448, absmax(x) / 6 / 256) "
       "block = best(absmax(x / row) / 6, absmax(x / row) / 4) } }",
       {{4, 4}}},
      // As RaZeR's activations.
      {"format a { element: e2m1 remap 8 to [5, -5] by selector block: ue4m3 per k[16] "
       "selector: u1 in block token: f32 per token value = element * block * token }",
       {{4, 4}}},
      // Of integers, a code that is not -0; the best scale of what its selectors then make of it.
      {"format a { element: s4 remap 0 to [9, -9, 0.3, 5] by selector block: ue4m10 per k[32] "
       "selector: u2 in block value = element * block "
       "encode { block = best(absmax(x) / 9, absmax(x) / 7, 0) } }"},
      // As COMET's, with the order of codes that 8-bit instructions take.
      {s4 + s8 + mix("low: low high: high budget 20%", 128), {{}, {8, 1, {0, 3, 1, 2}}}},
      {s4 + s8 + mix("low: low high: high budget 20%", 128), {{8}, {}}, {1, 0, 0}},
      {"format g { element: s4 scale: f16 per k[64] value = element * scale } " + s8 +
           mix("low: g middle: high where absmax(x) >= 2.0 high: bf16 where max(x) - min(x) >= 5.0 "
               "budget 30%",
               64),
       {{}, {8, 1, {5, 0, 1, 2, 3, 4}}}},
      // What all rows share, alone and above others, by the numbers and given.
      {"format a { element: e4m3 scale: f32 per tensor value = element * scale }"},
      {"format a { element: e2m1 block: ue4m3 per k[16] second: f16 per tensor all: f32 per tensor "
       "value = element * block * second * all encode { all = 0.5 second = max(absmax(x), max(x) - "
       "min(x)) / 2688 block = best(absmax(x / all / second) / 6, absmax(x / all / second) / 4) } "
       "}",
       {{4, 4}}},
      {"format a { element: s8 scale: f32 per tensor value = element * scale }",
       {},
       {},
       {{1, 0x3d000000}}},
      {"format a { element: s8 one: f16 per tensor row: f32 per token two: bf16 per tensor value = "
       "element * row * one * two encode { one = max(x) two = -min(x) row = absmax(x / one) } }",
       {},
       {},
       {{3, 0x3f40}}},
      // Numbers in place of codes: of groups, of what is remapped, with what all rows share.
      {"format a { element: s5 scale: f16 per k[64] value = element * scale }", {}, {}, {}, "bf16"},
      {"format a { element: e3m3 block: ue4m3 per k[32] all: f32 per tensor value = element * "
       "block "
       "* all }",
       {},
       {},
       {},
       "f16"},
      {"format a { element: e2m1 remap 8 to [5, -5] by selector block: ue4m3 per k[16] "
       "selector: u1 in block token: f32 per token value = element * block * token }",
       {},
       {},
       {},
       "f16"},
      // Zero points and offsets, of rows, groups and the tensor; numbers in place of their codes.
      {"format a { element: u8 scale: f32 per token zero: u8 per token value = (element - zero) * "
       "scale }"},
      {"format a { element: u4 scale: f16 per k[32] zero: u4 per k[32] value = (element - zero) * "
       "scale }",
       {},
       {},
       {},
       "f16"},
      {"format a { element: u8 scale: f32 per tensor zero: u8 per tensor value = (element - zero) "
       "* "
       "scale }"},
      {"format a { element: u8 scale: f32 per tensor zero: u8 per tensor value = (element - zero) "
       "* "
       "scale }",
       {},
       {},
       {{1, 0x3d000000}}},
      {"format a { element: u5 scale: f32 per k[16] low: f32 per k[16] value = element * scale + "
       "low }",
       {{8}}},
      // Neither a product nor a line of integers.
      {"format a { element: e2m1 scale: f16 per token low: f16 per token value = bf16(element * "
       "scale) - low encode { scale = best(absmax(x) / 6, max(x) / 4) low = absmax(x) / 8 } }"},
      // Codebooks as elements and as scales.
      {"format a { element: codebook [-1, -0.6961928009986877, 0, 0, 0.1, 0.33791524171829224, 1, "
       "1.7, 2, 2.1, 2.2, 3, -5, -7, 0.5, 0.55] scale: codebook [0.25, 0.5, 1, 3.1] per k[24] "
       "value "
       "= element * scale }"},
      {"format a { element: codebook [-3, -1, 1.5, 2] scale: bf16 per k[64] value = element * "
       "scale }",
       {},
       {},
       {},
       "bf16"},
      // Numbers of the element's own type, whose scales nobody has.
      {"format a { element: bf16 scale: f16 per k[48] value = element * scale }",
       {},
       {},
       {},
       "bf16"},
      {"format a { element: f16 scale: codebook [0.25, 0.5, 0.75, 1] per token value = element * "
       "scale }",
       {},
       {},
       {},
       "f16"},
      {"format a { element: bf16 block: e8m0 per k[24] token: f32 per token value = element * "
       "block "
       "* token }",
       {},
       {},
       {},
       "bf16"},
      // Parts whose first one has levels, candidates and spare bits in rows.
      {"format low { element: e2m1 remap 8 to [5, -5] by selector block: ue4m3 per token selector: "
       "u1 in block row: f32 per token value = element * block * row encode { row = "
       "best(absmax(x) / 2688, absmax(x) / 1792) } } " +
       s8 + mix("low: low high: high budget 40%", 64)},
      // Integers of a narrower range: of a product, of a line, and of neither.
      {"format a { element: s8 scale: f32 per token value = element * scale require element >= "
       "-127 }"},
      {"format a { element: u4 scale: f16 per k[32] zero: u4 per k[32] value = (element - zero) * "
       "scale require element >= 2 require element <= 12 }"},
      {"format a { element: s4 scale: bf16 per token value = bf16(element * scale) require element "
       "<= -2 encode { scale = absmax(x) / 8 } }",
       {{8}}},
      // Quotients that are subnormal in f32, numbers beyond f32, offsets that cancel.
      {"format a { element: bf16 scale: f32 per token value = element * scale encode { scale = "
       "1099511627776 } }"},
      {"format a { element: e8m3 scale: f32 per token value = element * scale encode { scale = "
       "absmax(x) / 1e39 } }",
       {},
       {},
       {},
       "bf16"},
      {"format a { element: u8 scale: f32 per token low: f32 per token base: f32 per tensor value "
       "= "
       "element * scale + base + low encode { base = absmax(x) * 1e9 low = min(x) - base "
       "scale = (max(x) - min(x)) / 255 } }"},
      // Of 500 blocks 323, which the product of doubles falls short of.
      {s4 + s8 + mix("low: low high: high budget 64.6%", 8)},
      // Of powers of two, which have no quick way, as numbers; of a float, a code that is not -0.
      {"format a { element: e8m0 remap 2 to [5, 3] by sel scale: f16 per k[64] sel: u1 per k[64] "
       "value = element * scale encode { scale = 1 } }",
       {},
       {},
       {},
       "f16"},
      {"format a { element: e2m1 remap 7 to [5, -5] by sel scale: f16 per k[64] sel: u1 per k[64] "
       "value = element * scale encode { scale = 1 } }",
       {{4, 1}}},
  };
}

// Numbers of some size, and what rounds: ties, saturation, zeros of both signs; a row of zeros;
// what is not finite.
inline std::vector<float> difficultNumbers(int64_t m, int64_t k) {
  std::vector<float> x = numbers(m, k, 5);
  for (size_t i = 0; i < x.size(); i += 7)
    x[i] = std::round(x[i] * 4) / 8;
  std::fill_n(x.begin() + k, k, 0.0f);
  x[0] = -0.0f;
  x[static_cast<size_t>(2 * k + 5)] = std::nanf("");
  x[static_cast<size_t>(2 * k + 40)] = -HUGE_VALF;
  x[static_cast<size_t>(2 * k + 50)] = std::ldexp(2.5f + 0x1p-20f, -93);
  x[static_cast<size_t>(2 * k + 51)] = std::ldexp(4.5f + 0x1p-19f, -93);
  return x;
}

// Blocks that are alike, so that it is as good to choose one as another.
inline std::vector<float> repeatedNumbers(int64_t m, int64_t k) {
  std::vector<float> x = numbers(m, k, 6);
  for (int64_t i = 0; i < m * k; ++i)
    x[static_cast<size_t>(i)] = x[static_cast<size_t>(i / k * k + i % k % 64)];
  return x;
}

// Runs of one number: what a chunk has in common decides for all of it.
inline std::vector<float> runsOfNumbers(int64_t m, int64_t k) {
  constexpr std::array few = {3.9F, -0.01F, 2.0F, 0.0F, -0.0F, 5.0F, -6.0F, 0.3F};
  std::vector<float> x(static_cast<size_t>(m * k));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = few[i / 16 % few.size()];
  return x;
}

// Any bits are some number.
inline std::vector<float> randomBits(int64_t m, int64_t k) {
  std::mt19937 random(3); // NOLINT(bugprone-random-generator-seed): the same in every run
  std::vector<float> x(static_cast<size_t>(m * k));
  for (float &number : x)
    number = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return x;
}

} // namespace rho
