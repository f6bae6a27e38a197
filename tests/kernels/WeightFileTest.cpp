// The public way from a quantized file to a launch.
#include "kernels/WeightFile.h"
#include "kernels/WeightFileC.h"

#include "dsl/Quantize.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/QuantizeFile.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/Slices.h"
#include "kernels/quantize/StoredTransform.h"
#include "tests/kernels/TemporaryFiles.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <tuple>

using namespace rho;
using namespace rho::kernels;

namespace {

constexpr int64_t n = 64, k = 128;

template <class T> T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().str();
  return std::move(*result);
}

class WeightFileTest : public test::TemporaryFiles {
protected:
  std::string quantized(const LayerSteps &steps = {}) const {
    std::string from =
        put("in.safetensors",
            test::safetensors({{"a.w", "F32", "64,128", test::bytesOf(w)},
                               {"norm", "F32", "1", test::bytesOf(std::vector{1.0F})}}));
    QuantizeFileOptions options;
    options.format = shippedFormat("int4_g64");
    options.steps = steps;
    options.tensors.only = {"a.w"};
    must(quantizeFile(from, folder + "q.safetensors", options));
    return folder + "q.safetensors";
  }
  static std::string error(const auto &result) { return result.ok() ? "" : result.error().str(); }

  const std::vector<float> w = syntheticWeight(n, k, 1);
};

TEST_F(WeightFileTest, aWeightIsPackedAndLaunched) {
  for (const LayerSteps &steps : {LayerSteps{}, LayerSteps{.rotate = 7}}) {
    WeightFile file = must(WeightFile::open(quantized(steps)));
    EXPECT_EQ(file.names(), std::vector<std::string>{"a.w"});
    const WeightFile::Weight what = must(file.describe("a.w"));
    EXPECT_EQ(what.format, "int4_g64");
    EXPECT_EQ(what.n, n);
    EXPECT_EQ(what.k, k);
    EXPECT_EQ(what.transformsInputs, steps.rotate.has_value());

    Module module = must(Module::parse(what.declarations +
                                       "gemm g { weight: int4_g64 activation: f16 output: f32 }"));
    EngineOptions options;
    options.diskCache = false;
    Device device = must(Device::emulated("sm_80"));
    Engine engine = must(Engine::create(device, options));
    const int64_t m = 3, stride = k + 8;
    Gemm gemm = must(engine.compile(module, "", {m, n, k}));
    Buffer weight = must(file.pack("a.w", gemm));
    const std::vector<float> x = syntheticActivation(m, stride, 2);
    Buffer input = must(device.allocate(m * stride * 4)), output = must(device.allocate(m * n * 4));
    Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
    InputTransform transform = must(file.inputTransform("a.w", engine));
    Activations codes = must(gemm.makeActivations(transform));
    ASSERT_TRUE(input.write(x.data(), input.bytes()));
    ASSERT_TRUE(gemm.quantizeActivations(codes, input.address(), ScalarType::F32, stride));
    ASSERT_EQ(error(gemm.launch(weight, codes, output.address(), workspace)), "");
    std::vector<float> y(static_cast<size_t>(m * n));
    ASSERT_TRUE(output.read(y.data(), output.bytes()));
    // The layer's outputs but for the errors of 4 bits.
    double difference = 0, all = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double exact = 0;
        for (int64_t at = 0; at < k; ++at)
          exact += static_cast<double>(x[static_cast<size_t>(i * stride + at)]) *
                   w[static_cast<size_t>(j * k + at)];
        difference += std::pow(y[static_cast<size_t>(i * n + j)] - exact, 2);
        all += exact * exact;
      }
    EXPECT_LT(difference, all * 0.05);
  }
}

