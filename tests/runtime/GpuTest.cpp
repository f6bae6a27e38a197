// The same walk on a GPU; skipped, with the reason, where there is none.
#include "compiler/ErrorBound.h"
#include "dsl/Quantize.h"
#include "kernels/Reference.h"
#include "runtime/cuda/Nvrtc.h"
#include "runtime/cuda/Timing.h"
#include "tests/runtime/GpuFixture.h"
#include "tests/runtime/QuantizerCase.h"

#include <gmock/gmock.h>
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

// Kernels whose warps have roles.
class GpuWgmmaTest : public GpuTest {
protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && device.target() != "sm_90a")
      GTEST_SKIP() << device.name() << " is " << device.target() << ", roles need sm_90a";
  }

  // Sums that are scaled in the loop, sums that are not, and codes looked up in pairs.
  static constexpr const char *weights[] = {"int4", "channel4", "squares"};

  static Module declared(const std::string &weight, const std::string &schedule) {
    return parsed(
        ("format int4 { element: s4 scale: f16 per k[128] value = element * scale }\n"
         "format channel4 { element: s4 scale: f16 per channel value = element * scale }\n"
         "format squares { element: codebook [-49, -36, -25, -16, -9, -4, -1, 0, 1, 4, 9, 16, 25, "
         "36, 49, 64] scale: f32 per channel value = element * scale }\n"
         "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
         "gemm g { weight: " +
         weight + " activation: " + (weight == "int4" ? "int8" : "bf16") +
         " output: f32 schedule { roles: imfp " + schedule + " } }")
            .c_str());
  }

  void expectWithinBound(const Module &module, const GemmShape &shape) {
    Gemm gemm = must(engine.compile(module, "", shape));
    Operands o(device, gemm);
    ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
    ASSERT_EQ(errorText(device.synchronize()), "");
    const dsl::Gemm &declaration = module.impl().module.gemms[0];
    kernels::ReferenceOutput expected = kernels::reference(
        must(readActivations(o.activations)),
        must(dsl::quantize(std::make_shared<const dsl::Format>(declaration.weight),
                           {o.w.data(), dsl::MatrixView::Type::F32, shape.n, shape.k, shape.k},
                           true)));
    compiler::ErrorBound bound(declaration, must(compiler::Plan::parse(gemm.report().plan)),
                               compiler::Summing::Gpu);
    std::vector<float> y = o.y();
    for (size_t j = 0; j < y.size(); ++j)
      ASSERT_LE(std::abs(y[j] - expected.y[j]), bound(expected.magnitude[j], expected.y[j]))
          << gemm.report().plan << "y[" << static_cast<int64_t>(j) / shape.n << ","
          << static_cast<int64_t>(j) % shape.n << "] = " << y[j] << ", exact " << expected.y[j];
  }

  void quantizeAndLaunch(const Gemm &gemm, const Operands &o) {
    ASSERT_EQ(errorText(gemm.quantizeActivations(o.activations, o.input.address(), ScalarType::F32,
                                                 gemm.shape().k)),
              "");
    ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)), "");
  }
};

TEST_F(GpuWgmmaTest, ResultsAreWithinTheBound) {
  std::mt19937 random(23); // NOLINT(bugprone-random-generator-seed): the same in every run
  auto below = [&](size_t limit) { return static_cast<int64_t>(random() % limit); };
  const char *schedules[] = {
      "",
      "tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 8 split_k: 1",
      "tile: 16 x 64 x 128 warps: 1 x 4 x 2 pipeline: 6 split_k: 3",
      "tile: 64 x 128 x 128 warps: 1 x 8 pipeline: 3 split_k: 1 launch: dependent",
      "tile: 128 x 64 x 128 warps: 1 x 4 pipeline: 4 split_k: 2",
      "tile: 16 x 64 x 128 warps: 1 x 4 x 4 pipeline: 8 split_k: 1 launch: dependent",
      "tile: 16 x 64 x 128 warps: 1 x 4 x 2 pipeline: 4 split_k: 1 cluster: 2 x 1",
      "tile: 64 x 128 x 128 warps: 1 x 8 pipeline: 3 split_k: 1 cluster: 4 x 1 launch: dependent",
      "tile: 16 x 64 x 128 warps: 1 x 4 x 2 pipeline: 4 cluster: 1 x 3 launch: dependent",
      "tile: 32 x 64 x 128 warps: 1 x 4 pipeline: 4 cluster: 4 x 2",
      "tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 4 split_k: 3 cluster: 2 x 1",
      "tile: 8 x 32 x 128 warps: 1 x 2 x 4 pipeline: 8 launch: dependent",
      "tile: 16 x 32 x 128 warps: 1 x 2 x 2 pipeline: 4 split_k: 2",
      "tile: 64 x 192 x 128 warps: 1 x 12 pipeline: 3 launch: dependent",
      "tile: 16 x 96 x 128 warps: 1 x 3 x 4 pipeline: 8",
      "tile: 8 x 112 x 128 warps: 1 x 7 x 2 pipeline: 8 launch: dependent",
      "tile: 16 x 80 x 128 warps: 1 x 5 x 2 pipeline: 4 split_k: 2 cluster: 1 x 2",
      "tile: 16 x 112 x 128 warps: 1 x 7 pipeline: 4 split_k: stream",
  };
  for (const char *weight : weights)
    for (const char *schedule : schedules) {
      GemmShape shape{1 + below(600), 1 + below(1500), 257 + below(2000)};
      ASSERT_NO_FATAL_FAILURE(expectWithinBound(declared(weight, schedule), shape));
    }
}

