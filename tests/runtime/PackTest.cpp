// Weights from numbers and from the codes of other quantizers.
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/Walk.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rho {
namespace {

TEST(PackedWeights, OfAnotherQuantizersCodesAreTheSame) {
  Walk s(w4a8);
  Buffer packed =
      must(s.gemm.packQuantized(quantized(s.declared().weight, s.w, s.shape.n, s.shape.k)));
  ASSERT_EQ(packed.bytes(), s.gemm.packedWeightBytes());
  std::vector<uint8_t> a(static_cast<size_t>(packed.bytes())), b(a.size());
  ASSERT_TRUE(packed.read(a.data(), packed.bytes()));
  ASSERT_TRUE(s.weight.read(b.data(), packed.bytes()));
  EXPECT_EQ(a, b);
  EXPECT_EQ(errorText(s.gemm.packQuantized(
                quantized(s.declared().activation, s.w, s.shape.n, s.shape.k))),
            "error: a weight and its packed layout do not fit: the codes are of format 'int8' with "
            "'element: s8', the gemm takes 'int4' with 'element: s4' [layout_mismatch]\n");
  // Only which number a code is counts.
  auto codesOf = [&](const char *format) {
    Module other = parsed(
        (std::string(format) + " gemm g { weight: other activation: f16 output: f32 }").c_str());
    return quantized(other.impl().module.gemms[0].weight, s.w, s.shape.n, s.shape.k);
  };
  EXPECT_TRUE(s.gemm.packQuantized(
      codesOf("format other { element: s4 scale: f16 per k[64] value = element * scale encode { "
              "scale = best(absmax(x) / 7, absmax(x) / 6) } }")));
  EXPECT_EQ(
      errorText(s.gemm.packQuantized(
          codesOf("format other { element: s4 scale: f16 per k[96] value = element * scale }"))),
      "error: a weight and its packed layout do not fit: the codes are of format 'other' with "
      "'scale: f16 per k[96]', the gemm takes 'int4' with 'scale: f16 per k[64]' "
      "[layout_mismatch]\n");
  EXPECT_FALSE(s.gemm.packQuantized({}));
}

// Component by component, as an importer of somebody's checkpoint has them.
TEST(PackedWeights, OfCodesOfComponentsAreTheSame) {
  Walk s("format w { element: s4 scale: f16 per n[2] k[64] zero: s6 per n[2] k[64] "
         "tensor: f32 per tensor value = (element - zero) * scale * tensor "
         "encode { tensor = absmax(x) / 100 scale = absmax(x / tensor) / 8 zero = 1 } } "
         "gemm g { weight: w activation: f16 output: f32 }",
         {3, 39, 200}, "sm_80");
  const dsl::QuantizedMatrix codes = quantized(s.declared().weight, s.w, s.shape.n, s.shape.k);
  std::vector<ComponentCodes> given;
  for (size_t i : {2, 0, 3, 1}) // in any order
    given.push_back(
        {codes.format->components[i].name,
         {codes.components[i].data(),
          static_cast<size_t>(codes.components[i].size() * codes.components[i].width())}});
  auto bytes = [](const Buffer &packed) {
    std::vector<uint8_t> read(static_cast<size_t>(packed.bytes()));
    EXPECT_TRUE(packed.read(read.data(), packed.bytes()));
    return read;
  };
  const std::vector<uint8_t> packed = bytes(s.weight);
  EXPECT_EQ(bytes(must(s.gemm.packCodes(given))), packed);
  // As signed bytes.
  std::vector<uint8_t> extended(given[1].codes.begin(), given[1].codes.end());
  for (uint8_t &code : extended)
    code = static_cast<uint8_t>(code | (code & 8 ? 0xf0 : 0));
  given[1].codes = extended;
  EXPECT_EQ(bytes(must(s.gemm.packCodes(given))), packed);

  auto refused = [&](const std::string &why) {
    EXPECT_EQ(errorText(s.gemm.packCodes(given)),
              "error: codes of 'w': " + why + " [bad_component_codes]\n");
  };
  given[1].codes = given[1].codes.subspan(1);
  refused("'element' has 7799 bytes, 7800 are needed");
  given[1] = given[0];
  refused("'element' is given nowhere");
  given.push_back({"element", extended});
  refused("'zero' is given twice");
  given.push_back({"zeros", extended});
  refused("'zeros' is none of its components element, scale, zero, tensor");
  given.resize(5);
  given.erase(given.begin());
  extended[7] = 0x78; // neither 8 nor -8
  EXPECT_EQ(
      errorText(s.gemm.packCodes(given)),
      "error: a weight and its packed layout do not fit: code 7 of 'element' is 120, 's4' has "
      "4 bits [layout_mismatch]\n");
  extended[7] = 8;
  std::vector<uint8_t> scales(given[2].codes.begin(), given[2].codes.end());
  scales[10] = 0;
  scales[11] = 0x7c; // infinity
  given[2].codes = scales;
  EXPECT_EQ(
      errorText(s.gemm.packCodes(given)),
      "error: a weight and its packed layout do not fit: code 5 of 'scale' is 31744, no finite "
      "number in 'f16' [layout_mismatch]\n");
}

// A value may be as deep as the grammar allows, on a thread of the size that Rho.h names.
TEST(PackedWeights, TakeLittleStack) {
  std::string value = "element * scale";
  for (int i = 0; i < 190; ++i)
    value = "(" + value + ") * 1.0";
  const std::string text =
      "format w { element: s4 scale: f16 per channel value = " + value +
      " encode { scale = absmax(x) / 7 } } gemm g { weight: w activation: f16 output: f32 }";
  Walk s(text.c_str(), {1, 16, 64}, "sm_80");
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
  pthread_t thread;
  auto pack = [](void *walk) -> void * {
    auto &of = *static_cast<Walk *>(walk);
    of.weight = must(of.gemm.packWeights(of.w.data(), ScalarType::F32, 64));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, pack, &s), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
}

// The largest exponent of such a type is one of numbers.
TEST(PackedWeights, TakeAllCodesOfTypesThatAreFinite) {
  for (const char *weight :
       {"format w = razer_g128", "format w { element: s4 scale: e5m10f per k[32] value = element * "
                                 "scale encode { scale = absmax(x) / 7 } }"}) {
    Walk s((std::string("import \"rho:razer_g128\" ") + weight +
            " gemm g { weight: w activation: f16 output: f32 }")
               .c_str(),
           {3, 40, 128});
    const bool razer = std::string(weight).find("razer") != std::string::npos;
    s.w[3 * 128 + 5] = razer ? 11.5F : 6e5F;
    const dsl::QuantizedMatrix codes = quantized(s.declared().weight, s.w, s.shape.n, s.shape.k);
    const dsl::ElementType type = codes.format->components[1].type;
    const uint32_t exponent = ((1U << type.exponentBits()) - 1) << type.mantissaBits();
    ASSERT_EQ(codes.components[1].get(razer ? 3 : 3 * 4) & exponent, exponent);
    ASSERT_NO_FATAL_FAILURE(s.expectReference(s.gemm, must(s.gemm.packQuantized(codes))));
  }
}

TEST(PackedWeights, RefuseBadInput) {
  Walk s(w4a16);
  EXPECT_EQ(errorText(s.gemm.packWeights(nullptr, ScalarType::F32, 192)),
            "error: host is null [null_pointer]\n");
  EXPECT_EQ(
      errorText(s.gemm.packWeights(s.w.data(), ScalarType::F32, 191)),
      "error: stride 191, rows have 192 numbers and a stride is at most 4294967296 [bad_stride]\n");
  EXPECT_EQ(errorText(s.gemm.packWeights(s.w.data(), ScalarType(7), 192)),
            "error: 7 is no ScalarType, these are F32, F16 and BF16 [bad_scalar_type]\n");
  s.w[192 + 7] = std::nanf("");
  EXPECT_EQ(errorText(s.gemm.packWeights(s.w.data(), ScalarType::F32, 192)),
            "error: NaN at row 1, column 7, a weight is finite [non_finite_input]\n");
}

} // namespace
} // namespace rho
