// Every kind of kernel, executed on the emulator against the exact reference.
#include "runtime/Kernel.h"
#include "runtime/Rho.h"
#include "runtime/tool/Verify.h"

#include "kernels/Synthetic.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rho {
namespace {

const char *const formats = R"(
format int4_g64 { element: s4 scale: f16 per k[64] value = element * scale }
format int4_g128 { element: s4 scale: f16 per k[128] value = element * scale }
format int4_g512 { element: s4 scale: f16 per k[512] value = element * scale }
format int4_channel { element: s4 scale: f16 per channel value = element * scale }
format uint4_g64 { element: u4 scale: f16 per k[64] value = element * scale }
format nvfp4 { element: e2m1 block: e4m3 per k[16] tensor: f32 per tensor
  value = element * block * tensor }
format liquidquant { element: u4 step: u8 per k[64] origin: u8 per k[64] channel: f32 per channel
  value = s8((element * step + origin) ^ 0x80) * channel
  require element * step + origin <= 255
  encode { channel = absmax(x) / 119
    step = (max(x / channel) - min(x / channel)) / 15
    origin = 128 + min(x / channel) } }
format int8_token { element: s8 scale: f32 per token value = element * scale }
format int4_token { element: s4 scale: f32 per token value = element * scale }
format fp8_token { element: e4m3 scale: f32 per token value = element * scale }
format fp4_channel { element: e2m1 scale: f16 per channel value = element * scale }
format int8_channel { element: s8 scale: f16 per channel value = element * scale }
format int8_g128 { element: s8 scale: f16 per k[128] value = element * scale }
format fp8_channel { element: e4m3 scale: f32 per channel value = element * scale }
format uint4_channel { element: u4 scale: f16 per channel value = element * scale }
)";

struct Case {
  std::string weight, activation, output, schedule, target;
  GemmShape shape;
};

std::string describe(const Case &test) {
  return test.weight + " x " + test.activation + " -> " + test.output + " {" + test.schedule +
         "} on " + test.target + ", m = " + std::to_string(test.shape.m) +
         ", n = " + std::to_string(test.shape.n) + ", k = " + std::to_string(test.shape.k);
}

// What a run leaves: the gemm, the quantized operands and the output codes.
struct Outcome {
  Gemm gemm;
  dsl::QuantizedMatrix weight, activation;
  std::vector<uint8_t> output;
};

void run(const Case &test, const std::vector<float> &weights, const std::vector<float> &tokens,
         Outcome &result) {
  std::string text = std::string(formats) + "gemm g { weight: " + test.weight +
                     " activation: " + test.activation + " output: " + test.output +
                     " schedule { " + test.schedule + " } }";
  Result<Module> module = Module::parse(text);
  ASSERT_TRUE(module.ok()) << module.error().str();
  Result<Device> device = Device::emulated(test.target);
  ASSERT_TRUE(device.ok()) << device.error().str();
  EngineOptions options;
  options.diskCache = false;
  Result<Engine> engine = Engine::create(*device, options);
  ASSERT_TRUE(engine.ok()) << engine.error().str();
  Result<Gemm> gemm = engine->compile(*module, "g", test.shape);
  ASSERT_TRUE(gemm.ok()) << gemm.error().str();
  result.gemm = *gemm;

  auto [m, n, k] = test.shape;
  const dsl::Gemm &declared = *gemm->impl().gemm;
  auto format = [](const dsl::Format &f) { return std::make_shared<const dsl::Format>(f); };
  Result<dsl::QuantizedMatrix> w = dsl::quantize(
      format(declared.weight), {weights.data(), dsl::MatrixView::Type::F32, n, k, k}, true);
  Result<dsl::QuantizedMatrix> x = dsl::quantize(
      format(declared.activation), {tokens.data(), dsl::MatrixView::Type::F32, m, k, k}, false);
  ASSERT_TRUE(w.ok() && x.ok());
  Result<Buffer> packed = gemm->packQuantized(*w);
  ASSERT_TRUE(packed.ok()) << packed.error().str();
  Result<Activations> activations = gemm->makeActivations();
  ASSERT_TRUE(activations.ok()) << activations.error().str();
  int64_t bytes = m * n * (test.output == "f32" ? 4 : 2);
  Result<Buffer> tokensOnDevice = device->allocate(m * k * 4);
  Result<Buffer> y = device->allocate(bytes);
  Result<Buffer> workspace = device->allocate(std::max<int64_t>(1, gemm->workspaceBytes()));
  ASSERT_TRUE(tokensOnDevice.ok() && y.ok() && workspace.ok());
  ASSERT_TRUE(tokensOnDevice->write(tokens.data(), m * k * 4).ok());
  result.output.assign(static_cast<size_t>(bytes), 0xff);
  ASSERT_TRUE(y->write(result.output.data(), bytes).ok());
  Status quantized =
      gemm->quantizeActivations(*activations, tokensOnDevice->address(), ScalarType::F32, k);
  ASSERT_TRUE(quantized.ok()) << quantized.error().str();
  // Twice: the second launch finds the workspace as the first one left it.
  for (int launch = 0; launch < 2; ++launch) {
    Status launched = gemm->launch(*packed, *activations, y->address(), *workspace);
    ASSERT_TRUE(launched.ok()) << describe(test) << '\n' << launched.error().str();
  }
  ASSERT_TRUE(y->read(result.output.data(), bytes).ok());
  result.weight = *w;
  result.activation = *x;
}

