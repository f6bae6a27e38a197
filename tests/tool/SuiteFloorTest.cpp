#include "runtime/tool/SuiteFloor.h"

#include <gtest/gtest.h>

#include <random>

using namespace rho;
using namespace rho::tool;

namespace {

// The exclusive or of all words is that of what the warps found: each vector was read once.
TEST(ReadKernelTest, readsEveryByteOnce) {
  Device device = Device::emulated("sm_90a").value();
  std::mt19937 random(1);
  constexpr int64_t ctas = 3, warps = ctas * ReadKernel::threads / 32;
  // One vector; a part of a round; a whole one; two and a part.
  for (int64_t vectors : {1, 1000, 6144, 14001})
    for (bool dependent : {false, true}) {
      SCOPED_TRACE(std::to_string(vectors) + (dependent ? " dependent" : ""));
      std::vector<uint32_t> data(static_cast<size_t>(4 * vectors)), words(warps);
      uint32_t expected = 0;
      for (uint32_t &word : data)
        expected ^= word = static_cast<uint32_t>(random());
      auto bytes = static_cast<int64_t>(4 * data.size());
      Result<Buffer> input = device.allocate(bytes), output = device.allocate(4 * warps);
      ASSERT_TRUE(input && output);
      ASSERT_TRUE(input->write(data.data(), bytes));
      Result<ReadKernel> kernel = ReadKernel::create(device, dependent);
      ASSERT_TRUE(kernel) << kernel.error().str();
      Status launched = kernel->launch(input->address(), bytes, ctas, output->address(), nullptr);
      ASSERT_TRUE(launched) << launched.error().str();
      ASSERT_TRUE(output->read(words.data(), 4 * warps));
      uint32_t found = 0;
      for (uint32_t word : words)
        found ^= word;
      EXPECT_EQ(found, expected);
    }
}

TEST(SuiteFloorTest, dependentLaunchesComeWithSm90) {
  for (const char *target : {"sm_80", "sm_89"})
    EXPECT_EQ(SuiteFloor::launches(Device::emulated(target).value()), std::vector{false});
  EXPECT_EQ(SuiteFloor::launches(Device::emulated("sm_90a").value()), (std::vector{false, true}));
}

} // namespace
