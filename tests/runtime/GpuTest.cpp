// The same walk on a GPU; skipped, with the reason, where there is none.
#include "dsl/Quantize.h"
#include "kernels/Reference.h"
#include "runtime/Handles.h"
#include "runtime/cuda/Timing.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace rho {
namespace {

class GpuTest : public testing::Test {
protected:
  void SetUp() override {
    Result<Device> found = Device::cuda(0);
    if (!found)
      GTEST_SKIP() << found.error().str();
    device = *found;
    EngineOptions options;
    options.cacheDirectory = folder.path();
    engine = must(Engine::create(device, options));
  }

  // Whether the codes that the GPU finds for x are those of the host. `what` names the case.
  void expectHostCodes(const Gemm &gemm, const Module &module, const std::vector<float> &x,
                       ScalarType type, const std::string &what) {
    const GemmShape shape = gemm.shape();
    std::vector<uint16_t> halves;
    const void *host = x.data();
    int64_t width = 4;
    if (type != ScalarType::F32) {
      auto half = dsl::ElementType::get(type == ScalarType::F16 ? "f16" : "bf16");
      for (float number : x)
        halves.push_back(static_cast<uint16_t>(half.encode(number)));
      host = halves.data();
      width = 2;
    }
    Buffer input = must(device.allocate(shape.m * shape.k * width));
    ASSERT_TRUE(input.write(host, input.bytes()));
    Activations activations = must(gemm.makeActivations());
    ASSERT_EQ(errorText(gemm.quantizeActivations(activations, input.address(), type, shape.k)), "");
    ASSERT_EQ(errorText(device.synchronize()), "");
    dsl::QuantizedMatrix got = must(readActivations(activations));
    dsl::QuantizedMatrix expected = must(
        dsl::quantize(std::make_shared<const dsl::Format>(module.impl().module.gemms[0].activation),
                      {host,
                       type == ScalarType::F32   ? dsl::MatrixView::Type::F32
                       : type == ScalarType::F16 ? dsl::MatrixView::Type::F16
                                                 : dsl::MatrixView::Type::BF16,
                       shape.m, shape.k, shape.k},
                      false));
    for (size_t c = 0; c < expected.components.size(); ++c)
      for (int64_t i = 0; i < expected.components[c].size(); ++i)
        ASSERT_EQ(got.components[c].get(i), expected.components[c].get(i))
            << what << ", component " << c << ", code " << i;
  }

  TemporaryFolder folder;
  Device device;
  Engine engine;
};

struct Operands {
  Operands(const Device &device, const Gemm &gemm)
      : w(numbers(gemm.shape().n, gemm.shape().k, 1)),
        x(numbers(gemm.shape().m, gemm.shape().k, 2)),
        weight(must(gemm.packWeights(w.data(), ScalarType::F32, gemm.shape().k))),
        activations(must(gemm.makeActivations())),
        input(must(device.allocate(static_cast<int64_t>(x.size()) * 4))),
        output(must(device.allocate(gemm.shape().m * gemm.shape().n * 4))),
        workspace(must(device.allocate(gemm.workspaceBytes()))) {
    EXPECT_TRUE(input.write(x.data(), input.bytes()));
  }
  std::vector<float> y() const {
    std::vector<float> numbers(static_cast<size_t>(output.bytes() / 4));
    EXPECT_TRUE(output.read(numbers.data(), output.bytes()));
    return numbers;
  }
  std::vector<float> w, x;
  Buffer weight;
  Activations activations;
  Buffer input, output, workspace;
};

TEST_F(GpuTest, ResultsAreTheReferences) {
  for (const char *text : {w4a16, w4a8, w4a4})
    for (GemmShape shape :
         {GemmShape{1, 64, 64}, GemmShape{5, 200, 328}, GemmShape{33, 256, 1024}}) {
      Module module = parsed(text);
      Gemm gemm = must(engine.compile(module, "", shape));
      EXPECT_GT(gemm.report().registers, 0);
      Operands o(device, gemm);
      ASSERT_EQ(errorText(gemm.quantizeActivations(o.activations, o.input.address(),
                                                   ScalarType::F32, shape.k)),
                "");
      ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)),
                "");
      ASSERT_EQ(errorText(device.synchronize()), "");
      const dsl::Gemm &declared = module.impl().module.gemms[0];
      kernels::ReferenceOutput expected = kernels::reference(
          must(readActivations(o.activations)),
          must(dsl::quantize(std::make_shared<const dsl::Format>(declared.weight),
                             {o.w.data(), dsl::MatrixView::Type::F32, shape.n, shape.k, shape.k},
                             true)));
      std::vector<float> y = o.y();
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], expected.y[i], expected.magnitude[i] * 1e-3) << gemm.report().plan << i;
    }
}

