// Every format of kernels/formats: its numbers are the nearest that it has, and where others have
// published a format, its values are theirs bit for bit.
#include "dsl/Evaluate.h"
#include "dsl/Module.h"
#include "dsl/Quantize.h"
#include "tests/dsl/Formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace rho::dsl {
namespace {

using test::shipped, test::FormatPtr;

// With parts or without, by their texts: before the first test no format is declared, since a death
// test counts codebooks.
std::vector<std::string> names(bool parts) {
  std::vector<std::string> found;
  for (const auto &entry :
       std::filesystem::directory_iterator(test::sourceDir() / "kernels/formats")) {
    if (entry.path().extension() != ".rho")
      continue;
    std::string text = test::text(entry.path());
    bool hasParts = text.find("\n  partition ") != std::string::npos ||
                    text.find("\n  residual ") != std::string::npos;
    if (hasParts == parts)
      found.push_back(entry.path().stem().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

constexpr int64_t libraryRows = 5, libraryK = 333; // k is no multiple of any group

std::vector<float> libraryNumbers(uint32_t seed) {
  std::mt19937_64 random = test::generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(libraryRows * libraryK));
  for (float &value : x)
    value = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f) * 0.1f;
  return x;
}

QuantizedMatrix quantizedRows(const FormatPtr &format, const std::vector<float> &x) {
  Result<QuantizedMatrix> result =
      quantize(format, {x.data(), MatrixView::Type::F32, libraryRows, libraryK, libraryK}, true);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().str());
  return std::move(*result);
}

double squaredError(const QuantizedMatrix &q, const std::vector<float> &x) {
  double sum = 0;
  for (int64_t row = 0; row < libraryRows; ++row) {
    std::vector<double> values = q.rowValues(row);
    for (int64_t column = 0; column < libraryK; ++column)
      sum += std::pow(
          values[static_cast<size_t>(column)] - x[static_cast<size_t>(row * libraryK + column)], 2);
  }
  return sum;
}

class Library : public testing::TestWithParam<std::string> {};

TEST_P(Library, NumbersAreTheNearestOfTheirFormat) {
  FormatPtr format = shipped(GetParam());
  std::vector<float> x = libraryNumbers(3);
  QuantizedMatrix q = quantizedRows(format, x);
  int bits = format->element().type.bits();
  double power = 0;
  for (int64_t row = 0; row < libraryRows; ++row)
    for (int64_t column = 0; column < libraryK; ++column) {
      std::vector<uint32_t> codes;
      for (size_t c = 0; c < q.components.size(); ++c)
        codes.push_back(
            q.components[c].get(codeIndex(format->components[c], libraryK, row, column)));
      double number = x[static_cast<size_t>(row * libraryK + column)],
             chosen = q.value(row, column);
      power += number * number;
      ASSERT_TRUE(fulfils(*format, codes.data()));
      ASSERT_EQ(chosen, evaluate(*format, codes.data()));
      for (codes[0] = 0; codes[0] < 1u << bits; ++codes[0])
        if (double other = evaluate(*format, codes.data());
            std::isfinite(other) && fulfils(*format, codes.data()))
          ASSERT_LE(std::fabs(number - chosen), std::fabs(number - other) * (1 + 1e-12));
    }
  // Scales fit the numbers: 4 bits for a row with outliers lose a sixth of its power, 2 bits half.
  EXPECT_LT(squaredError(q, x), power * (bits == 2 ? 0.6 : 0.2));
}

INSTANTIATE_TEST_SUITE_P(Formats, Library, testing::ValuesIn(names(false)),
                         [](const auto &info) { return info.param; });

std::vector<float> numbersWithOutliers(uint64_t seed, int64_t count) {
  std::mt19937_64 random = test::generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f));
  return x;
}

