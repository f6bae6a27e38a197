// Checkpoints of several files and an index.
#include "dsl/Module.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/TensorFile.h"
#include "kernels/quantize/QuantizeFile.h"
#include "kernels/quantize/QuantizedFile.h"
#include "tests/kernels/TemporaryFiles.h"

using namespace rho;
using namespace rho::kernels;
using test::bytesOf;
using test::safetensors;
using test::TensorBytes;

namespace {

class ShardedFileTest : public test::TemporaryFiles {
protected:
  // in.safetensors.index.json with two shards: the weights, and one more with the norm.
  void putModel() const {
    put("in-00001-of-00002.safetensors",
        safetensors({a, norm}, R"("__metadata__":{"format":"pt"})"));
    put("in-00002-of-00002.safetensors", safetensors({b}, R"("__metadata__":{"format":"pt"})"));
    put("in.safetensors.index.json", R"({"metadata": {"total_size": 9, "more": [[1.5e3], {}]},
      "weight_map": {"b": "in-00002-of-00002.safetensors", "a": "in-00001-of-00002.safetensors",
                     "norm": "in-00001-of-00002.safetensors"}})");
  }
  Result<QuantizeFileSummary> quantize(const std::string &from, const std::string &to) const {
    QuantizeFileOptions options;
    options.format = shippedFormat("int4_g64");
    return quantizeFile(folder + from, folder + to, options);
  }
  std::string error(const std::string &from, const std::string &to = "out.safetensors") const {
    Result<QuantizeFileSummary> done = quantize(from, to);
    std::string text = done.ok() ? "done" : done.error().str();
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.erase(at, folder.size());
    return text;
  }
  // Of an index that says so of its tensors.
  std::string errorOfIndex(const std::string &text) const {
    put("in.safetensors.index.json", text);
    return error("in.safetensors.index.json");
  }

  const std::vector<float> numbers = syntheticWeight(6, 200, 1), others = syntheticWeight(3, 64, 2);
  const TensorBytes a{"a", "F32", "6,200", bytesOf(numbers)};
  const TensorBytes b{"b", "F32", "3,64", bytesOf(others)};
  const TensorBytes norm{"norm", "F32", "5", bytesOf(std::vector<float>{1, 2, 3, 4, 5})};
};

TEST_F(ShardedFileTest, becomesOneFile) {
  putModel();
  put("whole.safetensors", safetensors({a, norm, b}, R"("__metadata__":{"format":"pt"})"));
  Result<QuantizeFileSummary> done = quantize("in.safetensors.index.json", "out.safetensors");
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_EQ(done->quantized, 2);
  EXPECT_EQ(done->copied, 1);
  EXPECT_EQ(done->inputBytes,
            static_cast<int64_t>(contentOf(folder + "in-00001-of-00002.safetensors").size() +
                                 contentOf(folder + "in-00002-of-00002.safetensors").size()));
  ASSERT_EQ(error("whole.safetensors", "same.safetensors"), "done");
  EXPECT_EQ(contentOf(folder + "out.safetensors"), contentOf(folder + "same.safetensors"));
}

// A checkpoint of old and new files would be of no use, and the old one lost.
TEST_F(ShardedFileTest, isReplacedAsAWholeOrNotAtAll) {
  putModel();
  const std::string index = folder + "in.safetensors.index.json",
                    first = folder + "in-00001-of-00002.safetensors",
                    second = folder + "in-00002-of-00002.safetensors";
  const std::string indexBefore = contentOf(index), firstBefore = contentOf(first);
  QuantizeFileOptions options;
  options.format = shippedFormat("int4_g64");
  options.progress = [&](int64_t, int64_t, const std::string &) {
    std::filesystem::remove_all(second);
    std::filesystem::create_directories(second + "/inside");
  };
  Result<QuantizeFileSummary> done = quantizeFile(index, index, options);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().str(),
            "error: '" + second + "' cannot be written: Is a directory [file_not_writable]\n");
  EXPECT_EQ(contentOf(index), indexBefore);
  EXPECT_EQ(contentOf(first), firstBefore);
  EXPECT_EQ(filesThere(), 3U);
}

