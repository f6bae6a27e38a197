// `rho quantize` and `rho error` as a user runs them.
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/TensorFile.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"
#include "tests/kernels/TemporaryFiles.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

using namespace rho;
using namespace rho::test;
using testing::HasSubstr;
using Type = dsl::MatrixView::Type;

namespace {

constexpr int64_t rows = 8, k = 128;

// A file of one tensor, "w".
std::string write(const std::string &name, const std::vector<float> &values, int64_t count = rows) {
  const auto width = static_cast<int64_t>(values.size()) / count;
  std::string path = scratchFolder() + name;
  EXPECT_TRUE(
      kernels::writeTensor(path, "w", {values.data(), Type::F32, count, width, width}).ok());
  return path;
}

const std::vector<float> &weights() {
  static const std::vector<float> values = kernels::syntheticWeight(rows, k, 1);
  return values;
}

TEST(QuantizeTest, stepsAreTakenAndLowerTheErrorOfTheOutputs) {
  std::string in = write("steps.safetensors", weights()),
              out = scratchFolder() + "steps4.safetensors";
  std::vector<float> numbers = kernels::syntheticActivation(32, k, 1, {.outlierFraction = 0.02});
  std::string x = write("x.safetensors", numbers, 32);
  kernels::Matrix weight{rows, k, weights()}, inputs{32, k, numbers};
  auto errorWith = [&](const std::vector<std::string> &steps) {
    std::vector<std::string> arguments = {"quantize", in, "--format", "int4_channel", "-o", out};
    arguments.insert(arguments.end(), steps.begin(), steps.end());
    ToolResult result = runTool(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    Result<kernels::SafetensorsFile> file = kernels::SafetensorsFile::open(out);
    kernels::EncodedLayer layer{*kernels::readTransform(*file, "w"),
                                *kernels::readQuantized(*file, "w")};
    return *kernels::encodedLayerError(layer, weight, inputs, kernels::shippedFormat("int4_token"));
  };
  const std::vector<std::string> calibrated = {"--activations", x, "--activation-format",
                                               "int4_token"};
  auto with = [&](std::vector<std::string> steps) {
    steps.insert(steps.end(), calibrated.begin(), calibrated.end());
    return errorWith(steps);
  };
  double plain = errorWith({}), rotated = errorWith({"--rotate", "7"});
  EXPECT_LT(rotated, plain);
  EXPECT_LT(with({"--smooth"}), plain);
  EXPECT_LT(with({"--refine"}), plain);
  EXPECT_LT(with({"--refine", "--rotate", "7"}), rotated);
  EXPECT_LT(with({"--refine", "--rotate", "7", "--smooth", "--permute", "64"}), plain);
  ToolResult counted = runTool({"quantize", in, "--format", "int4_channel", "-o", out,
                                "--activations", x, "--permute", "64"});
  EXPECT_THAT(counted.out, HasSubstr("blocks      1 of 2 without outliers, 0 before"));
}

TEST(QuantizeTest, stepsThatNeedActivationsSaySo) {
  std::string in = write("steps.safetensors", weights()), out = scratchFolder() + "no.safetensors";
  for (const char *step : {"--smooth", "--refine"}) {
    ToolResult result = runTool({"quantize", in, "--format", "nvfp4", "-o", out, step});
    EXPECT_NE(result.code, 0);
    EXPECT_EQ(result.err, std::string("error: --activations is missing, ") + step +
                              " needs inputs of the layers [option_missing]\n");
  }
}

TEST(QuantizeTest, writesWhatTheEncoderMakes) {
  std::string in = write("in.safetensors", weights()), out = scratchFolder() + "out.safetensors";
  ToolResult result = runTool({"quantize", in, "--format", "nvfp4", "-o", out});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("format      nvfp4, 4.5 bits per element\n"));
  EXPECT_THAT(result.out, HasSubstr("weights     1 tensors, 1024 numbers, 4.10 KB to 580 bytes, "
                                    "4.53125 bits per element\n"));
  Result<kernels::SafetensorsFile> file = kernels::SafetensorsFile::open(out);
  ASSERT_TRUE(file.ok()) << file.error().str();
  EXPECT_TRUE(file->metadata().contains("rho.version"));
  Result<dsl::QuantizedMatrix> matrix = kernels::readQuantized(*file, "w");
  ASSERT_TRUE(matrix.ok()) << matrix.error().str();
  Result<dsl::QuantizedMatrix> direct =
      dsl::quantize(matrix->format, {weights().data(), Type::F32, rows, k, k}, true);
  ASSERT_TRUE(direct.ok());
  for (int64_t row = 0; row < rows; ++row)
    EXPECT_EQ(matrix->rowValues(row), direct->rowValues(row));
  EXPECT_TRUE(kernels::readTransform(*file, "w")->isIdentity());

  std::string again = scratchFolder() + "again.safetensors";
  EXPECT_EQ(runTool({"quantize", in, "--format", shipped("kernels/formats/nvfp4.rho:nvfp4"), "-o",
                     again, "--threads", "3"})
                .code,
            0);
  EXPECT_TRUE(contentOf(again) == contentOf(out));
}

// Scales that f16 does not hold: of one row too large, of another too small.
TEST(QuantizeTest, saysWhichGroupsLostTheirNumbers) {
  std::vector<float> w(size_t{3} * 256, 1.0F);
  w[5] = 1e7F;
  std::fill(w.begin() + 256, w.begin() + 512, 1e-8F);
  const std::string in = write("lost.safetensors", w, 3),
                    out = scratchFolder() + "lost4.safetensors";
  const ToolResult result = runTool({"quantize", in, "--format", "int4_g128", "-o", out});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("\nlost        3 of 6 groups lost their largest number, 3 of them in 'w': "
                        "'rho error' shows all tensors\n"));
  EXPECT_THAT(runTool({"quantize", in, "--format", "int8_asym_g128", "-o", out}).out,
              HasSubstr("\nlost  "));
  EXPECT_EQ(runTool({"quantize", in, "--format", "bf16", "-o", out}).out.find("lost  "),
            std::string::npos);
  // What f16 ends before, by however little: one row of three, and a row that becomes 0.
  EXPECT_THAT(runTool({"quantize", in, "--format", "f16", "-o", out}).out,
              HasSubstr("\nlost        2 of 3 groups"));
  for (const auto &[number, lost] : {std::pair(65519.0F, false), {65521.0F, true}}) {
    w.assign(256, number);
    const std::string large = write("large.safetensors", w, 1);
    EXPECT_EQ(runTool({"quantize", large, "--format", "f16", "-o", out}).out.find("\nlost  ") !=
                  std::string::npos,
              lost)
        << number;
  }
}