TEST_F(GpuTest, QuantizerCodesAreThoseOfTheHost) {
  const std::string weight = "format w {\n  element: s4\n  scale: f16 per k[64]\n"
                             "  value = element * scale\n}\n";
  const std::vector<std::string> formats = {
      "format a { element: s8 scale: f32 per token value = element * scale }",
      "format a { element: s4 scale: f16 per k[64] value = element * scale }",
      "format a { element: s4 scale: f16 per k[128] value = element * scale }",
      "format a { element: s8 scale: bf16 per k[32] value = element * scale }",
      "format a { element: s8 g: f16 per k[64] t: f32 per token value = element * g * t }",
  };
  for (const std::string &format : formats)
    for (GemmShape shape :
         {GemmShape{3, 64, 64}, GemmShape{17, 64, 1000}, GemmShape{64, 64, 4096}}) {
      Module module =
          parsed((weight + format + "\ngemm g { weight: w activation: a output: f32 }\n").c_str());
      Result<Gemm> gemm = engine.compile(module, "", shape);
      if (!gemm)
        continue; // a format that no kernel takes yet
      ASSERT_THAT(gemm->report().warnings, testing::IsEmpty());
      std::vector<float> x = numbers(shape.m, shape.k, 5);
      // What rounds: ties, zeros, saturation; and what is not finite.
      for (size_t i = 0; i < x.size(); i += 7)
        x[i] = std::round(x[i] * 4) / 8;
      std::fill_n(x.begin() + shape.k, shape.k, 0.0f); // a row of zeros
      x[static_cast<size_t>(2 * shape.k + 5)] = std::nanf("");
      x[static_cast<size_t>(2 * shape.k + 40)] = -HUGE_VALF;
      x[0] = -0.0f;
      for (ScalarType type : {ScalarType::F32, ScalarType::F16, ScalarType::BF16})
        expectHostCodes(*gemm, module, x, type, format + " k=" + std::to_string(shape.k));
    }
}

TEST_F(GpuTest, PlainFormatsAreConvertedAsOnTheHost) {
  for (const char *type : {"f16", "bf16"}) {
    std::string text = std::string("format w { element: s4 scale: f16 per k[64] "
                                   "value = element * scale }\n"
                                   "gemm g { weight: w activation: ") +
                       type + " output: f32 }\n";
    Module module = parsed(text.c_str());
    GemmShape shape{16, 64, 512};
    Gemm gemm = must(engine.compile(module, "", shape));
    // All kinds of floats: any bits are some number.
    std::mt19937 random(3); // NOLINT(bugprone-random-generator-seed): the same in every run
    std::vector<float> x(static_cast<size_t>(shape.m * shape.k));
    for (float &number : x)
      number = std::bit_cast<float>(static_cast<uint32_t>(random()));
    for (ScalarType input : {ScalarType::F32, ScalarType::F16, ScalarType::BF16})
      expectHostCodes(gemm, module, x, input, type);
  }
}

TEST_F(GpuTest, GraphsReplayQuantizationAndLaunch) {
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  cuda::OwnedStream stream = must(cuda::OwnedStream::create(device));
  auto work = [&]() -> Status {
    Status quantized = gemm.quantizeActivations(o.activations, o.input.address(), ScalarType::F32,
                                                512, stream.get());
    return quantized
               ? gemm.launch(o.weight, o.activations, o.output.address(), o.workspace, stream.get())
               : quantized;
  };
  ASSERT_EQ(errorText(work()), "");
  ASSERT_TRUE(device.synchronize(stream.get()));
  std::vector<float> direct = o.y();
  cuda::Graph graph = must(cuda::Graph::capture(device, stream.get(), work));
  std::vector<float> zeros(direct.size());
  ASSERT_TRUE(o.output.write(zeros.data(), o.output.bytes()));
  cuda::Event before = must(cuda::Event::create(device)), after = must(cuda::Event::create(device));
  ASSERT_TRUE(before.record(stream.get()));
  ASSERT_EQ(errorText(graph.launch(stream.get())), "");
  ASSERT_TRUE(after.record(stream.get()));
  EXPECT_GT(must(after.since(before)), 0);
  EXPECT_EQ(o.y(), direct);
  // Another input through the same graph.
  std::vector<float> doubled = o.x;
  for (float &number : doubled)
    number *= 2;
  ASSERT_TRUE(o.input.write(doubled.data(), o.input.bytes()));
  ASSERT_EQ(errorText(graph.launch(stream.get())), "");
  ASSERT_TRUE(device.synchronize(stream.get()));
  std::vector<float> replayed = o.y();
  for (size_t i = 0; i < direct.size(); ++i)
    ASSERT_EQ(replayed[i], 2 * direct[i]);
}

TEST_F(GpuTest, KernelsComeBackFromDisk) {
  Module module = parsed(w4a8);
  Gemm cold = must(engine.compile(module, "", {4, 64, 128}));
  EngineOptions options;
  options.cacheDirectory = folder.path();
  Gemm warm = must(must(Engine::create(device, options)).compile(module, "", {4, 64, 128}));
  EXPECT_EQ(cold.report().source, CompileReport::Source::Compiled);
  EXPECT_EQ(warm.report().source, CompileReport::Source::Disk);
  EXPECT_EQ(warm.report().registers, cold.report().registers);
  for (const Gemm &gemm : {cold, warm}) {
    std::string line;
    for (const CompileReport::Stage &stage : gemm.report().stages)
      line += stage.name + " " + std::to_string(stage.milliseconds) + " ";
    RecordProperty("stages", line);
    std::printf("%s= %.3f ms\n", line.c_str(), gemm.report().totalMilliseconds);
  }
}

TEST_F(GpuTest, DevicesShareTheirMemory) {
  Device again = must(Device::cuda(0));
  Gemm gemm = must(engine.compile(parsed(w4a16), "", {1, 64, 64}));
  Operands o(again, gemm);
  EXPECT_EQ(
      errorText(gemm.quantizeActivations(o.activations, o.input.address(), ScalarType::F32, 64)),
      "");
  EXPECT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)), "");
}

} // namespace
} // namespace rho
