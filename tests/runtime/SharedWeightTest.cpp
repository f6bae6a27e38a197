// One packed weight for several numbers of rows.
#include "tests/runtime/Walk.h"

namespace rho {
namespace {

// A weight is checked for the operands that a kernel makes of it as it is packed, so kernels that
// make others have a layout of another name: of bf16 where f16 is too narrow, and so of scales that
// are multiplied into operands.
TEST(SharedWeight, OfOtherOperandsIsAnother) {
  constexpr const char *text =
      "format w { element: s4 scale: f16 per k[128] value = element * scale } "
      "format o { element: u4 scale: f16 per k[128] low: f16 per k[128] value = element * scale + "
      "low encode { low = min(x) scale = (max(x) - min(x)) / 15 } } "
      "gemm sums { weight: w activation: f16 output: f32 schedule { scales: accumulator } } "
      "gemm products { weight: w activation: f16 output: f32 schedule { scales: operand } } "
      "gemm wide { weight: o activation: bf16 output: f32 } "
      "gemm narrow { weight: o activation: f16 output: f32 }";
  Device device = must(Device::emulated("sm_80"));
  Engine engine = must(Engine::create(device));
  Module module = parsed(text);
  const GemmShape shape{4, 64, 128};
  std::vector<float> large(64 * 128, 0.0F);
  for (size_t i = 0; i < large.size(); ++i)
    large[i] = i % 2 == 0 ? 5e5F : -5e5F; // the scales fit f16
  for (auto [fits, beyond] : {std::pair{"sums", "products"}}) {
    Gemm first = must(engine.compile(module, fits, shape));
    Gemm second = must(engine.compile(module, beyond, shape));
    EXPECT_NE(first.weightLayout(), second.weightLayout());
    Buffer packed = must(first.packWeights(large.data(), ScalarType::F32, shape.k));
    EXPECT_NE(errorText(second.packWeights(large.data(), ScalarType::F32, shape.k))
                  .find("[pack_beyond_operand]"),
              std::string::npos);
    Buffer y = must(device.allocate(shape.m * shape.n * 4));
    Buffer workspace = must(device.allocate(second.workspaceBytes()));
    EXPECT_NE(
        errorText(second.launch(packed, must(second.makeActivations()), y.address(), workspace))
            .find("[weight_mismatch]"),
        std::string::npos);
  }
  EXPECT_NE(must(engine.compile(module, "wide", shape)).weightLayout(),
            must(engine.compile(module, "narrow", shape)).weightLayout());
  // Of one gemm all kernels that share a weight make what any of them does.
  std::vector<Gemm> shared =
      must(engine.compileShared(module, "sums", 64, 128, std::vector<int64_t>{1, 256}));
  EXPECT_EQ(shared[0].weightLayout(), shared[1].weightLayout());
  EXPECT_EQ(must(engine.compileSharing(shared[0], 32)).weightLayout(), shared[0].weightLayout());
}

// What decoding and prefilling read of a model lies in memory once.
TEST(SharedWeight, GemmsOfSeveralBatchesShareAWeight) {
  constexpr const char *fine =
      "format w { element: e2m1 block: e4m3 per k[16] value = element * block } "
      "gemm g { weight: w activation: bf16 output: f32 }";
  constexpr const char *book =
      "format w { element: codebook [-1, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.08, 0.16, 0.25, "
      "0.34, 0.44, 0.56, 0.72, 1] scale: f32 per k[64] value = element * scale } "
      "gemm g { weight: w activation: f16 output: f32 }";
  struct Shared {
    const char *text, *target;
    int64_t n, k;
  };
  for (auto [text, target, n, k] :
       {Shared{w4a8, "sm_90a", 256, 256}, Shared{w4a16, "sm_90a", 256, 256},
        Shared{w4a8, "sm_90a", 4096, 192}, Shared{w4a8, "sm_80", 200, 320},
        Shared{fine, "sm_90a", 200, 320}, Shared{book, "sm_90a", 4096, 192},
        Shared{book, "sm_80", 200, 320}}) {
    Walk s(text, {300, n, k}, target);
    const std::vector<int64_t> batches{1, 300, 40};
    std::vector<Gemm> gemms = must(s.engine.compileShared(s.module, "", n, k, batches));
    ASSERT_EQ(gemms.size(), batches.size());
    Buffer weight = must(gemms[0].packWeights(s.w.data(), ScalarType::F32, k));
    for (size_t i = 0; i < gemms.size(); ++i) {
      const Gemm &gemm = gemms[i];
      const int64_t m = batches[i];
      EXPECT_EQ(gemm.shape().m, m);
      EXPECT_EQ(gemm.weightLayout(), gemms[0].weightLayout());
      ASSERT_NO_FATAL_FAILURE(s.expectReference(gemm, weight));
    }
    // Not the layouts that they have alone, which differ.
    if (n == 4096)
      EXPECT_NE(must(s.engine.compile(s.module, "", {1, n, k})).weightLayout(),
                must(s.engine.compile(s.module, "", {300, n, k})).weightLayout());
    // They are kept.
    const CompileReport again =
        must(s.engine.compileShared(s.module, "", n, k, batches))[1].report();
    EXPECT_EQ(again.plan, gemms[1].report().plan);
    EXPECT_TRUE(again.stages.empty());
    EXPECT_TRUE(must(s.engine.compileShared(s.module, "", n, k, {})).empty());
    EXPECT_EQ(errorText(s.engine.compileShared(s.module, "", n, k, std::vector<int64_t>{1, 0})),
              errorText(s.engine.compile(s.module, "", {0, n, k})));
  }
}

// A number of rows that nobody thought of when the weight was packed.
TEST(SharedWeight, OneMoreBatchReadsAWeightThatIsPacked) {
  constexpr int64_t m = 100, n = 200, k = 320;
  for (const char *target : {"sm_80", "sm_90a"}) {
    Walk s(w4a8, {300, n, k}, target);
    std::vector<Gemm> gemms =
        must(s.engine.compileShared(s.module, "", n, k, std::vector<int64_t>{1, 300}));
    Buffer weight = must(gemms[0].packWeights(s.w.data(), ScalarType::F32, k));
    Gemm more = must(s.engine.compileSharing(gemms[0], m));
    EXPECT_EQ(more.shape().m, m);
    EXPECT_EQ(more.weightLayout(), gemms[0].weightLayout());
    EXPECT_EQ(more.report().stages.at(0).name, "plan");
    const CompileReport again = must(s.engine.compileSharing(gemms[0], m)).report();
    EXPECT_EQ(again.plan, more.report().plan);
    EXPECT_TRUE(again.stages.empty()); // kept, as what compile() makes
    ASSERT_NO_FATAL_FAILURE(s.expectReference(more, weight));
    EXPECT_EQ(errorText(s.engine.compileSharing(more, 0)),
              errorText(s.engine.compile(s.module, "", {0, n, k})));
    EXPECT_EQ(errorText(s.engine.compileSharing(Gemm(), m)),
              "error: empty gemm, it must come from a successful call [empty_handle]\n");
    Engine other = must(Engine::create(must(Device::emulated(target)), noDisk()));
    EXPECT_EQ(errorText(other.compileSharing(more, m)),
              "error: the engine belongs to another device than the gemm [wrong_device]\n");
  }
  // Tiles of as many rows as give each SM one are those of few batch rows alone: their kernel
  // serves others, too.
  Walk s(w4a16, {40, 4096, 128}, "sm_90a");
  Gemm narrow = must(s.engine.compile(s.module, "", {16, 4096, 128}));
  Gemm more = must(s.engine.compileSharing(narrow, 40));
  EXPECT_EQ(more.weightLayout(), narrow.weightLayout());
  ASSERT_NO_FATAL_FAILURE(
      s.expectReference(more, must(narrow.packWeights(s.w.data(), ScalarType::F32, 128))));
  // In tiles of more rows than its own where there are more.
  Walk two(w4a16, {2, 64, 512}, "sm_90a");
  EXPECT_NE(two.gemm.report().plan.find("tile 8 x"), std::string::npos);
  Gemm many = must(two.engine.compileSharing(two.gemm, 524288));
  EXPECT_EQ(many.weightLayout(), two.gemm.weightLayout());
  EXPECT_EQ(many.report().plan.find("tile 8 x"), std::string::npos) << many.report().plan;
  // CUDA cores stream a weight of their own.
  Walk few(w4a8, {1, 4096, 128}, "sm_90a");
  EXPECT_EQ(errorText(few.engine.compileSharing(few.gemm, 300)),
            "error: no packed weight of 'w4a8' serves all of m = 1, 300: compile them one by one "
            "[no_shared_layout]\n");
}

TEST(SharedWeight, PanelsAreTheSameBytesForOtherTiles) {
  auto packed = [](const std::string &schedule, std::vector<uint8_t> &bytes) {
    std::string text = w4a8;
    text.insert(text.rfind('}'), " schedule { packing: panels " + schedule + " } ");
    Walk s(text.c_str(), {70, 200, 512}, "sm_90a");
    bytes.resize(static_cast<size_t>(s.weight.bytes()));
    EXPECT_TRUE(s.weight.read(bytes.data(), s.weight.bytes()));
    return s.gemm.weightLayout();
  };
  std::vector<uint8_t> few, many, wide;
  const std::string layout = packed("roles: imfp tile: 16 x 64 x 256 warps: 1 x 4 x 2", few);
  EXPECT_EQ(packed("roles: imfp tile: 64 x 192 x 128 warps: 1 x 12", many), layout);
  EXPECT_EQ(packed("roles: excp tile: 32 x 128 x 128 warps: 1 x 8", wide), layout);
  EXPECT_TRUE(few == many && few == wide);
}

// A batch that grows and shrinks under one kernel, in one memory.
TEST(SharedWeight, OneKernelTakesOtherRows) {
  constexpr const char *divided =
      "format a4 { element: s4 scale: f16 per k[32] value = element * scale } "
      "format a8 { element: s8 scale: f32 per token value = element * scale } "
      "format mix { partition per tensor k[64] { low: a4 high: a8 budget 25% } } "
      "format w { element: s4 scale: f16 per channel value = element * scale } "
      "gemm g { weight: w activation: mix output: f32 }";
  constexpr const char *ofTensor =
      "format w { element: s4 scale: f16 per channel value = element * scale } "
      "format a { element: s8 scale: f32 per tensor value = element * scale } "
      "gemm g { weight: w activation: a output: f32 }";
  for (auto [text, target] : {std::pair{w4a8, "sm_80"},
                              {w4a16, "sm_90a"},
                              {w4a4, "sm_90a"},
                              {divided, "sm_80"},
                              {ofTensor, "sm_90a"}}) {
    Walk s(text, {40, 128, 256}, target);
    for (int64_t m : {1, 17, 40}) {
      Gemm other = must(s.gemm.withRows(m));
      EXPECT_EQ(other.shape().m, m);
      EXPECT_EQ(other.report().key, s.gemm.report().key);
      EXPECT_EQ(other.weightLayout(), s.gemm.weightLayout());
      s.expectReference(other, s.weight, must(s.activations.withRows(m)));
    }
    EXPECT_EQ(s.gemm.shape().m, 40);
    EXPECT_EQ(errorText(s.gemm.withRows(0)),
              "error: m is 0; it must be between 1 and 524288 [bad_problem]\n");
    const Activations few = must(s.activations.withRows(17));
    EXPECT_NE(errorText(s.gemm.launch(s.weight, few, s.output.address(), s.workspace))
                  .find("[activations_mismatch]"),
              std::string::npos);
    EXPECT_TRUE(few.withRows(40)); // what there is room for stays
    for (int64_t m : {0, 41})
      EXPECT_EQ(errorText(few.withRows(m)), "error: m of activations is " + std::to_string(m) +
                                                "; it must be between 1 and 40 [bad_problem]\n");
  }
  EXPECT_EQ(errorText(Activations().withRows(1)),
            "error: empty activations, it must come from a successful call [empty_handle]\n");
  // On the CUDA cores each thread has a sum for each row.
  Walk few("format w { element: s4 scale: f16 per channel value = element * scale } "
           "format a { element: s8 scale: f32 per token value = element * scale } "
           "gemm g { weight: w activation: a output: f32 schedule { roles: gemv } }",
           {2, 64, 256}, "sm_90a");
  few.expectReference(must(few.gemm.withRows(1)), few.weight);
  EXPECT_NE(errorText(few.gemm.withRows(5)).find("they take at most 4 batch rows [schedule_roles]"),
            std::string::npos);
  EXPECT_EQ(errorText(Gemm().withRows(1)), errorText(Gemm().makeActivations()));
}

} // namespace
} // namespace rho