// Each code with its scales: no other of its part would bring the sum of parts nearer, a first
// part's before a residual is added.
TEST(LibraryParts, NumbersAreTheNearestOfTheirPart) {
  constexpr int64_t many = 64, wide = 1280;
  const std::vector<float> x = numbersWithOutliers(9, many * wide);
  for (const std::string &name : names(true)) {
    FormatPtr format = shipped(name);
    QuantizedMatrix q =
        *quantize(format, {x.data(), MatrixView::Type::F32, many, wide, wide}, true);
    const bool residual = format->residual.has_value();
    const Blocks &blocks = residual ? format->residual->blocks : format->partition->blocks;
    int64_t stored = 0;
    for (int64_t row = 0; row < many; ++row)
      for (int64_t column = 0; column < wide; column += 7) {
        const double number = x[static_cast<size_t>(row * wide + column)];
        const uint32_t chosen = q.choice.get(blockIndex(blocks, wide, row, column));
        stored += chosen;
        auto expectNearest = [&](QuantizedMatrix &part, const QuantizedMatrix &whole) {
          CodeArray &codes = part.components[0];
          const int64_t at = row * wide + column;
          const uint32_t own = codes.get(at);
          const double error = std::fabs(number - whole.value(row, column));
          for (uint32_t other = 0; other < 1u << part.format->element().type.bits(); ++other) {
            codes.set(at, other);
            ASSERT_LE(error, std::fabs(number - whole.value(row, column)) * (1 + 1e-6)) << name;
          }
          codes.set(at, own);
        };
        if (residual)
          expectNearest(q.parts[0], q.parts[0]);
        if (!residual || chosen != 0)
          expectNearest(q.parts[chosen], q);
      }
    EXPECT_GT(stored, 0) << name;
  }
}

// Parts are there for numbers that the first of them stores badly.
TEST(LibraryParts, AreCloserThanTheFirstAlone) {
  constexpr int64_t many = 64, wide = 1024;
  const std::vector<float> x = numbersWithOutliers(5, many * wide);
  auto errorOf = [&](FormatPtr format) {
    QuantizedMatrix q =
        *quantize(std::move(format), {x.data(), MatrixView::Type::F32, many, wide, wide}, true);
    double sum = 0;
    for (int64_t row = 0; row < many; ++row)
      for (int64_t column = 0; column < wide; ++column)
        sum += std::pow(q.value(row, column) - x[static_cast<size_t>(row * wide + column)], 2);
    return std::pair(sum, q.parts.empty() ? nullptr : q.parts[0].format);
  };
  for (const std::string &name : names(true)) {
    EXPECT_TRUE(shipped(name)->hasParts()) << name;
    auto [error, first] = errorOf(shipped(name));
    ASSERT_TRUE(first) << name;
    EXPECT_LT(error, 0.95 * errorOf(first).first) << name;
  }
}

TEST(LibraryBits, AreWhatTheFilesSay) {
  const std::pair<const char *, double> expected[] = {
      {"int3_g128", 3.125},  {"int8_asym_g128", 8.1875},
      {"awq_g128", 4.15625}, {"gptq_g128", 4.15625},
      {"qoq_g128", 4.09375}, {"nvfp4", 4.5},
      {"nvfp4_4over6", 4.5}, {"mxfp4", 4.25},
      {"mxfp6_e2m3", 6.25},  {"mxfp8_e5m2", 8.25},
      {"nf4_g64", 4.5},      {"razer_g16", 4.5},
      {"razer_token", 4.5},  {"razer_g128", 4.125},
      {"fp8_tensor", 8},     {"fp8_block128", 8 + 32.0 / 16384},
      {"fp8_g128", 8.25},    {"q4_0", 4.5},
      {"q4_1", 5},           {"q8_0", 8.5},
      {"q4_k", 4.5},         {"liquidquant", 4.25}};
  for (auto [name, bits] : expected)
    EXPECT_EQ(shipped(name)->bitsPerElement(), bits) << name;
}

// --- llama.cpp: blocks of random bytes, taken apart as ggml-common.h lays them out and computed in
// float as ggml-quants.c does.

