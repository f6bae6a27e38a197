// Streams, threads, captures and ends of processes on a GPU.
#include "runtime/Handles.h"
#include "runtime/InputTransform.h"
#include "runtime/KvCache.h"
#include "runtime/cuda/Timing.h"
#include "tests/runtime/GpuFixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

namespace rho {
namespace {

using cuda::Driver;
using testing::HasSubstr;

class GpuStreamsTest : public OnGpu {
protected:
  static Status quantizeAndLaunch(const Gemm &gemm, const Operands &o, Stream stream) {
    Status done = gemm.quantizeActivations(o.activations, o.input.address(), ScalarType::F32,
                                           gemm.shape().k, stream);
    return done ? gemm.launch(o.weight, o.activations, o.output.address(), o.workspace, stream)
                : done;
  }
  std::vector<float> direct(const Gemm &gemm, const Operands &o) const {
    EXPECT_EQ(errorText(quantizeAndLaunch(gemm, o, nullptr)), "");
    EXPECT_EQ(errorText(device.synchronize()), "");
    return o.y();
  }
  void forget(Operands &o) const {
    const std::vector<uint8_t> none(static_cast<size_t>(o.output.bytes()));
    ASSERT_TRUE(o.output.write(none.data(), o.output.bytes()));
  }
};

// Sums behind counters, CTAs that wait for others of their launch, of a gemm and of a quantizer,
// beside such launches.
TEST_F(GpuStreamsTest, ThreadsLaunchOneGemmOnStreamsOfTheirOwn) {
  std::vector<std::string> texts = {mixedActivation};
  for (const char *split : {"4", "stream"}) {
    texts.emplace_back(w4a8);
    texts.back().insert(texts.back().rfind('}'),
                        std::string("  schedule {\n    split_k: ") + split + "\n  }\n");
  }
  for (const std::string &text : texts) {
    Gemm gemm = must(engine.compile(parsed(text.c_str()), "", {48, 1024, 2048}));
    const Operands shared(device, gemm);
    const std::vector<float> expected = direct(gemm, shared);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&] {
        const Operands o(device, gemm);
        cuda::OwnedStream stream = must(cuda::OwnedStream::create(device));
        for (int i = 0; i < 100; ++i)
          ASSERT_EQ(errorText(quantizeAndLaunch(gemm, o, stream.get())), "");
        ASSERT_EQ(errorText(device.synchronize(stream.get())), "");
        EXPECT_EQ(o.y(), expected) << gemm.report().plan;
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST_F(GpuStreamsTest, DefaultStreamsAreStreams) {
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  const std::vector<float> expected = direct(gemm, o);
  for (uintptr_t handle : {0, 1, 2}) { // CU_STREAM_LEGACY is 1, CU_STREAM_PER_THREAD 2
    ASSERT_NO_FATAL_FAILURE(forget(o));
    auto *const stream = reinterpret_cast<Stream>(handle);
    ASSERT_EQ(errorText(quantizeAndLaunch(gemm, o, stream)), "") << handle;
    ASSERT_EQ(errorText(device.synchronize(stream)), "") << handle;
    EXPECT_EQ(o.y(), expected) << handle;
  }
}

TEST_F(GpuStreamsTest, StreamsOfOtherDevicesAreErrors) {
  Result<Device> other = Device::cuda(1);
  if (!other)
    GTEST_SKIP() << other.error().str();
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  cuda::OwnedStream foreign = must(cuda::OwnedStream::create(*other));
  EXPECT_THAT(errorText(quantizeAndLaunch(gemm, o, foreign.get())),
              HasSubstr("cuLaunchKernel failed with CUDA_ERROR_INVALID_"));
  direct(gemm, o); // works as before
  Buffer there = must(other->allocate(o.weight.bytes()));
  EXPECT_THAT(errorText(gemm.launch(there, o.activations, o.output.address(), o.workspace)),
              HasSubstr("[wrong_device]"));
}

// The strictest capture: of a stream that the default stream waits for, with no call of kinds that
// captures forbid in any thread; and a stream that waits for nothing, beside which there are copies
// as well.
TEST_F(GpuStreamsTest, OtherThreadsGoOnBesideACapture) {
  constexpr int globalMode = 0;
  const Driver &driver = *must(Driver::open());
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  const std::vector<float> expected = direct(gemm, o);
  const auto context = cuda::contextOf(*device.impl().backend);
  const cuda::ContextScope scope(driver, context->handle);
  for (unsigned flags : {0U, unsigned(cuda::STREAM_NON_BLOCKING)}) {
    cuda::CUstream stream = nullptr;
    ASSERT_EQ(driver.streamCreate(&stream, flags), 0);
    ASSERT_EQ(driver.streamBeginCapture(stream, globalMode), 0);
    std::thread([&] {
      EngineOptions anew;
      anew.diskCache = false;
      Result<Engine> another = Engine::create(device, anew);
      Result<Gemm> compiled = another->compile(parsed(w4a16), "", {16, 256, 512});
      ASSERT_EQ(errorText(compiled), "");
      EXPECT_EQ(errorText(compiled->makeActivations()), "");
      Result<Buffer> buffer = device.allocate(1 << 20);
      ASSERT_EQ(errorText(buffer), "");
      if (flags == cuda::STREAM_NON_BLOCKING) {
        std::vector<float> w(256 * 512, 1.0f);
        EXPECT_EQ(errorText(compiled->packWeights(w.data(), ScalarType::F32, 512)), "");
        EXPECT_EQ(errorText(buffer->read(w.data(), 1024)), "");
        EXPECT_EQ(errorText(device.synchronize()), "");
      }
    }).join(); // all of it has been given back
    EXPECT_EQ(errorText(quantizeAndLaunch(gemm, o, stream)), "") << flags;
    cuda::CUgraph graph = nullptr;
    ASSERT_EQ(driver.streamEndCapture(stream, &graph), 0) << flags;
    cuda::CUgraphExec executable = nullptr;
    ASSERT_EQ(driver.graphInstantiate(&executable, graph, 0), 0);
    ASSERT_NO_FATAL_FAILURE(forget(o));
    ASSERT_EQ(driver.graphLaunch(executable, stream), 0);
    ASSERT_EQ(errorText(device.synchronize(stream)), "");
    EXPECT_EQ(o.y(), expected) << flags;
    driver.graphExecDestroy(executable);
    driver.graphDestroy(graph);
    driver.streamDestroy(stream);
  }
}

TEST_F(GpuStreamsTest, ACapturingThreadGivesBackAndAllocatesNothing) {
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  const std::vector<float> expected = direct(gemm, o);
  cuda::OwnedStream stream = must(cuda::OwnedStream::create(device));
  Buffer buffer = must(device.allocate(1 << 20));
  Gemm other =
      must(must(Engine::create(device, noDisk())).compile(parsed(w4a16), "", {16, 256, 512}));
  cuda::Graph graph = must(cuda::Graph::capture(device, stream.get(), [&] {
    buffer = Buffer();
    other = Gemm();
    return quantizeAndLaunch(gemm, o, stream.get());
  }));
  ASSERT_NO_FATAL_FAILURE(forget(o));
  ASSERT_EQ(errorText(graph.launch(stream.get())), "");
  ASSERT_EQ(errorText(device.synchronize(stream.get())), "");
  EXPECT_EQ(o.y(), expected);

  Result<cuda::Graph> refused = cuda::Graph::capture(device, stream.get(), [&]() -> Status {
    Result<Buffer> allocated = device.allocate(64);
    return allocated ? Status(Done{}) : allocated.error();
  });
  EXPECT_THAT(errorText(refused),
              HasSubstr("cuMemAlloc failed with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
  ASSERT_EQ(errorText(quantizeAndLaunch(gemm, o, stream.get())), ""); // the stream is as before
  ASSERT_EQ(errorText(device.synchronize(stream.get())), "");
}

// Nothing is made by a first launch that a capture would not have.
TEST_F(GpuStreamsTest, FirstLaunchesMayBeCaptured) {
  const int64_t k = 512;
  InputSteps steps;
  steps.divisors = numbers(1, k, 7);
  for (float &divisor : steps.divisors)
    divisor = 1 + std::abs(divisor);
  steps.rotation = {.factors = std::vector<float>(64, 0.125f)};
  InputTransform transform = must(InputTransform::create(engine, k, steps));
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, k}));
  Operands o(device, gemm);
  o.activations = must(gemm.makeActivations(transform));

  const std::string declared =
      "format kv { element: s8 scale: f16 per k[64] value = element * scale }";
  KvCacheOptions options;
  options.keys = options.values = "kv";
  options.pages = options.kvHeads = 2;
  options.queryHeads = 4;
  options.pageTokens = 64;
  KvCache cache = must(KvCache::create(engine, parsed(declared.c_str()), options));
  const std::vector<KvJob> list = {{0, 1}, {1, 0}};
  KvJobs jobs = must(cache.jobs(list));
  const std::vector<int32_t> lengths = {70, 64}, table = {1, 0};
  KvBatch batch = must(cache.batch(lengths, table, 1));
  std::vector<uint16_t> halves(2 * 64 * 2 * 128);
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<uint16_t>(0x3000 + i * 7919 % 0x800); // 0.125 to 0.5
  const auto bytes = static_cast<int64_t>(halves.size() * 2);
  Buffer tokens = must(device.allocate(bytes)), heads = must(device.allocate(2 * 4 * 128 * 2));
  ASSERT_TRUE(tokens.write(halves.data(), bytes));

  cuda::OwnedStream stream = must(cuda::OwnedStream::create(device));
  auto work = [&]() -> Status {
    const DevicePointer at = tokens.address();
    Status done = quantizeAndLaunch(gemm, o, stream.get());
    if (done)
      done = cache.quantize(jobs, at, at, 256, stream.get());
    return done ? cache.attend(batch, at, at, at, heads.address(), stream.get()) : done;
  };
  auto attended = [&] {
    std::vector<uint16_t> numbers(2 * 4 * 128);
    EXPECT_TRUE(heads.read(numbers.data(), heads.bytes()));
    return numbers;
  };
  cuda::Graph graph = must(cuda::Graph::capture(device, stream.get(), work));
  ASSERT_EQ(errorText(graph.launch(stream.get())), "");
  ASSERT_EQ(errorText(device.synchronize(stream.get())), "");
  const std::vector<float> replayed = o.y();
  const std::vector<uint16_t> replayedHeads = attended();
  ASSERT_NO_FATAL_FAILURE(forget(o));
  ASSERT_EQ(errorText(work()), "");
  ASSERT_EQ(errorText(device.synchronize(stream.get())), "");
  EXPECT_EQ(o.y(), replayed);
  EXPECT_EQ(attended(), replayedHeads);
  EXPECT_THAT(replayed, testing::Contains(testing::Ne(0.0f)));
  EXPECT_THAT(replayedHeads, testing::Each(testing::Ne(0)));
}

// Gone when the driver is.
std::unique_ptr<Operands> lastOperands;
Gemm lastGemm;

// Processes that end in a call, with this one's folder for what they leave.
class GpuProcessTest : public GpuStreamsTest {
protected:
  void SetUp() override {
    GpuStreamsTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ::setenv("TMPDIR", folder.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  template <class T> static void say(const Result<T> &result) {
    std::fputs(result ? "done\n" : errorText(result).c_str(), stderr);
  }

  // Each call says what became of it, in turn.
  [[noreturn]] void fail() {
    const GemmShape shape{16, 256, 512};
    Gemm gemm = must(engine.compile(parsed(w4a8), "", shape));
    {
      Operands o(device, gemm);
      say(gemm.launch(o.weight, o.activations, 16, o.workspace)); // no memory is there
      say(device.synchronize());
      say(quantizeAndLaunch(gemm, o, nullptr));
    }
    say(device.allocate(64));
    EngineOptions options;
    options.cacheDirectory = folder.path();
    Engine another = must(Engine::create(device, options));
    say(another.compile(parsed(w4a8), "", shape));
    const bool isKept = std::filesystem::exists(folder.path() + "/" + gemm.report().key);
    std::fputs(isKept ? "kept" : "lost", stderr);
    std::exit(0);
  }

  // NVRTC goes on to compile what is kept of such a kernel. Beside integers it has compiled a
  // quantizer before, beside numbers nothing.
  [[noreturn]] void compileWithRoles(std::string text) {
    text.insert(text.rfind('}'), "  schedule {\n    roles: imfp\n  }\n");
    say(engine.compile(parsed(text.c_str()), "", {16, 256, 512}));
    std::exit(0);
  }

  [[noreturn]] void leaveObjects() {
    lastGemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
    lastOperands = std::make_unique<Operands>(device, lastGemm);
    say(quantizeAndLaunch(lastGemm, *lastOperands, nullptr));
    std::exit(0);
  }

  [[noreturn]] void goOn(const Gemm &gemm, const Operands &o) {
    say(quantizeAndLaunch(gemm, o, nullptr));
    say(device.allocate(64));
    std::_Exit(0); // as it ends, libraries whose threads are gone do what they like
  }
};

TEST_F(GpuProcessTest, AFaultIsAnErrorOfEachCallAndKeptKernelsStay) {
  const std::string failed = " failed with CUDA_ERROR_ILLEGAL_ADDRESS[^\n]*\n";
  EXPECT_EXIT(fail(), testing::ExitedWithCode(0),
              "done\nerror: cuStreamSynchronize" + failed + "error: cuLaunchKernel" + failed +
                  "error: cuMemAlloc" + failed + "error: cuModuleLoadData" + failed + "kept");
}

TEST_F(GpuProcessTest, EndsWhileAKernelIsCompiledBehindTheCall) {
  if (device.target() != "sm_90a")
    GTEST_SKIP() << device.name() << " is " << device.target() << ", roles need sm_90a";
  for (const char *text : {w4a8, w4a16})
    for (int i = 0; i < 5; ++i)
      EXPECT_EXIT(compileWithRoles(text), testing::ExitedWithCode(0), "done") << text;
}

TEST_F(GpuProcessTest, EndsWithObjectsThatAreThereLonger) {
  EXPECT_EXIT(leaveObjects(), testing::ExitedWithCode(0), "done");
}

// CUDA does not work in a process that is forked from one that uses it.
TEST_F(GpuProcessTest, AForkedOneGetsErrors) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Gemm gemm = must(engine.compile(parsed(w4a8), "", {16, 256, 512}));
  Operands o(device, gemm);
  const std::vector<float> expected = direct(gemm, o);
  EXPECT_EXIT(goOn(gemm, o), testing::ExitedWithCode(0),
              "(error: [^\n]* CUDA_ERROR_NOT_INITIALIZED[^\n]*\n){2}");
  EXPECT_EQ(direct(gemm, o), expected);
}

} // namespace
} // namespace rho