// A budget of a tenth allows no block of nine.
TEST(QuantizeTest, saysHowManyBlocksOfAResidualAreStored) {
  const std::string out = scratchFolder() + "mosaic.safetensors";
  auto quantizedRows = [&](int64_t n) {
    const std::string in = write("m.safetensors", kernels::syntheticWeight(n, 576, 1), n);
    return runTool({"quantize", in, "--format", "mosaic_channel", "-o", out}).out;
  };
  EXPECT_THAT(quantizedRows(64), HasSubstr("\nresidual    0 of 9 blocks\n"));
  EXPECT_THAT(quantizedRows(256), HasSubstr("\nresidual    3 of 36 blocks\n"));
}

TEST(QuantizeTest, gemmsRunOnWhatItWrites) {
  std::string in = write("in.safetensors", weights()), out = scratchFolder() + "codes.safetensors";
  ASSERT_EQ(runTool({"quantize", in, "--format", "int4_g128", "-o", out}).code, 0);
  auto run = [&](const std::string &gemm, const std::string &weight, const std::string &y) {
    return runTool({"run", shipped("kernels/gemms/" + gemm + ".rho"), "--m", "2", "--weights",
                    weight, "--device", "sm_80", "--output", scratchFolder() + y});
  };
  ToolResult codes = run("int4_g128_f16", out + ":w", "codes.npy");
  EXPECT_EQ(codes.code, 0) << codes.out << codes.err;
  EXPECT_THAT(codes.out, HasSubstr("weight quantized, from a file"));
  EXPECT_EQ(run("int4_g128_f16", in, "numbers.npy").code, 0);
  EXPECT_TRUE(contentOf(scratchFolder() + "codes.npy") ==
              contentOf(scratchFolder() + "numbers.npy"));
  EXPECT_THAT(run("int4_g64_f16", out, "y.npy").err, HasSubstr("[layout_mismatch]"));
  EXPECT_THAT(run("int4_g128_f16", out + ":v", "y.npy").err, HasSubstr("[tensor_not_found]"));
}

