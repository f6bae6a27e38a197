// The C API: what it gives is what the C++ API gives, and what goes wrong in it is an error.
#include "runtime/RhoC.h"

#include "tests/runtime/Declarations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace {
thread_local bool memoryIsFull = false;
} // namespace

// Every allocation of this process; GoogleTest's own come when there is memory.
void *operator new(size_t bytes) {
  void *memory = memoryIsFull ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr)
    throw std::bad_alloc();
  return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace rho {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

template <auto release> struct Free {
  template <class Handle> void operator()(Handle *handle) const { release(handle); }
};
using Error = std::unique_ptr<rho_error, Free<rho_error_free>>;
using ModuleHandle = std::unique_ptr<rho_module, Free<rho_module_free>>;
using DeviceHandle = std::unique_ptr<rho_device, Free<rho_device_free>>;
using EngineHandle = std::unique_ptr<rho_engine, Free<rho_engine_free>>;
using GemmHandle = std::unique_ptr<rho_gemm, Free<rho_gemm_free>>;
using BufferHandle = std::unique_ptr<rho_buffer, Free<rho_buffer_free>>;
using ActivationsHandle = std::unique_ptr<rho_activations, Free<rho_activations_free>>;

std::string textOf(rho_error *error) { return rho_error_text(Error(error).get()); }

// The handle that a call gives.
template <class Handle, class Call> Handle made(const Call &call) {
  typename Handle::pointer handle = nullptr;
  EXPECT_EQ(textOf(call(&handle)), "");
  return Handle(handle);
}

std::string emptyHandle(const char *what) {
  return std::string("error: empty ") + what +
         ", it must come from a successful call [empty_handle]\n";
}

class RhoC : public testing::Test {
protected:
  ModuleHandle parse(const std::string &text) const {
    return made<ModuleHandle>([&](rho_module **out) {
      return rho_module_parse(text.data(), text.size(), "test.rho", nullptr, 0, out);
    });
  }
  GemmHandle compile(const rho_module *module, int64_t m) const {
    return made<GemmHandle>([&](rho_gemm **out) {
      return rho_engine_compile(engine.get(), module, nullptr, m, n, k, out);
    });
  }
  BufferHandle allocate(int64_t bytes) const {
    return made<BufferHandle>(
        [&](rho_buffer **out) { return rho_device_allocate(device.get(), bytes, out); });
  }
  ActivationsHandle activations(const rho_gemm *gemm) const {
    return made<ActivationsHandle>(
        [&](rho_activations **out) { return rho_gemm_make_activations(gemm, nullptr, out); });
  }
  BufferHandle packed(const rho_gemm *gemm) const {
    return made<BufferHandle>(
        [&](rho_buffer **out) { return rho_gemm_pack_weights(gemm, w.data(), RHO_F32, k, out); });
  }
  // Quantizes and launches; y.
  std::vector<float> launched(const rho_gemm *gemm, const rho_buffer *weight,
                              rho_activations *codes) const {
    const int64_t m = rho_gemm_m(gemm);
    const BufferHandle input = allocate(m * k * 4), output = allocate(m * n * 4),
                       workspace = allocate(rho_gemm_workspace_bytes(gemm));
    EXPECT_EQ(textOf(rho_buffer_write(input.get(), x.data(), m * k * 4, 0)), "");
    EXPECT_EQ(textOf(rho_gemm_quantize_activations(gemm, codes, rho_buffer_address(input.get()),
                                                   RHO_F32, k, nullptr)),
              "");
    EXPECT_EQ(textOf(rho_gemm_launch(gemm, weight, codes, rho_buffer_address(output.get()),
                                     workspace.get(), nullptr)),
              "");
    EXPECT_EQ(textOf(rho_device_synchronize(device.get(), nullptr)), "");
    std::vector<float> y(static_cast<size_t>(m * n));
    EXPECT_EQ(textOf(rho_buffer_read(output.get(), y.data(), m * n * 4, 0)), "");
    return y;
  }

  static constexpr int64_t most = 16, n = 64, k = 128;
  const std::vector<float> w = numbers(n, k, 1), x = numbers(most, k, 2);
  const DeviceHandle device =
      made<DeviceHandle>([](rho_device **out) { return rho_device_emulated("sm_80", out); });
  const EngineHandle engine = made<EngineHandle>([&](rho_engine **out) {
    rho_engine_options options = {};
    options.size = sizeof options;
    options.threads = 1;
    options.flags = RHO_NO_DISK_CACHE;
    return rho_engine_create(device.get(), &options, out);
  });
};

TEST_F(RhoC, givesWhatTheCppApiGives) {
  const ModuleHandle module = parse(w4a8);
  ASSERT_EQ(rho_module_gemm_count(module.get()), 1U);
  EXPECT_STREQ(rho_module_gemm_name(module.get(), 0), "w4a8");
  EXPECT_STREQ(rho_device_name(device.get()), must(Device::emulated("sm_80")).name().c_str());
  EXPECT_STREQ(rho_device_target(device.get()), "sm_80");
  EXPECT_EQ(rho_device_is_emulated(device.get()), 1);
  const GemmHandle gemm = compile(module.get(), 5);
  const BufferHandle weight = packed(gemm.get());
  const std::vector<float> y = launched(gemm.get(), weight.get(), activations(gemm.get()).get());

  const Device same = must(Device::emulated("sm_80"));
  const Gemm expected =
      must(must(Engine::create(same, noDisk())).compile(parsed(w4a8), "", {5, n, k}));
  EXPECT_EQ(rho_gemm_m(gemm.get()), 5);
  EXPECT_EQ(rho_gemm_n(gemm.get()), n);
  EXPECT_EQ(rho_gemm_k(gemm.get()), k);
  EXPECT_EQ(rho_gemm_output_type(gemm.get()), static_cast<rho_scalar_type>(RHO_F32));
  EXPECT_EQ(rho_gemm_packed_weight_bytes(gemm.get()), expected.packedWeightBytes());
  EXPECT_EQ(rho_gemm_workspace_bytes(gemm.get()), expected.workspaceBytes());
  EXPECT_EQ(rho_gemm_weight_layout(gemm.get()), expected.weightLayout());
  EXPECT_EQ(rho_gemm_plan(gemm.get()), expected.report().plan);
  EXPECT_EQ(rho_gemm_predicted_microseconds(gemm.get()), expected.report().predictedMicroseconds);
  EXPECT_GT(rho_gemm_compile_milliseconds(gemm.get()), 0);
  EXPECT_EQ(rho_gemm_warning_count(gemm.get()), 0U);
  const Buffer w8 = must(expected.packWeights(w.data(), ScalarType::F32, k));
  Buffer input = must(same.allocate(5 * k * 4)), output = must(same.allocate(5 * n * 4));
  const Activations codes = must(expected.makeActivations());
  must(input.write(x.data(), 5 * k * 4));
  must(expected.quantizeActivations(codes, input.address(), ScalarType::F32, k));
  must(
      expected.launch(w8, codes, output.address(), must(same.allocate(expected.workspaceBytes()))));
  std::vector<float> from(y.size());
  must(output.read(from.data(), output.bytes()));
  EXPECT_EQ(y, from);
}

TEST_F(RhoC, oneWeightServesSeveralBatches) {
  const ModuleHandle module = parse(w4a8);
  const int64_t batches[] = {1, 16};
  rho_gemm *gemms[2];
  ASSERT_EQ(textOf(rho_engine_compile_shared(engine.get(), module.get(), "w4a8", n, k, batches, 2,
                                             gemms)),
            "");
  const GemmHandle one(gemms[0]), sixteen(gemms[1]);
  EXPECT_STREQ(rho_gemm_weight_layout(one.get()), rho_gemm_weight_layout(sixteen.get()));
  const GemmHandle three =
      made<GemmHandle>([&](rho_gemm **out) { return rho_gemm_with_rows(sixteen.get(), 3, out); });
  const GemmHandle seven = made<GemmHandle>([&](rho_gemm **out) {
    return rho_engine_compile_sharing(engine.get(), sixteen.get(), 7, out);
  });
  const BufferHandle weight = packed(one.get());
  const BufferHandle view = made<BufferHandle>([&](rho_buffer **out) {
    return rho_device_view(device.get(), rho_buffer_address(weight.get()),
                           rho_buffer_bytes(weight.get()), rho_gemm_weight_layout(one.get()), out);
  });
  const std::vector<float> all =
      launched(sixteen.get(), weight.get(), activations(sixteen.get()).get());
  for (const rho_gemm *gemm : {one.get(), three.get(), seven.get()}) {
    const std::vector<float> y = launched(gemm, view.get(), activations(gemm).get());
    EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin())) << rho_gemm_m(gemm);
  }
  const ActivationsHandle large = activations(sixteen.get());
  const ActivationsHandle few = made<ActivationsHandle>(
      [&](rho_activations **out) { return rho_activations_with_rows(large.get(), 3, out); });
  const std::vector<float> y = launched(three.get(), weight.get(), few.get());
  EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin()));
}

