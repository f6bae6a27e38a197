// What decides whether two compilations share an entry on disk, and what must not.
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace rho {
namespace {

using Source = CompileReport::Source;

class CacheKeyTest : public testing::Test {
protected:
  Engine engine(const std::string &cache = "cache") const {
    EngineOptions options;
    options.cacheDirectory = folder.path() + "/" + cache;
    return must(Engine::create(device, options));
  }
  cache::Entry entry(const std::string &cache, const std::string &key) const {
    return cache::readEntry(folder.path() + "/" + cache + "/" + key, key)
        .entry.value_or(cache::Entry{});
  }
  CompileReport compiled(const Engine &engine, const Module &module,
                         const std::string &gemm = "") const {
    return must(engine.compile(module, gemm, shape)).report();
  }

  TemporaryFolder folder;
  const Device device = must(Device::emulated("sm_80"));
  const GemmShape shape{3, 64, 128};
};

TEST_F(CacheKeyTest, NeitherPathsNorTimesOfFiles) {
  std::string key;
  const std::string text = w4a16;
  const size_t gemm = text.find("gemm");
  for (const auto &[place, age] : {std::pair{"here", 1}, std::pair{"far/away", 90000}}) {
    fs::path root = fs::path(folder.path()) / place;
    fs::create_directories(root / "formats");
    writeText(root / "formats" / "int4.rho", text.substr(0, gemm));
    writeText(root / "main.rho", "import \"formats/int4.rho\"\n" + text.substr(gemm));
    for (const char *file : {"main.rho", "formats/int4.rho"})
      fs::last_write_time(root / file, fs::file_time_type::clock::now() - std::chrono::hours(age));
    CompileReport report = compiled(engine(), must(Module::load(root / "main.rho")));
    EXPECT_EQ(report.source, key.empty() ? Source::Compiled : Source::Disk);
    if (!key.empty())
      EXPECT_EQ(report.key, key);
    key = report.key;
  }
  for (const auto &[name, bytes] : entry("cache", key))
    EXPECT_EQ(bytes.find(folder.path()), std::string::npos) << name;
}

TEST_F(CacheKeyTest, NorTheOrderOfDeclarationsAndCompilations) {
  const std::string second = std::string(w4a8).substr(std::string(w4a8).find("format int8"));
  const std::string format = std::string(w4a16).substr(0, std::string(w4a16).find("gemm"));
  const std::string first = std::string(w4a16).substr(format.size());
  Module forward = parsed((format + first + second).c_str());
  Module backward = parsed((second + first + format).c_str());
  std::vector<std::string> keys;
  for (const char *gemm : {"w4a16", "w4a8"})
    keys.push_back(compiled(engine("forward"), forward, gemm).key);
  Engine one = engine("backward"); // both in one engine, in the other order
  EXPECT_EQ(compiled(one, backward, "w4a8").key, keys[1]);
  EXPECT_EQ(compiled(one, backward, "w4a16").key, keys[0]);
  for (const std::string &key : keys) {
    EXPECT_FALSE(entry("forward", key).empty());
    EXPECT_EQ(entry("forward", key), entry("backward", key)); // byte for byte
  }
}

// The generator's id is a hash of its sources: neither of where they are, nor of when they were
// written, nor of the order in which the build names them.
TEST_F(CacheKeyTest, TheIdOfTheGeneratorIsOfItsSourcesAlone) {
  auto idOf = [&](const std::string &place, const std::vector<std::string> &texts, bool backward) {
    fs::path root = fs::path(folder.path()) / place;
    fs::create_directories(root);
    std::string sources;
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string path = root / ("source" + std::to_string(i) + ".cpp");
      writeText(path, texts[i]);
      fs::last_write_time(path, fs::file_time_type::clock::now() -
                                    std::chrono::hours(place.size() * 100 + i));
      sources = backward ? path + (i ? ";" : "") + sources : sources + (i ? ";" : "") + path;
    }
    std::string output = root / "BuildId.inc";
    std::vector<std::string> owned = {RHO_CMAKE, "-DOUTPUT=" + output, "-DSOURCES=" + sources, "-P",
                                      std::string(RHO_SOURCE_DIR) + "/compiler/BuildId.cmake"};
    std::vector<char *> argv;
    for (std::string &argument : owned)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t child = 0;
    int status = -1;
    EXPECT_EQ(::posix_spawn(&child, RHO_CMAKE, nullptr, nullptr, argv.data(), environ), 0);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return readText(output);
  };
  std::string id = idOf("a", {"int a;", "int b;"}, false);
  EXPECT_NE(id, "");
  EXPECT_EQ(idOf("further/down", {"int a;", "int b;"}, true), id);
  EXPECT_NE(idOf("b", {"int a;", "int c;"}, false), id);
  EXPECT_NE(idOf("c", {"int b;", "int a;"}, false), id);
}

} // namespace
} // namespace rho
