// How kernels reach an engine: compiled, from disk, from memory.
#include "kernels/Reference.h"
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace fs = std::filesystem;

namespace rho {
namespace {

using Source = CompileReport::Source;
using testing::ElementsAre;
using testing::IsEmpty;

class EngineTest : public testing::Test {
protected:
  EngineOptions options() const {
    EngineOptions options;
    options.cacheDirectory = folder.path();
    return options;
  }
  Engine engine() const { return must(Engine::create(device, options())); }
  std::vector<std::string> stages(const CompileReport &report) const {
    std::vector<std::string> names;
    names.reserve(report.stages.size());
    for (const CompileReport::Stage &stage : report.stages)
      names.push_back(stage.name);
    return names;
  }
  TemporaryFolder folder;
  const Device device = must(Device::emulated("sm_80"));
  const Module module = parsed(w4a16);
  const GemmShape shape{3, 64, 128};
};

TEST_F(EngineTest, CompiledThenFromMemoryThenFromDisk) {
  Engine first = engine();
  Gemm cold = must(first.compile(module, "", shape));
  EXPECT_EQ(cold.report().source, Source::Compiled);
  EXPECT_THAT(stages(cold.report()), ElementsAre("plan", "rho", "tile", "llvm", "ptx", "assemble",
                                                 "load", "store", "quantizer"));
  EXPECT_THAT(cold.report().warnings, IsEmpty());
  EXPECT_GT(cold.report().totalMilliseconds, 0);

  Gemm again = must(first.compile(module, "w4a16", shape));
  EXPECT_EQ(again.report().source, Source::Memory);
  EXPECT_THAT(stages(again.report()), IsEmpty());

  Gemm disk = must(engine().compile(module, "", shape));
  EXPECT_EQ(disk.report().source, Source::Disk);
  EXPECT_THAT(stages(disk.report()), ElementsAre("plan", "read", "load", "quantizer"));
  for (const Gemm &gemm : {again, disk}) {
    EXPECT_EQ(gemm.report().key, cold.report().key);
    EXPECT_EQ(gemm.report().plan, cold.report().plan);
    EXPECT_EQ(gemm.report().sharedBytes, cold.report().sharedBytes);
    EXPECT_EQ(gemm.packedWeightBytes(), cold.packedWeightBytes());
  }
}

TEST_F(EngineTest, MovingTheTextRecompilesNothing) {
  Engine first = engine();
  (void)must(first.compile(module, "", shape));
  Module moved = parsed((std::string("// moved\n\n") + w4a16).c_str(), "elsewhere.rho");
  EXPECT_EQ(must(first.compile(moved, "", shape)).report().source, Source::Memory);
  EXPECT_EQ(must(engine().compile(moved, "", shape)).report().source, Source::Disk);
}

TEST_F(EngineTest, OtherDeclarationsTargetsAndShapesAreOtherKernels) {
  std::string key = must(engine().compile(module, "", shape)).report().key;
  EXPECT_NE(must(engine().compile(module, "", {3, 128, 128})).report().key, key);
  EXPECT_NE(must(engine().compile(parsed(w4a8), "", shape)).report().key, key);
  Engine other = must(Engine::create(must(Device::emulated("sm_90a")), options()));
  EXPECT_NE(must(other.compile(module, "", shape)).report().key, key);
}

// Formats of parts and of a residual are declarations of their own, of which a format has the
// names.
TEST_F(EngineTest, OtherPartsAreOtherKernels) {
  Engine one = engine();
  const std::string residual = "format fix { element: s4 scale: f16 per k[64] value = element * "
                               "scale }\nformat w { element: s4 scale: f16 per channel value = "
                               "element * scale residual r: fix per n[16] k[64] budget 10% }\n"
                               "gemm g { weight: w activation: f16 output: f32 }\n";
  for (const auto &[text, from, to] :
       {std::tuple{std::string(mixedActivation), "f32 per token", "f16 per token"},
        std::tuple{residual, "f16 per k[64]", "bf16 per k[64]"}}) {
    std::string changed = text;
    changed.replace(changed.find(from), std::string(from).size(), to);
    CompileReport first = must(one.compile(parsed(text.c_str()), "", {3, 64, 256})).report();
    CompileReport second = must(one.compile(parsed(changed.c_str()), "", {3, 64, 256})).report();
    EXPECT_NE(first.key, second.key) << changed;
    EXPECT_EQ(must(one.compile(parsed(text.c_str()), "", {3, 64, 256})).report().source,
              CompileReport::Source::Memory);
  }
}

TEST_F(EngineTest, ThreadsOnOneColdGemmCompileOnce) {
  Engine shared = engine();
  std::vector<Source> sources(6);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (Source &source : sources)
    threads.emplace_back([&] { source = must(shared.compile(module, "", shape)).report().source; });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(std::count(sources.begin(), sources.end(), Source::Compiled), 1);
}

TEST_F(EngineTest, ProcessesOnOneColdGemmCompileOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    pid_t child = ::fork();
    if (child == 0) {
      Result<Gemm> gemm = engine().compile(module, "", shape);
      ::_exit(!gemm ? 9 : gemm->report().source == Source::Compiled ? 1 : 0);
    }
    children.push_back(child);
  }
  int compiled = 0;
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    compiled += WEXITSTATUS(status);
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(EngineTest, DamagedEntriesAreRebuiltWithOneWarning) {
  std::string key = must(engine().compile(module, "", shape)).report().key;
  std::string path = folder.path() + "/" + key;
  writeText(path + "/ptx", "nonsense");
  Gemm rebuilt = must(engine().compile(module, "", shape));
  EXPECT_EQ(rebuilt.report().source, Source::Compiled);
  ASSERT_EQ(rebuilt.report().warnings.size(), 1U);
  EXPECT_EQ(rebuilt.report().warnings[0].substr(0, path.size() + 12), "cache entry " + path);
  EXPECT_EQ(must(engine().compile(module, "", shape)).report().source, Source::Disk);
}

// Sound files that are no kernel: another version of Rho, or somebody's joke.
TEST_F(EngineTest, ForeignContentIsRebuiltWithOneWarning) {
  std::string key = must(engine().compile(module, "", shape)).report().key;
  std::string path = folder.path() + "/" + key;
  cache::Warnings none;
  for (const cache::Entry &entry :
       {cache::Entry{{"note", "hello"}}, cache::Entry{{"facts", "hello"}, {"ptx", ""}}}) {
    fs::remove_all(path);
    cache::DiskCacheOptions disk;
    disk.directory = folder.path();
    cache::DiskCache(disk).store(key, entry, none);
    Gemm rebuilt = must(engine().compile(module, "", shape));
    EXPECT_EQ(rebuilt.report().source, Source::Compiled);
    EXPECT_EQ(rebuilt.report().warnings.size(), 1U);
    EXPECT_EQ(must(engine().compile(module, "", shape)).report().source, Source::Disk);
  }
}

// Sound files whose facts are not those of the kernel: launches and quantizers rely on them.
TEST_F(EngineTest, FactsThatDoNotFitTheGemmAreRebuiltWithOneWarning) {
  using Image = compiler::KernelImage;
  const std::string key = must(engine().compile(module, "", shape)).report().key;
  cache::DiskCacheOptions disk;
  disk.directory = folder.path();
  cache::Warnings none;
  cache::Entry entry = cache::DiskCache(disk).load(key, none).value();
  const Image image = must(Image::parse(entry["facts"], entry["ptx"]));
  const std::string plan = "it is not what the plan says",
                    rows = "its rows of activations have no room for their codes",
                    numbers = "it takes numbers of components that the weight has not";
  const std::pair<std::function<void(Image &)>, std::string> edits[] = {
      {[](Image &i) { i.k = i.activation.k = 64; }, plan},
      {[](Image &i) { i.activation.k = 64; }, plan},
      {[](Image &i) { i.tileM *= 2; }, plan},
      {[](Image &i) { i.residentCtas += 1; }, plan},
      {[](Image &i) { i.activation.pitchBytes += 1; }, rows},
      {[](Image &i) { i.activation.pitchBytes -= 16; }, rows},
      {[](Image &i) { i.activation.columnBits = {8, 1, 2, 3, 4, 5, 6, 7, 0}; }, rows},
      {[](Image &i) { i.operands = {{.type = "f16", .outside = {0, 1}}}; }, numbers},
      {[](Image &i) { i.operands = {{.type = "f16", .outside = {9}}}; }, numbers},
  };
  for (const auto &[edit, reason] : edits) {
    Image edited = image;
    edit(edited);
    fs::remove_all(folder.path() + "/" + key);
    entry["facts"] = edited.printFacts();
    cache::DiskCache(disk).store(key, entry, none);
    Gemm rebuilt = must(engine().compile(module, "", shape));
    EXPECT_EQ(rebuilt.report().source, Source::Compiled) << reason;
    EXPECT_THAT(rebuilt.report().warnings, ElementsAre(testing::HasSubstr(reason)));
    EXPECT_EQ(must(engine().compile(module, "", shape)).report().source, Source::Disk);
  }
}

TEST_F(EngineTest, ReadOnlyCachesAreReadAndNotWritten) {
  EngineOptions readOnly = options();
  readOnly.cacheReadOnly = true;
  EXPECT_EQ(must(must(Engine::create(device, readOnly)).compile(module, "", shape)).report().source,
            Source::Compiled);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  (void)must(engine().compile(module, "", shape));
  EXPECT_EQ(must(must(Engine::create(device, readOnly)).compile(module, "", shape)).report().source,
            Source::Disk);
}

TEST_F(EngineTest, WorksWithoutADisk) {
  EngineOptions none;
  none.diskCache = false;
  Gemm gemm = must(must(Engine::create(device, none)).compile(module, "", shape));
  EXPECT_EQ(gemm.report().source, Source::Compiled);
  EXPECT_THAT(gemm.report().warnings, IsEmpty());

  writeText(folder.path() + "/file", "");
  EngineOptions unwritable;
  unwritable.cacheDirectory = folder.path() + "/file/cache";
  gemm = must(must(Engine::create(device, unwritable)).compile(module, "", shape));
  EXPECT_THAT(gemm.report().warnings, ElementsAre("cache folder " + unwritable.cacheDirectory +
                                                  " is not writable, nothing is kept on disk: " +
                                                  folder.path() + "/file: Not a directory"));
}

TEST_F(EngineTest, TheEnvironmentNamesTheFolder) {
  const char *before = std::getenv("RHO_CACHE_DIR");
  std::string kept = before ? before : "";
  ::setenv("RHO_CACHE_DIR", (folder.path() + "/named").c_str(), 1);
  std::string key = must(must(Engine::create(device)).compile(module, "", shape)).report().key;
  EXPECT_TRUE(fs::exists(folder.path() + "/named/" + key + "/ptx"));
  if (before)
    ::setenv("RHO_CACHE_DIR", kept.c_str(), 1);
  else
    ::unsetenv("RHO_CACHE_DIR");
}

TEST_F(EngineTest, WhatNoKernelComputesIsRefusedWithItsPlace) {
  Result<Gemm> gemm = engine().compile(parsed(weightWithoutKernels), "", shape);
  ASSERT_FALSE(gemm);
  EXPECT_EQ(gemm.error().diagnostics[0].id, DiagId::no_decode);
  EXPECT_EQ(gemm.error().diagnostics[0].rendered.substr(0, 21), "test.rho:10:11: error");
}

// Activations that no instruction of a target takes.
TEST_F(EngineTest, NumbersAreStoredInPlaceOfCodes) {
  Module module = parsed("format w { element: s4 scale: f16 per k[64] value = element * scale } "
                         "format a { element: u8 scale: f32 per token zero: u8 per token value = "
                         "(element - zero) * scale } "
                         "gemm g { weight: w activation: a output: f32 }");
  Gemm gemm = must(engine().compile(module, "", {5, 64, 200}));
  std::vector<float> w = numbers(64, 200, 1), x = numbers(5, 200, 2);
  const Device device = engine().device();
  Buffer input = must(device.allocate(5 * 200 * 4)), y = must(device.allocate(5 * 64 * 4));
  Buffer workspace = must(device.allocate(gemm.workspaceBytes()));
  Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, 200));
  ASSERT_TRUE(input.write(x.data(), input.bytes()));
  Activations activations = must(gemm.makeActivations());
  ASSERT_EQ(errorText(gemm.quantizeActivations(activations, input.address(), ScalarType::F32, 200)),
            "");
  ASSERT_EQ(errorText(gemm.launch(weight, activations, y.address(), workspace)), "");
  const dsl::Gemm &declared = module.impl().module.gemms[0];
  auto codesOf = [](const dsl::Format &format, const std::vector<float> &from, int64_t rows) {
    return must(dsl::quantize(std::make_shared<const dsl::Format>(format),
                              {from.data(), dsl::MatrixView::Type::F32, rows, 200, 200}, true));
  };
  kernels::ReferenceOutput expected =
      kernels::reference(codesOf(declared.activation, x, 5), codesOf(declared.weight, w, 64));
  std::vector<float> outputs(5 * 64);
  ASSERT_TRUE(y.read(outputs.data(), y.bytes()));
  for (size_t i = 0; i < outputs.size(); ++i)
    ASSERT_NEAR(outputs[i], expected.y[i], expected.magnitude[i] * 1e-3) << i;
  dsl::QuantizedMatrix stored = must(readActivations(activations));
  EXPECT_EQ(stored.format->name, "a_as_f16");
  EXPECT_EQ(stored.components.size(), 2U); // and the scale
  Result<Activations> view = gemm.viewActivations(input.address());
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().diagnostics[0].id, DiagId::activations_not_viewable);
}

