#include "runtime/tool/TimingOperands.h"

#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rho;
using namespace rho::tool;

namespace {

Gemm compiled(const Device &device, const std::string &name, const GemmShape &shape) {
  Module module =
      Module::load(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/" + name + ".rho").value();
  EngineOptions options;
  options.diskCache = false;
  Engine engine = Engine::create(device, options).value();
  return engine.compile(module, "", shape).value();
}

void repeatCodes(const dsl::CodeArray &slice, dsl::CodeArray &whole) {
  for (int64_t i = 0; i < whole.size(); ++i)
    whole.set(i, slice.get(i % slice.size()));
}

// What packing makes of a weight whose rows are those of a slice, again and again.
std::vector<uint8_t> packedAsAWhole(const Gemm &gemm, const dsl::QuantizedMatrix &slice) {
  const compiler::WeightLayout &layout = gemm.impl().image().weight;
  dsl::QuantizedMatrix whole = dsl::emptyMatrix(gemm.impl().weight(), layout.n, layout.k);
  repeatCodes(slice.choice, whole.choice);
  for (size_t c = 0; c < whole.components.size(); ++c)
    repeatCodes(slice.components[c], whole.components[c]);
  for (size_t part = 0; part < whole.parts.size(); ++part)
    for (size_t c = 0; c < whole.parts[part].components.size(); ++c)
      repeatCodes(slice.parts[part].components[c], whole.parts[part].components[c]);
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.bytes));
  Status packed = pack(layout, whole, bytes.data());
  EXPECT_TRUE(packed) << packed.error().str();
  return bytes;
}

// Shipped formats: what stands for a large weight is finite numbers that repeat.
TEST(TimingOperandsTest, aLargeWeightRepeatsValidNumbers) {
  Device device = Device::emulated("sm_80").value();
  for (const char *name : {"int4_g128_int8", "liquidquant_int8", "nvfp4_bf16", "int4_channel_f16",
                           "mosaic_g128_f16"}) {
    SCOPED_TRACE(name);
    Gemm gemm = compiled(device, name, {16, 1024, 256});
    const compiler::WeightLayout &layout = gemm.impl().image().weight;
    dsl::QuantizedMatrix slice = sliceCodes(layout, gemm.impl().weight(), 1).value();
    std::vector<uint8_t> packed = packRepeated(layout, slice).value();
    EXPECT_EQ(packed, packedAsAWhole(gemm, slice));
    EXPECT_NE(slice.rowValues(4), slice.rowValues(3));
    for (int64_t row = 0; row < slice.rows; row += 100)
      for (double value : slice.rowValues(row))
        EXPECT_TRUE(std::isfinite(value));
  }
}

// Tiles of 192 rows and blocks of 64 beside a last slice that is cut off: still those that the
// budget has room for, and each slice the same.
TEST(TimingOperandsTest, blocksOfAResidualRepeatWithWholeSlices) {
  constexpr const char *text = R"(
format a { element: s8 scale: f32 per token value = element * scale }
format w {
  element: s4
  scale: f16 per channel
  value = element * scale
  residual fix: s4 / 16 per n[64] k[64] budget 10%
}
gemm g { weight: w activation: a output: f16
         schedule { roles: imfp tile: 16 x TILE } }
)";
  Device device = Device::emulated("sm_90a").value();
  EngineOptions options;
  options.diskCache = false;
  Engine engine = Engine::create(device, options).value();
  for (std::string tile : {"96 x 128 warps: 1 x 6 x 2", "192 x 128 warps: 1 x 12"}) {
    std::string declaration = text;
    declaration.replace(declaration.find("TILE"), 4, tile);
    constexpr int64_t rows = 2 * 384 + 192;
    Gemm gemm = engine.compile(Module::parse(declaration).value(), "", {16, rows, 512}).value();
    const compiler::WeightLayout &layout = gemm.impl().image().weight;
    dsl::QuantizedMatrix slice = sliceCodes(layout, gemm.impl().weight(), 1).value();
    ASSERT_EQ(slice.rows, 384);
    std::vector<uint8_t> packed = packRepeated(layout, slice).value();
    EXPECT_EQ(packed, packedAsAWhole(gemm, slice)) << tile;
    int64_t stored = 0;
    for (int64_t i = 0; i < slice.choice.size(); ++i)
      stored += static_cast<int64_t>(slice.choice.get(i));
    EXPECT_GT(stored, 0);
  }
}

