// The public way from a quantized file to a launch.
#include "kernels/WeightFile.h"

#include "dsl/Quantize.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/QuantizeFile.h"
#include "tests/kernels/TemporaryFiles.h"

#include <cmath>

using namespace rho;
using namespace rho::kernels;

namespace {

constexpr int64_t n = 64, k = 128;

template <class T> T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().str();
  return std::move(*result);
}

class WeightFileTest : public test::TemporaryFiles {
protected:
  std::string quantized(const LayerSteps &steps = {}) const {
    std::string from =
        put("in.safetensors",
            test::safetensors({{"a.w", "F32", "64,128", test::bytesOf(w)},
                               {"norm", "F32", "1", test::bytesOf(std::vector{1.0F})}}));
    QuantizeFileOptions options;
    options.format = shippedFormat("int4_g64");
    options.steps = steps;
    options.tensors.only = {"a.w"};
    must(quantizeFile(from, folder + "q.safetensors", options));
    return folder + "q.safetensors";
  }
  static std::string error(const auto &result) { return result.ok() ? "" : result.error().str(); }

  const std::vector<float> w = syntheticWeight(n, k, 1);
};

TEST_F(WeightFileTest, aWeightIsPackedAndLaunched) {
  for (const LayerSteps &steps : {LayerSteps{}, LayerSteps{.rotate = 7}}) {
    WeightFile file = must(WeightFile::open(quantized(steps)));
    EXPECT_EQ(file.names(), std::vector<std::string>{"a.w"});
    const WeightFile::Weight what = must(file.describe("a.w"));
    EXPECT_EQ(what.format, "int4_g64");
    EXPECT_EQ(what.n, n);
    EXPECT_EQ(what.k, k);
    EXPECT_EQ(what.transformsInputs, steps.rotate.has_value());

    Module module = must(Module::parse(what.declarations +
                                       "gemm g { weight: int4_g64 activation: f16 output: f32 }"));
    EngineOptions options;
    options.diskCache = false;
    Device device = must(Device::emulated("sm_80"));
    Engine engine = must(Engine::create(device, options));
    const int64_t m = 3, stride = k + 8;
    Gemm gemm = must(engine.compile(module, "", {m, n, k}));
    Buffer weight = must(file.pack("a.w", gemm));
    const std::vector<float> x = syntheticActivation(m, stride, 2);
    Buffer input = must(device.allocate(m * stride * 4)), output = must(device.allocate(m * n * 4));
    Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
    InputTransform transform = must(file.inputTransform("a.w", engine));
    Activations codes = must(gemm.makeActivations(transform));
    ASSERT_TRUE(input.write(x.data(), input.bytes()));
    ASSERT_TRUE(gemm.quantizeActivations(codes, input.address(), ScalarType::F32, stride));
    ASSERT_EQ(error(gemm.launch(weight, codes, output.address(), workspace)), "");
    std::vector<float> y(static_cast<size_t>(m * n));
    ASSERT_TRUE(output.read(y.data(), output.bytes()));
    // The layer's outputs but for the errors of 4 bits.
    double difference = 0, all = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double exact = 0;
        for (int64_t at = 0; at < k; ++at)
          exact += static_cast<double>(x[static_cast<size_t>(i * stride + at)]) *
                   w[static_cast<size_t>(j * k + at)];
        difference += std::pow(y[static_cast<size_t>(i * n + j)] - exact, 2);
        all += exact * exact;
      }
    EXPECT_LT(difference, all * 0.05);
  }
}

TEST_F(WeightFileTest, whatIsAskedInVainIsRefused) {
  const std::string path = quantized();
  EXPECT_EQ(error(WeightFile::open(folder + "in.safetensors")),
            "error: '" + folder +
                "in.safetensors' is not a valid quantized file: its metadata has no 'rho.format' "
                "[quantized_file_invalid]\n");
  WeightFile file = must(WeightFile::open(path));
  const std::string none =
      "error: '" + path + "' holds no quantized matrix 'norm' [not_quantized]\n";
  EXPECT_EQ(error(file.describe("norm")), none);
  EXPECT_EQ(error(file.pack("a.w", Gemm())),
            "error: empty gemm, it must come from a successful call [empty_handle]\n");
  EXPECT_EQ(error(WeightFile().describe("a.w")),
            "error: empty weight file, it must come from a successful call [empty_handle]\n");
  EXPECT_TRUE(WeightFile().names().empty());

  EngineOptions options;
  options.diskCache = false;
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), options));
  Module module = must(Module::parse("format other { element: s4 scale: f32 per k[64] value = "
                                     "element * scale } gemm g { weight: other activation: f16 "
                                     "output: f32 }"));
  Gemm gemm = must(engine.compile(module, "", {1, n, k}));
  EXPECT_EQ(error(file.pack("norm", gemm)), none);
  EXPECT_EQ(error(file.inputTransform("norm", engine)), none);
  EXPECT_NE(error(file.inputTransform("a.w", Engine())).find("[empty_handle]"), std::string::npos);
  EXPECT_NE(error(file.pack("a.w", gemm)).find("[layout_mismatch]"), std::string::npos);
}

} // namespace
