// `rho rotate` as a user runs it, by the commands of docs/CLI.md.
#include "kernels/SafetensorsFile.h"
#include "kernels/Synthetic.h"
#include "tests/kernels/TemporaryFiles.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace rho;
using namespace rho::test;
using testing::HasSubstr;

namespace {

// A model of Llama's names with `width` channels, heads of half of them.
std::string llama(const std::string &name, int64_t width) {
  std::vector<TensorBytes> tensors;
  auto weight = [&](const std::string &tensor, int64_t rows, int64_t k) {
    const auto seed = static_cast<uint32_t>(tensors.size() + 1);
    tensors.push_back({tensor + ".weight", "F32", std::to_string(rows) + "," + std::to_string(k),
                       bytesOf(kernels::syntheticWeight(rows, k, seed))});
  };
  auto norm = [&](const std::string &tensor) {
    tensors.push_back({tensor + ".weight", "F32", std::to_string(width),
                       bytesOf(std::vector<float>(static_cast<size_t>(width), 1.5F))});
  };
  weight("model.embed_tokens", 10, width);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    norm(layer + "input_layernorm");
    for (const char *projection : {"q", "k", "v", "o"})
      weight(layer + "self_attn." + projection + "_proj", width, width);
    norm(layer + "post_attention_layernorm");
    weight(layer + "mlp.gate_proj", 2 * width, width);
    weight(layer + "mlp.up_proj", 2 * width, width);
    weight(layer + "mlp.down_proj", width, 2 * width);
  }
  norm("model.norm");
  weight("lm_head", 10, width);
  return put(name, safetensors(tensors));
}

TEST(RotateTest, ModelsOfLlamasNamesAreRotatedInPlace) {
  constexpr int64_t width = 64;
  const std::string in = llama("llama.safetensors", width), out = scratchFolder() + "r.safetensors";
  ToolResult result =
      runTool({"rotate",
               in,
               "-o",
               out,
               "--seed",
               "1",
               "--inputs",
               "*.embed_tokens.*",
               "--inputs",
               "*.[qkv]_proj.*",
               "--inputs",
               "*.gate_proj.*",
               "--inputs",
               "*.up_proj.*",
               "--inputs",
               "lm_head.*",
               "--outputs",
               "*.o_proj.*",
               "--outputs",
               "*.down_proj.*",
               "--fuse",
               "model.layers.*.input_layernorm.weight=model.layers.*.self_attn.[qkv]_proj.weight",
               "--fuse",
               "model.layers.*.post_attention_layernorm.weight=model.layers.*.mlp.gate_proj.weight",
               "--fuse",
               "model.layers.*.post_attention_layernorm.weight=model.layers.*.mlp.up_proj.weight",
               "--fuse",
               "model.norm.weight=lm_head.weight"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char *line : {"rotation    64 x 64, signs of seed 1\n", "inputs      of 12 weights\n",
                           "outputs     of 4 weights, 0 biases\n", "norms       5 became 1\n",
                           "copied      0 tensors\n"})
    EXPECT_THAT(result.out, HasSubstr(line));
  result = runTool({"rotate", out, "-o", out, "--block", "32", "--outputs", "*.v_proj.*",
                    "--inputs", "*.o_proj.*"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char *line : {"rotation    32 x 32\n", "inputs      of 2 weights\n",
                           "outputs     of 2 weights, 0 biases\n", "copied      17 tensors\n"})
    EXPECT_THAT(result.out, HasSubstr(line));
  // Layers of the result need no step of their own.
  const std::string codes = scratchFolder() + "r4.safetensors";
  result = runTool({"quantize", out, "--format", "int4_g128", "--skip", "*norm*", "-o", codes});
  EXPECT_EQ(result.code, 0) << result.err;
  const kernels::SafetensorsFile file = *kernels::SafetensorsFile::open(codes);
  for (const auto &[key, text] : file.metadata())
    EXPECT_FALSE(key.starts_with("rho.transform.")) << text;
}

TEST(RotateTest, MistakesAreErrors) {
  const std::string in = llama("mistakes.safetensors", 16),
                    out = scratchFolder() + "not_there.safetensors";
  const std::vector<std::string> all = {"rotate",   in,           "-o",        out,
                                        "--inputs", "*.q_proj.*", "--outputs", "*.o_proj.*"};
  for (size_t left : {2, 4, 6}) {
    std::vector<std::string> some = all;
    some.erase(some.begin() + static_cast<long>(left), some.begin() + static_cast<long>(left) + 2);
    const ToolResult result = runTool(some);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.err, "error: " + all[left] +
                              " is missing, 'rho rotate FILE --inputs GLOB --outputs GLOB -o FILE' "
                              "has all [option_missing]\n");
  }
  std::vector<std::string> odd = all;
  odd.insert(odd.end(), {"--fuse", "model.norm.weight"});
  EXPECT_THAT(runTool(odd).err, HasSubstr("[name_and_pattern]"));
  odd = all;
  odd.insert(odd.end(), {"--block", "3"});
  EXPECT_THAT(runTool(odd).err, HasSubstr("[rotation_sizes]"));
  EXPECT_FALSE(kernels::SafetensorsFile::open(out).ok());
}

} // namespace