// Pieces are read past L1 while tiles of the ring come and go, and by other instructions.
TEST_F(GpuWgmmaTest, ResidualsAreWithinTheBoundAndGiveTheSameBits) {
  for (const auto &[residual, schedule] :
       {std::pair("rest per n[16]", "roles: uniform"),
        {"rest per n[16]", "roles: imfp"},
        {"rest per n[16]", "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 x 4"},
        {"rest per n[64]", "roles: imfp tile: 128 x 128 x 128 warps: 1 x 8 cluster: 2 x 1"},
        {"s4 / 16 per n[16]", "roles: uniform"},
        {"s4 / 16 per n[16]", "roles: gemv"},
        {"s4 / 16 per n[64]", "roles: gemv tile: 1 x 64 x 256 warps: 1 x 2 x 4 launch: dependent"},
        {"s4 / 16 per n[64]", "roles: imfp"},
        {"s4 / 16 per n[16]", "roles: imfp tile: 16 x 64 x 128 warps: 1 x 4 x 4"},
        {"s4 / 16 per n[64]",
         "roles: imfp tile: 64 x 64 x 256 warps: 1 x 4 x 2 split_k: stream launch: dependent"},
        {"s4 / 16 per n[64]", "roles: imfp tile: 128 x 128 x 128 warps: 1 x 8 cluster: 2 x 1"}}) {
    Module module = parsed(
        (std::string("format rest { element: s4 scale: f16 per channel value = element * scale }\n"
                     "format w { element: s4 scale: f16 per channel value = element * scale "
                     "residual fix: ") +
         residual +
         (" k[64] budget 20% }\n"
          "format x { element: s8 scale: f32 per token value = element * scale }\n"
          "gemm g { weight: w activation: x output: f32 schedule { ") +
         schedule + " } }")
            .c_str());
    bool gemv = std::string(schedule).find("gemv") != std::string::npos;
    for (GemmShape shape : {GemmShape{1, 700, 1999}, GemmShape{gemv ? 4 : 37, 1500, 640}})
      ASSERT_NO_FATAL_FAILURE(expectWithinBound(module, shape));
    Gemm gemm = must(engine.compile(module, "", {gemv ? 3 : 200, 12160, 1024}));
    Operands o(device, gemm);
    ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
    const std::vector<float> first = o.y();
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)),
                "");
      std::vector<float> y = o.y();
      ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
          << gemm.report().plan << "launch " << i;
    }
  }
}

TEST_F(GpuWgmmaTest, AThousandLaunchesGiveTheSameBits) {
  for (const char *weight : weights)
    for (const char *schedule : {"tile: 16 x 64 x 128 warps: 1 x 4 x 2 pipeline: 4 split_k: 3",
                                 "tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 4 split_k: 1 "
                                 "launch: dependent",
                                 "tile: 16 x 64 x 256 warps: 1 x 4 x 2 pipeline: 8 split_k: 1 "
                                 "cluster: 2 x 1 launch: dependent",
                                 "tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 4 cluster: 1 x 8"}) {
      // Without a split there are more tiles than CTAs.
      Gemm gemm = must(engine.compile(declared(weight, schedule), "", {24, 12160, 900}));
      Operands o(device, gemm);
      ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
      std::vector<float> first = o.y();
      std::vector<uint8_t> nothing(static_cast<size_t>(o.output.bytes()), 0xff);
      for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(o.output.write(nothing.data(), o.output.bytes()));
        ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)),
                  "");
        std::vector<float> y = o.y();
        ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
            << gemm.report().plan << "launch " << i;
      }
    }
}

