// Packing, quantizing and launching on the emulator, and what launches refuse.
#include "kernels/Reference.h"
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/SameCodes.h"
#include "tests/runtime/TemporaryFolder.h"
#include "tests/runtime/Walk.h"

#include <cfenv>
#include <gtest/gtest.h>
#include <immintrin.h>

namespace rho {
namespace {

class GemmResults : public testing::TestWithParam<const char *> {};

TEST_P(GemmResults, AreTheReferences) {
  Walk s(GetParam());
  s.expectReference(s.gemm, s.weight);
}

TEST_P(GemmResults, ActivationCodesAreThoseOfTheHost) {
  Walk s(GetParam());
  ASSERT_TRUE(s.quantize());
  EXPECT_TRUE(sameCodes(must(readActivations(s.activations)),
                        quantized(s.declared().activation, s.x, s.shape.m, s.shape.k)));
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmResults, testing::Values(w4a16, w4a8, w4a4),
                         [](const auto &info) {
                           return parsed(info.param).impl().module.gemms[0].name;
                         });

TEST(Gemm, RowsMayBeApart) {
  Walk s(w4a8);
  ASSERT_TRUE(s.quantize());
  dsl::QuantizedMatrix dense = must(readActivations(s.activations));
  const int64_t stride = s.shape.k + 40;
  std::vector<float> apart(static_cast<size_t>(s.shape.m * stride), 1e30f);
  for (int64_t row = 0; row < s.shape.m; ++row)
    std::copy_n(s.x.data() + row * s.shape.k, s.shape.k, apart.data() + row * stride);
  // The last row ends with the buffer: nothing past it is read.
  const int64_t bytes = ((s.shape.m - 1) * stride + s.shape.k) * 4;
  Buffer input = must(s.device.allocate(bytes));
  ASSERT_TRUE(input.write(apart.data(), bytes));
  Activations activations = must(s.gemm.makeActivations());
  ASSERT_TRUE(s.gemm.quantizeActivations(activations, input.address(), ScalarType::F32, stride));
  EXPECT_TRUE(sameCodes(must(readActivations(activations)), dense));
}

// Scales as no kernel reads them, by their numbers; divisors and signs.
TEST(Gemm, FactorsMayBeAnyFunctionOfAComponent) {
  const std::string formats =
      "format reciprocal { element: e2m1 block: e4m3 per k[16] global: f32 per tensor "
      "value = element * block / global "
      "encode { global = 2688 / absmax(x) block = absmax(x) * global / 6 } } "
      "format book { element: s5 e: e8m0 per k[32] s: codebook [1, 0.5] per k[16] "
      "value = element * e * s encode { e = bit_floor(absmax(x)) / 8 s = best(1, 0.5) } } "
      "format shifted { element: s5 e: e8m0 per k[32] s: u1 per k[16] "
      "value = element * e / (1 << s) encode { e = bit_floor(absmax(x)) / 8 s = best(0, 1) } } "
      "format literal { element: s8 a: f32 per channel value = -element * a / 127 "
      "encode { a = absmax(x) } } "
      "format a8 { element: s8 scale: f32 per token value = element * scale } ";
  for (const char *weight : {"reciprocal", "book", "shifted", "literal"})
    for (const char *activation : {"bf16", "a8"})
      for (const char *target : {"sm_80", "sm_90a"}) {
        const std::string text = formats + "gemm g { weight: " + weight +
                                 " activation: " + activation + " output: f32 }";
        Walk s(text.c_str(), {17, 70, 200}, target);
        ASSERT_NO_FATAL_FAILURE(s.expectReference(s.gemm, s.weight)) << weight << activation;
        const char *operands = *activation == 'a' ? "\nmma s8\n" : "\nmma bf16\n";
        EXPECT_NE(s.gemm.report().plan.find(operands), std::string::npos) << s.gemm.report().plan;
      }
}

// Codes that are not those of their format, where numbers are stored in their place.
TEST(Gemm, CodesOfFactorsAreCheckedAsOthersAre) {
  Walk s("format w { element: s5 e: e8m0 per k[32] s: u1 per k[16] value = element * e / (1 << s) "
         "encode { e = bit_floor(absmax(x)) / 8 s = best(0, 1) } } "
         "gemm g { weight: w activation: bf16 output: f32 }",
         {17, 70, 192}, "sm_80");
  dsl::QuantizedMatrix codes = quantized(s.declared().weight, s.w, s.shape.n, s.shape.k);
  dsl::QuantizedMatrix wide = codes, few = codes;
  wide.components[2].set(5, 2);
  few.components.clear();
  const std::string misfit = "error: a weight and its packed layout do not fit: ";
  EXPECT_EQ(errorText(s.gemm.packQuantized(wide)),
            misfit + "code 5 of 's' is 2, 'u1' has 1 bits [layout_mismatch]\n");
  EXPECT_EQ(errorText(s.gemm.packQuantized(few)),
            misfit + "the weight lacks components [layout_mismatch]\n");
  EXPECT_TRUE(s.gemm.packQuantized(codes));
}

// A packed weight that is kept elsewhere.
TEST(Gemm, WeightsMayLieInOthersMemory) {
  Walk s(w4a16);
  std::vector<uint8_t> bytes(static_cast<size_t>(s.weight.bytes()));
  ASSERT_TRUE(s.weight.read(bytes.data(), s.weight.bytes()));
  Buffer pool = must(s.device.allocate(256 + s.weight.bytes()));
  ASSERT_TRUE(pool.write(bytes.data(), s.weight.bytes(), 256));
  const Buffer weight = must(s.device.view(pool.address() + 256, s.weight.bytes()));
  ASSERT_EQ(errorText(s.quantize()), "");
  ASSERT_EQ(errorText(s.launch()), "");
  std::vector<uint8_t> expected(static_cast<size_t>(s.output.bytes())), found(expected.size());
  ASSERT_TRUE(s.output.read(expected.data(), s.output.bytes()));
  ASSERT_TRUE(s.output.write(found.data(), s.output.bytes()));
  ASSERT_EQ(errorText(s.gemm.launch(weight, s.activations, s.output.address(), s.workspace)), "");
  ASSERT_TRUE(s.output.read(found.data(), s.output.bytes()));
  EXPECT_TRUE(found == expected);
}

TEST(Gemm, QuantizeRefusesBadInput) {
  Walk s(w4a16);
  auto quantize = [&](DevicePointer x, int64_t stride) {
    return errorText(s.gemm.quantizeActivations(s.activations, x, ScalarType::F32, stride));
  };
  EXPECT_EQ(quantize(0, 192), "error: x is null [null_pointer]\n");
  EXPECT_EQ(
      errorText(s.gemm.quantizeActivations(s.activations, s.input.address(), ScalarType(9), 192)),
      "error: 9 is no ScalarType, these are F32, F16 and BF16 [bad_scalar_type]\n");
  EXPECT_EQ(quantize(1026, 192),
            "error: x is at address 1026, it must be a multiple of 4 [misaligned_pointer]\n");
  EXPECT_EQ(
      quantize(s.input.address(), 100),
      "error: stride 100, rows have 192 numbers and a stride is at most 4294967296 [bad_stride]\n");
  EXPECT_NE(quantize(s.input.address(), 193), "");              // past the buffer
  EXPECT_NE(quantize(s.input.address(), int64_t(1) << 32), ""); // far past it
  EXPECT_EQ(quantize(s.input.address(), int64_t(1) << 62),      // whose bytes are 0 in 64 bits
            "error: stride 4611686018427387904, rows have 192 numbers and a stride is at most "
            "4294967296 [bad_stride]\n");
}

// A literal below 0 is one factor as any: it waits for the epilogue.
TEST(Gemm, NegativeLiteralsAreFactors) {
  const std::string text = "format w { element: s4 scale: f16 per k[16] value = -4.0 * element * "
                           "scale encode { scale = absmax(x) / 28 } } format a { element: s8 "
                           "scale: f32 per token value = -0.5 * element * scale encode { scale = "
                           "absmax(x) / 63 } } gemm g { weight: w activation: ";
  for (const char *activation : {"a", "f16"}) {
    Walk s((text + activation + " output: f32 }").c_str(), {2, 64, 128});
    std::vector<float> w = s.w;
    w[5 * 128 + 33] = 100000; // of which operands hold a quarter
    (void)must(s.gemm.packWeights(w.data(), ScalarType::F32, 128));
    s.expectReference(s.gemm, s.weight);
  }
}

TEST(Gemm, WeightsArePackedForALayout) {
  Walk s(w4a16, {1, 256, 256}, "sm_90a");
  Gemm alike = must(s.engine.compile(s.module, "", {2, 256, 256}));
  Gemm other = must(s.engine.compile(s.module, "", {128, 256, 256}));
  EXPECT_EQ(alike.weightLayout(), s.gemm.weightLayout());
  ASSERT_NE(other.weightLayout(), s.gemm.weightLayout());
  ASSERT_EQ(other.packedWeightBytes(), s.gemm.packedWeightBytes());
  Activations activations = must(other.makeActivations());
  Buffer output = must(s.device.allocate(128 * 256 * 4));
  Buffer workspace = must(s.device.allocate(other.workspaceBytes()));
  auto launch = [&](const Buffer &weight) {
    return errorText(other.launch(weight, activations, output.address(), workspace));
  };
  EXPECT_EQ(launch(s.weight), "error: the weight was packed for another gemm, 'w4a16' at m = 128 "
                              "reads another weightLayout() [weight_mismatch]\n");
  EXPECT_EQ(launch(must(other.packWeights(s.w.data(), ScalarType::F32, 256))), "");
  // What was not packed here, for instance read from a file, is what the caller says it is.
  std::vector<uint8_t> bytes(static_cast<size_t>(s.weight.bytes()));
  Buffer copy = must(s.device.allocate(s.weight.bytes()));
  ASSERT_TRUE(s.weight.read(bytes.data(), s.weight.bytes()));
  ASSERT_TRUE(copy.write(bytes.data(), copy.bytes()));
  EXPECT_EQ(launch(copy), "");
  Buffer said = must(s.device.view(copy.address(), copy.bytes(), s.gemm.weightLayout()));
  EXPECT_EQ(launch(said), launch(s.weight));
  ASSERT_TRUE(said.write(bytes.data(), said.bytes())); // as it was said
  EXPECT_EQ(launch(said), launch(s.weight));
  EXPECT_EQ(launch(must(s.device.view(copy.address(), copy.bytes(), other.weightLayout()))), "");
}

TEST(Gemm, WeightsThatTheHostCannotHoldAreAnError) {
  Walk s(w4a16);
  const int64_t most = int64_t(1) << 24;
  Gemm huge = must(s.engine.compile(s.module, "", {1, most, most}));
  for (const Result<Buffer> &packed :
       {huge.packWeights(s.w.data(), ScalarType::F32, most),
        huge.packQuantized(quantized(s.declared().weight, s.w, s.shape.n, s.shape.k))}) {
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().diagnostics[0].id, DiagId::out_of_memory) << packed.error().str();
  }
}

// Formats of one name, and one format that two weights want otherwise.
TEST(Gemm, ActivationsOfAnotherFormatAreToldApart) {
  const Device device = *Device::emulated("sm_80");
  const Engine engine = must(Engine::create(device));
  auto compiled = [&](const std::string &scale, const std::string &activation,
                      const std::string &format = "") {
    return must(engine.compile(
        parsed(("format w { element: s4 scale: " + scale + " per k[8] value = element * scale }\n" +
                format + "gemm g { weight: w activation: " + activation + " output: f32 }")
                   .c_str()),
        "", {4, 64, 64}));
  };
  auto error = [&](const Gemm &made, const Gemm &other) {
    const Activations activations = must(made.makeActivations());
    return errorText(other.quantizeActivations(activations, 256, ScalarType::F32, 64));
  };
  const std::string a = "format a { element: s8 scale: f32 per token value = element * scale ";
  EXPECT_EQ(
      error(compiled("f16", "a", a + "}\n"), compiled("f16", "a", a + "encode { scale = 1 } }\n")),
      "error: activations were made for format 'a' for m = 4, k = 64, stored in 16 bits of "
      "f16, this gemm takes format 'a' with 'encode {' for m = 4, k = 64, stored in 16 bits "
      "of f16 [activations_mismatch]\n");
  const Gemm f16 = compiled("f16", "f16"), bf16 = compiled("f32", "f16");
  EXPECT_EQ(error(f16, bf16),
            "error: activations were made for format 'f16' for m = 4, k = 64, stored in 16 bits of "
            "f16, this gemm takes format 'f16' for m = 4, k = 64, stored in 16 bits of bf16 "
            "[activations_mismatch]\n");
  EXPECT_EQ(errorText(bf16.viewActivations(256)),
            "error: activations in format 'f16' with k = 64 are stored as bf16; only plain f16 and "
            "bf16 in rows of a multiple of 16 bytes can be used in place "
            "[activations_not_viewable]\n");
}

TEST(Gemm, ActivationsBelongToAShapeAndAFormat) {
  Walk s(w4a16);
  Gemm larger = must(s.engine.compile(s.module, "", {9, 64, 192}));
  Activations ofLarger = must(larger.makeActivations());
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, ofLarger, s.output.address(), s.workspace)),
            "error: activations were made for format 'f16' for m = 9, k = 192, stored in 16 "
            "bits of f16, this gemm takes format 'f16' for m = 5, k = 192, stored in 16 bits of "
            "f16 [activations_mismatch]\n");
  EXPECT_EQ(errorText(s.gemm.launch(s.weight, Activations(), s.output.address(), s.workspace)),
            "error: empty activations, it must come from a successful call [empty_handle]\n");
  Walk elsewhere(w4a16);
  EXPECT_EQ(
      errorText(s.gemm.launch(s.weight, elsewhere.activations, s.output.address(), s.workspace)),
      "error: activations belongs to another device than the gemm [wrong_device]\n");
  // The same format of another module is the same.
  Gemm again = must(s.engine.compile(parsed(w4a16), "", s.shape));
  EXPECT_TRUE(again.quantizeActivations(s.activations, s.input.address(), ScalarType::F32, 192));
}

