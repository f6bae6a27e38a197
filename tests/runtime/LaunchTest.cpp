// What a kernel is launched with, seen from inside: kernels that write down their own parameters
// take the place of compiled ones in the disk cache. On the emulator, and on a GPU that has
// clusters and tensor maps.
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rho {
namespace {

using compiler::KernelImage;
using Kind = compiler::KernelParameter::Kind;

struct Slot {
  std::string declaration; // of the PTX parameter
  int offset, bytes;       // in the parameter buffer
};

// Stores the parameters' words at their offsets and the grid's width behind them, at *output.
std::string recorder(const std::vector<Slot> &slots, size_t output) {
  std::string parameters, body;
  for (size_t i = 0; i < slots.size(); ++i) {
    std::string name = "p" + std::to_string(i);
    parameters += (i ? ",\n  .param " : "  .param ") + slots[i].declaration + " " + name +
                  (slots[i].bytes > 8 ? "[" + std::to_string(slots[i].bytes) + "]" : "");
    for (int at = 0; at < slots[i].bytes; at += 4)
      body += "  ld.param.b32 %word, [" + name + "+" + std::to_string(at) +
              "];\n  @%first st.global.b32 [%out+" + std::to_string(slots[i].offset + at) +
              "], %word;\n";
  }
  const Slot &last = slots.back();
  return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry g(\n" + parameters +
         "\n)\n{\n  .reg .pred %first;\n  .reg .b32 %word;\n  .reg .b64 %out;\n  mov.u32 %word, "
         "%ctaid.x;\n  setp.eq.u32 %first, %word, 0;\n  ld.param.b64 %out, [p" +
         std::to_string(output) + "];\n  griddepcontrol.wait;\n" + body +
         "  mov.u32 %word, %nctaid.x;\n  @%first st.global.b32 [%out+" +
         std::to_string(last.offset + last.bytes) + "], %word;\n  ret;\n}\n";
}

std::string declaration(const std::string &extent) {
  return "format w { element: s4 value = element }\n"
         "format x { element: s8 scale: f16 per " +
         extent +
         " value = element * scale }\n"
         "gemm g { weight: w activation: x output: f32 }";
}

class LaunchTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (GetParam() == std::string("emulated")) {
      device = must(Device::emulated("sm_90a"));
      return;
    }
    Result<Device> found = Device::cuda(0);
    if (!found)
      GTEST_SKIP() << found.error().str();
    if (found->target() != "sm_90a")
      GTEST_SKIP() << found->target() << " has no clusters";
    device = *found;
  }

  // The gemm of this declaration whose image `edit` has changed.
  template <class Edit> Gemm edited(const std::string &text, const Edit &edit) {
    EngineOptions options;
    options.cacheDirectory = folder.path();
    Module module = parsed(text.c_str());
    std::string key =
        must(must(Engine::create(device, options)).compile(module, "", shape)).report().key;
    cache::DiskCacheOptions disk;
    disk.directory = folder.path();
    cache::Warnings none;
    cache::Entry entry = cache::DiskCache(disk).load(key, none).value();
    KernelImage image = must(KernelImage::parse(entry["facts"], entry["ptx"]));
    edit(image);
    std::filesystem::remove_all(folder.path() + "/" + key);
    entry = {{"facts", image.printFacts()}, {"ptx", image.ptx}};
    if (std::string code = must(device.impl().backend->assemble(image)); !code.empty())
      entry.emplace("cubin", code);
    cache::DiskCache(disk).store(key, entry, none);
    return must(must(Engine::create(device, options)).compile(module, "", shape));
  }

  TemporaryFolder folder;
  Device device;
  const GemmShape shape{5, 64, 192};
};

TEST_P(LaunchTest, TensorMapsAreOverTheOperandsAndTheGridHasWholeClusters) {
  const std::string map = ".align 64 .b8";
  const std::vector<Slot> slots = {{".u64", 0, 8},  {map, 64, 128},   {map, 192, 128},
                                   {map, 320, 128}, {".u64", 448, 8}, {".u32", 456, 4}};
  std::string text = declaration("k[64]");
  text.insert(text.rfind('}'),
              " schedule { roles: imfp tile: 64 x 64 x 128 split_k: 1 cluster: 2 x 1 launch: "
              "dependent } ");
  Gemm gemm = edited(text, [&](KernelImage &image) {
    image.ptx = recorder(slots, 4);
    image.threads = 1;
    image.parameters = {{Kind::Weight},
                        {Kind::Activation, 0, 64, 8, true},
                        {Kind::ActivationComponent, 1, 16, 2},
                        {Kind::Output, 0, 128, 16},
                        {Kind::Output},
                        {Kind::M}};
  });
  ASSERT_EQ(gemm.report().source, CompileReport::Source::Disk);
  std::vector<float> w(static_cast<size_t>(shape.n * shape.k), 1.0f);
  Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, shape.k));
  Activations x = must(gemm.makeActivations());
  Buffer output = must(device.allocate(shape.m * shape.n * 4));
  ASSERT_EQ(errorText(gemm.launch(weight, x, output.address(), Buffer())), "");
  ASSERT_EQ(errorText(device.impl().backend->synchronize(nullptr)), "");
  std::vector<uint8_t> seen(464);
  ASSERT_TRUE(output.read(seen.data(), 464));

  auto number = [&](size_t at, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, seen.data() + at, bytes);
    return value;
  };
  EXPECT_EQ(number(0, 8), weight.address());
  EXPECT_EQ(number(448, 8), output.address());
  EXPECT_EQ(number(456, 4), 5U);
  EXPECT_EQ(number(460, 4), 2U); // CTAs along x for one tile
  auto expectMap = [&](size_t at, const TensorMapShape &expected) {
    TensorMap encoded = must(device.impl().backend->makeTensorMap(expected));
    EXPECT_THAT(std::vector<uint8_t>(seen.begin() + int64_t(at), seen.begin() + int64_t(at) + 128),
                testing::ElementsAreArray(encoded.bytes))
        << at;
  };
  expectMap(64, {x.impl().component(0), 192, 5, 192, 64, 8, true});
  // 5 rows have room for 16.
  expectMap(192, {x.impl().component(1), 16 * 2, 3, 16 * 2, 16, 2, false});
  expectMap(320, {output.address(), 64 * 4, 5, 64 * 4, 128, 16, false});
}