TEST_F(ShardedFileTest, keepsItsShardsWhereAnIndexIsWritten) {
  putModel();
  Result<QuantizeFileSummary> done =
      quantize("in.safetensors.index.json", "out.safetensors.index.json");
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_EQ(filesThere(), 6U);
  EXPECT_EQ(contentOf(folder + "out.safetensors.index.json"), R"({
  "metadata": {
    "more": [
      [
        1500.0
      ],
      {}
    ],
    "total_size": 770
  },
  "weight_map": {
    "a.element": "out-00001-of-00002.safetensors",
    "a.scale": "out-00001-of-00002.safetensors",
    "b.element": "out-00002-of-00002.safetensors",
    "b.scale": "out-00002-of-00002.safetensors",
    "norm": "out-00001-of-00002.safetensors"
  }
}
)");
  Result<SafetensorsFile> all = SafetensorsFile::open(folder + "out.safetensors.index.json");
  ASSERT_TRUE(all.ok()) << all.error().str();
  EXPECT_EQ(all->size(), done->outputBytes);
  EXPECT_EQ(all->shards(), 2U);
  EXPECT_EQ(quantizedNames(*all), (std::vector<std::string>{"a", "b"}));
  // Each shard is a quantized file of its own.
  Result<SafetensorsFile> second = SafetensorsFile::open(folder + "out-00002-of-00002.safetensors");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(quantizedNames(*second), std::vector<std::string>{"b"});
  EXPECT_EQ(second->metadata().at("format"), "pt");
  Result<dsl::QuantizedMatrix> direct = dsl::quantize(
      shippedFormat("int4_g64"), {others.data(), dsl::MatrixView::Type::F32, 3, 64, 64}, true);
  for (const SafetensorsFile *file : {&*all, &*second}) {
    Result<dsl::QuantizedMatrix> back = readQuantized(*file, "b");
    ASSERT_TRUE(direct.ok() && back.ok());
    for (int64_t row = 0; row < 3; ++row)
      EXPECT_EQ(direct->rowValues(row), back->rowValues(row));
  }
  EXPECT_EQ(error("out.safetensors.index.json", "twice.safetensors"),
            "error: 'out.safetensors.index.json' is a quantized file, numbers are needed "
            "[already_quantized]\n");
  auto found = findQuantized(folder + "out.safetensors.index.json:b");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->name, "b");
  found = findQuantized(folder + "out.safetensors.index.json:b.scale"); // a tensor as it is
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
  found = findQuantized(folder + "out.safetensors.index.json:c");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().str(),
            "error: there is no tensor 'c' in '" + folder +
                "out.safetensors.index.json', it holds 'a', 'b' [tensor_not_found]\n");
}

TEST_F(ShardedFileTest, isNotReplacedInPart) {
  putModel();
  const std::string before = contentOf(folder + "in-00001-of-00002.safetensors");
  EXPECT_EQ(error("in.safetensors.index.json", "in-00001-of-00002.safetensors"),
            "error: 'in-00001-of-00002.safetensors' is one of the files that "
            "'in.safetensors.index.json' joins, which would name tensors that are there no longer; "
            "write an index or another file [output_is_shard]\n");
  EXPECT_TRUE(contentOf(folder + "in-00001-of-00002.safetensors") == before);
  EXPECT_EQ(error("in.safetensors.index.json", "in.safetensors.index.json"), "done");
}

// A single file may be named as the only shard of the index that is asked for.
TEST_F(ShardedFileTest, isNotWrittenOverTheFileThatItIsMadeOf) {
  const std::string only = "in-00001-of-00001.safetensors";
  put(only, safetensors({a}));
  const std::string before = contentOf(folder + only);
  EXPECT_EQ(error(only, "in.safetensors.index.json"),
            "error: 'in-00001-of-00001.safetensors' is read for this, and would be written over "
            "[output_is_input]\n");
  EXPECT_TRUE(contentOf(folder + only) == before);
  EXPECT_EQ(error(only, "out.safetensors.index.json"), "done");
}

