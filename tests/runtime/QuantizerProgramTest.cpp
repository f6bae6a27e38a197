// The quantizer's CUDA C++, compiled to PTX by clang and executed on the emulator, against the
// host.
#include "tests/runtime/QuantizerCase.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace rho {
namespace {

// The program for a format; empty where it does not compile.
std::string ptxOf(const std::string &header) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/quantize";
  writeText(folder.path() + "/" + quantizerHeaderName, header);
  writeText(path + ".cu", std::string(quantizerProgram()));
  const std::string command = std::string(RHO_CLANG) +
                              " -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc "
                              "-nocudalib -Wno-unknown-cuda-version"
                              " -std=c++17 -O2 -mllvm -inline-threshold=1000000 -mllvm "
                              "-disable-block-placement -ffp-contract=off -S -I" +
                              folder.path() +
                              " -include " RHO_SOURCE_DIR "/tests/runtime/CudaBuiltins.h -o " +
                              path + ".ptx " + path + ".cu";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return readText(path + ".ptx");
}

class QuantizerProgram : public testing::TestWithParam<QuantizerCase> {};

TEST_P(QuantizerProgram, LeavesTheHostsBytes) {
  const QuantizerCase &test = GetParam();
  Device device = must(Device::emulated("sm_80"));
  auto format = activationOf(test.formats);
  const compiler::ActivationLayout any = layoutOf(*format, 64, test.stored);
  ASSERT_EQ(quantizerSourceProblem(*format, any), std::nullopt);
  compiler::KernelImage image;
  image.ptx = ptxOf(quantizerHeader(*format, any));
  image.threads = quantizerThreads;
  for (auto [type, m, k] : {std::tuple<ScalarType, int64_t, int64_t>{ScalarType::F32, 3, 64},
                            {ScalarType::F16, 9, 1000}}) {
    image.entry = quantizerEntries[static_cast<size_t>(type)];
    auto kernel = must(device.impl().backend->load(image, ""));
    const int64_t stride = k + 8;
    const compiler::ActivationLayout layout = layoutOf(*format, k, test.stored);
    Activations::Impl host = buffersFor(device, format, layout, m);
    Activations::Impl made = buffersFor(device, format, layout, m);
    if (!test.choice.empty())
      for (Activations::Impl *out : {&host, &made})
        choose(*out, choiceFor(test, *format, k));
    // Twice in the same buffers: each launch leaves them ready for the next.
    for (const std::vector<float> &x : {difficultNumbers(m, k), randomBits(m, k)}) {
      Buffer input = inputOf(device, x, m, k, stride, type);
      ASSERT_EQ(errorText(makeHostQuantizer()->run(host, input.address(), type, stride, nullptr)),
                "");
      const QuantizerLaunch launch = quantizerLaunch(made, input.address(), stride);
      const LaunchArgument argument{launch.words.data(), static_cast<int>(launch.count * 8)};
      ASSERT_EQ(errorText(device.impl().backend->launch(*kernel, {.grid = {launch.ctas}},
                                                        {&argument, 1}, nullptr)),
                "");
      ASSERT_EQ(difference(made, host), "") << test.formats << " m=" << m << " k=" << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizerProgram, testing::ValuesIn(quantizerCases()));

} // namespace
} // namespace rho