// Formats with parameters by their arguments; each weight of a file for the gemm of its format.
TEST(QuantizeTest, weightsMayHaveFormatsOfTheirOwn) {
  const std::string in = scratchFolder() + "model.safetensors",
                    out = scratchFolder() + "mixed.safetensors";
  const std::string bytes = test::bytesOf(weights());
  put("model.safetensors",
      test::safetensors({{"v_proj", "F32", "8,128", bytes}, {"q_proj", "F32", "8,128", bytes}}));
  const std::string channel = shipped("kernels/formats/int4_channel.rho");
  ToolResult result = runTool(
      {"quantize", in, "--format", channel, "--format-of", "v_*=int4_group(32)", "-o", out});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("format      int4_group__32, 4.5 bits per element, of 'v_*'\n"
                        "format      int4_channel, 4 bits per element, of all others\n"));
  for (const auto &[gemm, weight] : {std::pair("w4a4_g32", "v_proj"), {"w4a4_channel", "q_proj"}}) {
    ToolResult run = runTool({"run", shipped("kernels/gemms/w4a4.rho"), "--gemm", gemm, "--m", "2",
                              "--weights", out + ":" + weight, "--device", "sm_80"});
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("weight quantized, from a file"));
  }

  auto error = [&](const std::string &format, const std::string &of) {
    return runTool({"quantize", in, "--format", format, "--format-of", of, "-o", out}).err;
  };
  for (const char *of : {"v_proj", "=nvfp4", "v_proj="})
    EXPECT_THAT(error("nvfp4", of), HasSubstr("' is no GLOB=FORMAT [format_pattern]\n"));
  EXPECT_THAT(error("nvfp4", "v_proj=int8_token"), HasSubstr("[extent_not_in_operand]"));
  EXPECT_THAT(error("nvfp4", "k_proj=int4_g64"), HasSubstr("[pattern_matches_nothing]"));
  const std::string own = put("own.rho", "import \"rho:int8_channel\" format nvfp4 = int8_channel");
  EXPECT_THAT(error("nvfp4", "v_proj=" + own), HasSubstr("[formats_share_name]"));
  EXPECT_THAT(error("int4_group(4)", "v_proj=nvfp4"), HasSubstr("[group_out_of_range]"));
  EXPECT_THAT(error("int4_group(64, 3)", "v_proj=nvfp4"), HasSubstr("[too_many_arguments]"));
  EXPECT_THAT(error("int4_grop(64)", "v_proj=nvfp4"), HasSubstr("[unknown_format]"));
  EXPECT_THAT(error(shipped("kernels/formats/none.rho") + ":int4_group(64)", "v_proj=nvfp4"),
              HasSubstr("[module_not_found]"));
  const std::string group = shipped("kernels/formats/int4_group.rho") + ":int4_group";
  EXPECT_EQ(error("int8_g128", "v_proj=" + group + "(G = 64)"), "");
  EXPECT_EQ(kernels::quantizedShape(*kernels::SafetensorsFile::open(out), "v_proj")->format,
            "int4_group__64");
  EXPECT_EQ(error("int8_g128", "v_proj=" + group + "(128)"), "");
  EXPECT_EQ(kernels::quantizedShape(*kernels::SafetensorsFile::open(out), "v_proj")->format,
            "int4_group");
}