// q and v are encoded as one, smoothed by the factors of both and with one number per tensor, so
// that they can be one weight; o is not.
TEST_F(WeightFileTest, weightsThatAreEncodedAsOneCanBeOne) {
  const std::vector<float> v = syntheticWeight(n / 2, k, 2);
  auto inputs = [](uint64_t seed) { return test::bytesOf(syntheticActivation(16, k, seed)); };
  const std::string from =
      put("in.safetensors", test::safetensors({{"0.q", "F32", "64,128", test::bytesOf(w)},
                                               {"0.o", "F32", "64,128", test::bytesOf(w)},
                                               {"0.v", "F32", "32,128", test::bytesOf(v)},
                                               {"0.v_bias", "F32", "1", "bias"}}));
  auto calibration = [&](uint64_t ofV) {
    const std::string x =
        put("x.safetensors", test::safetensors({{"0.q", "F32", "16,128", inputs(3)},
                                                {"0.v", "F32", "16,128", inputs(ofV)},
                                                {"0.o", "F32", "16,128", inputs(3)}}));
    return std::make_shared<SafetensorsFile>(must(SafetensorsFile::open(x)));
  };
  QuantizeFileOptions options;
  options.format = shippedFormat("nvfp4");
  options.steps = {.smooth = true, .rotate = 5};
  options.activations = calibration(3);
  options.together = {{"*.v", "*.[qv]*"}};
  const QuantizeFileSummary summary = must(quantizeFile(from, folder + "q.safetensors", options));
  EXPECT_EQ(summary.quantized, 3);
  EXPECT_EQ(summary.numbers, (2 * n + n / 2) * k);

  // As the encoder alone makes them.
  Matrix both{n + n / 2, k, w};
  both.values.insert(both.values.end(), v.begin(), v.end());
  const Matrix x{16, k, syntheticActivation(16, k, 3)};
  const EncodedLayer one = must(encodeLayer(both, &x, {options.format, nullptr}, options.steps));
  const SafetensorsFile quantized = must(SafetensorsFile::open(folder + "q.safetensors"));
  for (const auto &[name, first, rows] : {std::tuple("0.q", int64_t{0}, n), {"0.v", n, n / 2}}) {
    const dsl::QuantizedMatrix own = must(readQuantized(quantized, name));
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(own.rowValues(row), one.weight.rowValues(first + row)) << name;
    EXPECT_EQ(must(readTransform(quantized, name)).smoothing->factors,
              one.transform.smoothing->factors);
  }
  EXPECT_NE(must(readTransform(quantized, "0.o")).smoothing->factors,
            one.transform.smoothing->factors);

  const WeightFile file = must(WeightFile::open(folder + "q.safetensors"));
  Module module = must(Module::parse(must(file.describe("0.q")).declarations +
                                     "gemm g { weight: nvfp4 activation: f16 output: f32 }"));
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), {.diskCache = false}));
  const WeightFile::Slice slices[] = {{.name = "0.q"}, {.name = "0.v"}};
  EXPECT_EQ(error(file.pack(slices, must(engine.compile(module, "", {3, n + n / 2, k})))), "");

  // Nothing that is named is left out.
  auto refused = [&](std::vector<WeightsTogether> together) {
    options.together = std::move(together);
    std::string text = error(quantizeFile(from, folder + "none.safetensors", options));
    EXPECT_FALSE(std::filesystem::exists(folder + "none.safetensors"));
    return text;
  };
  const std::string apart = "error: '0.q' and '0.v' cannot be encoded as one weight: ";
  EXPECT_EQ(refused({{"*.v", "0.[qv]"}, {"0.q", "0.o"}}),
            "error: '0.q' and '0.o' cannot be encoded as one weight: '0.q' is one with others "
            "already [weights_apart]\n");
  EXPECT_NE(refused({{"*.v", "*.k"}}).find("error: '0.k' matches no tensor"), std::string::npos);
  EXPECT_EQ(refused({{"*.*", "0.v"}}),
            "error: '*.*=0.v' is no NAME=GLOB, where NAME has one * at most [name_and_pattern]\n");
  options.formats = {{"0.v", shippedFormat("int8_channel")}};
  EXPECT_EQ(refused({{"0.v", "0.q"}}), apart + "they have different formats [weights_apart]\n");
  options.formats = {};
  options.activations = calibration(4);
  EXPECT_EQ(refused({{"0.v", "0.q"}}),
            apart + "their activations are not the same numbers [weights_apart]\n");
  options.activations = calibration(3);
  options.format = shippedFormat("mosaic_channel");
  EXPECT_EQ(refused({{"0.v", "0.q"}}),
            apart + "format 'mosaic_channel' has parts [weights_apart]\n");
  options.format = shippedFormat("fp8_block128");
  EXPECT_EQ(refused({{"0.v", "0.q"}}),
            apart +
                "the 64 rows above end inside 128 rows that share a number of component 'scale' "
                "[weights_apart]\n");
  options.tensors.skip = {"0.v"};
  EXPECT_EQ(refused({{"0.q", "0.v"}}), apart + "'0.v' is not chosen [weights_apart]\n");
}

