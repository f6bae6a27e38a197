#include "kernels/quantize/QuantizeFile.h"
#include "dsl/Module.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"
#include "tests/kernels/TemporaryFiles.h"

#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace rho;
using namespace rho::kernels;
using test::bytesOf;
using test::safetensors;
using test::TensorBytes;

namespace {

class QuantizeFileTest : public test::TemporaryFiles {
protected:
  Result<QuantizeFileSummary> quantize(const std::string &from, const std::string &to,
                                       const std::string &format = "int4_g64",
                                       QuantizeFileOptions options = {}) {
    options.format = shippedFormat(format);
    return quantizeFile(folder + from, folder + to, options);
  }
  // Without the folder, whose name is drawn.
  std::string error(const std::string &from, const std::string &to = "out.safetensors",
                    const std::string &format = "int4_g64", QuantizeFileOptions options = {}) {
    Result<QuantizeFileSummary> done = quantize(from, to, format, std::move(options));
    std::string text = done.ok() ? "done" : done.error().str();
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.erase(at, folder.size());
    return text;
  }
  // The error for a file of one tensor, and that nothing is left behind.
  std::string errorOf(const TensorBytes &tensor) {
    put("in.safetensors", safetensors({tensor}));
    std::string text = error("in.safetensors");
    EXPECT_EQ(filesThere(), 1U);
    return text;
  }