struct Blocks {
  std::mt19937_64 random = test::generator(21);
  uint8_t byte() { return static_cast<uint8_t>(random()); }
  // A finite f16.
  uint16_t half() {
    while (true)
      if (auto code = static_cast<uint16_t>(random()); (code & 0x7c00) != 0x7c00)
        return code;
  }
};

float halfToFloat(uint16_t code) {
  int exponent = code >> 10 & 31, mantissa = code & 1023;
  float magnitude = exponent ? std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25)
                             : std::ldexp(static_cast<float>(mantissa), -24);
  return code & 0x8000 ? -magnitude : magnitude;
}

// An empty matrix of a format with room for `blocks` blocks in one row.
QuantizedMatrix matrixOf(const std::string &name, int64_t columns) {
  QuantizedMatrix matrix;
  matrix.format = shipped(name);
  matrix.rows = 1;
  matrix.k = columns;
  for (const Component &component : matrix.format->components)
    matrix.components.emplace_back(component.type.bits(), codeGrid(component, 1, columns).size());
  return matrix;
}

void expectFloats(const QuantizedMatrix &matrix, const std::vector<float> &expected) {
  std::vector<double> values = matrix.rowValues(0);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(values[i]), expected[i]) << i;
}

constexpr int64_t blocks = 2000;

TEST(LlamaCpp, Q4_0) {
  Blocks bytes;
  QuantizedMatrix matrix = matrixOf("q4_0", blocks * 32);
  std::vector<float> expected(static_cast<size_t>(blocks * 32));
  for (int64_t b = 0; b < blocks; ++b) {
    uint16_t d = bytes.half();
    matrix.components[1].set(b, d);
    for (int64_t j = 0; j < 16; ++j) {
      uint8_t qs = bytes.byte();
      matrix.components[0].set(b * 32 + j, qs & 15);
      matrix.components[0].set(b * 32 + j + 16, qs >> 4);
      expected[static_cast<size_t>(b * 32 + j)] =
          static_cast<float>((qs & 15) - 8) * halfToFloat(d);
      expected[static_cast<size_t>(b * 32 + j + 16)] =
          static_cast<float>((qs >> 4) - 8) * halfToFloat(d);
    }
  }
  expectFloats(matrix, expected);
}

TEST(LlamaCpp, Q4_1) {
  Blocks bytes;
  QuantizedMatrix matrix = matrixOf("q4_1", blocks * 32);
  std::vector<float> expected(static_cast<size_t>(blocks * 32));
  for (int64_t b = 0; b < blocks; ++b) {
    uint16_t d = bytes.half(), m = bytes.half();
    matrix.components[1].set(b, d);
    matrix.components[2].set(b, m);
    for (int64_t j = 0; j < 16; ++j) {
      uint8_t qs = bytes.byte();
      matrix.components[0].set(b * 32 + j, qs & 15);
      matrix.components[0].set(b * 32 + j + 16, qs >> 4);
      // The product is exact in float, so that a fused multiply-add gives the same.
      expected[static_cast<size_t>(b * 32 + j)] =
          static_cast<float>(qs & 15) * halfToFloat(d) + halfToFloat(m);
      expected[static_cast<size_t>(b * 32 + j + 16)] =
          static_cast<float>(qs >> 4) * halfToFloat(d) + halfToFloat(m);
    }
  }
  expectFloats(matrix, expected);
}

TEST(LlamaCpp, Q8_0) {
  Blocks bytes;
  QuantizedMatrix matrix = matrixOf("q8_0", blocks * 32);
  std::vector<float> expected(static_cast<size_t>(blocks * 32));
  for (int64_t b = 0; b < blocks; ++b) {
    uint16_t d = bytes.half();
    matrix.components[1].set(b, d);
    for (int64_t j = 0; j < 32; ++j) {
      uint8_t qs = bytes.byte();
      matrix.components[0].set(b * 32 + j, qs);
      expected[static_cast<size_t>(b * 32 + j)] =
          static_cast<float>(static_cast<int8_t>(qs)) * halfToFloat(d);
    }
  }
  expectFloats(matrix, expected);
}

