// Devices that a declaration describes: the rules that they are held to, and when two of one target
// share a kernel.
#include "compiler/Devices.h"
#include "runtime/CacheEntries.h"
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

namespace rho {
namespace {

compiler::DeviceModel shippedModel(const char *name) {
  return compiler::modelOf(*compiler::shippedDevice(name));
}

// The device is in a kernel's key only through the plan.
TEST(DescribedDevices, ShareAnEntryWhereTheirPlansAgree) {
  const compiler::DeviceModel first = shippedModel("a100_40g"), alike = shippedModel("a100_80g");
  compiler::DeviceModel small = first; // one SM has no use for a split of k
  small.name = "a small one";
  small.smCount = 1;
  const Module module = parsed(w4a16);
  const GemmShape shape{3, 64, 2048};
  auto kernelPlan = [&](const compiler::DeviceModel &model) {
    return must(compiler::plan(module.impl().module.gemms[0], {shape.m, shape.n, shape.k}, model,
                               nullptr))
        .printForKernel();
  };
  ASSERT_EQ(kernelPlan(first), kernelPlan(alike));
  ASSERT_NE(kernelPlan(first), kernelPlan(small));

  TemporaryFolder folder;
  EngineOptions options;
  options.cacheDirectory = folder.path();
  auto on = [&](const compiler::DeviceModel &model) {
    Engine engine = must(Engine::create(must(Device::emulated(model)), options));
    return must(engine.compile(module, "", shape)).report();
  };
  using Source = CompileReport::Source;
  CompileReport made = on(first), shared = on(alike), other = on(small);
  EXPECT_EQ(made.source, Source::Compiled);
  EXPECT_EQ(shared.source, Source::Disk);
  EXPECT_EQ(shared.key, made.key);
  EXPECT_EQ(other.source, Source::Compiled);
  EXPECT_NE(other.key, made.key);
  EXPECT_EQ(cache::storedEntries(folder.path()).size(), 2U + 3U); // kernels, and a plan for each
  cache::ReadEntry entry = cache::readEntry(folder.path() + "/" + made.key, made.key);
  EXPECT_EQ(labelOf(entry.entry.value()).device, first.name + " (emulated), emulator");
}

TEST(DescribedDevices, HaveTheirNameAndTheNewestTargetThatRunsThere) {
  EXPECT_EQ(must(Device::emulated(shippedModel("a100_40g"))).name(),
            "NVIDIA A100-SXM4-40GB (emulated)");
  EXPECT_EQ(must(Device::emulated(shippedModel("b200"))).target(), "sm_90");
}

// PTX of an older architecture, with all the shared memory that the device has.
TEST(DescribedDevices, HaveMoreSharedMemoryThanTheOldestOfTheirTarget) {
  compiler::DeviceModel orin = shippedModel("a40");
  orin.architecture = "sm_87";
  orin.sharedPerSm = 164 << 10;
  orin.sharedPerCta = 163 << 10;
  for (const compiler::DeviceModel &model : {orin, shippedModel("b200")}) {
    Device device = must(Device::emulated(model));
    Engine engine = must(Engine::create(device, noDisk()));
    Module module = parsed(
        "format w { element: s4 scale: f16 per k[128] value = element * scale } gemm g { weight: w "
        "activation: f16 output: f32 schedule { roles: uniform tile: 64 x 64 x 256 warps: 2 x 2 "
        "pipeline: 3 } }");
    Gemm gemm = must(engine.compile(module, "", {64, 64, 1024}));
    const std::vector<float> w = numbers(64, 1024, 1);
    Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, 1024));
    Activations codes = must(gemm.makeActivations());
    Buffer input = must(device.allocate(64 * 1024 * 4)), y = must(device.allocate(64 * 64 * 4)),
           workspace = must(device.allocate(gemm.workspaceBytes()));
    ASSERT_EQ(errorText(gemm.quantizeActivations(codes, input.address(), ScalarType::F32, 1024)),
              "");
    EXPECT_EQ(errorText(gemm.launch(weight, codes, y.address(), workspace)), "") << model.name;
  }
  orin.architecture = "sm_86";
  EXPECT_EQ(Device::emulated(orin).error().str(),
            "error: 'shared_per_cta' of device 'NVIDIA A40' is 163, the limits are 16 and 99 "
            "[bad_device_model]\n");
}

// A GPU that a driver found has the rates of the declaration that is most like it.
TEST(DescribedDevices, AreThoseOfTheirKind) {
  auto like = [](const char *product, const char *architecture) {
    return compiler::declarationOf(product, architecture)->name;
  };
  EXPECT_EQ(like("NVIDIA GeForce RTX 5070 Ti", "sm_120"), "rtx_5090");
  EXPECT_EQ(like("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120"), "rtx_pro_6000");
  EXPECT_EQ(like("NVIDIA GeForce RTX 3060", "sm_86"), "rtx_3090");
  EXPECT_EQ(like("NVIDIA A10", "sm_86"), "a40");
  EXPECT_EQ(like("NVIDIA GeForce RTX 4060", "sm_89"), "rtx_4090");
  EXPECT_EQ(like("NVIDIA L4", "sm_89"), "l40s");
  EXPECT_EQ(like("", "sm_90"), "h200");
  EXPECT_EQ(like("NVIDIA GeForce RTX 6090", "sm_130"), "b200"); // whose kernels it runs
}

TEST(DescribedDevices, NonsenseIsRefused) {
  compiler::DeviceModel model = must(compiler::modelOfTarget("sm_80"));
  model.name = "nothing";
  model.smCount = 0;
  EXPECT_EQ(Device::emulated(model).error().str(),
            "error: 'sms' of device 'nothing' is 0, the limits are 1 and 4096 "
            "[bad_device_model]\n");
  model.smCount = 4;
  model.l2Bytes = -1;
  EXPECT_EQ(Device::emulated(model).error().str(),
            "error: 'l2' of device 'nothing' is 0, the limits are 1 and 65536 "
            "[bad_device_model]\n");
  model.l2Bytes = 1 << 20;
  model.bandwidthGBs = std::nan("");
  EXPECT_EQ(Device::emulated(model).error().str(),
            "error: 'bandwidth' of device 'nothing' is nan, the limits are 1 and 1000000 "
            "[bad_device_model]\n");
  model.target = "sm_10";
  EXPECT_EQ(Device::emulated(model).error().diagnostics[0].id, DiagId::unknown_target);
  model = shippedModel("a100_40g");
  model.rates = {};
  EXPECT_THAT(Device::emulated(model).error().str(), testing::HasSubstr("[bad_device_model]"));
  // What would be no plan, or no prediction.
  model = shippedModel("a100_40g");
  model.smCount = INT_MAX;
  EXPECT_THAT(Device::emulated(model).error().str(), testing::HasSubstr("'sms' of"));
  model = shippedModel("a100_40g");
  model.clockGHz = 1e-308;
  EXPECT_THAT(Device::emulated(model).error().str(), testing::HasSubstr("'clock' of"));
  model = shippedModel("a100_40g");
  model.rates.tensor["s8"] = 1e-308;
  EXPECT_THAT(Device::emulated(model).error().str(), testing::HasSubstr("'s8' of"));
}

} // namespace
} // namespace rho