class GemmViews : public testing::TestWithParam<std::pair<const char *, const char *>> {};

TEST_P(GemmViews, PlainActivationsAreUsedInPlace) {
  auto [target, schedule] = GetParam();
  std::string text(w4a16);
  text.insert(text.rfind('}'), schedule);
  Walk s(text.c_str(), {5, 64, 192}, target);
  ASSERT_TRUE(s.quantize());
  ASSERT_TRUE(s.launch());
  std::vector<float> expected(static_cast<size_t>(s.shape.m * s.shape.n)), y = expected;
  ASSERT_TRUE(s.output.read(expected.data(), s.output.bytes()));
  std::vector<uint16_t> halves(s.x.size());
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<uint16_t>(dsl::ElementType::get("f16").encode(s.x[i]));
  Buffer x = must(s.device.allocate(static_cast<int64_t>(halves.size()) * 2));
  ASSERT_TRUE(x.write(halves.data(), x.bytes()));
  ASSERT_TRUE(s.output.write(y.data(), s.output.bytes()));
  Activations view = must(s.gemm.viewActivations(x.address()));
  ASSERT_EQ(errorText(s.gemm.launch(s.weight, view, s.output.address(), s.workspace)), "");
  ASSERT_TRUE(s.output.read(y.data(), s.output.bytes()));
  EXPECT_EQ(y, expected);
  EXPECT_EQ(errorText(s.gemm.quantizeActivations(view, x.address(), ScalarType::F16, 192)),
            "error: activations are a view of the caller's memory; only those of makeActivations "
            "can be quantized into or read [activations_are_a_view]\n");
  Gemm ragged = must(s.engine.compile(s.module, "", {5, 64, 100}));
  EXPECT_EQ(errorText(ragged.viewActivations(x.address())),
            "error: activations in format 'f16' with k = 100 are 200 bytes a row; only plain f16 "
            "and bf16 in rows of a multiple of 16 bytes can be used in place "
            "[activations_not_viewable]\n");
}

