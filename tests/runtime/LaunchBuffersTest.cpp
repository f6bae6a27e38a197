// What a launch is given: sizes, owners, and memory that it must not share.
#include "tests/runtime/Walk.h"

#include <gtest/gtest.h>

namespace rho {
namespace {

TEST(LaunchBuffers, LaunchRefusesBadBuffers) {
  Walk s(w4a16);
  Buffer small = must(s.device.allocate(16));
  EXPECT_EQ(errorText(s.gemm.launch(small, s.activations, s.output.address(), s.workspace)),
            "error: weight has 16 bytes, this gemm needs " +
                std::to_string(s.gemm.packedWeightBytes()) + " [buffer_too_small]\n");
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, s.activations, 0, s.workspace)),
            "error: y is null [null_pointer]\n");
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, s.activations, 1032, s.workspace)),
            "error: y is at address 1032, it must be a multiple of 16 [misaligned_pointer]\n");
  Device other = must(Device::emulated("sm_80"));
  Buffer foreign = must(other.allocate(s.weight.bytes()));
  EXPECT_EQ(errorText(s.gemm.launch(foreign, s.activations, s.output.address(), s.workspace)),
            "error: weight belongs to another device than the gemm [wrong_device]\n");
}

TEST(LaunchBuffers, LaunchNeedsItsWorkspace) {
  std::string text(w4a16);
  text.insert(text.rfind('}'), "  schedule {\n    split_k: 2\n  }\n");
  Walk s(text.c_str(), {5, 64, 256});
  ASSERT_GT(s.gemm.workspaceBytes(), 0);
  Buffer none, small = *s.device.allocate(256);
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, s.activations, s.output.address(), none)),
            "error: empty workspace, it must come from a successful call [empty_handle]\n");
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, s.activations, s.output.address(), small)),
            "error: workspace has 256 bytes, this gemm needs " +
                std::to_string(s.gemm.workspaceBytes()) + " [buffer_too_small]\n");
  for (DevicePointer y : {s.weight.address(), s.workspace.address() + 256})
    EXPECT_EQ(errorText(s.gemm.launch(s.weight, s.activations, y, s.workspace)),
              "error: y lies in the memory of " +
                  std::string(y == s.weight.address() ? "weight" : "workspace") +
                  ", which a launch would write over [buffers_overlap]\n");
  // Reusable: every launch leaves it as it found it.
  ASSERT_TRUE(s.quantize());
  std::vector<float> first(s.output.bytes() / 4), second(first.size());
  ASSERT_EQ(errorText(s.launch()), "");
  ASSERT_TRUE(s.output.read(first.data(), s.output.bytes()));
  ASSERT_EQ(errorText(s.launch()), "");
  ASSERT_TRUE(s.output.read(second.data(), s.output.bytes()));
  EXPECT_EQ(first, second);
}

// Of what a launch reads only a weight, and activations that are a view, are a caller's to overlap;
// what has no bytes overlaps nothing.
TEST(LaunchBuffers, LaunchWritesOverNothingThatItReads) {
  Walk s(w4a16, {16, 64, 192});
  ASSERT_EQ(s.gemm.workspaceBytes(), 0);
  Buffer both = must(s.device.allocate(16 * 192 * 2 + 16 * 64 * 4));
  Activations viewed = must(s.gemm.viewActivations(both.address()));
  const DevicePointer end = both.address() + 16 * 192 * 2;
  auto error = [&](DevicePointer y, const Buffer &workspace) {
    return errorText(s.gemm.launch(s.weight, viewed, y, workspace));
  };
  const std::string refusal =
      "error: y lies in the memory of x, which a launch would write over [buffers_overlap]\n";
  EXPECT_EQ(error(both.address(), Buffer()), refusal);
  EXPECT_EQ(error(end - 16, Buffer()), refusal);
  EXPECT_EQ(error(end, Buffer()), "");
  EXPECT_EQ(error(end, must(s.device.view(end + 256, 256))), "");
  EXPECT_EQ(error(end, must(s.device.view(s.weight.address() + 16, 16))), "");
}

// The sums that a gemm of few output tiles leaves do not lie where one of many counts its own.
TEST(LaunchBuffers, GemmsOfAnySizeUseAWorkspaceInTurns) {
  for (const char *split : {"2", "stream"}) {
    std::string text(w4a16);
    text.insert(text.rfind('}'), "  schedule {\n    tile: 8 x 64 x 64\n    split_k: " +
                                     std::string(split) + "\n  }\n");
    Walk many(text.c_str(), {1, 64 * 100, 128});
    ASSERT_EQ(errorText(many.quantize()), "");
    Gemm few = must(many.engine.compile(many.module, "", {1, 128, 512}));
    std::vector<float> w = numbers(128, 512, 3), x = numbers(1, 512, 4);
    Buffer weight = must(few.packWeights(w.data(), ScalarType::F32, 512));
    Activations activations = must(few.makeActivations());
    Buffer input = must(many.device.allocate(512 * 4)),
           output = must(many.device.allocate(128 * 4));
    ASSERT_TRUE(input.write(x.data(), input.bytes()));
    ASSERT_TRUE(few.quantizeActivations(activations, input.address(), ScalarType::F32, 512));
    ASSERT_GT(few.workspaceBytes(), 0);
    ASSERT_GE(many.workspace.bytes(), few.workspaceBytes());
    std::vector<float> first(64 * 100), second(first.size());
    ASSERT_EQ(errorText(many.launch()), "");
    ASSERT_TRUE(many.output.read(first.data(), many.output.bytes()));
    ASSERT_EQ(errorText(few.launch(weight, activations, output.address(), many.workspace)), "");
    ASSERT_TRUE(many.output.write(second.data(), many.output.bytes()));
    ASSERT_EQ(errorText(many.launch()), "") << split;
    ASSERT_TRUE(many.output.read(second.data(), many.output.bytes()));
    EXPECT_EQ(first, second) << split;
  }
}

// As many parts as a partition may have, each with components of its own.
TEST(LaunchBuffers, KernelsMayHaveManyParameters) {
  std::string part, value = "element", rules, parts;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "c" + std::to_string(i);
    part += name + ": f16 per token ";
    value += " * " + name;
    rules += name + (i == 0 ? " = absmax(x) / 127 " : " = 1 ");
  }
  for (int i = 0; i < 8; ++i)
    parts += "p" + std::to_string(i) + ": part ";
  const std::string text =
      "format w { element: s4 scale: f16 per channel value = element * scale } "
      "format part { element: s8 " +
      part + "value = " + value + " encode { " + rules +
      "} } "
      "format a { partition per tensor k[128] { " +
      parts +
      "} } "
      "gemm g { weight: w activation: a output: f32 }";
  for (const char *target : {"sm_80", "sm_90a"}) {
    Walk s(text.c_str(), {4, 64, 1024}, target);
    s.expectReference(s.gemm, s.weight);
  }
}

} // namespace
} // namespace rho
