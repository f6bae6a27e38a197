// The same walk on a GPU; skipped, with the reason, where there is none.
#include "dsl/Quantize.h"
#include "kernels/Reference.h"
#include "runtime/cuda/Timing.h"
#include "tests/runtime/GpuFixture.h"
#include "tests/runtime/QuantizerCase.h"

#include <gtest/gtest.h>

namespace rho {
namespace {

class GpuTest : public OnGpu {
protected:
  // Whether the GPU's quantizer leaves the same bytes as the host's, padding included, also where
  // it is launched again in the same buffers.
  void expectHostBytes(const std::string &text, int64_t m, int64_t k, ScalarType type,
                       const std::vector<float> &x, const std::vector<StoredCodes> &stored = {},
                       const std::vector<uint8_t> &choice = {},
                       const std::map<int, uint32_t> &given = {},
                       const std::string &asNumbers = {}) {
    auto format = activationOf(text);
    auto inMemory = storedAs({.formats = text, .numbers = asNumbers}, format);
    const compiler::ActivationLayout layout = layoutOf(*inMemory, k, stored);
    const int64_t stride = k + 8;
    Buffer data = inputOf(device, x, m, k, stride, type);
    cache::DiskCacheOptions options;
    options.directory = folder.path();
    cache::DiskCache disk(options);
    cache::Warnings warnings;
    std::shared_ptr<const Quantizer> gpu =
        must(device.impl().backend->makeQuantizer(format, *inMemory, layout, disk, warnings));
    if (!warnings.empty())
      GTEST_SKIP() << warnings[0];
    Activations::Impl fromGpu = buffersFor(device, format, inMemory, layout, m);
    Activations::Impl fromHost = buffersFor(device, format, inMemory, layout, m);
    if (!choice.empty())
      for (Activations::Impl *out : {&fromGpu, &fromHost})
        choose(*out, choice);
    for (Activations::Impl *out : {&fromGpu, &fromHost})
      fix(*out, given);
    ASSERT_EQ(errorText(makeHostQuantizer()->run(fromHost, data.address(), type, stride, nullptr)),
              "");
    for (int launch = 0; launch < 2; ++launch) {
      ASSERT_EQ(errorText(gpu->run(fromGpu, data.address(), type, stride, nullptr)), "");
      ASSERT_EQ(difference(fromGpu, fromHost), "")
          << text << " m=" << m << " k=" << k << ", launch " << launch;
    }
  }
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

TEST_F(GpuTest, QuantizerLeavesTheHostsBytes) {
  const char *formats[] = {
      "format a { element: s8 scale: f32 per token value = element * scale }",
      "format a { element: s4 scale: f16 per k[64] value = element * scale }",
      "format a { element: s4 scale: f16 per k[128] value = element * scale }",
      "format a { element: s8 scale: bf16 per k[512] value = element * scale }",
      "format a { element: u8 scale: f32 per k[24] value = element * scale }",
      "format a { element: e4m3 scale: f32 per token value = element * scale }",
      "format a { element: e2m1 block: e4m3 per k[16] row: f32 per token "
      "value = element * block * row }",
      "format a { element: e2m1 scale: e8m0 per k[32] value = element * scale "
      "encode { scale = bit_floor(absmax(x)) / 4 } }",
      "format a { element: s8 block: u8 per k[8] row: f32 per k[256] value = element * block * row "
      "encode { row = (max(x) - min(x)) / 2 / 127 + f16(absmax(x)) * 0.01 "
      "block = -min(x / row) } }",
      "format a { element: f16 value = element }",
      "format a { element: bf16 value = element }",
      "format a { element: s4 value = element }",
  };
  for (const char *format : formats)
    for (auto [m, k] : std::vector<std::pair<int64_t, int64_t>>{{3, 64}, {17, 1000}, {9, 8200}})
      for (ScalarType type : {ScalarType::F32, ScalarType::F16, ScalarType::BF16}) {
        const std::vector<float> x = difficultNumbers(m, k);
        expectHostBytes(format, m, k, type, x);
        if (std::string_view(format).find("element: s4") != std::string_view::npos)
          expectHostBytes(format, m, k, type, x, {{8}}); // widened
        if (std::string_view(format).find("element: e2m1") != std::string_view::npos)
          expectHostBytes(format, m, k, type, x, {{0, 4}}); // scales in words
        expectHostBytes(format, m, k, type, randomBits(m, k));
      }
}

// Parts, remapped codes, candidates of rules.
TEST_F(GpuTest, QuantizerChoosesAsTheHost) {
  struct Input {
    int64_t m, k;
    ScalarType type;
  };
  for (const QuantizerCase &test : quantizerCases())
    for (auto [m, k, type] : {Input{3, 64, ScalarType::F32}, Input{17, 1000, ScalarType::BF16},
                              Input{300, 1024, ScalarType::F16}}) {
      const std::vector<uint8_t> choice = choiceFor(test, *activationOf(test.formats), k);
      expectHostBytes(test.formats, m, k, type, difficultNumbers(m, k), test.stored, choice,
                      test.given, test.numbers);
      expectHostBytes(test.formats, m, k, type, numbers(m, k, 6), test.stored, choice, test.given,
                      test.numbers);
      expectHostBytes(test.formats, m, k, type, repeatedNumbers(m, k), test.stored, choice,
                      test.given, test.numbers);
      expectHostBytes(test.formats, m, k, type, randomBits(m, k), test.stored, choice, test.given,
                      test.numbers);
    }
}

// Quotients on both sides of every tie, as near as floats come to it.
TEST_F(GpuTest, QuantizerRoundsTiesAsTheHost) {
  const int64_t m = 64, k = 4096;
  std::vector<float> x(static_cast<size_t>(m * k));
  for (int64_t row = 0; row < m; ++row) {
    float scale = 0.37f * static_cast<float>(row + 1) / 7;
    for (int64_t i = 0; i < k; ++i) {
      float tie = (static_cast<float>(i % 255) - 127.0f + 0.5f) * scale;
      uint32_t bits = std::bit_cast<uint32_t>(tie) + static_cast<uint32_t>(i / 255) - 8;
      x[static_cast<size_t>(row * k + i)] = std::bit_cast<float>(bits);
    }
    x[static_cast<size_t>(row * k)] = 127 * scale;
  }
  expectHostBytes("format a { element: s8 scale: f32 per token value = element * scale }", m, k,
                  ScalarType::F32, x);
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

// One graph: the parts of the blocks follow the numbers of each replay, or the caller's choice.
TEST_F(GpuTest, GraphsReplayTheChoiceOfParts) {
  Module module = parsed(mixedActivation);
  Gemm gemm = must(engine.compile(module, "", {16, 256, 1024}));
  EXPECT_TRUE(gemm.report().warnings.empty()) << gemm.report().warnings[0];
  Operands o(device, gemm);
  cuda::OwnedStream stream = must(cuda::OwnedStream::create(device));
  auto work = [&]() -> Status {
    Status quantized = gemm.quantizeActivations(o.activations, o.input.address(), ScalarType::F32,
                                                1024, stream.get());
    return quantized
               ? gemm.launch(o.weight, o.activations, o.output.address(), o.workspace, stream.get())
               : quantized;
  };
  cuda::Graph byNumbers = must(cuda::Graph::capture(device, stream.get(), work));
  const std::vector<uint8_t> given = {0, 1, 0, 0, 1, 1, 0, 0};
  auto format = std::make_shared<const dsl::Format>(module.impl().module.gemms[0].activation);
  auto expectReplay = [&](cuda::Graph &graph, int64_t large, std::span<const uint8_t> choice) {
    std::vector<float> x = o.x; // with the largest numbers in one block
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= static_cast<int64_t>(i) % 1024 / 128 == large ? 30.0f : 1.0f;
    ASSERT_TRUE(o.input.write(x.data(), o.input.bytes()));
    ASSERT_EQ(errorText(graph.launch(stream.get())), "");
    ASSERT_TRUE(device.synchronize(stream.get()));
    dsl::QuantizedMatrix made = must(readActivations(o.activations));
    dsl::QuantizedMatrix expected =
        must(dsl::quantize(format, {x.data(), dsl::MatrixView::Type::F32, 16, 1024, 1024},
                           dsl::QuantizeOptions{.choice = choice}));
    for (int64_t block = 0; block < 8; ++block)
      EXPECT_EQ(made.choice.get(block), expected.choice.get(block)) << block;
    EXPECT_EQ(made.choice.get(large), choice.empty() ? 1U : choice[static_cast<size_t>(large)]);
    for (int64_t row = 0; row < 16; ++row)
      ASSERT_EQ(made.rowValues(row), expected.rowValues(row)) << row;
  };
  for (int64_t large : {3, 6})
    expectReplay(byNumbers, large, {});
  ASSERT_EQ(errorText(gemm.chooseParts(o.activations, given)), "");
  cuda::Graph asGiven = must(cuda::Graph::capture(device, stream.get(), work));
  for (int64_t large : {3, 6})
    expectReplay(asGiven, large, given);
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
