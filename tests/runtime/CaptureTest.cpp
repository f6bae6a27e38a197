// What goes on beside a stream that is captured into a graph, in its thread and in others.
#include "runtime/Handles.h"
#include "runtime/InputTransform.h"
#include "runtime/KvCache.h"
#include "runtime/cuda/CudaBackend.h"
#include "tests/runtime/FakeDriver.h"
#include "tests/runtime/FakeNvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho::cuda {
namespace {

class CaptureTest : public testing::Test {
protected:
  CaptureTest() : device(*Device::emulated("sm_90a")) {
    resetFakeNvrtc();
    device.impl().backend = *openDevice(resetFake(), 0, fakeNvrtc);
  }
  Result<Gemm> compile() const {
    Result<Module> module = Module::parse("gemm g { weight: f16 activation: f16 output: f32 }");
    Result<Engine> engine = Engine::create(device, {.diskCache = false});
    return engine->compile(*module, "", {.m = 16, .n = 64, .k = 64});
  }
  Device device;
};

// Nothing but launches, all of them on the stream that is captured.
TEST_F(CaptureTest, LaunchesOfEachKindAreCaptured) {
  const int64_t k = 128;
  Result<Module> module =
      Module::parse("format kv { element: s8 scale: f16 per k[64] value = element * scale } "
                    "gemm g { weight: f16 activation: f16 output: f32 }");
  Result<Engine> engine = Engine::create(device, {.diskCache = false});
  InputSteps steps;
  steps.rotation = {.factors = std::vector<float>(size_t{k}, 1.0f)};
  Result<InputTransform> transform = InputTransform::create(*engine, k, steps);
  Result<Gemm> gemm = engine->compile(*module, "", {.m = 16, .n = 64, .k = k});
  Result<Activations> codes = gemm->makeActivations(*transform);
  Result<Buffer> weight = device.allocate(gemm->packedWeightBytes()),
                 workspace = device.allocate(gemm->workspaceBytes()),
                 data = device.allocate(1 << 17);
  KvCacheOptions options;
  options.keys = options.values = "kv";
  options.pageTokens = 64;
  options.pages = options.kvHeads = options.queryHeads = 1;
  Result<KvCache> cache = KvCache::create(*engine, *module, options);
  ASSERT_TRUE(cache) << cache.error().str();
  const std::vector<KvJob> list = {{0, 0}};
  Result<KvJobs> jobs = cache->jobs(list);
  const std::vector<int32_t> lengths = {65}, table = {0};
  Result<KvBatch> batch = cache->batch(lengths, table, 1);
  ASSERT_TRUE(batch && jobs && codes);

  fake().capture = FakeCapture{std::this_thread::get_id(), CAPTURE_MODE_THREAD_LOCAL};
  int place = 0;
  Stream stream = &place;
  const DevicePointer at = data->address(), behind = at + (1 << 16);
  const Status calls[] = {
      gemm->quantizeActivations(*codes, at, ScalarType::F16, k, stream),
      gemm->launch(*weight, *codes, behind, *workspace, stream),
      cache->quantize(*jobs, at, at, 128, stream),
      cache->dequantize(*jobs, at, behind, 128, stream),
      cache->attend(*batch, at, at, at, behind, stream),
  };
  for (const Status &call : calls)
    EXPECT_TRUE(call) << call.error().str();
  EXPECT_FALSE(fake().capture->broken);
  // A graph would copy from memory that is the caller's.
  EXPECT_EQ(cache->update(*batch, lengths, table, stream).error().str(),
            "error: cuMemcpyHtoDAsync failed with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (the "
            "stream is being captured) [cuda_call_failed]\n");
  EXPECT_FALSE(fake().capture->broken);
  EXPECT_GE(fake().launches.size(), 8U); // with one of the input transform at least
  for (const FakeLaunch &launch : fake().launches)
    EXPECT_EQ(static_cast<Stream>(launch.stream), stream);
}

TEST_F(CaptureTest, ThoseOfOtherThreadsAreLeftAlone) {
  fake().capture = FakeCapture{std::thread::id(), CAPTURE_MODE_GLOBAL};
  {
    Result<Gemm> gemm = compile();
    ASSERT_TRUE(gemm) << gemm.error().str();
    std::vector<uint16_t> w(64 * 64);
    Result<Buffer> weight = gemm->packWeights(w.data(), ScalarType::F16, 64);
    ASSERT_TRUE(weight) << weight.error().str();
    EXPECT_TRUE(weight->read(w.data(), 16));
    EXPECT_TRUE(gemm->makeActivations());
  }
  EXPECT_FALSE(fake().capture->broken);
  EXPECT_EQ(fake().allocations + fake().modules, 0);
  EXPECT_EQ(fakeCaptureMode(), CAPTURE_MODE_GLOBAL);
}

// What a graph would not have is an error where it would be captured; only what nobody needs any
// more is given back.
TEST_F(CaptureTest, ItsOwnThreadMayGiveBackWhatItHas) {
  Result<Gemm> gemm = compile();
  Result<Buffer> buffer = device.allocate(64);
  fake().capture = FakeCapture{std::this_thread::get_id(), CAPTURE_MODE_THREAD_LOCAL};
  *gemm = Gemm();
  *buffer = Buffer();
  EXPECT_FALSE(fake().capture->broken);
  EXPECT_EQ(fake().allocations + fake().modules, 0);
  Result<Buffer> refused = device.allocate(64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().str(), "error: cuMemAlloc failed with CUDA_ERROR_FAKE (as the test "
                                   "wants it) [cuda_call_failed]\n");
  EXPECT_TRUE(fake().capture->broken);
}

TEST_F(CaptureTest, AThreadThatAllowsItselfMoreKeepsThat) {
  fakeCaptureMode() = CAPTURE_MODE_RELAXED;
  fake().capture = FakeCapture{std::this_thread::get_id(), CAPTURE_MODE_THREAD_LOCAL};
  EXPECT_TRUE(device.allocate(64));
  EXPECT_TRUE(compile());
  EXPECT_FALSE(fake().capture->broken);
  EXPECT_EQ(fakeCaptureMode(), CAPTURE_MODE_RELAXED);
}

} // namespace
} // namespace rho::cuda