// wgmma takes no 4-bit operands.
TEST(Gemm, FourBitActivationsOfWarpgroupsAreBytes) {
  Walk s("format a { element: s4 value = element }\n"
         "gemm g { weight: a activation: a output: f32 schedule { roles: imfp } }",
         {5, 64, 192}, "sm_90a");
  ASSERT_EQ(errorText(s.quantize()), "");
  dsl::QuantizedMatrix expected = quantized(s.declared().activation, s.x, 5, 192);
  EXPECT_TRUE(sameCodes(must(readActivations(s.activations)), expected));
  std::vector<int8_t> stored(5 * 192);
  ASSERT_EQ(s.activations.impl().memory->components[0].bytes(), 5 * 192);
  ASSERT_TRUE(s.activations.impl().memory->components[0].read(stored.data(), 5 * 192));
  for (int64_t i = 0; i < 5 * 192; ++i)
    ASSERT_EQ(stored[static_cast<size_t>(i)],
              expected.format->element().type.decode(expected.components[0].get(i)));
  ASSERT_EQ(errorText(s.launch()), "");
  EXPECT_EQ(errorText(s.gemm.viewActivations(s.input.address())),
            "error: activations in format 'a' with k = 192 are 192 bytes a row; only plain f16 and "
            "bf16 in rows of a multiple of 16 bytes can be used in place "
            "[activations_not_viewable]\n");
}
INSTANTIATE_TEST_SUITE_P(Families, GemmViews,
                         testing::Values(std::pair("sm_80", ""),
                                         std::pair("sm_90a", "schedule { roles: imfp }\n")),
                         [](const auto &info) { return std::string(info.param.first); });