TEST_F(WeightFileTest, theCApiGivesTheSame) {
  const std::string path = quantized({.rotate = 7});
  const WeightFile expected = must(WeightFile::open(path));
  auto ended = [](rho_error *error) {
    std::string text = rho_error_text(error);
    rho_error_free(error);
    return text;
  };
  rho_weight_file *file = nullptr;
  ASSERT_EQ(ended(rho_weight_file_open(path.c_str(), &file)), "");
  ASSERT_EQ(rho_weight_file_count(file), 1U);
  EXPECT_STREQ(rho_weight_file_name(file, 0), "a.w");
  EXPECT_STREQ(rho_weight_file_name(file, 1), "");
  rho_weight *what = nullptr;
  ASSERT_EQ(ended(rho_weight_file_describe(file, "a.w", &what)), "");
  EXPECT_STREQ(rho_weight_format(what), "int4_g64");
  EXPECT_EQ(rho_weight_declarations(what), must(expected.describe("a.w")).declarations);
  EXPECT_EQ(rho_weight_n(what), n);
  EXPECT_EQ(rho_weight_k(what), k);
  EXPECT_EQ(rho_weight_transforms_inputs(what), 1);

  const std::string text = std::string(rho_weight_declarations(what)) +
                           "gemm g { weight: int4_g64 activation: f16 output: f32 }";
  rho_module *module = nullptr;
  rho_device *device = nullptr;
  rho_engine *engine = nullptr;
  rho_gemm *gemm = nullptr;
  rho_buffer *weight = nullptr;
  rho_input_transform *transform = nullptr;
  rho_activations *codes = nullptr;
  rho_engine_options options = {};
  options.size = sizeof options;
  options.flags = RHO_NO_DISK_CACHE;
  EXPECT_EQ(ended(rho_module_parse(text.data(), text.size(), nullptr, nullptr, 0, &module)), "");
  EXPECT_EQ(ended(rho_device_emulated("sm_80", &device)), "");
  EXPECT_EQ(ended(rho_engine_create(device, &options, &engine)), "");
  EXPECT_EQ(ended(rho_engine_compile(engine, module, nullptr, 3, n, k, &gemm)), "");
  EXPECT_EQ(ended(rho_weight_file_input_transform(file, "a.w", engine, &transform)), "");
  EXPECT_EQ(ended(rho_gemm_make_activations(gemm, transform, &codes)), "");

  Engine same = must(Engine::create(must(Device::emulated("sm_80")), {.diskCache = false}));
  const Gemm other = must(same.compile(must(Module::parse(text)), "", {3, n, k}));
  const rho_weight_slice whole = {"a.w", 0, 0, 0, 0};
  ASSERT_EQ(ended(rho_weight_file_pack(file, &whole, 1, gemm, &weight)), "");
  std::vector<uint8_t> bytes(static_cast<size_t>(rho_buffer_bytes(weight))), from = bytes;
  EXPECT_EQ(ended(rho_buffer_read(weight, bytes.data(), rho_buffer_bytes(weight), 0)), "");
  must(must(expected.pack("a.w", other)).read(from.data(), rho_buffer_bytes(weight)));
  EXPECT_EQ(bytes, from);
  rho_buffer *none = weight;
  const rho_weight_slice beyond = {"a.w", 60, 8, 0, 0};
  EXPECT_THAT(ended(rho_weight_file_pack(file, &beyond, 1, gemm, &none)),
              testing::HasSubstr("[slice_out_of_range]"));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(ended(rho_weight_file_pack(file, nullptr, 1, gemm, &none)),
            "error: slices is null [null_pointer]\n");
  EXPECT_THAT(ended(rho_weight_file_pack(file, &whole, SIZE_MAX, gemm, &none)),
              testing::HasSubstr("[out_of_memory]"));
  const char *empty =
      "error: empty weight file, it must come from a successful call [empty_handle]\n";
  rho_weight *no = nullptr;
  rho_input_transform *noTransform = nullptr;
  EXPECT_EQ(ended(rho_weight_file_pack(nullptr, &beyond, 1, gemm, &none)), empty);
  EXPECT_EQ(ended(rho_weight_file_describe(nullptr, "", &no)), empty);
  EXPECT_EQ(ended(rho_weight_file_input_transform(nullptr, "", engine, &noTransform)), empty);
  EXPECT_EQ(rho_weight_file_count(nullptr), 0U);
  EXPECT_STREQ(rho_weight_file_name(nullptr, 0), "");
  EXPECT_STREQ(rho_weight_format(nullptr), "");
  EXPECT_STREQ(rho_weight_declarations(nullptr), "");
  EXPECT_EQ(rho_weight_n(nullptr) + rho_weight_k(nullptr) + rho_weight_transforms_inputs(nullptr),
            0);
  rho_weight_free(nullptr);
  rho_weight_file_free(nullptr);
  rho_weight *nothing = what;
  EXPECT_THAT(ended(rho_weight_file_describe(file, "b", &nothing)),
              testing::HasSubstr("[not_quantized]"));
  EXPECT_EQ(nothing, nullptr);

  rho_activations_free(codes);
  rho_input_transform_free(transform);
  rho_buffer_free(weight);
  rho_gemm_free(gemm);
  rho_engine_free(engine);
  rho_device_free(device);
  rho_module_free(module);
  rho_weight_free(what);
  rho_weight_file_free(file);
}