dsl::MatrixView::Type viewType(const std::string &output) {
  return output == "f32"    ? dsl::MatrixView::Type::F32
         : output == "bf16" ? dsl::MatrixView::Type::BF16
                            : dsl::MatrixView::Type::F16;
}

void expectWithinBound(const Case &test) {
  auto [m, n, k] = test.shape;
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(
      run(test, kernels::syntheticWeight(n, k, 1), kernels::syntheticActivation(m, k, 2), result));
  Result<compiler::Plan> plan = compiler::Plan::parse(result.gemm.report().plan);
  ASSERT_TRUE(plan.ok());
  tool::Comparison comparison =
      tool::verify(*result.gemm.impl().gemm, *plan, result.activation, result.weight,
                   {result.output.data(), viewType(test.output), m, n, n}, tool::VerifyMode::Full);
  EXPECT_EQ(comparison.checked, m * n);
  EXPECT_EQ(result.gemm.impl().backend->emulationTotals().bankConflicts, 0u) << describe(test);
  EXPECT_TRUE(comparison.passed())
      << describe(test) << ": " << comparison.outside << " outside, worst y["
      << comparison.worstRatio.m << "," << comparison.worstRatio.n
      << "] = " << comparison.worstRatio.computed << ", exact " << comparison.worstRatio.exact;
}

struct Pair {
  const char *weight, *activation;
};
constexpr Pair pairs[] = {
    {"int4_g64", "f16"},
    {"int4_g128", "f16"},
    {"int4_g512", "f16"},
    {"int4_channel", "f16"},
    {"nvfp4", "f16"},
    {"uint4_g64", "f16"},
    {"int4_g64", "bf16"},
    {"int4_g128", "bf16"},
    {"int4_channel", "bf16"},
    {"nvfp4", "bf16"},
    {"uint4_g64", "bf16"},
    {"int4_g64", "int8_token"},
    {"int4_g128", "int8_token"},
    {"int4_channel", "int8_token"},
    {"liquidquant", "int8_token"},
    {"int4_g128", "int4_g128"},
    {"int4_g64", "int4_g512"},
    {"int4_channel", "int4_token"},
    {"int8_channel", "int8_token"},
    {"int8_g128", "int8_token"},
};
constexpr Pair fp8Pairs[] = {
    {"int4_g64", "fp8_token"},    {"int4_g128", "fp8_token"},     {"int4_channel", "fp8_token"},
    {"fp4_channel", "fp8_token"}, {"uint4_channel", "fp8_token"}, {"fp8_channel", "fp8_token"},
};