TEST(Gemm, FaultsPointAtTheDeclaration) {
  Walk s(w4a16);
  ASSERT_TRUE(s.quantize());
  Buffer tooShort = must(s.device.allocate(256));
  Status fault = s.gemm.launch(s.weight, s.activations, tooShort.address(), s.workspace);
  ASSERT_FALSE(fault);
  const Diagnostic &diagnostic = fault.error().diagnostics[0];
  EXPECT_EQ(diagnostic.id, DiagId::emulator_global_bounds);
  EXPECT_EQ(diagnostic.rendered.substr(0, 22), "test.rho:9:11: error: ");
  std::string caret = "\n  output: f32\n          ^~~";
  ASSERT_GT(diagnostic.rendered.size(), caret.size());
  EXPECT_EQ(diagnostic.rendered.substr(diagnostic.rendered.size() - caret.size()), caret);
}

TEST(Gemm, HandlesOutliveTheirEngineAndModule) {
  Gemm gemm;
  {
    Device device = must(Device::emulated("sm_80"));
    gemm = must(must(Engine::create(device, noDisk())).compile(parsed(w4a16), "", {1, 64, 64}));
  }
  EXPECT_TRUE(gemm.makeActivations());
  EXPECT_EQ(gemm.shape().k, 64);
  EXPECT_EQ(gemm.outputType(), ScalarType::F32);
}