TEST_F(WeightFileTest, whatIsAskedInVainIsRefused) {
  const std::string path = quantized();
  EXPECT_EQ(error(WeightFile::open(folder + "in.safetensors")),
            "error: '" + folder +
                "in.safetensors' is not a valid quantized file: its metadata has no 'rho.format' "
                "[quantized_file_invalid]\n");
  WeightFile file = must(WeightFile::open(path));
  const std::string none =
      "error: '" + path + "' holds no quantized matrix 'norm' [not_quantized]\n";
  EXPECT_EQ(error(file.describe("norm")), none);
  EXPECT_EQ(error(file.pack("a.w", Gemm())),
            "error: empty gemm, it must come from a successful call [empty_handle]\n");
  EXPECT_EQ(error(WeightFile().describe("a.w")),
            "error: empty weight file, it must come from a successful call [empty_handle]\n");
  EXPECT_TRUE(WeightFile().names().empty());

  EngineOptions options;
  options.diskCache = false;
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), options));
  Module module = must(Module::parse("format other { element: s4 scale: f32 per k[64] value = "
                                     "element * scale } gemm g { weight: other activation: f16 "
                                     "output: f32 }"));
  Gemm gemm = must(engine.compile(module, "", {1, n, k}));
  EXPECT_EQ(error(file.pack("norm", gemm)), none);
  EXPECT_EQ(error(file.inputTransform("norm", engine)), none);
  EXPECT_NE(error(file.inputTransform("a.w", Engine())).find("[empty_handle]"), std::string::npos);
  EXPECT_NE(error(file.pack("a.w", gemm)).find("[layout_mismatch]"), std::string::npos);
}