// The inputs of the layers may lie where a shard would go.
TEST_F(ShardedFileTest, isNotWrittenOverItsActivations) {
  putModel();
  const std::string inputs = "out-00001-of-00002.safetensors";
  put(inputs, safetensors({{"a", "F32", "6,200", bytesOf(numbers)}}));
  const std::string before = contentOf(folder + inputs);
  QuantizeFileOptions options;
  options.format = shippedFormat("int4_g64");
  options.activations =
      std::make_shared<const SafetensorsFile>(*SafetensorsFile::open(folder + inputs));
  for (const std::string &to : {std::string("out.safetensors.index.json"), inputs}) {
    Result<QuantizeFileSummary> done =
        quantizeFile(folder + "in.safetensors.index.json", folder + to, options);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().str(), "error: '" + folder + inputs +
                                      "' is read for this, and would be written over "
                                      "[output_is_input]\n");
  }
  EXPECT_TRUE(contentOf(folder + inputs) == before);
  // Also where the index that is replaced has shards of other names.
  std::filesystem::rename(folder + "in-00001-of-00002.safetensors", folder + "a.safetensors");
  std::filesystem::rename(folder + "in-00002-of-00002.safetensors", folder + "b.safetensors");
  put("out.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"b": "b.safetensors", "a": "a.safetensors",
          "norm": "a.safetensors"}})");
  EXPECT_FALSE(quantizeFile(folder + "out.safetensors.index.json",
                            folder + "out.safetensors.index.json", options)
                   .ok());
  EXPECT_TRUE(contentOf(folder + inputs) == before);
}

// Nor by the shards of an index elsewhere whose names lead there.
TEST_F(ShardedFileTest, isNotReplacedThroughLinks) {
  putModel();
  std::filesystem::create_directory(folder + "links");
  const std::string shard = "in-00001-of-00002.safetensors", before = contentOf(folder + shard);
  std::filesystem::create_symlink("../" + shard, folder + "links/" + shard);
  EXPECT_EQ(error("in.safetensors.index.json", "links/in.safetensors.index.json"),
            "error: 'links/in-00001-of-00002.safetensors' is one of the files that "
            "'in.safetensors.index.json' joins, which would name tensors that are there no longer; "
            "write an index or another file [output_is_shard]\n");
  EXPECT_TRUE(contentOf(folder + shard) == before);
}

// An index that is a link to another folder's would be there without its shards.
TEST_F(ShardedFileTest, isNotWrittenThroughALinkWithoutItsShards) {
  putModel();
  std::filesystem::create_directory(folder + "links");
  const std::string index = "in.safetensors.index.json", before = contentOf(folder + index);
  std::filesystem::create_symlink("../" + index, folder + "links/out.safetensors.index.json");
  EXPECT_EQ(error(index, "links/out.safetensors.index.json"),
            "error: 'links/out.safetensors.index.json' cannot be written: it is a link to '" +
                index + "', and its shards would not be beside that [file_not_writable]\n");
  EXPECT_TRUE(contentOf(folder + index) == before);
  // What it links to is no index by its name: all are read through the link, as in caches of
  // models.
  std::filesystem::create_directory(folder + "blobs");
  std::filesystem::create_symlink("../blobs/1", folder + "links/kept.safetensors.index.json");
  put("blobs/1", "{}");
  EXPECT_EQ(error(index, "links/kept.safetensors.index.json"), "done");
}

// Of shards that were quantized one by one each weight is of its own shard's format.
TEST_F(ShardedFileTest, mayHaveAFormatForEachShard) {
  putModel();
  auto quantizeShard = [&](const std::string &shard, const std::string &value) {
    Result<dsl::Module> module =
        dsl::parseModule("format my { element: s4 scale: f16 per k[64] value = " + value +
                             " encode { scale = absmax(x) / 7 } }",
                         "my.rho", nullptr);
    QuantizeFileOptions options;
    options.format = std::make_shared<const dsl::Format>(module->formats[0]);
    return quantizeFile(folder + shard, folder + shard, options).ok();
  };
  ASSERT_TRUE(quantizeShard("in-00001-of-00002.safetensors", "element * scale"));
  ASSERT_TRUE(quantizeShard("in-00002-of-00002.safetensors", "element * scale * 2"));
  put("in.safetensors.index.json",
      R"({"weight_map": {"b.element": "in-00002-of-00002.safetensors",
                         "a.element": "in-00001-of-00002.safetensors"}})");
  Result<SafetensorsFile> all = SafetensorsFile::open(folder + "in.safetensors.index.json");
  ASSERT_TRUE(all.ok()) << all.error().str();
  for (const auto &[name, shard] : {std::pair{"a", "in-00001-of-00002.safetensors"},
                                    std::pair{"b", "in-00002-of-00002.safetensors"}}) {
    Result<SafetensorsFile> alone = SafetensorsFile::open(folder + shard);
    Result<dsl::QuantizedMatrix> one = readQuantized(*alone, name),
                                 same = readQuantized(*all, name);
    ASSERT_TRUE(one.ok() && same.ok());
    EXPECT_EQ(one->rowValues(0), same->rowValues(0)) << name;
  }
}