// Which part has a block may be the caller's: of the numbers, the format's rules or neither.
TEST(Gemm, PartsOfBlocksAreChosenByTheCaller) {
  Device device = must(Device::emulated("sm_80"));
  TemporaryFolder folder;
  EngineOptions options;
  options.cacheDirectory = folder.path();
  Module module = parsed(mixedActivation);
  Gemm gemm = must(must(Engine::create(device, options)).compile(module, "", {5, 64, 600}));
  std::vector<float> x = numbers(5, 600, 2), w = numbers(64, 600, 1);
  Buffer input = must(device.allocate(5 * 600 * 4)), y = must(device.allocate(5 * 64 * 4));
  Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
  Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, 600));
  ASSERT_TRUE(input.write(x.data(), input.bytes()));
  Activations activations = must(gemm.makeActivations());
  auto choiceOf = [&] {
    EXPECT_EQ(
        errorText(gemm.quantizeActivations(activations, input.address(), ScalarType::F32, 600)),
        "");
    dsl::QuantizedMatrix codes = must(readActivations(activations));
    return std::vector<uint8_t>(codes.choice.data(), codes.choice.data() + codes.choice.size());
  };
  const std::vector<uint8_t> byNumbers = choiceOf(), given = {1, 1, 0, 1, 0};
  EXPECT_EQ(std::count(byNumbers.begin(), byNumbers.end(), 1), 1); // 20% of 5
  ASSERT_EQ(errorText(gemm.chooseParts(activations, given)), "");
  EXPECT_EQ(choiceOf(), given);
  ASSERT_EQ(errorText(gemm.launch(weight, activations, y.address(), workspace)), "");
  const dsl::Format &declared = module.impl().module.gemms[0].weight;
  kernels::ReferenceOutput expected = kernels::reference(
      must(readActivations(activations)),
      must(dsl::quantize(std::make_shared<const dsl::Format>(declared),
                         {w.data(), dsl::MatrixView::Type::F32, 64, 600, 600}, true)));
  std::vector<float> outputs(5 * 64);
  ASSERT_TRUE(y.read(outputs.data(), y.bytes()));
  for (size_t i = 0; i < outputs.size(); ++i)
    ASSERT_NEAR(outputs[i], expected.y[i], expected.magnitude[i] * 1e-3) << i;
  ASSERT_EQ(errorText(gemm.chooseParts(activations, {})), "");
  EXPECT_EQ(choiceOf(), byNumbers);

  // The table of the kernel is that of the choice before anything is quantized too.
  Activations fresh = must(gemm.makeActivations());
  ASSERT_EQ(errorText(gemm.chooseParts(fresh, given)), "");
  dsl::QuantizedMatrix table = must(readActivations(fresh));
  for (size_t block = 0; block < given.size(); ++block)
    EXPECT_EQ(table.choice.get(static_cast<int64_t>(block)), given[block]);

  EXPECT_EQ(errorText(gemm.chooseParts(activations, std::span(given).first(4))),
            "error: parts of 4 blocks, there are 5 [bad_block_choice]\n");
  const std::vector<uint8_t> third = {0, 0, 2, 0, 0};
  EXPECT_EQ(errorText(gemm.chooseParts(activations, third)),
            "error: part 2 for block 2, format 'mix' has 2 [bad_block_choice]\n");
  Gemm plain = must(must(Engine::create(device, options)).compile(parsed(w4a8), "", {1, 64, 64}));
  EXPECT_EQ(errorText(plain.chooseParts(must(plain.makeActivations()), given)),
            "error: parts of 5 blocks, format 'int8' has no partition [bad_block_choice]\n");
}

