// One packed weight for several numbers of rows.
#include "tests/runtime/Walk.h"

namespace rho {
namespace {

// What decoding and prefilling read of a model lies in memory once.
TEST(SharedWeight, GemmsOfSeveralBatchesShareAWeight) {
  constexpr const char *fine =
      "format w { element: e2m1 block: e4m3 per k[16] value = element * block } "
      "gemm g { weight: w activation: bf16 output: f32 }";
  struct Shared {
    const char *text, *target;
    int64_t n, k;
  };
  for (auto [text, target, n, k] :
       {Shared{w4a8, "sm_90a", 256, 256}, Shared{w4a16, "sm_90a", 256, 256},
        Shared{w4a8, "sm_90a", 4096, 192}, Shared{w4a8, "sm_80", 200, 320},
        Shared{fine, "sm_90a", 200, 320}}) {
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
    if (n == 256)
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

} // namespace
} // namespace rho