// What is one number for all of a weight is one for all that are encoded as one.
TEST(QuantizeTest, weightsMayBeEncodedAsOne) {
  const std::string in = scratchFolder() + "model.safetensors",
                    out = scratchFolder() + "one.safetensors";
  const std::string small = test::bytesOf(weights()), large = test::bytesOf(std::vector(k, 9.0F));
  put("model.safetensors", test::safetensors({{"0.q_proj", "F32", "8,128", small},
                                              {"0.v_proj", "F32", "1,128", large},
                                              {"1.q_proj", "F32", "8,128", small},
                                              {"1.v_proj", "F32", "1,128", large}}));
  auto scales = [&](const std::vector<std::string> &options) {
    std::vector<std::string> line = {"quantize", in, "--format", "nvfp4", "-o", out};
    line.insert(line.end(), options.begin(), options.end());
    EXPECT_EQ(runTool(line).err, "");
    const auto file = kernels::SafetensorsFile::open(out);
    std::vector<uint32_t> found;
    for (const char *name : {"0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj"})
      found.push_back(kernels::readQuantized(*file, name)->components[2].get(0));
    return found;
  };
  const std::vector<uint32_t> alone = scales({}), one = scales({"--together", "*.q_proj=*.v*"});
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(one, std::vector<uint32_t>(4, alone[1]));
  EXPECT_EQ(
      runTool({"quantize", in, "--format", "nvfp4", "-o", out, "--together", "0.q_proj"}).err,
      "error: '0.q_proj=' is no NAME=GLOB, where NAME has one * at most [name_and_pattern]\n");
}

// Inputs are transformed as the file says, so that the outputs are those of the layer.
TEST(QuantizeTest, gemmsTransformTheirInputsAsTheFileSays) {
  std::string in = write("in.safetensors", weights()), out = scratchFolder() + "turned.safetensors";
  std::vector<float> numbers = kernels::syntheticActivation(16, k, 1, {.outlierFraction = 0.02});
  std::string x = write("x.safetensors", numbers, 16), y = scratchFolder() + "turned.npy";
  ASSERT_EQ(runTool({"quantize", in, "--format", "int8_channel", "-o", out, "--activations", x,
                     "--smooth", "--permute", "64", "--rotate", "3"})
                .code,
            0);
  ToolResult result = runTool({"run", shipped("kernels/gemms/int8_channel_int8.rho"), "--weights",
                               out, "--activations", x, "--device", "sm_80", "--output", y});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("; activation from a file, smoothed, channels in the weight's "
                                    "order, rotated\n"));
  Result<kernels::Tensor> read = kernels::readTensor(y);
  ASSERT_TRUE(read.ok()) << read.error().str();
  std::vector<double> outputs;
  for (int64_t row = 0; row < 16; ++row)
    for (int64_t column = 0; column < rows; ++column)
      outputs.push_back(read->view.at(row, column));
  EXPECT_LT(kernels::relativeSquaredError(
                kernels::layerOutputs({16, k, numbers}, {rows, k, weights()}), outputs),
            1e-3);
}