TEST_F(RhoC, aWorkspaceThatIsNotNeededMayBeNull) {
  const GemmHandle gemm = compile(parse(w4a16).get(), 1);
  ASSERT_EQ(rho_gemm_workspace_bytes(gemm.get()), 0);
  const ActivationsHandle codes = activations(gemm.get());
  const BufferHandle output = allocate(n * 4);
  EXPECT_EQ(textOf(rho_gemm_launch(gemm.get(), packed(gemm.get()).get(), codes.get(),
                                   rho_buffer_address(output.get()), nullptr, nullptr)),
            "");
}

TEST_F(RhoC, codesOfOthersArePacked) {
  const ModuleHandle module = parse(w4a16);
  const GemmHandle gemm = compile(module.get(), 16);
  const std::vector<uint8_t> element(n * k, 3);
  const std::vector<uint16_t> scale(n * k / 64, 0x3c00); // 1
  rho_component_codes codes[] = {
      {"element", element.data(), element.size()},
      {"scale", reinterpret_cast<const uint8_t *>(scale.data()), scale.size() * 2}};
  const BufferHandle weight = made<BufferHandle>(
      [&](rho_buffer **out) { return rho_gemm_pack_codes(gemm.get(), codes, 2, out); });
  const std::vector<float> threes(n * k, 3);
  const BufferHandle same = made<BufferHandle>([&](rho_buffer **out) {
    return rho_gemm_pack_weights(gemm.get(), threes.data(), RHO_F32, k, out);
  });
  const ActivationsHandle x16 = activations(gemm.get());
  const std::vector<float> y = launched(gemm.get(), weight.get(), x16.get());
  EXPECT_NEAR(y[0], launched(gemm.get(), same.get(), x16.get())[0], 0.01 * std::fabs(y[0]));

  rho_buffer *none = weight.get();
  EXPECT_THAT(textOf(rho_gemm_pack_codes(gemm.get(), codes, 1, &none)), HasSubstr("scale"));
  EXPECT_EQ(none, nullptr);
  codes[1].codes = nullptr;
  EXPECT_EQ(textOf(rho_gemm_pack_codes(gemm.get(), codes, 2, &none)),
            "error: codes of 'scale' is null [null_pointer]\n");
  EXPECT_THAT(textOf(rho_gemm_pack_codes(gemm.get(), codes, SIZE_MAX, &none)),
              HasSubstr("[out_of_memory]"));
}

