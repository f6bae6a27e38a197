// Every shipped weight format with every kind of activation on every target but sm_90a: a kernel
// within its bound, or a diagnostic that says what of the pair is not possible. Formats that join
// kernels/formats join this test.
#include "tests/compiler/EmulatedGemm.h"

#include "compiler/Plan.h"
#include "runtime/Kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace rho::test {
namespace {

std::vector<std::string> weightFormats() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(RHO_SOURCE_DIR "/kernels/formats"))
    if (std::string name = entry.path().stem().string(); !name.ends_with("_token"))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}
constexpr const char *activations[] = {"f16",       "bf16",        "int8_token", "int4_token",
                                       "fp8_token", "nvfp4_token", "mxfp4"};

// What is wrong with a pair, not with a schedule.
bool isReason(DiagId id) {
  switch (id) {
  case DiagId::no_mma_on_target:
  case DiagId::no_decode:
  case DiagId::no_kernels:
  case DiagId::no_legal_placement:
  case DiagId::scales_not_legal:
  case DiagId::unsupported_value:
    return true;
  default:
    return false;
  }
}

class WeightFormat : public testing::TestWithParam<std::string> {};

TEST_P(WeightFormat, HasAKernelOrAReasonOnEveryTarget) {
  for (const char *activation : activations)
    for (const char *target : {"sm_80", "sm_86", "sm_89", "sm_120a"}) {
      Case test{GetParam(), activation, "f32", "", target, {9, 72, 200}};
      Result<Module> module = Module::parse(declaration(test));
      ASSERT_TRUE(module.ok()) << module.error().str();
      Result<compiler::Plan> plan = compiler::plan(module->impl().module.gemms[0], {9, 72, 200},
                                                   *compiler::modelOfTarget(target), nullptr);
      if (!plan) {
        EXPECT_TRUE(isReason(plan.error().diagnostics[0].id)) << plan.error().str();
        continue;
      }
      // The others are executed in GemmTest.cpp, on more shapes and for all targets.
      bool onlyHere = module->impl().module.gemms[0].activation.element().type.bits() < 8 ||
                      std::string_view(activation) == "fp8_token";
      if (std::string_view(target) == "sm_120a" && onlyHere)
        expectWithinBound(test);
    }
}

INSTANTIATE_TEST_SUITE_P(Shipped, WeightFormat, testing::ValuesIn(weightFormats()),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace rho::test
