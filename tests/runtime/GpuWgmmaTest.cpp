// Kernels whose warps have roles, on a GPU.
#include "compiler/ErrorBound.h"
#include "dsl/Quantize.h"
#include "kernels/Reference.h"
#include "kernels/Synthetic.h"
#include "runtime/Handles.h"
#include "runtime/cache/DiskCache.h"
#include "runtime/cuda/Nvrtc.h"
#include "runtime/cuda/WholeProgram.h"
#include "tests/runtime/GpuFixture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace rho {
namespace {

class GpuWgmmaTest : public OnGpu {
protected:
  void SetUp() override {
    OnGpu::SetUp();
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
         " output: f32 schedule { " +
         (schedule.find("roles") == std::string::npos ? "roles: imfp " : "") + schedule + " } }")
            .c_str());
  }

  static kernels::ReferenceOutput referenceOf(const Module &module, const Gemm &gemm,
                                              const Operands &o) {
    const auto [m, n, k] = gemm.shape();
    const auto weight = std::make_shared<const dsl::Format>(module.impl().module.gemms[0].weight);
    return kernels::reference(
        must(readActivations(o.activations)),
        must(dsl::quantize(weight, {o.w.data(), dsl::MatrixView::Type::F32, n, k, k}, true)));
  }

  void expectWithinBound(const Module &module, const GemmShape &shape) {
    Gemm gemm = must(engine.compile(module, "", shape));
    expectWithinBound(module, gemm, Operands(device, gemm), compiler::Summing::Gpu);
  }

  void expectWithinBound(const Module &module, const Gemm &gemm, const Operands &o,
                         compiler::Summing by) {
    const GemmShape shape = gemm.shape();
    ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
    ASSERT_EQ(errorText(device.synchronize()), "");
    const kernels::ReferenceOutput expected = referenceOf(module, gemm, o);
    compiler::ErrorBound bound(module.impl().module.gemms[0],
                               must(compiler::Plan::parse(gemm.report().plan)), by);
    std::vector<float> y = o.y();
    for (size_t j = 0; j < y.size(); ++j)
      ASSERT_LE(std::abs(y[j] - expected.y[j]), bound(expected.magnitude[j], expected.y[j]))
          << gemm.report().plan << "y[" << static_cast<int64_t>(j) / shape.n << ","
          << static_cast<int64_t>(j) % shape.n << "] = " << y[j] << ", exact " << expected.y[j];
  }

  // Of integers up to the largest codes, which are there in each group: scales are 1.
  static std::vector<float> wholeNumbers(int64_t rows, int64_t columns, int largest,
                                         uint32_t seed) {
    std::mt19937 random(seed); // NOLINT(bugprone-random-generator-seed): the same in every run
    std::vector<float> numbers(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int other = static_cast<int>(random() % (2U * static_cast<unsigned>(largest) + 1));
      numbers[i] = static_cast<float>(
          static_cast<int64_t>(i) % columns % 64 == 0 ? largest : other - largest);
    }
    return numbers;
  }

  // Launches that write over other bits leave those that the outputs have now.
  static void expectTheSameBits(const Gemm &gemm, Operands &o, int launches) {
    const std::vector<float> first = o.y();
    const std::vector<uint8_t> nothing(static_cast<size_t>(o.output.bytes()), 0xff);
    for (int i = 0; i < launches; ++i) {
      ASSERT_TRUE(o.output.write(nothing.data(), o.output.bytes()));
      ASSERT_EQ(errorText(gemm.launch(o.weight, o.activations, o.output.address(), o.workspace)),
                "");
      const std::vector<float> y = o.y();
      ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0)
          << gemm.report().plan << "launch " << i;
    }
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
      "roles: excp",
      "roles: excp tile: 16 x 64 x 128 warps: 1 x 4 pipeline: 6 split_k: 3",
      "roles: excp tile: 64 x 128 x 128 warps: 1 x 8 pipeline: 3 launch: dependent",
      "roles: excp tile: 128 x 64 x 128 warps: 1 x 4 pipeline: 4 split_k: stream",
  };
  for (const char *weight : weights)
    for (const char *schedule : schedules) {
      GemmShape shape{1 + below(600), 1 + below(1500), 257 + below(2000)};
      ASSERT_NO_FATAL_FAILURE(expectWithinBound(declared(weight, schedule), shape));
    }
}