// The 12 bytes of a block: the first four hold the low 6 bits of steps 0..3 and, on top, the high 2
// bits of steps 4..7; the next four the same of minima; the last four the low nibbles of steps and
// minima 4..7.
TEST(LlamaCpp, Q4_K) {
  Blocks bytes;
  QuantizedMatrix matrix = matrixOf("q4_k", blocks * 256);
  std::vector<float> expected(static_cast<size_t>(blocks * 256));
  for (int64_t b = 0; b < blocks; ++b) {
    uint16_t d = bytes.half(), dmin = bytes.half();
    uint8_t packed[12];
    for (uint8_t &byte : packed)
      byte = bytes.byte();
    matrix.components[1].set(b, d);
    matrix.components[2].set(b, dmin);
    for (int64_t j = 0; j < 8; ++j) {
      int step = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
      int least = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
      matrix.components[3].set(b * 8 + j, static_cast<uint32_t>(step));
      matrix.components[4].set(b * 8 + j, static_cast<uint32_t>(least));
    }
    for (int64_t pair = 0; pair < 4; ++pair)
      for (int64_t i = 0; i < 32; ++i) {
        uint8_t qs = bytes.byte();
        for (int64_t half = 0; half < 2; ++half) {
          int64_t at = b * 256 + pair * 64 + half * 32 + i, sub = b * 8 + pair * 2 + half;
          int code = half ? qs >> 4 : qs & 15;
          matrix.components[0].set(at, static_cast<uint32_t>(code));
          float step = halfToFloat(d) * static_cast<float>(matrix.components[3].get(sub));
          float least = halfToFloat(dmin) * static_cast<float>(matrix.components[4].get(sub));
          expected[static_cast<size_t>(at)] = step * static_cast<float>(code) - least;
        }
      }
  }
  expectFloats(matrix, expected);
}

// --- spare bits and special values

TEST(Razer, AScaleWithSpareBitsIsAnF16WithoutThem) {
  FormatPtr format = shipped("razer_g128");
  EXPECT_EQ(format->components[2].shift, 14);
  ElementType scale = format->components[1].type, f16 = ElementType::get("f16");
  for (uint32_t code = 0; code < 1u << 14; ++code)
    ASSERT_EQ(scale.decode(code) / 256, f16.decode(code)) << code;
}

TEST(Razer, MinusZeroIsTheSelectedSpecialValue) {
  FormatPtr format = shipped("razer_g16");
  ElementType block = ElementType::get("ue3m3"), f32 = ElementType::get("f32");
  uint32_t codes[] = {8, block.encode(1.5), 0, 9, f32.encode(0.25)};
  const double expected[] = {5, -5, 9, -9};
  for (codes[2] = 0; codes[2] < 4; ++codes[2])
    EXPECT_EQ(evaluate(*format, codes), expected[codes[2]] * 1.5 * 0.25);
  codes[0] = 15;
  EXPECT_EQ(evaluate(*format, codes), -6 * 1.5 * 0.25);
}

// --- RaZeR, equation 7, by trying everything

// Squared error of a block that has e2m1 and one special value, times a scale.
double blockError(const float *x, int64_t count, double scale, double special) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    double least = std::pow(x[i] - special * scale, 2);
    for (double number : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
      for (double sign : {1.0, -1.0})
        least = std::min(least, std::pow(x[i] - sign * number * scale, 2));
    sum += least;
  }
  return sum;
}

// Calls visit(first number, count, index) for the blocks of 16 of libraryNumbers().
template <class Visit> void forEachBlock(const Visit &visit) {
  int64_t blocks = (libraryK + 15) / 16;
  for (int64_t row = 0; row < libraryRows; ++row)
    for (int64_t block = 0; block < blocks; ++block)
      visit(row * libraryK + block * 16, std::min<int64_t>(16, libraryK - block * 16),
            row * blocks + block);
}