// Where no kernel takes the parts as codes their numbers are stored; which part a block is of
// counts all the same.
TEST(Gemm, PartsStoredAsNumbersAreChosenAsWell) {
  Walk s("format low { element: s4 scale: f16 per token value = element * scale } "
         "format high { element: s8 scale: f16 per token value = element * scale } "
         "format mix { partition per tensor k[32] { low: low high: high budget 20% } } "
         "format w { element: s8 scale: f16 per channel value = element * scale } "
         "gemm g { weight: w activation: mix output: f32 }",
         {5, 64, 160});
  auto quantizedNumbers = [&] {
    EXPECT_EQ(errorText(s.quantize()), "");
    dsl::QuantizedMatrix stored = must(readActivations(s.activations));
    return std::vector<uint32_t>{stored.components[0].get(0), stored.components[0].get(33),
                                 stored.components[0].get(77), stored.components[0].get(159)};
  };
  ASSERT_EQ(errorText(s.gemm.chooseParts(s.activations, std::vector<uint8_t>{1, 1, 1, 1, 1})), "");
  const std::vector<uint32_t> fine = quantizedNumbers();
  ASSERT_EQ(errorText(s.gemm.chooseParts(s.activations, std::vector<uint8_t>{0, 0, 0, 0, 0})), "");
  EXPECT_NE(quantizedNumbers(), fine);
  EXPECT_EQ(errorText(s.gemm.chooseParts(s.activations, std::vector<uint8_t>{1})),
            "error: parts of 1 blocks, there are 5 [bad_block_choice]\n");
}

