#include "tests/compiler/EmulatedGemm.h"

#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"
#include "runtime/tool/Verify.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rho::test {

namespace {

// In addition to the shipped ones.
constexpr const char *moreFormats = R"(
format int4_g32 { element: s4 scale: f16 per k[32] value = element * scale }
format int4_g512 { element: s4 scale: f16 per k[512] value = element * scale }
format uint4_g64 { element: u4 scale: f16 per k[64] value = element * scale }
format uint4_channel { element: u4 scale: f16 per channel value = element * scale }
format int8_g32 { element: s8 scale: f32 per k[32] value = element * scale }
format fp4_g16 { element: e2m1 block: e4m3 per k[16] value = element * block }
format fp4_g32 { element: e2m1 block: e4m3 per k[32] value = element * block }
format fp4_powers { element: e2m1 scale: e8m0 per k[32] value = element * scale encode { scale = bit_floor(absmax(x)) / 4 } }
format fp4_token { element: e2m1 scale: f32 per token value = element * scale }
format fp4_two { element: e2m1 block: e4m3 per k[16] large: f16 per k[64] value = element * block * large }
format fp4_signed { element: e2m1 block: e4m3 per k[16] value = element * block encode { block = max(x) / 6 } }
format int8_g128_e4m3 { element: s8 scale: e4m3 per k[128] value = element * scale }
)";

const std::string &formats() {
  static const std::string all = [] {
    std::string text = moreFormats;
    for (const auto &entry :
         std::filesystem::directory_iterator(RHO_SOURCE_DIR "/kernels/formats")) {
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);)
        if (!line.starts_with("import")) // all are here
          text += line + "\n";
    }
    return text;
  }();
  return all;
}

dsl::MatrixView::Type viewType(const std::string &output) {
  return output == "f32"    ? dsl::MatrixView::Type::F32
         : output == "bf16" ? dsl::MatrixView::Type::BF16
                            : dsl::MatrixView::Type::F16;
}

} // namespace

std::string describe(const Case &test) {
  return test.weight + " x " + test.activation + " -> " + test.output + " {" + test.schedule +
         "} on " + test.target + ", m = " + std::to_string(test.shape.m) +
         ", n = " + std::to_string(test.shape.n) + ", k = " + std::to_string(test.shape.k);
}

std::string declaration(const Case &test) {
  return formats() + test.formats + "gemm g { weight: " + test.weight +
         " activation: " + test.activation + " output: " + test.output + " schedule { " +
         test.schedule + " } }";
}

void run(const Case &test, const std::vector<float> &weights, const std::vector<float> &tokens,
         Outcome &result) {
  auto [m, n, k] = test.shape;
  run(
      test,
      [&](std::shared_ptr<const dsl::Format> format) {
        return dsl::quantize(std::move(format),
                             {weights.data(), dsl::MatrixView::Type::F32, n, k, k}, true);
      },
      tokens, result);
}

void run(const Case &test, const WeightMaker &weight, const std::vector<float> &tokens,
         Outcome &result) {
  Result<Module> module = Module::parse(declaration(test));
  ASSERT_TRUE(module.ok()) << module.error().str();
  Result<Device> device = Device::emulated(test.target);
  ASSERT_TRUE(device.ok()) << device.error().str();
  EngineOptions options;
  options.diskCache = false;
  Result<Engine> engine = Engine::create(*device, options);
  ASSERT_TRUE(engine.ok()) << engine.error().str();
  Result<Gemm> gemm = engine->compile(*module, "g", test.shape);
  ASSERT_TRUE(gemm.ok()) << describe(test) << '\n' << gemm.error().str();
  result.gemm = *gemm;

  auto [m, n, k] = test.shape;
  const dsl::Gemm &declared = *gemm->impl().gemm;
  auto format = [](const dsl::Format &f) { return std::make_shared<const dsl::Format>(f); };
  Result<dsl::QuantizedMatrix> w = weight(format(declared.weight));
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
  Status quantized =
      gemm->quantizeActivations(*activations, tokensOnDevice->address(), ScalarType::F32, k);
  ASSERT_TRUE(quantized.ok()) << quantized.error().str();
  // Twice: the second launch finds the workspace as the first one left it, and no outputs of that.
  for (int launch = 0; launch < 2; ++launch) {
    result.output.assign(static_cast<size_t>(bytes), 0xff);
    ASSERT_TRUE(y->write(result.output.data(), bytes).ok());
    Status launched = gemm->launch(*packed, *activations, y->address(), *workspace);
    ASSERT_TRUE(launched.ok()) << describe(test) << '\n' << launched.error().str();
  }
  ASSERT_TRUE(y->read(result.output.data(), bytes).ok());
  result.weight = *w;
  result.activation = *x;
}