TEST(QuantizeTest, mistakesAreErrors) {
  std::string in = write("in.safetensors", weights()), out = scratchFolder() + "none.safetensors";
  auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"quantize", in});
    ToolResult result = runTool(arguments);
    EXPECT_EQ(result.code, 1);
    EXPECT_FALSE(std::filesystem::exists(out));
    return result.err;
  };
  EXPECT_EQ(error({"-o", out}), "error: --format is missing, 'rho quantize FILE --format FORMAT -o "
                                "FILE' has both [option_missing]\n");
  EXPECT_THAT(error({"--format", "nvfp4"}), HasSubstr("error: -o is missing"));
  EXPECT_THAT(error({"--format", "nvpf4", "-o", out}),
              HasSubstr("error: there is no format 'nvpf4', valid are FILE.rho[:NAME], f16, bf16, "
                        "f32 and the shipped "));
  EXPECT_THAT(error({"--format", "nvpf4", "-o", out}),
              HasSubstr("did you mean 'nvfp4' [unknown_format]"));
  EXPECT_THAT(error({"--format", "none.rho", "-o", out}), HasSubstr("[module_not_found]"));
  for (const char *ofTokens : {"int8_token", "comet_token"})
    EXPECT_THAT(error({"--format", ofTokens, "-o", out}),
                HasSubstr("per token and is the weight, the rows of a weight are channels "
                          "[extent_not_in_operand]"));
  EXPECT_THAT(error({"--format", shipped("kernels/formats/nvfp4.rho:nvpf4"), "-o", out}),
              HasSubstr("error: unknown format 'nvpf4', did you mean 'nvfp4' [unknown_name]"));
  std::string two = scratchFolder() + "two.rho";
  std::ofstream(two) << "format a { element: s4 scale: f16 per k[64] value = element * scale }\n"
                        "format b = a\n";
  EXPECT_EQ(error({"--format", two, "-o", out}),
            "error: '" + two +
                "' declares 2 formats, choose one as FILE.rho:NAME: a, b [format_name_needed]\n");
  const std::string none = put("noformat.rho", "");
  EXPECT_EQ(error({"--format", none, "-o", out}),
            "error: '" + none +
                "' declares 0 formats, choose one as FILE.rho:NAME: there is none "
                "[format_name_needed]\n");
  EXPECT_THAT(error({"--format", "nvfp4", "-o", out, "--only", "layer*"}),
              HasSubstr("[pattern_matches_nothing]"));
  std::vector<float> bad = weights();
  bad[k + 2] = std::numeric_limits<float>::quiet_NaN();
  write("in.safetensors", bad);
  EXPECT_THAT(error({"--format", "nvfp4", "-o", out}),
              HasSubstr("error: NaN at row 1, column 2, a weight is finite [non_finite_input]"));
}

TEST(ErrorTest, comparesFormatsWithAndWithoutActivations) {
  std::string in = write("in.safetensors", weights());
  std::string x = write("x.safetensors", kernels::syntheticActivation(3, k, 1), 3);
  std::string csv = scratchFolder() + "e.csv", plot = scratchFolder() + "e.svg";
  ToolResult result = runTool({"error", in, "--format", "int4_g128", "--format", "bf16", "--format",
                               shipped("kernels/formats/nvfp4.rho"), "--activations", x, "--csv",
                               csv, "--plot", plot});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tensor  format     bits/weight  "));
  for (const char *line :
       {"\nw       int4_g128        4.125  ", "\nw       bf16                16  ",
        "\nw       nvfp4          4.53125  "})
    EXPECT_THAT(result.out, HasSubstr(line));
  EXPECT_THAT(contentOf(csv),
              HasSubstr("tensor,format,n,k,bits_per_weight,mse,sqnr_db,max_error,"
                        "lost_groups,cosine,output_error\nw,int4_g128,8,128,4.125,"));
  EXPECT_THAT(contentOf(plot), HasSubstr("w nvfp4"));
}