// A weight with fewer rows behind one with more of the same slice: its own blocks, which its budget
// has room for.
TEST(TimingOperandsTest, blocksOfAResidualAreThoseOfTheirWeight) {
  Device device = Device::emulated("sm_80").value();
  TimingOperands operands(device, 4);
  int64_t stored[2] = {};
  for (int i = 0; i < 2; ++i) {
    Gemm gemm = compiled(device, "mosaic_channel_int8", {1, i == 0 ? 512 : 300, 2048});
    const dsl::QuantizedMatrix &codes = **operands.codes(gemm);
    ASSERT_EQ(codes.rows, 256);
    for (int64_t block = 0; block < codes.choice.size(); ++block)
      stored[i] += static_cast<int64_t>(codes.choice.get(block));
    ASSERT_TRUE(packRepeated(gemm.impl().image().weight, codes));
  }
  EXPECT_LT(stored[1], stored[0]);
}

// Where a part is the whole: what packing gives.
TEST(TimingOperandsTest, aSmallWeightIsPackedAsItIs) {
  Device device = Device::emulated("sm_80").value();
  Gemm gemm = compiled(device, "int4_g128_int8", {16, 128, 256});
  TimingOperands operands(device, 1);
  const WeightCopies &weight = *operands.weight(gemm).value();
  ASSERT_EQ(weight.size(), 1U);
  std::vector<float> values = kernels::syntheticWeight(128, 256, 1);
  Result<Buffer> packed = gemm.packWeights(values.data(), ScalarType::F32, 256);
  ASSERT_TRUE(packed) << packed.error().str();
  const Buffer &expected = *packed;
  std::vector<uint8_t> a(static_cast<size_t>(expected.bytes())), b(a.size());
  ASSERT_TRUE(expected.read(a.data(), expected.bytes()));
  ASSERT_TRUE(weight[0].read(b.data(), expected.bytes()));
  EXPECT_EQ(a, b);
  EXPECT_EQ(operands.weight(gemm).value(), &weight) << "kept for the next of the same layout";
}

TEST(TimingOperandsTest, patternsFillBuffersToTheEnd) {
  Device device = Device::emulated("sm_80").value();
  const std::vector<uint8_t> pattern = {1, 2, 3};
  Result<Buffer> buffer = filledBuffer(device, 8, pattern);
  ASSERT_TRUE(buffer) << buffer.error().str();
  std::vector<uint8_t> read(8);
  ASSERT_TRUE(buffer->read(read.data(), 8));
  EXPECT_EQ(read, (std::vector<uint8_t>{1, 2, 3, 1, 2, 3, 1, 2}));
}

TEST(TimingOperandsTest, randomNumbersAreSpreadAndFinite) {
  for (const char *name : {"bf16", "e4m3", "s8"}) {
    SCOPED_TRACE(name);
    dsl::ElementType type = dsl::ElementType::get(name);
    std::vector<uint8_t> bytes = randomNumbers(type, 1);
    size_t width = static_cast<size_t>(type.bits()) / 8;
    double squares = 0;
    for (size_t i = 0; i < 1000; ++i) {
      uint32_t code = bytes[i * width];
      if (width == 2)
        code |= static_cast<uint32_t>(bytes[i * width + 1]) << 8;
      double value = type.decode(code);
      ASSERT_TRUE(std::isfinite(value));
      squares += value * value / 1000;
    }
    double deviation = std::sqrt(squares);
    EXPECT_GT(deviation, type.isInteger() ? 20 : 0.5);
    EXPECT_LT(deviation, type.isInteger() ? 64 : 2);
  }
}

TEST(TimingOperandsTest, inputIsOfThePlainActivationsType) {
  Device device = Device::emulated("sm_80").value();
  TimingOperands operands(device, 1);
  EXPECT_EQ(operands.input(compiled(device, "int4_channel_f16", {1, 64, 128}))->type,
            ScalarType::F16);
  EXPECT_EQ(operands.input(compiled(device, "int4_g128_int8", {1, 64, 128}))->type,
            ScalarType::BF16);
}

} // namespace