class Formats : public testing::TestWithParam<std::tuple<Pair, const char *>> {};

// Ragged shapes in every dimension: one row, fewer rows than a tile, an odd n, a k that is no
// multiple of a group, of 64 or of 8.
TEST_P(Formats, AreWithinTheBoundOnRaggedShapes) {
  auto [pair, target] = GetParam();
  for (GemmShape shape : {GemmShape{1, 64, 128}, GemmShape{3, 65, 321}, GemmShape{16, 256, 512},
                          GemmShape{37, 130, 1000}, GemmShape{130, 264, 192}, GemmShape{9, 1, 7}})
    for (const char *output : {"f16", "f32"})
      expectWithinBound({pair.weight, pair.activation, output, "", target, shape});
}

std::string nameOfFormats(const testing::TestParamInfo<Formats::ParamType> &info) {
  const Pair &pair = std::get<0>(info.param);
  return std::string(pair.weight) + "_" + pair.activation + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(All, Formats,
                         testing::Combine(testing::ValuesIn(pairs),
                                          testing::Values("sm_80", "sm_86", "sm_89", "sm_90a")),
                         nameOfFormats);
INSTANTIATE_TEST_SUITE_P(Fp8, Formats,
                         testing::Combine(testing::ValuesIn(fp8Pairs),
                                          testing::Values("sm_89", "sm_90a")),
                         nameOfFormats);

class Schedules : public testing::TestWithParam<Pair> {};

TEST_P(Schedules, AreWithinTheBound) {
  Pair pair = GetParam();
  for (const char *schedule :
       {"pipeline: 2", "pipeline: 5", "pipeline: 8 tile: 8 x 32 x 64 warps: 1 x 2",
        "tile: 8 x 16 x 64 warps: 1 x 1", "tile: 16 x 128 x 128 warps: 2 x 2",
        "tile: 64 x 64 x 64 warps: 4 x 2", "tile: 32 x 256 x 64 warps: 1 x 8", "split_k: 2",
        "split_k: 5 tile: 16 x 64 x 64 warps: 1 x 4", "split_k: 9 tile: 8 x 64 x 64"})
    expectWithinBound({pair.weight, pair.activation, "bf16", schedule, "sm_80", {21, 144, 600}});
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(pairs), [](const auto &info) {
  return std::string(info.param.weight) + "_" + info.param.activation;
});

// Stages whose pieces are no multiple of the threads: LLVM once copied the ldmatrix behind a branch
// around the last piece into both of its paths.
TEST(Copies, LeaveTheThreadsOfAWarpTogether) {
  for (const char *target : {"sm_80", "sm_86", "sm_89", "sm_90a"})
    for (int pipeline = 2; pipeline <= 6; ++pipeline)
      expectWithinBound({"int4_g128",
                         "int8_token",
                         "f16",
                         "scales: accumulator pipeline: " + std::to_string(pipeline),
                         target,
                         {33, 130, 1000}});
}

// Both places where a group scale may go.
TEST(Placements, OperandAndAccumulatorAreWithinTheBound) {
  for (const char *weight : {"int4_g64", "int4_g128", "nvfp4", "uint4_g64"})
    for (const char *scales : {"scales: operand", "scales: accumulator"})
      expectWithinBound({weight, "f16", "f32", scales, "sm_80", {12, 96, 384}});
  for (const char *scales : {"scales: operand", "scales: accumulator"})
    expectWithinBound({"nvfp4", "bf16", "f32", scales, "sm_80", {12, 96, 384}});
}

// Integers whose scales are powers of two: every sum is exact, in f32 too, so the outputs must be
// the reference's bit for bit.
TEST(IntegerPaths, AreExactBitForBit) {
  constexpr int64_t m = 19, n = 80, k = 640;
  std::vector<float> weights(n * k), tokens(m * k);
  uint64_t state = 5;
  auto random = [&](int limit) { // -limit .. limit
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % (2 * limit + 1)) - limit;
  };
  for (Pair pair : {Pair{"int4_g64", "int8_token"}, Pair{"int4_g128", "int8_token"},
                    Pair{"int4_channel", "int8_token"}, Pair{"liquidquant", "int8_token"},
                    Pair{"int4_g128", "int4_g128"}, Pair{"int4_channel", "int4_token"},
                    Pair{"int4_g128", "fp8_token"}, Pair{"int4_channel", "fp8_token"},
                    Pair{"int8_channel", "int8_token"}, Pair{"fp8_channel", "fp8_token"}}) {
    std::string activation = pair.activation, weight = pair.weight;
    bool fp8 = activation == "fp8_token", fp8Weight = weight == "fp8_channel";
    int weightLimit = weight == "liquidquant"    ? 119
                      : weight == "int8_channel" ? 127
                      : fp8Weight                ? 448
                                                 : 7;
    int tokenLimit = activation == "int8_token" ? 127 : fp8 ? 448 : 7;
    for (int64_t i = 0; i < n * k; ++i)
      weights[i] =
          static_cast<float>(i % 16 == 0 ? weightLimit : random(fp8Weight ? 7 : weightLimit));
    for (int64_t i = 0; i < m * k; ++i) // e4m3 holds integers up to 16 and this multiple of 32
      tokens[i] = static_cast<float>(i % 16 == 0 ? tokenLimit : random(fp8 ? 16 : tokenLimit));
    struct Way {
      const char *schedule, *target;
    };
    for (Way way : {Way{"", fp8 ? "sm_89" : "sm_80"},
                    Way{"split_k: 3 tile: 16 x 64 x 128", fp8 ? "sm_89" : "sm_80"},
                    Way{"roles: imfp tile: 32 x 64 x 128 warps: 1 x 4", "sm_90a"}}) {
      Case test{pair.weight, activation, "f32", way.schedule, way.target, {m, n, k}};
      Outcome result;
      ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
      const auto *y = reinterpret_cast<const float *>(result.output.data());
      for (int64_t row = 0; row < m; ++row) {
        std::vector<double> x = result.activation.rowValues(row);
        for (int64_t column = 0; column < n; ++column) {
          std::vector<double> w = result.weight.rowValues(column);
          double exact = 0;
          for (int64_t i = 0; i < k; ++i)
            exact += x[i] * w[i];
          ASSERT_EQ(y[row * n + column], static_cast<float>(exact)) << describe(test);
        }
      }
    }
  }
}

TEST(SplitK, IsDeterministic) {
  Case test{"int4_g128", "f16", "f32", "split_k: 7 tile: 16 x 64 x 64", "sm_80", {16, 128, 1024}};
  auto weights = kernels::syntheticWeight(128, 1024, 3);
  auto tokens = kernels::syntheticActivation(16, 1024, 4);
  Outcome first, second;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, first));
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, second));
  EXPECT_EQ(first.output, second.output);
}

TEST(Activations, NotFiniteMakesItsTokenNotANumberAndNoOther) {
  Case test{"int4_g128", "int8_token", "f32", "", "sm_80", {4, 64, 128}};
  auto weights = kernels::syntheticWeight(64, 128, 3);
  auto tokens = kernels::syntheticActivation(4, 128, 4);
  tokens[128 + 5] = NAN;
  tokens[2 * 128 + 9] = INFINITY;
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  for (int64_t column = 0; column < 64; ++column) {
    EXPECT_TRUE(std::isfinite(y[column]));
    EXPECT_TRUE(std::isnan(y[64 + column]));
    EXPECT_TRUE(std::isnan(y[128 + column]));
    EXPECT_TRUE(std::isfinite(y[192 + column]));
  }
}

} // namespace
} // namespace rho