TEST(Razer, ChoosesTheSpecialValueOfEachBlock) {
  std::vector<float> x = libraryNumbers(31);
  FormatPtr format = shipped("razer_token");
  QuantizedMatrix q = quantizedRows(format, x);
  const double specials[] = {5, -5};
  int64_t chosen[2] = {};
  forEachBlock([&](int64_t first, int64_t count, int64_t index) {
    double scale = format->components[1].type.decode(q.components[1].get(index)) *
                   format->components[3].type.decode(q.components[3].get(first / libraryK));
    uint32_t selector = q.components[2].get(index);
    ++chosen[selector];
    double own = blockError(&x[static_cast<size_t>(first)], count, scale, specials[selector]);
    double other = blockError(&x[static_cast<size_t>(first)], count, scale, specials[1 - selector]);
    EXPECT_LE(own, other * (1 + 1e-12)) << index;
    double stored = 0;
    for (int64_t i = first; i < first + count; ++i)
      stored += std::pow(q.value(i / libraryK, i % libraryK) - x[static_cast<size_t>(i)], 2);
    EXPECT_NEAR(stored, own, own * 1e-12) << index;
  });
  EXPECT_GT(chosen[0], 10);
  EXPECT_GT(chosen[1], 10);
}

TEST(Razer, ASearchedPairOfGroupsOf128IsNoWorseThanTheFixedOne) {
  std::set<uint32_t> found;
  for (uint32_t seed = 40; seed < 48; ++seed) {
    std::vector<float> x = libraryNumbers(seed);
    for (float &value : x)
      value = seed % 2 == 0 ? std::tanh(value * 10) : value;
    QuantizedMatrix searched = quantizedRows(shipped("razer_g128_searched"), x);
    EXPECT_LE(squaredError(searched, x), squaredError(quantizedRows(shipped("razer_g128"), x), x));
    found.insert(searched.components[3].get(0));
  }
  EXPECT_GT(found.size(), 1u);
  EXPECT_EQ(shipped("razer_g128_searched")->bitsPerElement(), 4.125);
}

TEST(Razer, FindsTheSecondPairOfTheTensor) {
  FormatPtr format = shipped("razer_g16");
  ElementType block = format->components[1].type;
  std::set<uint32_t> found;
  for (uint32_t seed : {40, 41, 42, 43}) {
    std::vector<float> x = libraryNumbers(seed);
    for (float &value : x) // outliers of several lengths prefer different pairs
      value *= 1 + static_cast<float>(seed % 3) * std::fabs(value);
    QuantizedMatrix q = quantizedRows(format, x);
    double tensor = format->components[4].type.decode(q.components[4].get(0));
    double least = std::numeric_limits<double>::infinity();
    uint32_t best = 0;
    for (uint32_t special : {8, 7, 9}) {
      double sum = 0;
      forEachBlock([&](int64_t first, int64_t count, int64_t) {
        const float *numbers = &x[static_cast<size_t>(first)];
        double largest = 0, error = std::numeric_limits<double>::infinity();
        for (int64_t i = 0; i < count; ++i)
          largest = std::max(largest, std::fabs(numbers[i] / tensor));
        for (double end : {6.0, static_cast<double>(special)})
          for (double value : {5.0, -5.0, static_cast<double>(special), -1.0 * special}) {
            double scale = block.decode(block.encode(largest / end)) * tensor;
            error = std::min(error, blockError(numbers, count, scale, value));
          }
        sum += error;
      });
      if (sum < least) {
        least = sum;
        best = special;
      }
    }
    EXPECT_EQ(q.components[3].get(0), best);
    EXPECT_NEAR(squaredError(q, x), least, least * 1e-9);
    found.insert(best);
  }
  EXPECT_GT(found.size(), 1u); // else a constant would do
}