  const std::vector<float> weight = syntheticWeight(6, 200, 1);
  const TensorBytes w{"layer.w", "F32", "6,200", bytesOf(weight)};
  const TensorBytes norm{"norm", "F32", "5", bytesOf(std::vector<float>{1, 2, 3, 4, 5})};
};

TEST_F(QuantizeFileTest, weightsAreEncodedAndTheRestIsCopied) {
  std::vector<uint16_t> halves(48, 0x3c00);
  put("in.safetensors", safetensors({norm,
                                     w,
                                     {"empty", "F32", "0,7", ""},
                                     {"cube", "F32", "1,1,2", bytesOf(std::vector<float>{8, 9})},
                                     {"ids", "I64", "1,2", std::string(16, 'i')},
                                     {"flag", "BOOL", "3", "abc"},
                                     {"six", "F6_E2M3", "2,8", std::string(12, 's')},
                                     {"h", "F16", "3,16", bytesOf(halves)}},
                                    R"("__metadata__":{"format":"pt","a\"b\n":"\u00e9"})"));
  Result<QuantizeFileSummary> done = quantize("in.safetensors", "out.safetensors");
  ASSERT_TRUE(done.ok()) << done.error().str();
  EXPECT_EQ(done->quantized, 2);
  EXPECT_EQ(done->copied, 6);
  EXPECT_EQ(done->numbers, 6 * 200 + 48);
  EXPECT_EQ(done->weightBytes, 6 * 200 * 4 + 48 * 2);
  EXPECT_EQ(done->storedBytes, 600 + 6 * 4 * 2 + 24 + 6);
  EXPECT_EQ(filesThere(), 2U);

  Result<SafetensorsFile> file = SafetensorsFile::open(folder + "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().str();
  EXPECT_EQ(done->outputBytes, file->size());
  std::vector<std::string> order;
  for (const TensorEntry &tensor : file->tensors())
    order.push_back(tensor.name);
  EXPECT_EQ(order, (std::vector<std::string>{"ids", "norm", "empty", "cube", "layer.w.scale",
                                             "h.scale", "layer.w.element", "flag", "h.element",
                                             "six"})); // the largest numbers first
  EXPECT_EQ(file->bytes(*file->find("norm")), norm.data);
  EXPECT_EQ(file->bytes(*file->find("ids")), std::string(16, 'i'));
  EXPECT_EQ(file->bytes(*file->find("flag")), "abc");
  EXPECT_EQ(file->find("empty")->shape, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->metadata().at("a\"b\n"), "\u00e9");
  EXPECT_EQ(file->metadata().at("rho.tensor.layer.w"), "int4_g64 6 x 200 F32");
  EXPECT_EQ(quantizedNames(*file), (std::vector<std::string>{"h", "layer.w"}));

  // As the encoder alone makes it.
  Result<dsl::QuantizedMatrix> direct = dsl::quantize(
      shippedFormat("int4_g64"), {weight.data(), dsl::MatrixView::Type::F32, 6, 200, 200}, true);
  Result<dsl::QuantizedMatrix> back = readQuantized(*file, "layer.w");
  ASSERT_TRUE(direct.ok() && back.ok());
  for (int64_t row = 0; row < 6; ++row)
    EXPECT_EQ(direct->rowValues(row), back->rowValues(row));
}

TEST_F(QuantizeFileTest, everyNumberOfThreadsWritesTheSameBytes) {
  std::vector<float> large = syntheticWeight(64, 4096, 2); // more codes than a thread packs at once
  put("in.safetensors", safetensors({w, {"large", "F32", "64,4096", bytesOf(large)}}));
  for (const char *format : {"int3_g128", "nvfp4", "fp8_block128"}) {
    std::string expected;
    for (unsigned threads : {1U, 2U, 3U, 8U}) {
      QuantizeFileOptions options;
      options.threads = threads;
      ASSERT_EQ(error("in.safetensors", "out.safetensors", format, options), "done");
      std::string content = contentOf(folder + "out.safetensors");
      if (threads == 1)
        expected = content;
      EXPECT_TRUE(content == expected) << format << ", " << threads << " threads";
    }
  }
}

TEST_F(QuantizeFileTest, theInputMayBeTheOutput) {
  std::string original = safetensors({w, norm});
  put("other.safetensors", original);
  ASSERT_EQ(error("other.safetensors"), "done");
  std::string expected = contentOf(folder + "out.safetensors");
  for (bool link : {false, true}) {
    put("in.safetensors", original);
    chmod((folder + "in.safetensors").c_str(), 0640);
    std::string to = link ? "link.safetensors" : "in.safetensors";
    if (link)
      std::filesystem::create_symlink("in.safetensors", folder + "link.safetensors");
    ASSERT_EQ(error("in.safetensors", to), "done");
    EXPECT_TRUE(contentOf(folder + "in.safetensors") == expected);
    EXPECT_EQ(std::filesystem::is_symlink(folder + to), link);
    EXPECT_EQ(static_cast<int>(std::filesystem::status(folder + "in.safetensors").permissions()),
              0640);
  }
  EXPECT_EQ(filesThere(), 4U);
  std::filesystem::create_symlink("none", folder + "dangling.safetensors");
  EXPECT_NE(error("other.safetensors", "dangling.safetensors").find("a symbolic link to nothing"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "dangling.safetensors"));
}

TEST_F(QuantizeFileTest, afterAnErrorTheOldOutputIsThere) {
  put("out.safetensors", "old");
  std::vector<float> bad = weight;
  bad[201 + 6] = std::numeric_limits<float>::infinity();
  put("in.safetensors", safetensors({w, {"bad", "F32", "6,200", bytesOf(bad)}}));
  EXPECT_EQ(error("in.safetensors"),
            "error: 'bad' of 'in.safetensors' cannot be encoded in 'int4_g64' "
            "[tensor_not_encoded]\n"
            "error: infinity at row 1, column 7, a weight is finite [non_finite_input]\n");
  EXPECT_EQ(contentOf(folder + "out.safetensors"), "old");
  EXPECT_EQ(filesThere(), 2U);
}

TEST_F(QuantizeFileTest, aNumberThatIsNoneIsNamedWithItsPlace) {
  std::vector<uint16_t> halves(48, 0x3c00);
  halves[16 + 5] = 0x7e00;
  EXPECT_EQ(errorOf({"h", "F16", "3,16", bytesOf(halves)}),
            "error: 'h' of 'in.safetensors' cannot be encoded in 'int4_g64' [tensor_not_encoded]\n"
            "error: NaN at row 1, column 5, a weight is finite [non_finite_input]\n");
}

TEST_F(QuantizeFileTest, zerosAndOutliersAndShortRowsAreEncoded) {
  std::vector<float> zeros(3 * 70, 0), outlier(3 * 70, 0.01F);
  outlier[70] = 1e30F;
  put("in.safetensors", safetensors({{"zeros", "F32", "3,70", bytesOf(zeros)},
                                     {"outlier", "F32", "3,70", bytesOf(outlier)},
                                     {"thin", "F32", "70,3", bytesOf(outlier)},
                                     {"one", "F32", "1,1", bytesOf(std::vector<float>{-7})}}));
  for (const char *format : {"int4_g64", "nvfp4", "mxfp4", "int4_asym_g128", "liquidquant",
                             "fp8_block128", "razer_g16"}) {
    ASSERT_EQ(error("in.safetensors", "out.safetensors", format), "done");
    Result<SafetensorsFile> file = SafetensorsFile::open(folder + "out.safetensors");
    ASSERT_TRUE(file.ok());
    for (const char *name : {"zeros", "outlier", "thin", "one"}) {
      Result<dsl::QuantizedMatrix> matrix = readQuantized(*file, name);
      ASSERT_TRUE(matrix.ok()) << matrix.error().str();
      for (int64_t row = 0; row < matrix->rows; ++row)
        for (double value : matrix->rowValues(row)) {
          EXPECT_TRUE(std::isfinite(value)) << format << name;
          if (std::string(name) == "zeros")
            EXPECT_EQ(value, 0) << format;
        }
    }
  }
}

TEST_F(QuantizeFileTest, patternsChooseTensors) {
  TensorBytes a = w, b = w, c = w;
  a.name = "model.layers.0.q";
  b.name = "model.layers.1.q";
  c.name = "lm_head";
  put("in.safetensors", safetensors({a, b, c}));
  auto names = [&](TensorChoice choice) {
    QuantizeFileOptions options;
    options.tensors = std::move(choice);
    EXPECT_EQ(error("in.safetensors", "out.safetensors", "int4_g64", options), "done");
    return quantizedNames(*SafetensorsFile::open(folder + "out.safetensors"));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({{"model.*"}, {}}), (Names{"model.layers.0.q", "model.layers.1.q"}));
  EXPECT_EQ(names({{}, {"lm_head", "*.1.?"}}), (Names{"model.layers.0.q"}));
  EXPECT_EQ(names({{"*.[1-9].q", "lm*"}, {}}), (Names{"lm_head", "model.layers.1.q"}));
  QuantizeFileOptions options;
  options.tensors = {{"layers"}, {}};
  EXPECT_EQ(error("in.safetensors", "out.safetensors", "int4_g64", options),
            "error: 'layers' matches no tensor of 'in.safetensors', it holds "
            "'model.layers.0.q', 'model.layers.1.q', 'lm_head' [pattern_matches_nothing]\n");
  options.tensors = {{"lm_head"}, {"lm_head"}};
  EXPECT_NE(
      error("in.safetensors", "out.safetensors", "int4_g64", options).find("[nothing_to_quantize]"),
      std::string::npos);
  a.name = "\u00fc"; // two bytes, one character
  put("in.safetensors", safetensors({a, b, c}));
  EXPECT_EQ(names({{"?"}, {}}), (Names{"\u00fc"}));
  // What is named and stays as it is.
  a.name = "experts";
  a.shape = "2," + a.shape;
  a.data += a.data;
  put("in.safetensors", safetensors({a, b, c}));
  options.tensors = {{"exp*", "lm_head"}, {}};
  EXPECT_NE(error("in.safetensors", "out.safetensors", "int4_g64", options)
                .find("error: 'exp*' matches no weight of 'in.safetensors': 'experts' is "),
            std::string::npos);
  EXPECT_NE(error("in.safetensors", "out.safetensors", "int4_g64", options)
                .find("[pattern_matches_no_weight]"),
            std::string::npos);
}

// The first pattern that matches gives the format; what none matches gets the one of all others.
TEST_F(QuantizeFileTest, weightsMayHaveFormatsOfTheirOwn) {
  std::vector<TensorBytes> all(4, w);
  const std::pair<const char *, const char *> formatOf[] = {{"0.v_proj", "mosaic_channel"},
                                                            {"0.down_proj", "nvfp4"},
                                                            {"0.q_proj", "int4_g64"},
                                                            {"lm_head", "f16"}};
  for (size_t i = 0; i < all.size(); ++i)
    all[i].name = formatOf[i].first;
  all.push_back(norm);
  put("in.safetensors", safetensors(all));
  const auto plain =
      std::make_shared<const dsl::Format>(dsl::plainFormat(dsl::ElementType::get("f16")));
  QuantizeFileOptions options;
  options.formats = {{"*.v_proj", shippedFormat("mosaic_channel")},
                     {"*.[vd]*_proj", shippedFormat("nvfp4")},
                     {"lm_head", plain}};
  ASSERT_EQ(error("in.safetensors", "out.safetensors", "int4_g64", options), "done");
  Result<SafetensorsFile> file = SafetensorsFile::open(folder + "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().str();
  for (const auto &[name, format] : formatOf) {
    EXPECT_EQ(file->metadata().at(std::string("rho.tensor.") + name),
              std::string(format) + " 6 x 200 F32");
    const auto shipped = shippedFormat(format);
    Result<dsl::QuantizedMatrix> direct = dsl::quantize(
        shipped ? shipped : plain, {weight.data(), dsl::MatrixView::Type::F32, 6, 200, 200}, true);
    Result<dsl::QuantizedMatrix> back = readQuantized(*file, name);
    ASSERT_TRUE(direct.ok() && back.ok());
    for (int64_t row = 0; row < 6; ++row)
      EXPECT_EQ(direct->rowValues(row), back->rowValues(row)) << name;
  }
  EXPECT_EQ(file->bytes(*file->find("norm")), norm.data);

  // Patterns that do nothing.
  auto errorWith = [&](std::vector<FormatOfWeights> formats) {
    options.formats = std::move(formats);
    return error("in.safetensors", "out.safetensors", "int4_g64", options);
  };
  const auto nvfp4 = shippedFormat("nvfp4"), razer = shippedFormat("razer_g16");
  EXPECT_EQ(errorWith({{"*proj", nvfp4}, {"*.q_proj", razer}}),
            "error: '*.q_proj' gives no weight the format 'razer_g16': those that it matches are "
            "not chosen or match a pattern before it [format_pattern_unused]\n");
  EXPECT_NE(errorWith({{"norm", nvfp4}}).find("[format_pattern_unused]"), std::string::npos);
  EXPECT_NE(errorWith({{"", nvfp4}}).find("error: '' matches no tensor of"), std::string::npos);
  // A step that one of the formats cannot take.
  options.activations =
      std::make_shared<SafetensorsFile>(*SafetensorsFile::open(folder + "in.safetensors"));
  options.steps.refine = true;
  EXPECT_NE(errorWith({{"*.v_proj", shippedFormat("mosaic_channel")}}).find("mosaic_channel"),
            std::string::npos);
}

// What a quantized file says of tensors is not true of those that are quantized anew.
TEST_F(QuantizeFileTest, entriesOfFormerCodesAreNotKept) {
  put("in.safetensors",
      safetensors({w}, R"("__metadata__":{"rho.transform.layer.w":"rotation 200 seed 5",)"
                       R"("rho.tensor.gone":"nvfp4 2 x 2 F32","kept":"yes"})"));
  EXPECT_EQ(error("in.safetensors"), "done");
  Metadata texts = SafetensorsFile::open(folder + "out.safetensors")->metadata();
  EXPECT_TRUE(texts.contains("kept") && texts.contains("rho.tensor.layer.w"));
  EXPECT_FALSE(texts.contains("rho.transform.layer.w") || texts.contains("rho.tensor.gone"));
}

TEST_F(QuantizeFileTest, headersThatNobodyReadsAreNotWritten) {
  put("in.safetensors",
      safetensors({w}, R"("__metadata__":{"x":")" + std::string(99'999'800, 'y') + "\"}"));
  EXPECT_THAT(error("in.safetensors"),
              testing::MatchesRegex("error: 'out.safetensors' cannot be written: its header would "
                                    "have 1[0-9]* bytes, 100000000 are possible "
                                    ".file_not_writable.\n"));
  EXPECT_EQ(filesThere(), 1U);
}

TEST_F(QuantizeFileTest, filesWithoutWeightsAreRefused) {
  for (const TensorBytes &tensor :
       {norm, TensorBytes{"i", "I32", "1,2", "12345678"}, TensorBytes{"e", "F32", "0,4", ""},
        TensorBytes{"d", "F64", "1,1", "12345678"}})
    EXPECT_EQ(
        errorOf(tensor),
        "error: no tensor of 'in.safetensors' is chosen, weights have two extents of at least "
        "1 and numbers in f32, f16 or bf16; it holds '" +
            tensor.name + "' [nothing_to_quantize]\n");
  EXPECT_EQ(error("in.npy"),
            "error: 'in.npy' ends in neither .safetensors nor "
            ".safetensors.index.json, whole files of tensors do [safetensors_needed]\n");
  EXPECT_EQ(error("none.safetensors"), "error: 'none.safetensors' cannot be read: No such file or "
                                       "directory [file_not_readable]\n");
}

TEST_F(QuantizeFileTest, quantizedFilesAreNotQuantizedAgain) {
  put("in.safetensors", safetensors({w}));
  ASSERT_EQ(error("in.safetensors"), "done");
  EXPECT_EQ(error("out.safetensors", "twice.safetensors"),
            "error: 'out.safetensors' is a quantized file, numbers are needed "
            "[already_quantized]\n");
}

TEST_F(QuantizeFileTest, namesThatWouldStandTwiceAreRefused) {
  TensorBytes taken = norm;
  taken.name = "layer.w.scale";
  put("in.safetensors", safetensors({w, taken}));
  EXPECT_EQ(error("in.safetensors"),
            "error: 'layer.w.scale' would stand twice in the quantized file, as codes of 'layer.w' "
            "and as a tensor of 'in.safetensors' [output_name_taken]\n");
  for (const char *step : {"smoothing", "order"}) { // also where there is none
    taken.name = std::string("layer.w.") + step;
    put("in.safetensors", safetensors({w, taken}));
    EXPECT_EQ(error("in.safetensors"), "error: '" + taken.name +
                                           "' would stand twice in the quantized file, as what "
                                           "becomes of inputs of 'layer.w' and as a tensor of "
                                           "'in.safetensors' [output_name_taken]\n");
  }
}

TEST_F(QuantizeFileTest, headersThatLieAreRefused) {
  auto invalid = [](const std::string &what) {
    return "error: 'in.safetensors' is not a valid .safetensors file: " + what +
           " [tensor_file_invalid]\n";
  };
  std::string good = safetensors({w, norm});
  put("in.safetensors", good.substr(0, good.size() - 1));
  EXPECT_EQ(error("in.safetensors"),
            invalid("'norm' ends at byte 4820 of the data, 4819 are there"));
  put("in.safetensors", std::string(7, '\xff') + std::string(9, '\x7f'));
  EXPECT_NE(error("in.safetensors").find("its header is said to have"), std::string::npos);
  put("in.safetensors", safetensors({w, w}));
  EXPECT_EQ(error("in.safetensors"), invalid("'layer.w' stands twice in the header"));
  std::string overlap = good;
  overlap.replace(overlap.find("[4800,4820]"), 11, "[4799,4819]");
  put("in.safetensors", overlap);
  EXPECT_EQ(error("in.safetensors"), invalid("'norm' overlaps the tensor before it"));
  std::string beyond = good;
  beyond.replace(beyond.find("[4800,4820]"), 11, "[9223372036854775000,9223372036854775020]");
  put("in.safetensors", beyond);
  EXPECT_NE(error("in.safetensors").find("[tensor_file_invalid]"), std::string::npos);
  EXPECT_EQ(filesThere(), 1U);
}

TEST_F(QuantizeFileTest, outputsThatCannotBeAreRefused) {
  put("in.safetensors", safetensors({w}));
  EXPECT_EQ(error("in.safetensors", "none/out.safetensors"),
            "error: 'none/out.safetensors' cannot be written: No such file or directory "
            "[file_not_writable]\n");
  EXPECT_EQ(error("in.safetensors", "out.bin"), "error: 'out.bin' ends in neither .safetensors nor "
                                                ".safetensors.index.json, whole files of tensors "
                                                "do [safetensors_needed]\n");
  std::filesystem::create_directory(folder + "d.safetensors");
  EXPECT_EQ(
      error("in.safetensors", "d.safetensors"),
      "error: 'd.safetensors' cannot be written: it is no regular file [file_not_writable]\n");
  EXPECT_EQ(filesThere(), 2U);
}

TEST_F(QuantizeFileTest, aFullDiskLeavesTheOldOutput) {
  put("in.safetensors", safetensors({w}));
  put("out.safetensors", "old");
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t bytes : {16, 400, 700}) { // within the header, the codes, the last codes
    rlimit limited = {bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
    std::string text = error("in.safetensors");
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(text, "error: 'out.safetensors' cannot be written: File too large "
                    "[file_not_writable]\n");
    EXPECT_EQ(contentOf(folder + "out.safetensors"), "old");
    EXPECT_EQ(filesThere(), 2U);
  }
  std::signal(SIGXFSZ, handler);
}

// Components have any number of bytes: those of large numbers lie where readers can view them.
TEST_F(QuantizeFileTest, tensorsLieAtMultiplesOfTheirNumbers) {
  put("in.safetensors", safetensors({w,
                                     norm,
                                     {"other.w", "F32", "6,200", bytesOf(weight)},
                                     {"step", "I64", "1", std::string(8, '\1')},
                                     {"small", "BF16", "3", std::string(6, '\2')}}));
  for (const char *format : {"razer_g16", "mosaic_channel", "int3_g128", "mxfp6_e2m3"}) {
    ASSERT_EQ(error("in.safetensors", "out.safetensors", format), "done");
    Result<SafetensorsFile> file = SafetensorsFile::open(folder + "out.safetensors");
    ASSERT_TRUE(file.ok()) << file.error().str();
    for (const TensorEntry &tensor : file->tensors())
      EXPECT_EQ(tensor.begin % std::max(1, safetensorsBits(tensor.type) / 8), 0)
          << format << ' ' << tensor.name;
    for (const char *copied : {"norm", "step", "small"})
      EXPECT_EQ(file->bytes(*file->find(copied)),
                SafetensorsFile::open(folder + "in.safetensors")
                    ->bytes(*SafetensorsFile::open(folder + "in.safetensors")->find(copied)));
    EXPECT_TRUE(readQuantized(*file, "layer.w").ok());
    EXPECT_TRUE(readQuantized(*file, "other.w").ok());
  }
}

// The codes are those of encodeLayer, and what is stored of the transform does to inputs what was
// done to the weight.
TEST_F(QuantizeFileTest, stepsChangeTheWeightAndAreStored) {
  const int64_t k = 224;
  std::vector<float> numbers = syntheticWeight(6, k, 1), x = syntheticActivation(9, k, 1);
  put("in.safetensors", safetensors({norm, {"layer.w", "F32", "6,224", bytesOf(numbers)}}));
  put("x.safetensors", safetensors({{"layer.w", "F32", "9,224", bytesOf(x)}}));
  QuantizeFileOptions options;
  options.activations = std::make_shared<SafetensorsFile>(
      std::move(*SafetensorsFile::open(folder + "x.safetensors")));
  options.activationFormat = shippedFormat("int8_token");
  for (int which = 0; which < 16; ++which) {
    options.steps = {.smooth = (which & 1) != 0, .refine = (which & 4) != 0};
    if (which & 2)
      options.steps.permute = 128;
    if (which & 8)
      options.steps.rotate = 18446744073709551615U;
    ASSERT_EQ(error("in.safetensors", "out.safetensors", "int4_g64", options), "done");
    Result<SafetensorsFile> file = SafetensorsFile::open(folder + "out.safetensors");
    Result<dsl::QuantizedMatrix> stored = readQuantized(*file, "layer.w");
    ASSERT_TRUE(stored.ok()) << stored.error().str();
    Matrix weight{6, k, numbers}, inputs{9, k, x};
    EncodedLayer expected = std::move(*encodeLayer(
        weight, &inputs, {shippedFormat("int4_g64"), options.activationFormat}, options.steps));
    EXPECT_EQ(valuesOf(*stored).values, valuesOf(expected.weight).values);
    Result<LayerTransform> transform = readTransform(*file, "layer.w");
    ASSERT_TRUE(transform.ok()) << transform.error().str();
    EXPECT_EQ(transformActivation(inputs, *transform)->values,
              transformActivation(inputs, expected.transform)->values);
    EXPECT_EQ(file->metadata().contains("rho.transform.layer.w"), (which & ~4) != 0);
  }
  EXPECT_NE(readTransform(*SafetensorsFile::open(folder + "out.safetensors"), "norm")
                .error()
                .str()
                .find("[not_quantized]"),
            std::string::npos);
}

// What a format cannot have done to it is said before the first tensor.
TEST_F(QuantizeFileTest, refinementThatCannotBeIsRefusedAtOnce) {
  put("in.safetensors", safetensors({w}));
  put("x.safetensors",
      safetensors({{"layer.w", "F32", "2,200", bytesOf(std::vector<float>(400, 1))}}));
  QuantizeFileOptions options;
  options.activations = std::make_shared<SafetensorsFile>(
      std::move(*SafetensorsFile::open(folder + "x.safetensors")));
  options.steps.refine = true;
  options.progress = [](int64_t, int64_t, const std::string &) { FAIL(); };
  EXPECT_THAT(error("in.safetensors", "out.safetensors", "mosaic_channel", options),
              testing::HasSubstr("format 'mosaic_channel' has parts"));
}

TEST_F(QuantizeFileTest, activationsAreThereForEachWeight) {
  put("in.safetensors", safetensors({w}));
  auto with = [&](const TensorBytes &tensor, bool mayBegin = false) {
    put("x.safetensors", safetensors({tensor}));
    QuantizeFileOptions options;
    options.activations = std::make_shared<SafetensorsFile>(
        std::move(*SafetensorsFile::open(folder + "x.safetensors")));
    options.steps.smooth = true;
    options.progress = [=](int64_t, int64_t, const std::string &) { EXPECT_TRUE(mayBegin); };
    return error("in.safetensors", "out.safetensors", "int4_g64", options);
  };
  std::vector<float> x(400, 1);
  EXPECT_EQ(with({"layer.w", "F32", "2,200", bytesOf(x)}, true), "done");
  EXPECT_EQ(with({"other", "F32", "2,200", bytesOf(x)}),
            "error: no activations of 'layer.w' in 'x.safetensors', each chosen weight has some; "
            "--skip leaves a weight as it is [activations_missing]\n");
  EXPECT_EQ(with({"layer.w", "F32", "4,100", bytesOf(x)}),
            "error: activations 'layer.w' of 'x.safetensors': F32 4 x 100, the weight of that name "
            "takes finite numbers in f32, f16 or bf16, m x 200 [activations_do_not_fit]\n");
  x[201] = NAN;
  EXPECT_EQ(with({"layer.w", "F32", "2,200", bytesOf(x)}),
            "error: 'layer.w' of 'in.safetensors' cannot be encoded in 'int4_g64' "
            "[tensor_not_encoded]\n"
            "error: NaN at row 1, column 1 of the activations, those for calibration are finite "
            "[activation_not_finite]\n");
}

// What a file says of a transform is not believed.
TEST_F(QuantizeFileTest, storedTransformsAreChecked) {
  auto error = [&](const std::string &text, const std::vector<TensorBytes> &tensors, int k = 4) {
    put("q.safetensors",
        safetensors(tensors, R"("__metadata__":{"rho.tensor.w":"f 2 x )" + std::to_string(k) +
                                 R"( F32","rho.transform.w":")" + text + "\"}"));
    Result<LayerTransform> read =
        readTransform(*SafetensorsFile::open(folder + "q.safetensors"), "w");
    std::string message = read.ok() ? "" : read.error().str();
    for (size_t at = message.find(folder); at != std::string::npos; at = message.find(folder))
      message.erase(at, folder.size());
    return message;
  };
  auto factors = [](const std::vector<float> &numbers) {
    return TensorBytes{"w.smoothing", "F32", std::to_string(numbers.size()), bytesOf(numbers)};
  };
  auto channels = [](const std::vector<int32_t> &numbers) {
    return TensorBytes{"w.order", "I32", std::to_string(numbers.size()), bytesOf(numbers)};
  };
  const TensorBytes good = factors({1, 2, 3, 4}), order = channels({2, 0, 1, 3});
  EXPECT_EQ(error("smoothing order rotation 4 seed 1", {good, order}), "");
  const std::string id = " [quantized_file_invalid]\n";
  for (const char *text : {"smoothing order rotation 4 seed", "rotation 4 seed x", "rotation x",
                           "turned", "rotation 4 seed 1 more", "rotation 4 1"})
    EXPECT_NE(error(text, std::string(text).starts_with("smoothing")
                              ? std::vector<TensorBytes>{good, order}
                              : std::vector<TensorBytes>{})
                  .find("' does not describe a transform" + id),
              std::string::npos)
        << text;
  // What is there and not named was not forgotten by the one who wrote it.
  EXPECT_NE(error("smoothing", {good, order})
                .find("'smoothing' does not name 'w.order', which is there" + id),
            std::string::npos);
  EXPECT_NE(error("", {good}).find("'' does not name 'w.smoothing', which is there" + id),
            std::string::npos);
  EXPECT_NE(error("smoothing", {order}).find("'w.smoothing' is no vector of 4 F32" + id),
            std::string::npos);
  EXPECT_NE(error("smoothing", {factors({1, 0, 3, 4})}).find("has the factor 0" + id),
            std::string::npos);
  for (const std::vector<int32_t> &bad :
       {std::vector<int32_t>{0, 1, 2, 4}, {0, 1, 1, 3}, {0, -1, 2, 3}})
    EXPECT_NE(error("order", {channels(bad)}).find("'w.order' is no permutation" + id),
              std::string::npos);
  for (const std::vector<int32_t> &bad : {std::vector<int32_t>{0, 1, 2}, {0, 1, 2, 3, 4}})
    EXPECT_NE(error("order", {channels(bad)}).find("'w.order' is no vector of 4 I32" + id),
              std::string::npos);
  for (const char *size : {"2", "8", "4611686018427387904"})
    EXPECT_NE(
        error(std::string("rotation ") + size + " seed 1", {})
            .find("the rotation of 'w' is of " + std::string(size) + " channels, it has 4" + id),
        std::string::npos)
        << size;
  EXPECT_NE(error("rotation 6 seed 1", {}, 6).find("the rotation of 'w': order 6"),
            std::string::npos);
}

// Sparse: 5 GB that take no room lie before the weight that is read.
TEST_F(QuantizeFileTest, weightsBeyondFourGigabytesAreFound) {
  const int64_t gap = int64_t(5) << 30;
  std::string header = R"({"gap":{"dtype":"U8","shape":[)" + std::to_string(gap) +
                       R"(],"data_offsets":[0,)" + std::to_string(gap) +
                       R"(]},"w":{"dtype":"F32","shape":[6,200],"data_offsets":[)" +
                       std::to_string(gap) + "," + std::to_string(gap + 4800) + "]}}";
  std::string path = put("in.safetensors", safetensors(header, ""));
  std::error_code failed;
  std::filesystem::resize_file(path, 8 + header.size() + static_cast<size_t>(gap), failed);
  if (failed)
    GTEST_SKIP() << "the file system holds no sparse file of 5 GB";
  std::ofstream(path, std::ios::binary | std::ios::app) << w.data;
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().str();
  Result<std::vector<bool>> chosen = chooseTensors(*file, {});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, (std::vector<bool>{false, true}));
  dsl::MatrixView view = *file->matrix(file->tensors()[1]);
  EXPECT_EQ(view.at(5, 199), weight.back());
  file->release(file->tensors()[0]);
  EXPECT_EQ(view.at(0, 0), weight.front());
}

} // namespace
