// Two devices of one target share a kernel where their plans agree, and only there.
#include "compiler/Devices.h"
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho {
namespace {

class DescribedDeviceTest : public testing::Test {
protected:
  CompileReport compileOn(const dsl::Device &described, const GemmShape &shape) {
    EngineOptions options;
    options.cacheDirectory = folder.path();
    Engine engine = must(Engine::create(must(Device::emulated(described)), options));
    return must(engine.compile(module, "", shape)).report();
  }
  TemporaryFolder folder;
  const Module module = parsed(w4a4);
  const dsl::Device a100 = *compiler::shippedDevice("a100_40g");
};

TEST_F(DescribedDeviceTest, SharesWhatItPlansAlike) {
  CompileReport first = compileOn(a100, {16, 512, 512});
  EXPECT_EQ(first.source, CompileReport::Source::Compiled);
  CompileReport second = compileOn(*compiler::shippedDevice("a100_80g"), {16, 512, 512});
  EXPECT_EQ(second.source, CompileReport::Source::Disk);
  EXPECT_EQ(second.key, first.key);
}

TEST_F(DescribedDeviceTest, DoesNotShareWhatItPlansOtherwise) {
  CompileReport first = compileOn(a100, {16, 512, 512});
  dsl::Device small = a100; // of the same target, with an eighth of the SMs: no split of k
  small.sms = 4;
  CompileReport second = compileOn(small, {16, 512, 512});
  EXPECT_EQ(second.source, CompileReport::Source::Compiled);
  EXPECT_NE(second.plan, first.plan);
  EXPECT_NE(second.key, first.key);
}

TEST_F(DescribedDeviceTest, IsNamedAndHeldToTheRulesOfDeclarations) {
  EXPECT_EQ(must(Device::emulated(a100)).name(), "NVIDIA A100-SXM4-40GB (emulated)");
  EXPECT_EQ(must(Device::emulated(*compiler::shippedDevice("b200"))).target(), "sm_89");
  dsl::Device none = a100;
  none.sms = 0;
  EXPECT_THAT(Device::emulated(none).error().str(), testing::HasSubstr("[device_out_of_range]"));
}

} // namespace
} // namespace rho
