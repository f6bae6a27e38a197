// The quantizer's CUDA C++, compiled to PTX by clang and executed on the emulator, against the
// host.
#include "runtime/cuda/Nvrtc.h"
#include "tests/runtime/BlockOrder.h"
#include "tests/runtime/QuantizerCase.h"
#include "tests/runtime/SameCodes.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace rho {
namespace {

// Empty where the program does not compile.
std::string ptxOf(const std::string &header) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/quantize";
  writeText(folder.path() + "/" + quantizerHeaderName, header);
  writeText(path + ".cu", std::string(quantizerProgram()));
  const std::string command =
      std::string(RHO_CLANG) +
      " -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 -nocudainc "
      "-nocudalib -Wno-unknown-cuda-version"
      " -std=c++17 -O2 -mllvm -inline-threshold=1000000 -ffp-contract=off -fno-jump-tables -S -I" +
      folder.path() + " -include " RHO_SOURCE_DIR "/tests/runtime/CudaBuiltins.h -o " + path +
      ".ptx " + path + ".cu";
  // NOLINTNEXTLINE(bugprone-command-processor): the compiler that CMake found
  EXPECT_EQ(std::system(command.c_str()), 0);
  return BlockOrder::sorted(readText(path + ".ptx"));
}

class QuantizerProgram : public testing::TestWithParam<size_t> {};

TEST_P(QuantizerProgram, LeavesTheHostsBytes) {
  const QuantizerCase test = quantizerCases()[GetParam()];
  auto type = static_cast<ScalarType>(GetParam() % 3);
  Device device = must(Device::emulated("sm_80"));
  auto format = activationOf(test.formats);
  compiler::KernelImage image;
  const auto stored = storedAs(test, format);
  image.ptx = ptxOf(quantizerHeader(*format, *stored, layoutOf(*stored, 64, test.stored)));
  image.threads = quantizerThreads;
  image.entry = quantizerEntry;
  auto kernel = must(device.impl().backend->load(image, ""));
  for (auto [m, k] : std::vector<std::pair<int64_t, int64_t>>{{3, 64}, {5, 683}, {3, 4000}}) {
    const int64_t stride = k + 8;
    const compiler::ActivationLayout layout = layoutOf(*stored, k, test.stored);
    Activations::Impl host = buffersFor(device, format, stored, layout, m);
    Activations::Impl made = buffersFor(device, format, stored, layout, m);
    if (!test.choice.empty())
      for (Activations::Impl *out : {&host, &made})
        choose(*out, choiceFor(test, *format, k));
    for (Activations::Impl *out : {&host, &made})
      fix(*out, test.given);
    auto run = [&](const Buffer &input) {
      const QuantizerLaunch launch = quantizerLaunch(made, input.address(), type, stride);
      const LaunchArgument argument{launch.words.data(), static_cast<int>(launch.count * 8)};
      EXPECT_EQ(errorText(device.impl().backend->launch(*kernel, {.grid = {launch.ctas}},
                                                        {&argument, 1}, nullptr)),
                "");
    };
    // Again and again in the same buffers: each launch leaves them ready for the next.
    for (const std::vector<float> &x :
         {difficultNumbers(m, k), randomBits(m, k), repeatedNumbers(m, k), runsOfNumbers(m, k)}) {
      type = static_cast<ScalarType>((static_cast<size_t>(type) + 1) % 3);
      Buffer input = inputOf(device, x, m, k, stride, type);
      ASSERT_EQ(errorText(makeHostQuantizer()->run(host, input.address(), type, stride, nullptr)),
                "");
      run(input);
      ASSERT_EQ(difference(made, host), "") << test.formats << " m=" << m << " k=" << k;
    }
    // For fewer rows, as Activations::withRows has them, then for all of them again.
    for (const int64_t rows : {m - 2, m}) {
      host.m = made.m = rows;
      Buffer input = inputOf(device, difficultNumbers(m, k), m, k, stride, type);
      ASSERT_EQ(errorText(makeHostQuantizer()->run(host, input.address(), type, stride, nullptr)),
                "");
      run(input);
      EXPECT_TRUE(sameCodes(must(readActivations(made)), must(readActivations(host))))
          << test.formats << " m=" << rows << " of " << m << " k=" << k;
    }
  }
}

// It is stricter than clang, and what a GPU's quantizer is compiled by.
TEST_P(QuantizerProgram, IsWhatNvrtcTakes) {
  Result<const cuda::Nvrtc *> nvrtc = cuda::Nvrtc::open();
  if (!nvrtc)
    GTEST_SKIP() << nvrtc.error().str();
  const QuantizerCase test = quantizerCases()[GetParam()];
  const auto format = activationOf(test.formats), stored = storedAs(test, format);
  const std::string header = quantizerHeader(*format, *stored, layoutOf(*stored, 64, test.stored));
  const cuda::NvrtcOutput output =
      cuda::compileCuda(**nvrtc, {quantizerProgram(), "quantize.cu", header, quantizerHeaderName},
                        {"--gpu-architecture=sm_90"});
  EXPECT_FALSE(output.cubin.empty()) << output.log;
}

INSTANTIATE_TEST_SUITE_P(All, QuantizerProgram, testing::Range(size_t{0}, quantizerCases().size()));

} // namespace
} // namespace rho