// Programs of -ffast-math flush subnormal numbers, and some round otherwise, in each of their
// threads.
TEST(Gemm, TheCallersFloatingPointEnvironmentDoesNotCount) {
  Walk s("format w { element: s4 scale: f32 per k[64] value = element * scale } "
         "gemm g { weight: w activation: bf16 output: f32 }");
  auto outputs = [&] {
    Buffer weight = must(s.gemm.packWeights(s.w.data(), ScalarType::F32, s.shape.k));
    std::vector<float> y(static_cast<size_t>(s.shape.m * s.shape.n));
    EXPECT_TRUE(s.quantize());
    EXPECT_EQ(errorText(s.gemm.launch(weight, s.activations, s.output.address(), s.workspace)), "");
    EXPECT_TRUE(s.output.read(y.data(), static_cast<int64_t>(y.size() * 4)));
    return y;
  };
  const std::vector<float> expected = outputs();
  constexpr unsigned flushToZero = 0x8040; // and subnormal inputs
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | flushToZero);
  const std::vector<float> flushed = outputs();
  EXPECT_EQ(_mm_getcsr() & flushToZero, flushToZero);
  _mm_setcsr(before);
  std::fesetround(FE_UPWARD);
  const std::vector<float> upward = outputs();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(flushed, expected);
  EXPECT_EQ(upward, expected);
}

// Nothing is left of numbers over 0, as of those times 0.
TEST(Gemm, WhatDividesIsNotFixedAtZero) {
  Module module = parsed("format w { element: s4 scale: f16 per k[64] value = element * scale } "
                         "format a { element: s8 inverse: f16 per tensor value = element / inverse "
                         "encode { inverse = 127 / absmax(x) } } "
                         "gemm g { weight: w activation: a output: f32 }");
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), noDisk()));
  Gemm gemm = must(engine.compile(module, "", {1, 64, 64}));
  Activations activations = must(gemm.makeActivations());
  EXPECT_EQ(errorText(gemm.fixComponent(activations, "inverse", 0.0)),
            "error: 0 is no positive number of f16, the type of 'inverse' [bad_fixed_component]\n");
  EXPECT_EQ(errorText(gemm.fixComponent(activations, "inverse", 2.0)), "");
  // Nor what multiplies the element alone.
  module = parsed("format w { element: s4 scale: f16 per k[64] value = element * scale } "
                  "format a { element: u8 scale: f16 per tensor value = element * scale - 3 "
                  "encode { scale = (absmax(x) + 3) / 255 } } "
                  "gemm g { weight: w activation: a output: f32 }");
  gemm = must(engine.compile(module, "", {1, 64, 64}));
  activations = must(gemm.makeActivations());
  EXPECT_EQ(errorText(gemm.fixComponent(activations, "scale", 0.0)),
            "error: 0 is no positive number of f16, the type of 'scale' [bad_fixed_component]\n");
}