// Of a fifth of the blocks in 8 bits and the others in 4, and of 4 bits with a residual.
TEST(ErrorTest, formatsMayHaveParts) {
  std::string in = write("in.safetensors", weights());
  std::string file = scratchFolder() + "parts.rho";
  std::ofstream(file) << "format a { element: s4 scale: f16 per k[16] value = element * scale }\n"
                         "format b { element: s8 scale: f16 per k[16] value = element * scale }\n"
                         "format mixed { partition per k[16] { low: a high: b budget 25% } }\n"
                         "format fixed { element: s4 scale: f16 per k[16] value = element * scale "
                         "residual fix: a per n[2] k[16] budget 25% }\n";
  ToolResult result = runTool({"error", in, "--format", file + ":a", "--format", file + ":mixed",
                               "--format", file + ":fixed", "--format", file + ":b"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char *bits : {"\nw       a                 5  ", "\nw       mixed        6.0625  ",
                           "\nw       fixed       6.28125  ", "\nw       b                 9  "})
    EXPECT_THAT(result.out, HasSubstr(bits));
  std::string out = scratchFolder() + "parts.safetensors";
  ASSERT_EQ(runTool({"quantize", in, "--format", file + ":mixed", "-o", out}).code, 0);
  Result<kernels::SafetensorsFile> opened = kernels::SafetensorsFile::open(out);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(kernels::readQuantized(*opened, "w").ok());
}

// The codes of a file as those that a format makes; what was refined on the same inputs is better.
TEST(ErrorTest, comparesWhatFilesHold) {
  std::string in = write("in.safetensors", weights());
  std::string x = write("x.safetensors", kernels::syntheticActivation(32, k, 1), 32);
  auto quantized = [&](const std::string &name, std::vector<std::string> steps) {
    std::string out = scratchFolder() + name;
    steps.insert(steps.begin(), {"quantize", in, "--format", "int4_g128", "-o", out});
    EXPECT_EQ(runTool(steps).code, 0);
    return out;
  };
  const std::string plain = quantized("plain.safetensors", {}),
                    rotated = quantized("rotated.safetensors",
                                        {"--rotate", "3", "--refine", "--activations", x});
  const std::string csv = scratchFolder() + "e.csv";
  ToolResult result = runTool({"error", in, "--format", "int4_g128", "--quantized", plain,
                               "--quantized", rotated, "--activations", x, "--csv", csv});
  ASSERT_EQ(result.code, 0) << result.err;
  std::istringstream lines(contentOf(csv));
  std::vector<std::string> numbers;
  std::vector<double> outputErrors;
  for (std::string line; std::getline(lines, line);) {
    size_t label = line.find("int4_g128"), end = line.find(',', label);
    if (label == std::string::npos)
      continue;
    numbers.push_back(line.substr(end));
    outputErrors.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  }
  ASSERT_EQ(numbers.size(), 3U) << contentOf(csv);
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_LT(outputErrors[2], outputErrors[1]);
  EXPECT_THAT(contentOf(csv), HasSubstr("int4_g128 of " + rotated));

  // What refinement gained of layers with quantized inputs is seen where the errors are theirs.
  const std::vector<std::string> codes = {"--activations", x, "--activation-format", "int4_token"};
  auto errorOf = [&](const std::string &file, bool seen) {
    std::vector<std::string> line = {"error", in, "--quantized", file, "--csv", csv};
    line.insert(line.end(), codes.begin(), seen ? codes.end() : codes.begin() + 2);
    EXPECT_EQ(runTool(line).code, 0);
    const std::string text = contentOf(csv);
    return std::stod(text.substr(text.rfind(',') + 1));
  };
  std::vector<std::string> steps = codes;
  steps.emplace_back("--refine");
  const std::string refined = quantized("refined.safetensors", steps);
  EXPECT_LT(errorOf(refined, true), errorOf(plain, true));
  EXPECT_GT(errorOf(plain, true), errorOf(plain, false));
  EXPECT_EQ(runTool({"error", in, "--format", "nvfp4", "--activation-format", "int4_token"}).err,
            "error: --activations is missing, --activation-format needs inputs of the layers "
            "[option_missing]\n");
  EXPECT_THAT(runTool({"error", in, "--format", "nvfp4", "--activations", x, "--activation-format",
                       "int4_channel"})
                  .err,
              HasSubstr("[extent_not_in_operand]"));

  std::string other = scratchFolder() + "other.safetensors";
  EXPECT_TRUE(kernels::writeTensor(other, "v", {weights().data(), Type::F32, rows, k, k}).ok());
  ToolResult none = runTool({"error", other, "--quantized", plain});
  EXPECT_EQ(none.err, "error: '" + plain + "' has none of the chosen weights of '" + other +
                          "' [nothing_to_compare]\n");
  std::string narrow = scratchFolder() + "narrow.safetensors";
  EXPECT_TRUE(kernels::writeTensor(narrow, "w", {weights().data(), Type::F32, rows, 64, 64}).ok());
  EXPECT_THAT(runTool({"error", narrow, "--quantized", plain}).err,
              HasSubstr("'w' has 8 x 128 numbers, that of '" + narrow +
                        "' 8 x 64 [quantized_file_invalid]"));
}

// Of weights without inputs there is no error of outputs.
TEST(ErrorTest, inputsMayBeThoseOfSomeWeights) {
  const std::string both = scratchFolder() + "both.safetensors", csv = scratchFolder() + "some.csv";
  const std::string numbers = test::bytesOf(weights());
  const std::string shape = std::to_string(rows) + "," + std::to_string(k);
  std::ofstream(both, std::ios::binary)
      << test::safetensors({{"v", "F32", shape, numbers}, {"w", "F32", shape, numbers}});
  const std::string x = write("x.safetensors", weights());
  ToolResult compared = runTool({"error", both, "--format", "nvfp4", "--activations", x,
                                 "--activation-format", "int4_token", "--csv", csv});
  EXPECT_EQ(compared.err, "");
  std::istringstream lines(contentOf(csv));
  std::string head, ofV, ofW;
  std::getline(lines, head);
  std::getline(lines, ofV);
  std::getline(lines, ofW);
  EXPECT_EQ(ofV.substr(0, 2) + ofW.substr(0, 2), "v,w,");
  EXPECT_EQ(ofV.back(), ',');
  EXPECT_NE(ofW.back(), ',');
}

TEST(ErrorTest, aTableThatIsLostIsNoReasonToLoseThePlot) {
  const std::string in = write("in.safetensors", weights()), plot = scratchFolder() + "kept.svg";
  ToolResult result =
      runTool({"error", in, "--format", "nvfp4", "--csv", "/dev/full", "--plot", plot});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: '/dev/full' cannot be written: No space left on device "
                        "[file_not_writable]\n");
  EXPECT_TRUE(contentOf(plot).starts_with("<svg"));
}