TEST_F(RhoC, whatActivationsHoldCanBeFixed) {
  const ModuleHandle module =
      parse("format int4 { element: s4 scale: f16 per channel value = element * scale }\n"
            "format int8 { element: s8 scale: f32 per tensor value = element * scale }\n"
            "gemm g { weight: int4 activation: int8 output: f32 }\n");
  const GemmHandle gemm = compile(module.get(), 2);
  const ActivationsHandle codes = activations(gemm.get());
  const double zero = 1e-30;
  const BufferHandle weight = packed(gemm.get());
  const std::vector<float> byRule = launched(gemm.get(), weight.get(), codes.get());
  EXPECT_EQ(textOf(rho_gemm_fix_component(gemm.get(), codes.get(), "scale", &zero)), "");
  EXPECT_NE(launched(gemm.get(), weight.get(), codes.get()), byRule);
  EXPECT_EQ(textOf(rho_gemm_fix_component(gemm.get(), codes.get(), "scale", nullptr)), "");
  EXPECT_EQ(launched(gemm.get(), weight.get(), codes.get()), byRule);
  EXPECT_THAT(textOf(rho_gemm_fix_component(gemm.get(), codes.get(), "no", &zero)),
              HasSubstr("[bad_fixed_component]"));
  const uint8_t part = 0;
  EXPECT_EQ(textOf(rho_gemm_choose_parts(gemm.get(), codes.get(), nullptr, 0)), "");
  EXPECT_THAT(textOf(rho_gemm_choose_parts(gemm.get(), codes.get(), &part, 1)),
              HasSubstr("[bad_block_choice]"));
  EXPECT_THAT(textOf(rho_gemm_choose_parts(gemm.get(), codes.get(), &part, SIZE_MAX)),
              HasSubstr("[bad_block_choice]"));
  EXPECT_EQ(textOf(rho_gemm_choose_parts(gemm.get(), codes.get(), nullptr, 1)),
            "error: parts is null [null_pointer]\n");
}