void expectWithinBound(const Case &test) {
  Outcome result;
  expectWithinBound(test, result);
}

void expectWithinBound(const Case &test, Outcome &result) {
  auto [m, n, k] = test.shape;
  ASSERT_NO_FATAL_FAILURE(
      run(test, kernels::syntheticWeight(n, k, 1), kernels::syntheticActivation(m, k, 2), result));
  Result<compiler::Plan> plan = compiler::Plan::parse(result.gemm.report().plan);
  ASSERT_TRUE(plan.ok());
  tool::Comparison comparison =
      tool::verify(*result.gemm.impl().gemm, *plan, result.activation, result.weight,
                   {result.output.data(), viewType(test.output), m, n, n}, tool::VerifyMode::Full,
                   compiler::Summing::Emulator);
  EXPECT_EQ(comparison.checked, m * n);
  EXPECT_EQ(result.gemm.impl().backend->emulationTotals().bankConflicts, 0u) << describe(test);
  EXPECT_TRUE(comparison.passed())
      << describe(test) << ": " << comparison.outside << " outside, worst y["
      << comparison.worstRatio.m << "," << comparison.worstRatio.n
      << "] = " << comparison.worstRatio.computed << ", exact " << comparison.worstRatio.exact;
}

void expectExact(const Case &test) {
  auto [m, n, k] = test.shape;
  std::vector<float> weights(static_cast<size_t>(n * k)), tokens(static_cast<size_t>(m * k));
  uint64_t state = 5;
  auto random = [&](int limit) { // -limit .. limit
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % (2 * static_cast<uint64_t>(limit) + 1)) - limit;
  };
  // A number of the largest code in every group makes the group's scale 1. Of e4m3, integers up to
  // 16 are exact.
  struct Limits {
    int code, others;
  };
  auto limitsOf = [](const std::string &format) -> Limits {
    return format.starts_with("int8")  ? Limits{127, 127}
           : format.starts_with("fp8") ? Limits{448, 16}
           : format == "liquidquant"   ? Limits{119, 119}
                                       : Limits{7, 7};
  };
  auto fill = [&](std::vector<float> &numbers, Limits limits) {
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(
          static_cast<int64_t>(i) % k % 16 == 0 ? limits.code : random(limits.others));
  };
  fill(weights, limitsOf(test.weight));
  fill(tokens, limitsOf(test.activation));
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  std::vector<std::vector<double>> w;
  for (int64_t column = 0; column < n; ++column)
    w.push_back(result.weight.rowValues(column));
  for (int64_t row = 0; row < m; ++row) {
    std::vector<double> x = result.activation.rowValues(row);
    for (int64_t column = 0; column < n; ++column) {
      double exact = 0;
      for (int64_t i = 0; i < k; ++i)
        exact += x[i] * w[column][i];
      ASSERT_EQ(y[row * n + column], static_cast<float>(exact))
          << describe(test) << ": y[" << row << "," << column << "]";
    }
  }
}

void expectExactProducts(const Case &test, const std::vector<float> &weights,
                         const std::vector<float> &tokens) {
  Outcome result;
  ASSERT_NO_FATAL_FAILURE(run(test, weights, tokens, result));
  auto [m, n, k] = test.shape;
  const auto *y = reinterpret_cast<const float *>(result.output.data());
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < n; ++column) {
      double exact = 0;
      for (int64_t i = 0; i < k; ++i)
        exact += double(tokens[static_cast<size_t>(row * k + i)]) *
                 double(weights[static_cast<size_t>(column * k + i)]);
      ASSERT_EQ(y[row * n + column], static_cast<float>(exact))
          << describe(test) << ": y[" << row << "," << column << "]";
    }
}

} // namespace rho::test