// A layer's q, k and v, and a file of all of them in a format.
class SlicesTest : public WeightFileTest {
protected:
  WeightFile file(const char *format, const LayerSteps &steps = {}) const {
    std::string from =
        put("qkv.safetensors", test::safetensors({{"q", "F32", "128,256", test::bytesOf(q)},
                                                  {"v", "F32", "64,256", test::bytesOf(v)},
                                                  {"o", "F32", "128,192", test::bytesOf(o)}}));
    QuantizeFileOptions options;
    options.format = shippedFormat(format);
    options.steps = steps;
    const std::string to = folder + format + ".safetensors";
    must(quantizeFile(from, to, options));
    return must(WeightFile::open(to));
  }
  // For the weight as it is declared, but for some text of that.
  Gemm gemm(const WeightFile &file, int64_t rows, int64_t columns,
            const std::pair<std::string, std::string> &change = {}) const {
    const WeightFile::Weight what = must(file.describe("q"));
    std::string declarations = what.declarations;
    if (size_t at = declarations.find(change.first); at != std::string::npos)
      declarations.replace(at, change.first.size(), change.second);
    Module module = must(Module::parse(declarations + "gemm g { weight: " + what.format +
                                       " activation: f16 output: f32 }"));
    EngineOptions options;
    options.diskCache = false;
    Engine engine = must(Engine::create(must(Device::emulated("sm_80")), options));
    return must(engine.compile(module, "", {1, rows, columns}));
  }
  static std::vector<uint8_t> bytes(const Result<Buffer> &packed) {
    EXPECT_TRUE(packed.ok()) << packed.error().str();
    std::vector<uint8_t> result(packed ? static_cast<size_t>(packed->bytes()) : 0);
    EXPECT_TRUE(!packed || packed->read(result.data(), packed->bytes()));
    return result;
  }
  using Slices = std::vector<WeightFile::Slice>;

  const std::vector<float> q = syntheticWeight(128, 256, 1), v = syntheticWeight(64, 256, 2),
                           o = syntheticWeight(128, 192, 3);
};

TEST_F(SlicesTest, areWhatTheirNumbersGive) {
  const WeightFile weights = file("int4_g64");
  const Gemm whole = gemm(weights, 112, 128);
  // Rows 32 to 79 of q above all of v, the second half of the columns of both.
  std::vector<float> numbers;
  for (int64_t row = 32; row < 80; ++row)
    numbers.insert(numbers.end(), q.begin() + row * 256 + 128, q.begin() + (row + 1) * 256);
  for (int64_t row = 0; row < 64; ++row)
    numbers.insert(numbers.end(), v.begin() + row * 256 + 128, v.begin() + (row + 1) * 256);
  const Slices slices{{.name = "q", .firstRow = 32, .rows = 48, .firstColumn = 128},
                      {.name = "v", .firstColumn = 128, .columns = 128}};
  EXPECT_EQ(bytes(weights.pack(slices, whole)),
            bytes(whole.packWeights(numbers.data(), ScalarType::F32, 128)));
}

TEST_F(SlicesTest, keepTheNumbersOfEveryKindOfFormat) {
  for (const char *name : {"nvfp4", "q4_k", "fp8_block128", "mosaic_g128", "mosaic_channel",
                           "comet_token", "razer_g16", "int3_g128"}) {
    SCOPED_TRACE(name);
    constexpr int64_t rows = 384, columns = 768, firstRow = 128, firstColumn = 256, taken = 200;
    const std::vector<float> numbers = syntheticWeight(rows, columns, 5);
    const dsl::QuantizedMatrix all = must(
        dsl::quantize(shippedFormat(name),
                      {numbers.data(), dsl::MatrixView::Type::F32, rows, columns, columns}, true));
    const Slices slices{
        {.name = "w", .firstRow = firstRow, .firstColumn = firstColumn, .columns = taken},
        {.name = "w", .rows = firstRow, .firstColumn = firstColumn, .columns = taken}};
    std::vector<dsl::QuantizedMatrix> cut;
    for (const WeightFile::Slice &slice : slices)
      cut.push_back(must(sliceOf(all, slice)));
    const dsl::QuantizedMatrix stacked = must(stackOf(cut, slices));
    ASSERT_EQ(stacked.rows, rows);
    ASSERT_EQ(stacked.k, taken);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = row < rows - firstRow ? row + firstRow : row - (rows - firstRow);
      for (int64_t column = 0; column < taken; ++column)
        ASSERT_EQ(stacked.value(row, column), all.value(from, column + firstColumn))
            << row << ", " << column;
    }
  }
}