TEST_F(RhoC, importsAreGiven) {
  const std::string text = "import \"w.rho\"\nimport \"rho:int8_token\"\n"
                           "gemm g { weight: int4 activation: int8_token output: f32 }\n";
  const std::string imported =
      "format int4 { element: s4 scale: f16 per channel value = element * scale }";
  const rho_source files[] = {{"w.rho", "no format", 9},
                              {"dir/w.rho", imported.c_str(), imported.size()}};
  const ModuleHandle module = made<ModuleHandle>([&](rho_module **out) {
    return rho_module_parse(text.data(), text.size(), "dir/g.rho", files, 2, out);
  });
  EXPECT_EQ(rho_module_gemm_count(module.get()), 1U);
  rho_module *none;
  EXPECT_THAT(textOf(rho_module_parse(text.data(), text.size(), nullptr, nullptr, 0, &none)),
              AllOf(StartsWith("<memory>:1:1: error:"), HasSubstr("[import_not_found]")));
  EXPECT_EQ(textOf(rho_module_parse(nullptr, 1, nullptr, nullptr, 0, &none)),
            "error: text is null [null_pointer]\n");
  EXPECT_EQ(textOf(rho_module_parse("", 0, nullptr, nullptr, 1, &none)),
            "error: imports is null [null_pointer]\n");
  const rho_source nothing = {"w.rho", nullptr, 1};
  EXPECT_EQ(textOf(rho_module_parse("", 0, nullptr, &nothing, 1, &none)),
            "error: the text of an import is null [null_pointer]\n");
}

TEST_F(RhoC, anErrorHasAllDiagnostics) {
  const std::string text = "gemm g { weight: a activation: b output: f99 }";
  rho_module *module = nullptr;
  const Error error(rho_module_parse(text.data(), text.size(), "t.rho", nullptr, 0, &module));
  EXPECT_EQ(module, nullptr);
  const auto expected = Module::parse(text, "t.rho").error();
  EXPECT_EQ(rho_error_text(error.get()), expected.str());
  ASSERT_EQ(rho_error_count(error.get()), expected.diagnostics.size());
  ASSERT_GT(expected.diagnostics.size(), 1U);
  for (size_t i = 0; i < expected.diagnostics.size(); ++i) {
    EXPECT_EQ(rho_error_id(error.get(), i), name(expected.diagnostics[i].id));
    EXPECT_EQ(rho_error_message(error.get(), i), expected.diagnostics[i].message);
  }
  EXPECT_STREQ(rho_error_id(error.get(), expected.diagnostics.size()), "");
  EXPECT_STREQ(rho_error_message(error.get(), expected.diagnostics.size()), "");
  EXPECT_STREQ(rho_error_text(nullptr), "");
  EXPECT_EQ(rho_error_count(nullptr), 0U);
}