TEST_P(LaunchTest, TensorMapsOverComponentsNeedGroups) {
  Gemm gemm = edited(declaration("token"), [](KernelImage &image) {
    image.parameters = {{Kind::ActivationComponent, 1, 16, 2}};
  });
  EXPECT_EQ(gemm.report().source, CompileReport::Source::Compiled);
  EXPECT_THAT(gemm.report().warnings, testing::Contains(testing::HasSubstr(
                                          "it has a tensor map over a component without groups")));
}

// A kernel that starts beside the one before it waits before it touches what that one may write.
TEST_P(LaunchTest, DependentKernelsThatDoNotWaitAreFound) {
  if (!device.isEmulated())
    GTEST_SKIP() << "hardware does not say";
  std::string text = declaration("k[64]");
  text.insert(text.rfind('}'), " schedule { launch: dependent } ");
  for (bool waits : {true, false}) {
    int removed = 0;
    Gemm gemm = edited(text, [&](KernelImage &image) {
      const std::string wait = "griddepcontrol.wait;";
      for (size_t at = 0; !waits && (at = image.ptx.find(wait)) != std::string::npos; ++removed)
        image.ptx.erase(at, wait.size());
    });
    ASSERT_EQ(gemm.report().source, CompileReport::Source::Disk);
    EXPECT_EQ(removed > 0, !waits);
    std::vector<float> w(static_cast<size_t>(shape.n * shape.k), 1.0F);
    Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, shape.k));
    Buffer output = must(device.allocate(shape.m * shape.n * 4));
    Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
    const std::string error =
        errorText(gemm.launch(weight, must(gemm.makeActivations()), output.address(), workspace));
    EXPECT_EQ(error.find("[emulator_before_wait]") != std::string::npos, !waits) << error;
    EXPECT_EQ(error.empty(), waits);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LaunchTest, testing::Values("emulated", "gpu"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace
} // namespace rho
