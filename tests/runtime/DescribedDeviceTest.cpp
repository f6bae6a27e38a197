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
    Engine engine =
        must(Engine::create(must(Device::emulated(compiler::modelOf(described))), options));
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

TEST_F(DescribedDeviceTest, IsNamedAndHeldToItsRules) {
  compiler::DeviceModel model = compiler::modelOf(a100);
  EXPECT_EQ(must(Device::emulated(model)).name(), "NVIDIA A100-SXM4-40GB (emulated)");
  compiler::DeviceModel b200 = compiler::modelOf(*compiler::shippedDevice("b200"));
  EXPECT_EQ(must(Device::emulated(b200)).target(), "sm_89"); // the newest whose PTX runs there
  model.rates = {};
  EXPECT_THAT(Device::emulated(model).error().str(), testing::HasSubstr("[bad_device_model]"));
}

} // namespace
} // namespace rho