// Of e4m3 the bound of all numbers is larger than most outputs: of numbers whose sums the tensor
// cores have exactly it is that of floats.
TEST_F(GpuWgmmaTest, SumsOfE4m3MissNothing) {
  const std::string formats =
      "format int4 { element: s4 scale: f16 per k[128] value = element * scale }\n"
      "format channel4 { element: s4 scale: f16 per channel value = element * scale }\n"
      "format fp4 { element: e2m1 scale: f32 per channel value = element * scale }\n"
      "format fp8 { element: e4m3 scale: f32 per channel value = element * scale }\n"
      "format fp8_token { element: e4m3 scale: f32 per token value = element * scale }\n";
  for (const char *weight : {"int4", "channel4", "fp4", "fp8"})
    for (const char *schedule : {"", "schedule { launch: dependent split_k: 2 }"})
      for (const GemmShape shape :
           {GemmShape{1, 300, 8192}, {16, 4096, 4112}, {77, 257, 28672}, {600, 300, 2000}}) {
        const Module module = parsed((formats + "gemm g { weight: " + weight +
                                      " activation: fp8_token output: f32 " + schedule + " }")
                                         .c_str());
        const Gemm gemm = must(engine.compile(module, "", shape));
        ASSERT_NO_FATAL_FAILURE(
            expectWithinBound(module, gemm,
                              Operands(device, gemm, kernels::exactWeight(shape.n, shape.k, 3),
                                       kernels::exactActivation(shape.m, shape.k, 3)),
                              compiler::Summing::Emulator));
      }
}

// Integers whose sums f32 has: no bit may differ, on whichever way they are summed.
TEST_F(GpuWgmmaTest, SumsOfIntegersAreExact) {
  const std::string formats =
      "format g4 { element: s4 scale: f16 per k[64] value = element * scale }\n"
      "format c4 { element: s4 scale: f16 per channel value = element * scale }\n"
      "format g8 { element: s8 scale: f16 per k[128] value = element * scale }\n"
      "format t8 { element: s8 scale: f32 per token value = element * scale }\n"
      "format g4x { element: s4 scale: f16 per k[128] value = element * scale }\n";
  struct Pair {
    const char *weight, *activation;
    int largest[2];
  };
  const char *schedules[] = {
      "",
      "roles: uniform",
      "roles: uniform split_k: 3",
      "roles: gemv",
      "roles: imfp tile: 8 x 64 x 128 warps: 1 x 4",
      "roles: imfp tile: 64 x 128 x 128 warps: 1 x 8 launch: dependent",
      "roles: imfp tile: 32 x 64 x 128 warps: 1 x 4 x 2 cluster: 2 x 2",
      "roles: imfp tile: 64 x 64 x 128 warps: 1 x 4 split_k: stream",
      "roles: excp",
      "roles: excp tile: 16 x 64 x 128 warps: 1 x 4 split_k: 2",
  };
  for (const Pair &pair : {Pair{"g4", "t8", {7, 127}},
                           {"c4", "t8", {7, 127}},
                           {"g8", "t8", {127, 127}},
                           {"g4", "g4x", {7, 7}},
                           {"c4", "g4x", {7, 7}}})
    for (const std::string schedule : schedules) {
      const bool gemv = schedule.find("gemv") != std::string::npos;
      const Module module =
          parsed((formats + "gemm g { weight: " + pair.weight + " activation: " + pair.activation +
                  " output: f32 schedule { " + schedule + " } }")
                     .c_str());
      for (GemmShape shape : {GemmShape{gemv ? 1 : 5, 200, 328}, {gemv ? 3 : 200, 648, 1000}}) {
        Gemm gemm = must(engine.compile(module, "", shape));
        const Operands o(device, gemm, wholeNumbers(shape.n, shape.k, pair.largest[0], 1),
                         wholeNumbers(shape.m, shape.k, pair.largest[1], 2));
        ASSERT_NO_FATAL_FAILURE(quantizeAndLaunch(gemm, o));
        ASSERT_EQ(errorText(device.synchronize()), "");
        const kernels::ReferenceOutput expected = referenceOf(module, gemm, o);
        const std::vector<float> y = o.y();
        for (size_t j = 0; j < y.size(); ++j) {
          ASSERT_EQ(expected.y[j], std::nearbyint(expected.y[j]));
          ASSERT_EQ(y[j], static_cast<float>(expected.y[j])) << gemm.report().plan << j;
        }
      }
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
    ASSERT_NO_FATAL_FAILURE(expectTheSameBits(gemm, o, 100));
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
      ASSERT_NO_FATAL_FAILURE(expectTheSameBits(gemm, o, 1000));
    }
}

// NVRTC's code of a kernel that the driver compiled first: as many registers, the same bits.
TEST_F(GpuWgmmaTest, KeptKernelsAreLoadedWithoutCompilingAndGiveTheSameBits) {
  Result<const cuda::Nvrtc *> nvrtc = cuda::Nvrtc::open();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().str();
  if ((*nvrtc)->toolkit < cuda::oldestWholeProgramToolkit)
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
    ASSERT_NO_FATAL_FAILURE(expectTheSameBits(gemm, o, 200));
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
