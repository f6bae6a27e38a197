// What goes wrong before anything is launched: empty handles, buffers, modules, shapes.
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"

#include <gtest/gtest.h>

namespace rho {
namespace {

TEST(Handles, EmptyOnesGiveErrors) {
  Device device;
  Module module;
  Engine engine;
  Gemm gemm;
  Activations activations;
  Buffer buffer;
  EXPECT_FALSE(device.valid() || module.valid() || engine.valid() || gemm.valid() ||
               activations.valid());
  auto empty = [](const char *what) {
    return std::string("error: empty ") + what +
           ", it must come from a successful call [empty_handle]\n";
  };
  EXPECT_EQ(errorText(device.allocate(1)), empty("device"));
  EXPECT_EQ(errorText(device.synchronize()), empty("device"));
  EXPECT_EQ(errorText(Engine::create(device)), empty("device"));
  EXPECT_EQ(errorText(engine.compile(module, "", {1, 1, 1})), empty("engine"));
  EXPECT_EQ(errorText(gemm.packWeights(nullptr, ScalarType::F32, 1)), empty("gemm"));
  EXPECT_EQ(errorText(gemm.packQuantized({})), empty("gemm"));
  EXPECT_EQ(errorText(gemm.packCodes({})), empty("gemm"));
  EXPECT_EQ(errorText(gemm.makeActivations()), empty("gemm"));
  EXPECT_EQ(errorText(gemm.quantizeActivations(activations, 0, ScalarType::F32, 1)), empty("gemm"));
  EXPECT_EQ(errorText(gemm.launch(buffer, activations, 0, buffer)), empty("gemm"));
  EXPECT_EQ(errorText(readActivations(activations)), empty("activations"));
  Engine real = must(Engine::create(must(Device::emulated("sm_80")), noDisk()));
  EXPECT_EQ(errorText(real.compile(module, "", {1, 1, 1})), empty("module"));

  EXPECT_EQ(device.name() + device.target(), "");
  EXPECT_FALSE(device.isEmulated());
  EXPECT_TRUE(module.gemms().empty());
  EXPECT_FALSE(engine.device().valid());
  EXPECT_EQ(gemm.shape().m + gemm.packedWeightBytes() + gemm.workspaceBytes(), 0);
  EXPECT_EQ(gemm.report().key, "");
  EXPECT_EQ(gemm.outputType(), ScalarType::F16);
  EXPECT_EQ(buffer.bytes(), 0);
  EXPECT_EQ(buffer.address(), 0U);
}

// Without a warning that members are left out, which a build of this test takes for an error.
TEST(Handles, OptionsAreNamedOneByOne) {
  const EngineOptions engine{.threads = 2};
  const TuneOptions tune{.candidates = 3};
  const ComponentCodes codes{.component = "scale"};
  EXPECT_TRUE(engine.cacheDirectory.empty() && !tune.compiled && codes.codes.empty());
}

TEST(Handles, BuffersAreZeroedAlignedAndBounded) {
  Device device = must(Device::emulated("sm_80"));
  Buffer buffer = must(device.allocate(1000));
  EXPECT_EQ(buffer.address() % 256, 0U);
  std::vector<uint8_t> bytes(1000, 1);
  ASSERT_TRUE(buffer.read(bytes.data(), 1000));
  EXPECT_EQ(bytes, std::vector<uint8_t>(1000, 0));
  const uint8_t two[] = {5, 6};
  ASSERT_TRUE(buffer.write(two, 2, 998));
  ASSERT_TRUE(buffer.read(bytes.data(), 3, 997));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[1], 5);
  EXPECT_EQ(bytes[2], 6);
  EXPECT_EQ(errorText(buffer.write(two, 2, 999)),
            "error: bytes 999 to 1001, the buffer has 1000 [bad_range]\n");
  EXPECT_FALSE(buffer.read(bytes.data(), 1, -1));
  EXPECT_FALSE(buffer.read(bytes.data(), -1));
  EXPECT_FALSE(buffer.read(bytes.data(), INT64_MAX, INT64_MAX));
  EXPECT_EQ(errorText(buffer.read(nullptr, 1)), "error: host memory is null [null_pointer]\n");
  EXPECT_TRUE(buffer.read(nullptr, 0));
  EXPECT_EQ(errorText(buffer.write(two, INT64_MAX, INT64_MAX)),
            "error: bytes 9223372036854775807 to 18446744073709551614, the buffer has 1000 "
            "[bad_range]\n");
  EXPECT_EQ(errorText(Buffer().write(two, 1)),
            "error: empty buffer, it must come from a successful call [empty_handle]\n");
  Buffer moved = *device.allocate(8);
  EXPECT_EQ(moved.bytes(), 8);
}

// Memory of somebody else stays when its view goes.
TEST(Handles, ViewsOwnNothing) {
  Device device = must(Device::emulated("sm_80"));
  Buffer owner = must(device.allocate(512));
  const uint8_t two[] = {5, 6};
  {
    Buffer view = must(device.view(owner.address() + 256, 256));
    EXPECT_EQ(view.bytes(), 256);
    EXPECT_TRUE(view.write(two, 2, 254));
    EXPECT_FALSE(view.write(two, 2, 255));
  }
  uint8_t read[2] = {};
  ASSERT_TRUE(owner.read(read, 2, 510));
  EXPECT_EQ(read[1], 6);
  EXPECT_EQ(errorText(device.view(0, 16)), "error: address is null [null_pointer]\n");
  EXPECT_EQ(errorText(device.view(owner.address(), -1)),
            "error: -1 bytes, an allocation has between 0 and 70368744177664 [bad_size]\n");
  EXPECT_EQ(errorText(Device().view(16, 16)),
            "error: empty device, it must come from a successful call [empty_handle]\n");
}

TEST(Handles, AllocationsHaveLimits) {
  Device device = must(Device::emulated("sm_80"));
  EXPECT_EQ(must(device.allocate(0)).bytes(), 0);
  EXPECT_EQ(errorText(device.allocate(-1)),
            "error: -1 bytes, an allocation has between 0 and 70368744177664 [bad_size]\n");
  EXPECT_FALSE(device.allocate(INT64_MAX));
  EXPECT_EQ(errorText(device.allocate(int64_t(1) << 46)),
            "error: 70368744177664 bytes do not fit into the memory of NVIDIA A100-SXM4-80GB "
            "(emulated) [out_of_memory]\n");
}

TEST(Handles, DevicesSayWhatTheyAre) {
  Device device = must(Device::emulated("sm_90a"));
  EXPECT_EQ(device.name(), "NVIDIA H200 (emulated)");
  EXPECT_EQ(device.target(), "sm_90a");
  EXPECT_TRUE(device.isEmulated());
  EXPECT_TRUE(device.synchronize());
  EXPECT_FALSE(Device::emulated("sm_1"));
  EXPECT_TRUE(Device::automatic());
}

TEST(Handles, GemmsAreFoundByName) {
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), noDisk()));
  auto compile = [&](const char *text, const char *name) {
    return errorText(engine.compile(parsed(text), name, {1, 64, 64}));
  };
  const char *none = "format a {\n  element: s4\n  value = element\n}\n";
  EXPECT_EQ(compile(none, ""), "error: the module declares no gemm [no_gemm]\n");
  const char *open =
      "format a(G: int) { element: s4 scale: f16 per k[G] value = element * scale }\n"
      "gemm g(G: int) { weight: a(G) activation: f16 output: f16 }\n";
  for (const std::string &text : {std::string(open), open + std::string("gemm h = g(64)\n")})
    EXPECT_EQ(compile(text.c_str(), "g"),
              "error: gemm 'g' is declared with a parameter 'G' that has no value, gemm NAME = "
              "g(G = ...) gives it one [parameter_without_value]\n");
  EXPECT_EQ(compile(open, "").substr(0, 17), "error: gemm 'g' i");
  EXPECT_EQ(compile(w4a16, "w4"),
            "error: no gemm 'w4', the module declares w4a16 [unknown_gemm]\n");
  EXPECT_EQ(compile(w4a16, "w4a61"),
            "error: no gemm 'w4a61', the module declares w4a16, did you mean 'w4a16' "
            "[unknown_gemm]\n");
  std::string two =
      std::string(w4a16) + "gemm other {\n  weight: int4\n  activation: f16\n  output: f16\n}\n";
  EXPECT_EQ(compile(two.c_str(), ""),
            "error: no gemm is named, the module declares 2: w4a16, other [ambiguous_gemm]\n");
  EXPECT_EQ(compile(two.c_str(), "other"), "");
  EXPECT_EQ(parsed(two.c_str()).gemms(), (std::vector<std::string>{"w4a16", "other"}));
}