// Half of the rows has most of the blocks.
TEST_F(SlicesTest, ofResidualsTakeALargerBudget) {
  std::vector<float> uneven = syntheticWeight(256, 256, 4);
  for (size_t i = 0; i < uneven.size() / 2; ++i)
    uneven[i] *= i % 7 == 0 ? 1.0f : 0.01f;
  const std::string from = put("uneven.safetensors",
                               test::safetensors({{"q", "F32", "256,256", test::bytesOf(uneven)}}));
  QuantizeFileOptions options;
  options.format = shippedFormat("mosaic_channel");
  must(quantizeFile(from, folder + "mosaic.safetensors", options));
  const WeightFile weights = must(WeightFile::open(folder + "mosaic.safetensors"));
  const Slices half{{.name = "q", .firstRow = 128}};
  EXPECT_NE(error(weights.pack(half, gemm(weights, 128, 256))).find("declares a larger budget"),
            std::string::npos);
  EXPECT_TRUE(weights.pack(half, gemm(weights, 128, 256, {"budget 10%", "budget 30%"})).ok());
  EXPECT_EQ(error(weights.pack(half, gemm(weights, 128, 256, {"s4 / 16", "s3 / 8"}))),
            "error: a weight and its packed layout do not fit: the codes are of format "
            "'mosaic_channel' with 'residual fix: s4 / 16 per n[64] k[64]', the gemm takes "
            "'mosaic_channel' with 'residual fix: s3 / 8 per n[64] k[64]' [layout_mismatch]\n");
}

TEST_F(SlicesTest, thatAreNoWeightAreRefused) {
  const WeightFile weights = file("nvfp4");
  const Gemm some = gemm(weights, 192, 256);
  auto refused = [&](const Slices &slices) { return error(weights.pack(slices, some)); };
  EXPECT_EQ(refused({}), "error: a weight is packed from at least one slice [no_slices]\n");
  EXPECT_EQ(refused({{.name = "q", .firstRow = 100, .rows = 29}}),
            "error: the slice of 'q' has 29 rows from 100 on, the weight has 128 "
            "[slice_out_of_range]\n");
  for (const WeightFile::Slice &slice :
       Slices{{.name = "q", .firstRow = 128},
              {.name = "q", .firstRow = -1},
              {.name = "q", .firstRow = INT64_MIN},
              {.name = "q", .rows = -1},
              {.name = "q", .firstColumn = 16, .columns = INT64_MAX}})
    EXPECT_NE(refused({slice}).find("[slice_out_of_range]"), std::string::npos);
  EXPECT_EQ(refused({{.name = "q", .firstColumn = 24}}),
            "error: the slice of 'q' begins at 24 inside 16 columns that share a number of "
            "component 'block' [slice_divides_block]\n");
  EXPECT_EQ(refused({{.name = "q"}, {.name = "v"}}),
            "error: slices of 'q' and 'v' are not of one weight: component 'tensor' has other "
            "numbers, and one for all rows [slices_differ]\n");
  EXPECT_EQ(refused({{.name = "q"}, {.name = "o"}}),
            "error: slices of 'q' and 'o' are not of one weight: they have 256 and 192 columns "
            "[slices_differ]\n");
  EXPECT_NE(refused({{.name = "x"}}).find("[not_quantized]"), std::string::npos);
  EXPECT_NE(refused({{.name = "q", .rows = 64}}).find("[layout_mismatch]"), std::string::npos);

  const WeightFile blocks = file("fp8_block128");
  EXPECT_EQ(error(blocks.pack(Slices{{.name = "v"}, {.name = "q"}}, some)),
            "error: slices of 'v' and 'q' are not of one weight: the 64 rows above end inside 128 "
            "rows that share a number of component 'scale' [slices_differ]\n");
}

} // namespace