// By then what threads keep is destroyed, MLIR's caches too.
TEST(EngineDeathTest, CompilesAndPacksAtTheEndOfAProcess) {
  const auto leave = [] {
    static const Module module = parsed("import \"rho:liquidquant\"\nimport \"rho:int8_token\"\n"
                                        "gemm g { weight: liquidquant activation: int8_token "
                                        "output: f16 }\n");
    static const auto packed = [] {
      EngineOptions options;
      options.diskCache = false;
      options.threads = 1;
      Engine engine = must(Engine::create(must(Device::emulated("sm_80")), options));
      Gemm gemm = must(engine.compile(module, "", {3, 64, 256}));
      const std::vector<float> w(size_t(64) * 256, 1);
      Buffer weight = must(gemm.packWeights(w.data(), ScalarType::F32, 256));
      std::vector<uint8_t> bytes(weight.bytes());
      EXPECT_TRUE(weight.read(bytes.data(), bytes.size()));
      return bytes;
    };
    static const std::vector<uint8_t> before = packed();
    std::atexit([] { _exit(packed() == before ? 0 : 1); });
    std::exit(2);
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(0), "");
}

// Behind what MLIR and LLVM destroy, as what is there before main() is.
TEST(EngineDeathTest, NothingIsCompiledAtTheVeryEndOfAProcess) {
  const auto leave = [] {
    static const Module module = parsed(w4a16);
    static const auto compiled = [](int64_t n) {
      EngineOptions options;
      options.diskCache = false;
      const Engine engine = must(Engine::create(must(Device::emulated("sm_80")), options));
      return errorText(engine.compile(module, "", {3, n, 128}));
    };
    std::atexit([] {
      const std::string error = compiled(128); // none where a test before this one has compiled
      _exit(error.empty() || error ==
                                 "error: nothing is compiled once the process has begun to end "
                                 "[process_ends]\n"
                ? 0
                : 1);
    });
    EXPECT_EQ(compiled(64), "");
    std::exit(2);
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(0), "");
}

} // namespace
} // namespace rho