TEST_F(RhoC, engineOptionsOfAnotherVersionAreRefused) {
  rho_engine *none;
  rho_engine_options options = {};
  EXPECT_EQ(textOf(rho_engine_create(device.get(), &options, &none)),
            "error: a size of 0 of rho_engine_options, it is between 8 and 4096 "
            "[bad_engine_options]\n");
  options.size = sizeof options;
  options.flags = 8;
  EXPECT_EQ(textOf(rho_engine_create(device.get(), &options, &none)),
            "error: flags 8 of rho_engine_options, all of them are 7 [bad_engine_options]\n");
  options.flags = 0;
  options.cache_directory = options.tuned_directory = "same";
  EXPECT_THAT(textOf(rho_engine_create(device.get(), &options, &none)),
              HasSubstr("[bad_cache_folder]"));
  EXPECT_EQ(none, nullptr);
}

// What was compiled against another version of the header has fewer fields, or more.
TEST_F(RhoC, engineOptionsOfOtherVersionsAreTaken) {
  static_assert(sizeof(rho_engine_options) == 40 && offsetof(rho_engine_options, flags) == 36);
  struct {
    rho_engine_options known;
    uint64_t later;
  } options = {};
  options.known.size = offsetof(rho_engine_options, cache_limit_bytes);
  options.known.flags = 8; // behind its end
  EXPECT_TRUE(made<EngineHandle>(
      [&](rho_engine **out) { return rho_engine_create(device.get(), &options.known, out); }));
  options.known.flags = RHO_NO_DISK_CACHE;
  options.known.size = sizeof options;
  EXPECT_TRUE(made<EngineHandle>(
      [&](rho_engine **out) { return rho_engine_create(device.get(), &options.known, out); }));
  options.later = 1;
  rho_engine *none;
  EXPECT_EQ(textOf(rho_engine_create(device.get(), &options.known, &none)),
            "error: byte 40 of rho_engine_options, this version has 40 of them "
            "[bad_engine_options]\n");
}

TEST_F(RhoC, nullHandlesAreEmptyOnes) {
  rho_gemm *gemm = nullptr;
  rho_engine *noEngine = nullptr;
  rho_buffer *buffer = nullptr;
  rho_activations *codes = nullptr;
  char byte[1];
  EXPECT_EQ(textOf(rho_device_allocate(nullptr, 1, &buffer)), emptyHandle("device"));
  EXPECT_EQ(textOf(rho_device_view(nullptr, 256, 1, nullptr, &buffer)), emptyHandle("device"));
  EXPECT_EQ(textOf(rho_device_synchronize(nullptr, nullptr)), emptyHandle("device"));
  EXPECT_EQ(textOf(rho_buffer_write(nullptr, "", 1, 0)), emptyHandle("buffer"));
  EXPECT_EQ(textOf(rho_buffer_read(nullptr, byte, 1, 0)), emptyHandle("buffer"));
  EXPECT_EQ(textOf(rho_engine_create(nullptr, nullptr, &noEngine)), emptyHandle("device"));
  EXPECT_EQ(textOf(rho_engine_compile(nullptr, nullptr, nullptr, 1, 1, 1, &gemm)),
            emptyHandle("engine"));
  EXPECT_EQ(textOf(rho_engine_compile(engine.get(), nullptr, nullptr, 1, 1, 1, &gemm)),
            emptyHandle("module"));
  const int64_t m = 1;
  EXPECT_EQ(textOf(rho_engine_compile_shared(nullptr, nullptr, nullptr, 1, 1, &m, 1, &gemm)),
            emptyHandle("engine"));
  EXPECT_EQ(textOf(rho_engine_compile_sharing(engine.get(), nullptr, 1, &gemm)),
            emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_with_rows(nullptr, 1, &gemm)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_activations_with_rows(nullptr, 1, &codes)), emptyHandle("activations"));
  EXPECT_EQ(textOf(rho_gemm_pack_weights(nullptr, &m, RHO_F32, 1, &buffer)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_pack_codes(nullptr, nullptr, 0, &buffer)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_make_activations(nullptr, nullptr, &codes)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_view_activations(nullptr, 256, &codes)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_choose_parts(nullptr, nullptr, nullptr, 0)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_fix_component(nullptr, nullptr, "", nullptr)), emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_quantize_activations(nullptr, nullptr, 0, RHO_F32, 1, nullptr)),
            emptyHandle("gemm"));
  EXPECT_EQ(textOf(rho_gemm_launch(nullptr, nullptr, nullptr, 0, nullptr, nullptr)),
            emptyHandle("gemm"));
  const GemmHandle real = compile(parse(w4a16).get(), 1);
  EXPECT_EQ(textOf(rho_gemm_quantize_activations(real.get(), nullptr, 256, RHO_F32, k, nullptr)),
            emptyHandle("activations"));

  EXPECT_STREQ(rho_device_name(nullptr), "");
  EXPECT_STREQ(rho_device_target(nullptr), "");
  EXPECT_EQ(rho_device_is_emulated(nullptr), 0);
  EXPECT_EQ(rho_module_gemm_count(nullptr), 0U);
  EXPECT_STREQ(rho_module_gemm_name(nullptr, 0), "");
  EXPECT_EQ(rho_buffer_address(nullptr) + rho_buffer_bytes(nullptr), 0U);
  EXPECT_EQ(rho_gemm_output_type(nullptr), 0U);
  EXPECT_EQ(rho_gemm_m(nullptr) + rho_gemm_n(nullptr) + rho_gemm_k(nullptr), 0);
  EXPECT_EQ(rho_gemm_packed_weight_bytes(nullptr) + rho_gemm_workspace_bytes(nullptr), 0);
  EXPECT_STREQ(rho_gemm_weight_layout(nullptr), "");
  EXPECT_STREQ(rho_gemm_plan(nullptr), "");
  EXPECT_STREQ(rho_gemm_warning(nullptr, 0), "");
  rho_error_free(nullptr);
  rho_module_free(nullptr);
  rho_device_free(nullptr);
  rho_buffer_free(nullptr);
  rho_engine_free(nullptr);
  rho_gemm_free(nullptr);
  rho_activations_free(nullptr);
  rho_input_transform_free(nullptr);
}