// Special values only add choices: for numbers between 4 and 6 and beyond 6 they are nearer.
TEST(Razer, SpecialValuesReduceTheError) {
  std::vector<float> x = libraryNumbers(12);
  auto declared = [](const std::string &text) {
    Result<Module> module = parseModule(text, "a.rho", nullptr);
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
    return std::make_shared<Format>(module->formats.at(0));
  };
  FormatPtr plain = declared("format f { element: e2m1 block: ue3m3 per k[16] tensor: f32 per "
                             "tensor value = element * block * tensor }");
  QuantizedMatrix razer = quantizedRows(shipped("razer_g16"), x);
  EXPECT_LT(squaredError(razer, x), squaredError(quantizedRows(plain, x), x) * 0.9);
  std::set<uint32_t> selectors;
  for (int64_t i = 0; i < razer.components[2].size(); ++i)
    selectors.insert(razer.components[2].get(i));
  EXPECT_EQ(selectors, (std::set<uint32_t>{0, 1, 2, 3}));
}

TEST(FourOverSix, ChoosesFourWhereThatIsBetter) {
  std::vector<float> x = libraryNumbers(13);
  QuantizedMatrix q = quantizedRows(shipped("nvfp4_4over6"), x);
  int fours = 0, sixes = 0;
  double tensor = ElementType::get("f32").decode(q.components[2].get(0));
  ElementType e4m3 = ElementType::get("e4m3"), e2m1 = ElementType::get("e2m1");
  for (int64_t row = 0; row < libraryRows; ++row)
    for (int64_t begin = 0; begin < libraryK; begin += 16) {
      double most = 0, errors[2] = {};
      int64_t end = std::min(libraryK, begin + 16);
      for (int64_t c = begin; c < end; ++c)
        most = std::fmax(most, std::fabs(x[static_cast<size_t>(row * libraryK + c)] / tensor));
      uint32_t codes[2] = {e4m3.encode(most / 6), e4m3.encode(most / 4)};
      for (int i = 0; i < 2; ++i)
        for (int64_t c = begin; c < end; ++c) {
          double scale = e4m3.decode(codes[i]) * tensor,
                 number = x[static_cast<size_t>(row * libraryK + c)];
          errors[i] += std::pow(number - e2m1.decode(e2m1.encode(number / scale)) * scale, 2);
        }
      bool four = errors[1] < errors[0] * (1 - 1e-12);
      if (std::fabs(errors[0] - errors[1]) > errors[0] * 1e-9)
        ASSERT_EQ(q.components[1].get(row * ((libraryK + 15) / 16) + begin / 16),
                  codes[four ? 1 : 0]);
      ++(four ? fours : sixes);
    }
  EXPECT_GT(fours, 10);
  EXPECT_GT(sixes, 10);
}

// OCP Microscaling Formats 1.0, section 6.3: the exponent of the largest number less the largest
// exponent of the element type.
TEST(Microscaling, ScalesFollowTheStandard) {
  std::vector<float> x = libraryNumbers(14);
  for (auto [name, largest] : {std::pair{"mxfp4", 2},
                               {"mxfp6_e2m3", 2},
                               {"mxfp6_e3m2", 4},
                               {"mxfp8_e4m3", 8},
                               {"mxfp8_e5m2", 15}}) {
    QuantizedMatrix q = quantizedRows(shipped(name), x);
    for (int64_t row = 0; row < libraryRows; ++row)
      for (int64_t begin = 0; begin < libraryK; begin += 32) {
        float most = 0;
        for (int64_t c = begin; c < std::min(libraryK, begin + 32); ++c)
          most = std::fmax(most, std::fabs(x[static_cast<size_t>(row * libraryK + c)]));
        ASSERT_EQ(q.components[1].get(row * 11 + begin / 32),
                  static_cast<uint32_t>(std::ilogb(most) - largest + 127))
            << name;
      }
  }
}

} // namespace
} // namespace rho::dsl
