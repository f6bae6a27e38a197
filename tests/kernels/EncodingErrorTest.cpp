#include "kernels/quantize/EncodingError.h"
#include "dsl/Module.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rho;
using namespace rho::kernels;

namespace {

using FormatPtr = std::shared_ptr<const dsl::Format>;

FormatPtr declared(const std::string &text) {
  Result<dsl::Module> module = dsl::parseModule(text, "a.rho", nullptr);
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return std::make_shared<const dsl::Format>(module->formats.back());
}

struct Weight {
  std::vector<float> numbers;
  int64_t rows, k;
  dsl::MatrixView view() const { return {numbers.data(), dsl::MatrixView::Type::F32, rows, k, k}; }
};

dsl::QuantizedMatrix quantized(const FormatPtr &format, const Weight &weight) {
  Result<dsl::QuantizedMatrix> matrix = dsl::quantize(format, weight.view(), true);
  EXPECT_TRUE(matrix.ok()) << (matrix.ok() ? "" : matrix.error().str());
  return std::move(*matrix);
}

EncodingError errorIn(const FormatPtr &format, const Weight &weight) {
  return encodingError(weight.view(), quantized(format, weight));
}

TEST(EncodingErrorTest, isThatOfItsDefinition) {
  // Codes -2 to 1 of step 1: 3 is cut to 1.
  FormatPtr format = declared("format f { element: s2 scale: f32 per tensor "
                              "value = element * scale encode { scale = min(absmax(x), 1.0) } }");
  Weight w{{3, -1, 0.25F, -2}, 2, 2};
  EncodingError error = errorIn(format, w);
  EXPECT_EQ(error.numbers, 4);
  EXPECT_EQ(error.storedBits, 4 * 2 + 32);
  EXPECT_EQ(error.bitsPerWeight(), 10);
  EXPECT_EQ(error.squaredErrors, 4 + 0.0625);
  EXPECT_EQ(error.meanSquaredError(), (4 + 0.0625) / 4);
  EXPECT_EQ(error.largest, 2);
  EXPECT_DOUBLE_EQ(error.sqnrDecibels(), 10 * std::log10((9 + 1 + 0.0625 + 4) / 4.0625));
  EXPECT_DOUBLE_EQ(error.cosine(), 8 / std::sqrt((9 + 1 + 0.0625 + 4) * 6.0));

  // y = x w^T = [2.5, -1; ...] by hand: x = [1, 0.5], [0, 2].
  OutputError output = outputError(w.view(), quantized(format, w), {1, 0.5, 0, 2});
  double squares = 2.5 * 2.5 + 0.75 * 0.75 + 2 * 2 + 4 * 4, errors = 2 * 2 + 0.25 * 0.25;
  EXPECT_DOUBLE_EQ(output.squares, squares);
  EXPECT_DOUBLE_EQ(output.squaredErrors, errors);
  EXPECT_DOUBLE_EQ(output.relative(), std::sqrt(errors / squares));
}

TEST(EncodingErrorTest, ofExactValuesIsNone) {
  FormatPtr plain = std::make_shared<dsl::Format>(dsl::plainFormat(dsl::ElementType::get("f32")));
  Weight w{syntheticWeight(3, 40, 1), 3, 40}, zeros{std::vector<float>(120, 0), 3, 40};
  EncodingError error = errorIn(plain, w);
  EXPECT_EQ(error.squaredErrors, 0);
  EXPECT_EQ(error.sqnrDecibels(), HUGE_VAL);
  EXPECT_DOUBLE_EQ(error.cosine(), 1);
  EXPECT_EQ(error.bitsPerWeight(), 32);
  EXPECT_EQ(errorIn(plain, zeros).cosine(), 1);
  EXPECT_EQ(
      outputError(zeros.view(), quantized(plain, zeros), std::vector<double>(80, 1)).relative(), 0);
}

TEST(EncodingErrorTest, doesNotDependOnThreads) {
  Weight w{syntheticWeight(50, 300, 1), 50, 300};
  dsl::QuantizedMatrix matrix = quantized(shippedFormat("nvfp4"), w);
  std::vector<double> x(600, 0.5);
  EncodingError one = encodingError(w.view(), matrix, 1);
  OutputError output = outputError(w.view(), matrix, x, 1);
  for (unsigned threads : {2U, 5U}) {
    EXPECT_EQ(encodingError(w.view(), matrix, threads).squaredErrors, one.squaredErrors);
    EXPECT_EQ(encodingError(w.view(), matrix, threads).products, one.products);
    EXPECT_EQ(outputError(w.view(), matrix, x, threads).squaredErrors, output.squaredErrors);
  }
}

// Stored bits count what the file holds: of parts their blocks, of spare bits nothing more.
TEST(EncodingErrorTest, bitsAreThoseThatAreStored) {
  Weight w{syntheticWeight(64, 1024, 1), 64, 1024};
  for (const char *name : {"int4_g128", "nvfp4", "razer_g128", "int3_asym_g128", "fp8_block128"}) {
    FormatPtr format = shippedFormat(name);
    double rest = 64.0 / 1024 + 32.0 / (64 * 1024); // what rows and the tensor share, at most
    double bits = errorIn(format, w).bitsPerWeight();
    EXPECT_GE(bits, format->bitsPerElement()) << name;
    EXPECT_LE(bits, format->bitsPerElement() + rest) << name;
  }
  FormatPtr parts = declared("format a { element: s4 scale: f16 per k[64] value = element * scale }"
                             "format b { element: s8 scale: f16 per k[64] value = element * scale }"
                             "format p { partition per k[64] { low: a high: b budget 25% } }");
  EXPECT_DOUBLE_EQ(errorIn(parts, w).bitsPerWeight(), 4 + 0.25 * 4 + 17.0 / 64);
}

} // namespace
