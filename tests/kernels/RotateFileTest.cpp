// Pairs of weights that are rotated in a file: what a model computes stays.
#include "kernels/quantize/RotateFile.h"
#include "kernels/SafetensorsFile.h"
#include "kernels/Synthetic.h"
#include "tests/kernels/Layers.h"
#include "tests/kernels/TemporaryFiles.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

using namespace rho;
using namespace rho::kernels;
using test::bytesOf;
using test::safetensors;
using test::TensorBytes;

namespace {

constexpr int64_t width = 24, heads = 16, hidden = 40,
                  words = 5; // of activations, of the vocabulary
using Row = std::vector<double>;

std::string shapeOf(int64_t rows, int64_t k) {
  return std::to_string(rows) + "," + std::to_string(k);
}

// A layer of two residual blocks between an embedding and a head.
std::vector<TensorBytes> model() {
  auto matrix = [](const std::string &name, int64_t rows, int64_t k, uint32_t seed) {
    return TensorBytes{name, "F32", shapeOf(rows, k), bytesOf(syntheticWeight(rows, k, seed))};
  };
  auto vector = [](const std::string &name, int64_t count, float offset) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(offset + 0.25F * static_cast<float>(i % 7));
    return TensorBytes{name, "F32", std::to_string(count), bytesOf(values)};
  };
  return {matrix("embed.weight", words, width, 1),
          vector("layers.0.norm1.weight", width, 0.5F),
          matrix("layers.0.v.weight", heads, width, 2),
          vector("layers.0.v.bias", heads, -0.125F),
          matrix("layers.0.o.weight", width, heads, 3),
          vector("layers.0.o.bias", width, -0.25F),
          vector("layers.0.norm2.weight", width, 1.5F),
          matrix("layers.0.up.weight", hidden, width, 4),
          matrix("layers.0.down.weight", width, hidden, 5),
          vector("norm.weight", width, 0.75F),
          matrix("head.weight", words, width, 6)};
}

class Model {
public:
  explicit Model(const std::string &path) : file(*SafetensorsFile::open(path)) {}

  Row logits(int64_t word) const {
    Row h = row("embed.weight", word);
    add(h, linear("layers.0.o", linear("layers.0.v", normed(h, "layers.0.norm1.weight"))));
    Row up = linear("layers.0.up", normed(h, "layers.0.norm2.weight"));
    for (double &value : up)
      value /= 1 + std::exp(-value);
    add(h, linear("layers.0.down", up));
    return linear("head", normed(h, "norm.weight"));
  }

  Row row(const std::string &name, int64_t number = 0) const {
    TensorEntry entry = *file.find(name);
    if (entry.shape.size() == 1)
      entry.shape.insert(entry.shape.begin(), 1);
    const dsl::MatrixView view = *file.matrix(entry);
    Row values(static_cast<size_t>(view.k));
    view.readRow(number, values.data());
    return values;
  }

private:
  SafetensorsFile file;

  static void add(Row &to, const Row &from) {
    for (size_t i = 0; i < to.size(); ++i)
      to[i] += from[i];
  }
  Row normed(const Row &x, const std::string &gains) const {
    double squares = 1e-6;
    for (double value : x)
      squares += value * value / static_cast<double>(x.size());
    Row y = row(gains);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] *= x[i] / std::sqrt(squares);
    return y;
  }
  Row linear(const std::string &name, const Row &x) const {
    const int64_t n = file.find(name + ".weight")->shape[0];
    Row y = file.find(name + ".bias") ? row(name + ".bias") : Row(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const Row w = row(name + ".weight", i);
      for (size_t c = 0; c < w.size(); ++c)
        y[static_cast<size_t>(i)] += w[c] * x[c];
    }
    return y;
  }
};