TEST_F(RhoC, whereNothingCanBePutIsAnError) {
  const char *outIsNull = "error: out is null [null_pointer]\n";
  EXPECT_EQ(textOf(rho_device_automatic(nullptr)), outIsNull);
  EXPECT_EQ(textOf(rho_module_load("", nullptr)), outIsNull);
  const int64_t m = 1;
  EXPECT_EQ(textOf(rho_engine_compile_shared(engine.get(), nullptr, "", 1, 1, &m, 1, nullptr)),
            outIsNull);
  rho_gemm *gemm = nullptr;
  EXPECT_EQ(textOf(rho_engine_compile_shared(engine.get(), nullptr, "", 1, 1, nullptr, 1, &gemm)),
            "error: batches is null [null_pointer]\n");
}

TEST_F(RhoC, numbersThatAreNoTypeAreRefused) {
  const GemmHandle gemm = compile(parse(w4a16).get(), 1);
  rho_buffer *none = nullptr;
  for (const rho_scalar_type type : {3U, 256U, UINT32_MAX}) {
    const std::string expected =
        "error: " + std::to_string(type) +
        " is no ScalarType, these are F32, F16 and BF16 [bad_scalar_type]\n";
    EXPECT_EQ(textOf(rho_gemm_pack_weights(gemm.get(), w.data(), type, k, &none)), expected);
    EXPECT_EQ(textOf(rho_gemm_quantize_activations(gemm.get(), activations(gemm.get()).get(), 256,
                                                   type, k, nullptr)),
              expected);
  }
}

TEST_F(RhoC, aHostWithoutMemoryGivesAnError) {
  rho_module *none = nullptr;
  memoryIsFull = true;
  rho_error *error = rho_module_parse(w4a16, strlen(w4a16), nullptr, nullptr, 0, &none);
  memoryIsFull = false;
  EXPECT_EQ(none, nullptr);
  EXPECT_STREQ(rho_error_text(error), "error: the host has no memory left [out_of_memory]\n");
  ASSERT_EQ(rho_error_count(error), 1U);
  EXPECT_STREQ(rho_error_id(error, 0), "out_of_memory");
  EXPECT_STREQ(rho_error_message(error, 0), "the host has no memory left");
  EXPECT_STREQ(rho_error_id(error, 1), "");
  rho_error_free(error);
}

} // namespace
} // namespace rho