TEST_F(ShardedFileTest, mayBeItsOwnOutput) {
  putModel();
  ASSERT_EQ(error("in.safetensors.index.json", "in.safetensors.index.json"), "done");
  EXPECT_EQ(filesThere(), 3U);
  Result<SafetensorsFile> all = SafetensorsFile::open(folder + "in.safetensors.index.json");
  ASSERT_TRUE(all.ok()) << all.error().str();
  EXPECT_EQ(quantizedNames(*all), (std::vector<std::string>{"a", "b"}));
}

TEST_F(ShardedFileTest, givesMatricesByName) {
  putModel();
  Result<Tensor> tensor = readTensor(folder + "in.safetensors.index.json:b");
  ASSERT_TRUE(tensor.ok()) << tensor.error().str();
  EXPECT_EQ(tensor->view.rows, 3);
  EXPECT_EQ(tensor->view.at(2, 63), static_cast<double>(others.back()));
}

TEST_F(ShardedFileTest, indicesThatLieAreRefused) {
  auto invalid = [](const std::string &what) {
    return "error: 'in.safetensors.index.json' is not a valid .safetensors.index.json file: " +
           what + " [tensor_file_invalid]\n";
  };
  putModel();
  EXPECT_EQ(errorOfIndex("{"), invalid("it is no JSON"));
  EXPECT_EQ(errorOfIndex(""), invalid("it is no JSON"));
  EXPECT_EQ(errorOfIndex(std::string(1 << 20, '[')), invalid("it is no JSON"));
  for (const char *text : {"{}", "[]", "7", R"({"weight_map": []})", R"({"weight_map": {}})"})
    EXPECT_EQ(errorOfIndex(text), invalid("it has no 'weight_map' with the files of tensors"));
  for (const char *file : {"7", "[\"x.safetensors\"]", "\"../x.safetensors\"", "\"/x.safetensors\"",
                           "\"x.bin\"", "\"d/x.safetensors\"", "{\"x\": {}}"})
    EXPECT_EQ(errorOfIndex(std::string(R"({"weight_map": {"a": )") + file + "}}"),
              invalid("what 'weight_map' says of 'a' is no name of a .safetensors file beside it"));
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": "none.safetensors"}})"),
            "error: 'none.safetensors' cannot be read: No such file or directory "
            "[file_not_readable]\n");
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"c": "in-00002-of-00002.safetensors"}})"),
            invalid("'c' is not in 'in-00002-of-00002.safetensors', as it says"));
  for (const char *text : {R"({"weight_map": {"a": "in-00002-of-00002.safetensors",
                                              "a": "in-00001-of-00002.safetensors"}})",
                           R"({"a": [{"b": 1}, {"b": 2}], "c": {}, "a": {}, "weight_map": {}})"})
    EXPECT_EQ(errorOfIndex(text), invalid("'a' stands twice in one object"));
  put("in-00002-of-00002.safetensors", safetensors({b, norm}));
  EXPECT_EQ(errorOfIndex(R"({"weight_map": {"a": "in-00001-of-00002.safetensors",
                                            "b": "in-00002-of-00002.safetensors"}})"),
            invalid("two of its files hold 'norm'"));
  EXPECT_EQ(filesThere(), 3U);
}

TEST_F(ShardedFileTest, namesThatAreNotUtf8AreNotWrittenToAnIndex) {
  putModel();
  EXPECT_EQ(
      error("in.safetensors.index.json", "o\xff.safetensors.index.json"),
      "error: 'o\\xff.safetensors.index.json' is not a valid .safetensors.index.json file: it "
      "cannot name 'o\\xff-00001-of-00002.safetensors', which is not UTF-8 "
      "[tensor_file_invalid]\n");
  EXPECT_EQ(filesThere(), 3U);
  EXPECT_EQ(error("in.safetensors.index.json", "o\xff.safetensors"), "done");
}

TEST_F(ShardedFileTest, nothingIsWrittenWhereATensorIsRefused) {
  putModel();
  std::vector<float> bad = others;
  bad[7] = std::numeric_limits<float>::infinity();
  put("in-00002-of-00002.safetensors", safetensors({{"b", "F32", "3,64", bytesOf(bad)}}));
  EXPECT_NE(error("in.safetensors.index.json", "out.safetensors.index.json")
                .find("error: 'b' of 'in.safetensors.index.json'"),
            std::string::npos);
  EXPECT_EQ(filesThere(), 3U);
}

} // namespace