// NVRTC's code of a kernel that the driver compiled first: as many registers, the same bits.
TEST_F(GpuWgmmaTest, KeptKernelsAreLoadedWithoutCompilingAndGiveTheSameBits) {
  Result<const cuda::Nvrtc *> nvrtc = cuda::Nvrtc::open();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().str();
  if ((*nvrtc)->toolkit < 13000)
    GTEST_SKIP() << "NVRTC of CUDA " << (*nvrtc)->toolkit << " makes no whole programs";
  EngineOptions options;
  options.cacheDirectory = folder.path();
  for (const char *weight : weights)
    for (const char *launch : {"serial", "dependent"}) {
      Module module = declared(weight, "launch: " + std::string(launch));
      std::vector<float> y[2];
      Gemm gemms[2];
      for (int i = 0; i < 2; ++i) {
        // Gone with the loop's pass, and with it what NVRTC does beside the driver.
        gemms[i] = must(must(Engine::create(device, options)).compile(module, "", {40, 4096, 900}));
        Operands o(device, gemms[i]);
        ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemms[i], o));
        y[i] = o.y();
      }
      EXPECT_EQ(gemms[0].report().source, CompileReport::Source::Compiled);
      EXPECT_EQ(gemms[1].report().source, CompileReport::Source::Disk);
      cache::DiskCacheOptions on;
      on.directory = folder.path();
      cache::Warnings warnings;
      const auto entry = cache::DiskCache(on).load(gemms[1].report().key, warnings);
      ASSERT_TRUE(entry);
      EXPECT_TRUE(entry->at("cubin").starts_with("\x7f"
                                                 "ELF"))
          << gemms[1].report().plan;
      EXPECT_EQ(gemms[1].report().registers, gemms[0].report().registers);
      EXPECT_EQ(y[1], y[0]) << gemms[1].report().plan;
    }
}

// Scales are read from a slot while four warpgroups' matrix instructions read shared memory: such a
// load once took longer than the slot's next contents took to come, in one launch of ten.
TEST_F(GpuWgmmaTest, ASlotIsReadBeforeItIsFilledAgain) {
  for (const char *schedule : {"tile: 64 x 64 x 128 warps: 1 x 4 x 2 pipeline: 4 split_k: 1",
                               "tile: 64 x 64 x 128 warps: 1 x 4 x 4 pipeline: 4 split_k: 1"}) {
    Gemm gemm = must(engine.compile(declared("int4", schedule), "", {320, 28672, 2048}));
    Operands o(device, gemm);
    ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
    const std::vector<float> first = o.y();
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)),
                "");
      std::vector<float> y = o.y();
      ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
          << gemm.report().plan << "launch " << i;
    }
  }
}

// Kernels that start before the one ahead has ended see its writes, and overwrite nothing that it
// still reads: two gemms behind each quantizer, with one workspace and one set of activations.
TEST_F(GpuWgmmaTest, DependentLaunchesWaitForWhatTheyNeed) {
  for (const char *weight : weights)
    for (const char *schedule :
         {"tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 4 split_k: 4 launch: dependent",
          "tile: 16 x 64 x 128 warps: 1 x 4 x 2 pipeline: 4 split_k: 1 launch: dependent",
          "tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 4 cluster: 2 x 4 launch: dependent"}) {
      Gemm gemm = must(engine.compile(declared(weight, schedule), "", {48, 1024, 2048}));
      Operands o(device, gemm);
      std::vector<float> doubled = o.x;
      for (float &number : doubled)
        number *= 2;
      Buffer inputs[2] = {must(device.allocate(o.input.bytes())),
                          must(device.allocate(o.input.bytes()))};
      ASSERT_TRUE(inputs[0].write(o.x.data(), o.input.bytes()));
      ASSERT_TRUE(inputs[1].write(doubled.data(), o.input.bytes()));
      Buffer outputs[4];
      for (Buffer &output : outputs)
        output = must(device.allocate(o.output.bytes()));
      ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
      ASSERT_EQ(errorText(device.synchronize()), "");
      std::vector<float> direct = o.y();
      for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(errorText(gemm.quantizeActivations(o.activations, inputs[i % 2].address(),
                                                     ScalarType::F32, gemm.shape().k)),
                  "");
        for (int half : {0, 2})
          ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, outputs[half + i % 2].address(),
                                          o.workspace)),
                    "");
      }
      ASSERT_EQ(errorText(device.synchronize()), "");
      std::vector<float> y(direct.size());
      for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(outputs[i].read(y.data(), outputs[i].bytes()));
        for (size_t j = 0; j < y.size(); ++j) // twice the input is exactly twice the output
          ASSERT_EQ(y[j], direct[j] * static_cast<float>(1 + i % 2)) << gemm.report().plan << i;
      }
    }
}

} // namespace
} // namespace rho