class RotateFileTest : public test::TemporaryFiles {
protected:
  // Between blocks.
  static RotateFileOptions stream() {
    return {.inputs = {"embed.weight", "*.v.weight", "*.up.weight", "head.weight"},
            .outputs = {"*.o.weight", "*.down.weight"},
            .fusions = {{"layers.*.norm1.weight", "layers.*.v.weight"},
                        {"layers.*.norm2.weight", "layers.*.up.weight"},
                        {"norm.weight", "head.weight"}},
            .block = {},
            .seed = 7,
            .threads = 0,
            .progress = {}};
  }
  // Between values and outputs of heads of 8.
  static RotateFileOptions ofHeads() {
    return {.inputs = {"*.o.weight"},
            .outputs = {"*.v.weight"},
            .fusions = {},
            .block = 8,
            .seed = {},
            .threads = 0,
            .progress = {}};
  }
  void expectSameModel(const std::string &a, const std::string &b, double tolerance) const {
    const Model before(folder + a), after(folder + b);
    for (int64_t word = 0; word < words; ++word) {
      const Row expected = before.logits(word), found = after.logits(word);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], tolerance) << word << " " << i;
    }
  }
  RotateFileSummary rotated(const std::string &to, const RotateFileOptions &options) const {
    return test::must(rotateFile(folder + "in.safetensors", folder + to, options));
  }
  std::string error(const std::vector<TensorBytes> &tensors,
                    const RotateFileOptions &options) const {
    put("in.safetensors", safetensors(tensors));
    std::string text =
        test::errorOf(rotateFile(folder + "in.safetensors", folder + "out.safetensors", options));
    EXPECT_EQ(filesThere(), 1U);
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.erase(at, folder.size());
    return text;
  }
};

TEST_F(RotateFileTest, WhatAModelComputesStays) {
  put("in.safetensors", safetensors(model(), R"("__metadata__":{"format":"pt"})"));
  const RotateFileSummary all = rotated("stream.safetensors", stream());
  EXPECT_EQ((std::array{all.inputs, all.outputs, all.biases, all.norms, all.copied, all.size}),
            (std::array<int64_t, 6>{4, 2, 1, 3, 1, width}));
  expectSameModel("in.safetensors", "stream.safetensors", 2e-6);
  const RotateFileSummary some = rotated("heads.safetensors", ofHeads());
  EXPECT_EQ(
      (std::array{some.inputs, some.outputs, some.biases, some.norms, some.copied, some.size}),
      (std::array<int64_t, 6>{1, 1, 1, 0, 8, 8}));
  expectSameModel("in.safetensors", "heads.safetensors", 2e-6);
  const Model before(folder + "in.safetensors"), after(folder + "stream.safetensors"),
      heads(folder + "heads.safetensors");
  for (const char *name : {"layers.0.norm1.weight", "layers.0.norm2.weight", "norm.weight"})
    EXPECT_EQ(after.row(name), Row(width, 1.0));
  EXPECT_NE(after.row("layers.0.o.bias"), before.row("layers.0.o.bias"));
  EXPECT_EQ(after.row("layers.0.v.bias"), before.row("layers.0.v.bias"));
  EXPECT_NE(heads.row("layers.0.v.bias"), before.row("layers.0.v.bias"));
  const SafetensorsFile in = *SafetensorsFile::open(folder + "in.safetensors"),
                        out = *SafetensorsFile::open(folder + "stream.safetensors");
  EXPECT_EQ(in.metadata(), out.metadata());
  ASSERT_EQ(in.tensors().size(), out.tensors().size());
  for (const TensorEntry &tensor : in.tensors()) {
    const TensorEntry *same = out.find(tensor.name);
    ASSERT_NE(same, nullptr) << tensor.name;
    EXPECT_EQ(printExtents(*same), printExtents(tensor));
  }
}