TEST(Handles, ModuleErrorsComeThrough) {
  Result<Module> missing = Module::load("/nonexistent/file.rho");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().diagnostics[0].id, DiagId::module_not_found);
  EXPECT_FALSE(Module::parse("gemm"));
}

// More rows of tiles than a grid has: 8 * 65535 is less than the largest m.
TEST(Handles, ImportsMayComeFromMemory) {
  const char *text = "import \"parts/w.rho\" gemm g { weight: w activation: f16 output: f16 }";
  const char *part = "format w { element: s4 scale: f16 per channel value = element * scale }";
  std::string asked;
  auto imports = [&](const std::string &path) -> std::optional<std::string> {
    asked = path;
    if (path != "of/parts/w.rho")
      return std::nullopt;
    return part;
  };
  EXPECT_EQ(must(Module::parse(text, "of/model.rho", imports)).gemms(),
            std::vector<std::string>{"g"});
  EXPECT_EQ(asked, "of/parts/w.rho");
  EXPECT_NE(errorText(Module::parse(text, "x/other.rho", imports))
                .find("cannot read file 'x/parts/w.rho'"),
            std::string::npos);
  EXPECT_NE(errorText(Module::parse(text)).find("[import_not_found]"), std::string::npos);
}

TEST(Handles, TooManyTilesForAGrid) {
  std::string text(w4a16);
  text.insert(text.rfind('}'), "  schedule {\n    tile: 8 x 64 x 64\n  }\n");
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), noDisk()));
  EXPECT_EQ(errorText(engine.compile(parsed(text.c_str()), "", {524288, 64, 64})),
            "error: m = 524288 needs 65536 rows of tiles, a launch has at most 65535 "
            "[grid_too_large]\n");
}

TEST(Handles, ShapesAreTheCompilersAffairAndErrorsComeThrough) {
  Engine engine = must(Engine::create(must(Device::emulated("sm_80")), noDisk()));
  for (GemmShape shape : {GemmShape{0, 1, 1}, GemmShape{1, -1, 1}, GemmShape{1, 1, INT64_MAX}}) {
    Result<Gemm> gemm = engine.compile(parsed(w4a16), "", shape);
    ASSERT_FALSE(gemm);
    EXPECT_EQ(gemm.error().diagnostics[0].id, DiagId::bad_problem);
  }
}

} // namespace
} // namespace rho