TEST(ErrorTest, mistakesAreErrors) {
  std::string in = write("in.safetensors", weights());
  auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"error", in});
    ToolResult result = runTool(arguments);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(error({}),
            "error: --format is missing, one or several are compared, or files of --quantized "
            "[option_missing]\n");
  EXPECT_EQ(error({"--format", "nvfp4", "--format", "int4_g128", "--format", "nvfp4"}),
            "error: --format and --format nvfp4 do not go together: rows of two formats named "
            "nvfp4 cannot be told apart [option_conflict]\n");
  std::string x = scratchFolder() + "bad.safetensors";
  auto activations = [&](const std::vector<float> &values, const std::string &name, int64_t width) {
    EXPECT_TRUE(kernels::writeTensor(x, name, {values.data(), Type::F32, 1, width, width}).ok());
    return error({"--format", "nvfp4", "--activations", x});
  };
  std::vector<float> values(k, 1);
  std::string whatFits = ", the weight of that name takes finite numbers in f32, f16 or bf16, m x "
                         "128 [activations_do_not_fit]\n";
  EXPECT_EQ(activations(values, "w", 64),
            "error: activations 'w' of '" + x + "': F32 1 x 64" + whatFits);
  EXPECT_EQ(activations(values, "v", k), "error: no activations of '" + x +
                                             "' have the name of a chosen weight, it holds 'v' "
                                             "[activations_unmatched]\n");
  values[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(activations(values, "w", k),
            "error: activations 'w' of '" + x + "': infinity at row 0, column 5" + whatFits);
}

} // namespace