// In place, one after the other, in bf16, by any number of threads, and from several files to
// several.
TEST_F(RotateFileTest, FilesKeepTheirTypesAndShards) {
  std::vector<TensorBytes> halves = model();
  const dsl::ElementType bf16 = dsl::ElementType::get("bf16");
  for (TensorBytes &tensor : halves) {
    std::vector<uint16_t> codes;
    for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.data.data() + i, sizeof value);
      codes.push_back(static_cast<uint16_t>(bf16.encode(value)));
    }
    tensor.type = "BF16";
    tensor.data = bytesOf(codes);
  }
  put("in.safetensors", safetensors(halves));
  put("before.safetensors", safetensors(halves));
  RotateFileOptions one = stream(), many = stream();
  one.threads = 1;
  many.threads = 5;
  rotated("one.safetensors", one);
  rotated("many.safetensors", many);
  EXPECT_EQ(contentOf(folder + "one.safetensors"), contentOf(folder + "many.safetensors"));
  rotated("in.safetensors", stream());
  EXPECT_EQ(contentOf(folder + "one.safetensors"), contentOf(folder + "in.safetensors"));
  rotated("in.safetensors", ofHeads());
  expectSameModel("before.safetensors", "in.safetensors", 0.02); // rounded to bf16 twice
  put("a.safetensors", safetensors({halves.begin(), halves.begin() + 4}));
  put("b.safetensors", safetensors({halves.begin() + 4, halves.end()}));
  std::string map;
  for (size_t i = 0; i < halves.size(); ++i)
    map +=
        (i > 0 ? ",\"" : "\"") + halves[i].name + "\":\"" + (i < 4 ? "a" : "b") + ".safetensors\"";
  put("in.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
  ASSERT_TRUE(rotateFile(folder + "in.safetensors.index.json",
                         folder + "out.safetensors.index.json", stream())
                  .ok());
  const SafetensorsFile whole = *SafetensorsFile::open(folder + "one.safetensors"),
                        shards = *SafetensorsFile::open(folder + "out.safetensors.index.json");
  EXPECT_EQ(shards.shards(), 2U);
  for (const TensorEntry &tensor : whole.tensors())
    EXPECT_EQ(whole.bytes(tensor), shards.bytes(*shards.find(tensor.name))) << tensor.name;
}

// The product of a weight, gains and the rotation in double, rounded to the tensor's type once.
TEST_F(RotateFileTest, NumbersAreRoundedOnce) {
  const float e = 0x1p-12F;
  put("in.safetensors",
      safetensors({{"n.weight", "F32", "2", bytesOf(std::vector<float>{1 + e, 1})},
                   {"a.weight", "F32", "2,2", bytesOf(std::vector<float>{1 + e, 1 + 2 * e, 1, 1})},
                   {"b.weight", "F32", "2,1", bytesOf(std::vector<float>{1, 2})}}));
  RotateFileOptions options = ofHeads();
  options.inputs = {"a.weight"};
  options.outputs = {"b.weight"};
  options.fusions = {{"n.weight", "a.weight"}};
  options.block.reset();
  rotated("out.safetensors", options);
  const double x = (1.0 + e) * (1.0 + e), y = 1.0 + 2 * e, root = std::sqrt(0.5);
  const Row row = Model(folder + "out.safetensors").row("a.weight");
  EXPECT_EQ(row[0], static_cast<float>(x * root + y * root));
  EXPECT_EQ(row[1], static_cast<float>(x * root - y * root));
  EXPECT_NE(row[1], 0); // what f32 products of gains would leave
}

// A weight that stays behind makes another model of the rest; the bias beside one is no weight.
TEST_F(RotateFileTest, NothingThatIsNamedIsLeftOut) {
  std::vector<TensorBytes> tensors = model();
  tensors.push_back({"layers.1.up.weight", "F32", "2,2,24", bytesOf(std::vector<float>(96))});
  const std::string why =
      "' matches 'layers.1.up.weight' of 'in.safetensors', which is F32 2 x 2 x "
      "24: all that it names has two extents of at least 1 and numbers in f32, "
      "f16 or bf16, or one extent [pattern_matches_other]\n";
  EXPECT_EQ(error(tensors, stream()), "error: '*.up.weight" + why);
  RotateFileOptions options = stream();
  options.inputs[2] = "layers.0.up.weight";
  options.fusions[1].weights = "*.up.weight";
  options.fusions[1].norms = "layers.0.norm2.weight";
  EXPECT_EQ(error(tensors, options), "error: '*.up.weight" + why);
  tensors = model();
  put("in.safetensors", safetensors(tensors));
  options = stream();
  options.inputs[1] = "*.v.*"; // the bias, too
  EXPECT_EQ(rotated("out.safetensors", options).inputs,
            rotated("out.safetensors", stream()).inputs);
}

