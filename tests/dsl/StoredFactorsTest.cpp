#include "dsl/StoredFactors.h"

#include "dsl/Expressions.h"
#include "tests/dsl/Formats.h"
#include "tests/dsl/Numbers.h"

#include <cmath>

using namespace rho;
using namespace rho::dsl;
using test::declared, test::FormatPtr;

namespace {

std::vector<std::string> factorsIn(const std::string &value) {
  FormatPtr format =
      declared("format f { element: s4 a: f16 per k[32] b: f32 per channel value = " + value +
               " encode { a = 1 b = 1 } }");
  std::vector<std::string> factors;
  for (const ExprPtr &factor : factorsOf(format->value))
    factors.push_back(print(*factor, *format));
  return factors;
}

TEST(FactorsOf, TakeDivisionsAndSignsApart) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(factorsIn("element * a * b"), (Texts{"element", "a", "b"}));
  EXPECT_EQ(factorsIn("element * a / 8 * b"), (Texts{"element", "a", "0.125", "b"}));
  EXPECT_EQ(factorsIn("-element * a / b"), (Texts{"element", "-1", "a", "1.0 / b"}));
  EXPECT_EQ(factorsIn("a * (element / (a + b))"), (Texts{"a", "element", "1.0 / (a + b)"}));
  EXPECT_EQ(factorsIn("a / element * b"), (Texts{"a / element", "b"}));
  EXPECT_EQ(factorsIn("(element - 8) * 2 / a * b"), (Texts{"element - 8", "2", "1.0 / a", "b"}));
}

// What is packed in place of the codes stands for the same numbers.
TEST(PlainFactors, KeepEveryNumber) {
  struct Case {
    const char *text, *components;
    double roundoff;
  };
  for (const auto &[text, components, roundoff] :
       {Case{"format f { element: s5 e: e8m0 per k[32] s: codebook [1, 0.5] per k[16] value = "
             "element * e * s encode { e = bit_floor(absmax(x)) / 8 s = best(1, 0.5) } }",
             "'s' as f16", 0},
        Case{
            "format f { element: s5 s: u1 per k[16] c: f32 per channel value = element * c / (1 << "
            "s) encode { c = absmax(x) / 15 s = best(0, 1) } }",
            "'s' as f16", 0},
        Case{"format f { element: e2m1 s: ue4m3 per k[16] t: u1 in s value = element * (s * 3) * "
             "(1 + t) encode { s = absmax(x) / 12 t = best(0, 1) } }",
             "'t' as f16", 0},
        Case{"format f { element: s4 s: f16 per channel value = element * s residual fix: own per "
             "n[4] k[32] budget 50% } format own { element: s4 b: ue3m3 per k[32] c: u2 in b value "
             "= element * b * c encode { c = 1 b = absmax(x) / 7 } }",
             "'c' apart", 0},
        Case{"format f { element: s8 s: bf16 per k[64] value = element * (s * 3) encode { s = "
             "absmax(x) / 381 } }",
             "", 0}, // a literal and the scale as it is
        Case{"format f { element: s8 s: e8m7 per k[64] value = element * (s + 1024) encode { s = "
             "1 } }",
             "'s' as f32", 0x1p-24},
        Case{"format f { element: s4 a: f32 per k[64] value = element * f16(a) encode { a = "
             "absmax(x) / 7 } }",
             "'a' as f16", 0},
        Case{"format f { element: e2m1 b: e4m3 per k[16] g: f32 per tensor value = element * b / g "
             "encode { g = 2688 / absmax(x) b = absmax(x) * g / 6 } }",
             "'g' as f32", 0x1p-24}}) {
    FormatPtr format = declared(text);
    const std::optional<PlainFactors> plain = plainFactors(*format);
    ASSERT_EQ(plain ? plain->components : "", components);
    if (!plain)
      continue;
    EXPECT_EQ(plain->roundoff, roundoff);
    test::Numbers x = test::numbers(5 * 100, 1);
    QuantizedMatrix codes = *quantize(format, {x.data(), MatrixView::Type::F32, 5, 100, 100}, true);
    QuantizedMatrix stored = *storedFactors(codes, std::make_shared<const Format>(plain->format));
    for (int64_t row = 0; row < 5; ++row)
      for (int64_t column = 0; column < 100; ++column) {
        const double value = codes.value(row, column);
        EXPECT_NEAR(stored.value(row, column), value, std::abs(value) * roundoff * 1.001) << text;
      }
  }
}

// A scale that divides and became 0 makes no number.
TEST(PlainFactors, RefuseCodesThatStandForNoNumber) {
  FormatPtr format = declared("format f { element: s4 s: f16 per k[32] value = element / s "
                              "encode { s = 7 / absmax(x) } }");
  const auto plain = std::make_shared<const Format>(plainFactors(*format)->format);
  test::Numbers x = test::numbers(3 * 64, 1);
  QuantizedMatrix codes = *quantize(format, {x.data(), MatrixView::Type::F32, 3, 64, 64}, true);
  EXPECT_TRUE(storedFactors(codes, plain));
  codes.components[1].set(2 * 2 + 1, 0x7e00);
  EXPECT_EQ(storedFactors(codes, plain).error().str(),
            "error: NaN at row 2, column 32, a weight is finite [non_finite_input]\n");
  codes.components[1].set(2 * 2 + 1, 0); // a number over 0 is 0
  Result<QuantizedMatrix> stored = storedFactors(codes, plain);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->components[1].get(2 * 2 + 1), 0U);
}

// A group of zeros stays zeros, also where the scale divides and so is 0.
TEST(PlainFactors, OfZerosAreZeros) {
  FormatPtr format = declared("format f { element: s4 s: f32 per k[16] t: f32 per tensor "
                              "value = element / s / t encode { t = 100 / absmax(x) "
                              "s = 7 / absmax(x * t) } }");
  std::vector<float> x(2 * 32, 0.0F);
  for (size_t i = 0; i < 16; ++i)
    x[i] = static_cast<float>(i);
  for (const std::vector<float> &some : {x, std::vector<float>(x.size(), 0.0F)}) {
    QuantizedMatrix codes =
        *quantize(format, {some.data(), MatrixView::Type::F32, 2, 32, 32}, true);
    std::vector<uint32_t> own(format->components.size());
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t k = 0; k < 32; ++k) {
        own = {codes.components[0].get(row * 32 + k), codes.components[1].get(row * 2 + k / 16),
               codes.components[2].get(0)};
        EXPECT_NEAR(evaluate(*format, own.data()), some[static_cast<size_t>(row * 32 + k)], 1.1)
            << row << ", " << k;
      }
    EXPECT_TRUE(
        storedFactors(codes, std::make_shared<const Format>(plainFactors(*format)->format)));
  }
}

// A component that is read elsewhere as well keeps its codes.
TEST(PlainFactors, LeaveSharedComponentsAlone) {
  for (const char *text :
       {"format f { element: s4 s: f16 per k[32] value = (element + s) * (s + 1) encode { s = 1 } "
        "}",
        "format f { element: u4 s: u8 per k[32] c: f32 per channel value = element * (s + 1) * c "
        "require element + s <= 255 encode { c = 1 s = 1 } }",
        "format f { element: s4 s: f16 per k[32] value = element * s }"})
    EXPECT_FALSE(plainFactors(test::formatOf(text))) << text;
}

} // namespace