// Dynamic and static quantization with what all rows share.
TEST(Gemm, ComponentsPerTensorAreThoseOfAllRowsOrGiven) {
  Module module = parsed("format w { element: s4 scale: f16 per k[64] value = element * scale } "
                         "format a { element: s8 scale: f16 per tensor value = element * scale } "
                         "gemm g { weight: w activation: a output: f32 }");
  Device device = must(Device::emulated("sm_80"));
  TemporaryFolder folder;
  EngineOptions options;
  options.cacheDirectory = folder.path();
  Gemm gemm = must(must(Engine::create(device, options)).compile(module, "", {5, 64, 200}));
  std::vector<float> w = numbers(64, 200, 1), x = numbers(5, 200, 2);
  x[4 * 200 + 7] = -254;
  Buffer input = must(device.allocate(5 * 200 * 4)), y = must(device.allocate(5 * 64 * 4));
  Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
  Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, 200));
  ASSERT_TRUE(input.write(x.data(), input.bytes()));
  Activations activations = must(gemm.makeActivations());
  auto quantized = [&] {
    EXPECT_EQ(
        errorText(gemm.quantizeActivations(activations, input.address(), ScalarType::F32, 200)),
        "");
    return must(readActivations(activations));
  };
  auto expectOutputs = [&](const dsl::QuantizedMatrix &codes) {
    ASSERT_EQ(errorText(gemm.launch(weight, activations, y.address(), workspace)), "");
    const dsl::Format &declared = module.impl().module.gemms[0].weight;
    kernels::ReferenceOutput expected = kernels::reference(
        codes, must(dsl::quantize(std::make_shared<const dsl::Format>(declared),
                                  {w.data(), dsl::MatrixView::Type::F32, 64, 200, 200}, true)));
    std::vector<float> outputs(5 * 64);
    ASSERT_TRUE(y.read(outputs.data(), y.bytes()));
    for (size_t i = 0; i < outputs.size(); ++i)
      ASSERT_NEAR(outputs[i], expected.y[i], expected.magnitude[i] * 1e-3) << i;
  };
  dsl::QuantizedMatrix byNumbers = quantized();
  EXPECT_EQ(byNumbers.components[1].size(), 1);
  EXPECT_EQ(byNumbers.components[1].get(0), 0x4000U); // 254 / 127
  expectOutputs(byNumbers);
  ASSERT_EQ(errorText(gemm.fixComponent(activations, "scale", 0.5)), "");
  dsl::QuantizedMatrix fixed = quantized();
  EXPECT_EQ(fixed.components[1].get(0), 0x3800U);
  EXPECT_EQ(fixed.components[0].get(4 * 200 + 7), 0x80U); // -508 saturates
  expectOutputs(fixed);
  ASSERT_EQ(errorText(gemm.fixComponent(activations, "scale", std::nullopt)), "");
  EXPECT_EQ(quantized().components[1].get(0), 0x4000U);

  EXPECT_EQ(errorText(gemm.fixComponent(activations, "element", 1.0)),
            "error: 'a' has no component 'element' per tensor [bad_fixed_component]\n");
  EXPECT_EQ(
      errorText(gemm.fixComponent(activations, "scale", 1e6)),
      "error: 1000000 is no positive number of f16, the type of 'scale' [bad_fixed_component]\n");
  EXPECT_EQ(
      errorText(gemm.fixComponent(activations, "scale", 1e-9)),
      "error: 1e-09 is no positive number of f16, the type of 'scale' [bad_fixed_component]\n");
  EXPECT_FALSE(gemm.fixComponent(activations, "scale", 0.0));
  EXPECT_FALSE(gemm.fixComponent(activations, "scale", -1.0));
  EXPECT_EQ(errorText(gemm.fixComponent(activations, "scale", std::nan(""))),
            "error: nan is no positive number of f16, the type of 'scale' [bad_fixed_component]\n");
}

// Beside a residual it is the one of the format itself.
TEST(Gemm, ComponentsOfAFormatWithAResidualAreGiven) {
  Walk s("format w { element: s4 scale: f16 per k[64] value = element * scale } "
         "format fix { element: s4 scale: f16 per token value = element * scale } "
         "format a { element: s8 scale: f16 per tensor value = element * scale "
         "residual more: fix per k[64] budget 50% } "
         "gemm g { weight: w activation: a output: f32 }");
  const auto format = std::make_shared<const dsl::Format>(s.declared().activation);
  const dsl::MatrixView x{s.x.data(), dsl::MatrixView::Type::F32, s.shape.m, s.shape.k, s.shape.k};
  auto expect = [&](const std::map<int, uint32_t> &given) {
    ASSERT_EQ(errorText(s.quantize()), "");
    const dsl::QuantizedMatrix stored = must(readActivations(s.activations)),
                               codes = must(dsl::quantize(format, x, {.given = given}));
    for (int64_t row = 0; row < s.shape.m; ++row)
      for (int64_t i = 0; i < s.shape.k; ++i) // rounded to numbers that operands hold
        ASSERT_NEAR(stored.rowValues(row)[i], codes.rowValues(row)[i],
                    1e-2 + 4e-3 * std::abs(codes.rowValues(row)[i]))
            << row << ", " << i;
  };
  ASSERT_EQ(errorText(s.gemm.fixComponent(s.activations, "scale", 0.5)), "");
  expect({{1, 0x3800}});
  ASSERT_EQ(errorText(s.gemm.fixComponent(s.activations, "scale", std::nullopt)), "");
  expect({});
  EXPECT_EQ(errorText(dsl::quantize(format, x, {.given = {{0, 1}}})),
            "error: 'a' has no component 0 per tensor [bad_fixed_component]\n");
}

} // namespace
} // namespace rho