TEST_F(RotateFileTest, MistakesAreErrors) {
  const std::vector<TensorBytes> all = model();
  RotateFileOptions options = stream();
  options.inputs.push_back("*.o.weight");
  EXPECT_EQ(
      error(all, options),
      "error: 'layers.0.o.weight' has 16 inputs, 'embed.weight' has 24 inputs: rotations of one "
      "size cancel, --block gives one that divides all [rotation_sizes]\n");
  options.block = 6;
  EXPECT_EQ(
      error(all, options),
      "error: 'layers.0.o.weight' has 16 inputs, no multiple of 6: rotations of one size cancel, "
      "--block gives one that divides all [rotation_sizes]\n");
  options = stream();
  options.block = 3;
  EXPECT_THAT(error(all, options), testing::HasSubstr("[no_hadamard_order]"));
  options = stream();
  options.outputs = {"*.q.weight"};
  EXPECT_THAT(error(all, options), testing::HasSubstr("[pattern_matches_nothing]"));
  options.outputs = {"*.bias"};
  EXPECT_THAT(error(all, options), testing::HasSubstr("[pattern_matches_no_weight]"));
  auto fused = [&](const NormFusion &fusion) {
    options = stream();
    options.fusions.push_back(fusion);
    return error(all, options);
  };
  for (const NormFusion &fusion :
       {NormFusion{"layers.*.norm*", "*"}, {"norm[12]", "*"}, {"norm", ""}, {"", "head"}})
    EXPECT_EQ(fused(fusion), "error: '" + fusion.norms + "=" + fusion.weights +
                                 "' is no NAME=GLOB, where NAME has one * at most "
                                 "[name_and_pattern]\n");
  EXPECT_THAT(fused({"norm9.*", "head.weight"}), testing::HasSubstr("[pattern_matches_nothing]"));
  EXPECT_THAT(fused({"norm.weight", "tail.weight"}),
              testing::HasSubstr("[pattern_matches_nothing]"));
  EXPECT_EQ(
      fused({"embed.weight", "head.weight"}),
      "error: norm 'embed.weight' is F32 5 x 24, gains are a vector of numbers [fusion_gains]\n");
  EXPECT_EQ(fused({"norm.weight", "*.o.weight"}),
            "error: norm 'norm.weight' is F32 24, gains are 16 of 'layers.0.o.weight' "
            "[fusion_gains]\n");
  EXPECT_EQ(fused({"norm.weight", "*.v.weight"}),
            "error: 'layers.0.v.weight' is behind two norms, 'layers.0.norm1.weight' and "
            "'norm.weight' [fused_twice]\n");
  std::vector<TensorBytes> biased = all;
  biased.push_back({"norm.bias", "F32", "24", bytesOf(std::vector<float>(24))});
  options = stream();
  options.fusions.push_back({"norm.weight", "head.weight"});
  EXPECT_EQ(error(biased, options),
            "error: norm 'norm.weight' has a bias, 'norm.bias', which stays where gains are fused: "
            "only norms without one can be [fusion_bias]\n");
  for (const auto &[norm, bias] : {std::pair("n.gamma", "n.beta"), {"n", "n.bias"}}) {
    biased = all;
    for (const char *name : {norm, bias})
      biased.push_back({name, "F32", "24", bytesOf(std::vector<float>(24))});
    options.fusions.back().norms = norm;
    EXPECT_THAT(error(biased, options),
                testing::HasSubstr("has a bias, '" + std::string(bias) + "', which stays"));
  }
  std::vector<TensorBytes> changed = all;
  changed[5] = {"layers.0.o.bias", "F32", "5", bytesOf(std::vector<float>(5))};
  EXPECT_EQ(error(changed, stream()),
            "error: bias 'layers.0.o.bias' is F32 5, 'layers.0.o.weight' has 24 outputs "
            "[rotated_bias]\n");
  changed = all;
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(changed[2].data.data() + 4 * (2 * width + 3), &infinite, sizeof infinite);
  EXPECT_EQ(error(changed, stream()),
            "error: 'layers.0.v.weight' of 'in.safetensors' cannot be rotated: infinity at row 2, "
            "column 3, a weight is finite [tensor_not_rotated]\n");
  changed = all;
  changed[0] = {"embed.weight", "F16", "5,24", bytesOf(std::vector<uint16_t>(5 * 24, 0x7bff))};
  options = stream();
  options.seed.reset();
  EXPECT_EQ(error(changed, options),
            "error: 'embed.weight' of 'in.safetensors' cannot be rotated: row 0, column 0 would be "
            "320902.7522225387, beyond F16 [tensor_not_rotated]\n");
}

} // namespace
