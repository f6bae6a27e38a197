// Where entries are, how much of them is kept, what they say about themselves.
#include "runtime/CacheEntries.h"
#include "runtime/cache/Sha256.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace rho {
namespace {

// An environment variable for the length of a test.
class Variable {
public:
  Variable(const char *name, const char *value) : name(name) {
    if (const char *before = std::getenv(name))
      kept = before;
    if (value)
      ::setenv(name, value, 1);
    else
      ::unsetenv(name);
  }
  ~Variable() {
    if (kept)
      ::setenv(name, kept->c_str(), 1);
    else
      ::unsetenv(name);
  }
  Variable(const Variable &) = delete;
  Variable &operator=(const Variable &) = delete;

private:
  const char *name;
  std::optional<std::string> kept;
};

TEST(CacheFoldersTest, OptionsThenTheEnvironment) {
  Variable folder("RHO_CACHE_DIR", "/named"), limit("RHO_CACHE_LIMIT", nullptr);
  CacheFolders folders = must(cacheFolders());
  EXPECT_EQ(folders.kernels.directory, "/named");
  EXPECT_EQ(folders.tuned.directory, "/named/tuned");
  EXPECT_EQ(folders.kernels.limitBytes, int64_t(1) << 30);
  {
    Variable set("RHO_CACHE_LIMIT", "3M");
    EXPECT_EQ(must(cacheFolders()).kernels.limitBytes, 3 << 20);
    EngineOptions chosen;
    chosen.cacheLimitBytes = 5;
    chosen.cacheDirectory = "/chosen";
    EXPECT_EQ(must(cacheFolders(chosen)).kernels.limitBytes, 5);
    EXPECT_EQ(must(cacheFolders(chosen)).tuned.directory, "/chosen/tuned");
  }
  Variable none("RHO_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", "/xdg"), home("HOME", "/home");
  EXPECT_EQ(must(cacheFolders()).kernels.directory, "/xdg/rho");
  {
    Variable relative("XDG_CACHE_HOME", "xdg"); // of no folder in particular
    EXPECT_EQ(must(cacheFolders()).kernels.directory, "/home/.cache/rho");
    EXPECT_EQ(must(cacheFolders()).kernels.whyNone, "");
  }
  Variable noXdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(must(cacheFolders()).kernels.directory, "/home/.cache/rho");
  Variable noHome("HOME", nullptr);
  EXPECT_EQ(must(cacheFolders()).kernels.directory, "");
  EXPECT_EQ(must(cacheFolders()).tuned.directory, "");
  EXPECT_EQ(must(cacheFolders()).kernels.whyNone,
            "no cache folder is named: $RHO_CACHE_DIR, $XDG_CACHE_HOME and $HOME are not set");
  EngineOptions off;
  off.diskCache = false;
  EXPECT_EQ(must(cacheFolders(off)).kernels.whyNone, "");
}

// The system would take the name up to the NUL for the folder's, and with it what lies there.
TEST(CacheFoldersTest, ABadFolderIsAnError) {
  auto error = [](const std::string &kernels, const std::string &tuned) {
    EngineOptions options;
    options.cacheDirectory = kernels;
    options.tunedDirectory = tuned;
    Result<CacheFolders> folders = cacheFolders(options);
    return folders ? "" : folders.error().str();
  };
  const std::string nul = std::string("/a") + '\0' + "b";
  for (const std::string &text :
       {error(nul, ""), error("/a", nul), error('\0' + std::string("b"), "")})
    EXPECT_NE(text.find("for a cache: no name of a folder has a NUL [bad_cache_folder]"),
              std::string::npos)
        << text;
  EXPECT_EQ(
      error(nul, ""),
      "error: folder /a\\x00b for a cache: no name of a folder has a NUL [bad_cache_folder]\n");
  EXPECT_EQ(error("/a", "/b"), "");
  for (const char *same : {"/a", "/a/", "/a/.", "/a/b/.."})
    EXPECT_NE(
        error("/a", same).find("kernels and tuned plans have a folder each [bad_cache_folder]"),
        std::string::npos)
        << same;
}

TEST(CacheFoldersTest, ABadLimitIsAnError) {
  Variable set("RHO_CACHE_LIMIT", "much");
  EXPECT_EQ(cacheFolders().error().str(),
            "error: $RHO_CACHE_LIMIT is 'much', the size of a cache is a whole number from 1 on of "
            "bytes, below 2^63 of them, or of units as in 512K, 100M, 2G [bad_cache_limit]\n");
  EXPECT_FALSE(Engine::create(must(Device::emulated("sm_80"))).ok());
  EngineOptions negative;
  negative.cacheLimitBytes = -1;
  EXPECT_EQ(cacheFolders(negative).error().diagnostics[0].message.substr(0, 23),
            "cacheLimitBytes is '-1'");
}

TEST(ByteCountTest, NumbersAndUnits) {
  EXPECT_EQ(parseByteCount("1"), 1);
  EXPECT_EQ(parseByteCount("512K"), 512 << 10);
  EXPECT_EQ(parseByteCount("2G"), int64_t(2) << 30);
  EXPECT_EQ(parseByteCount("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char *bad : {"", "0", "-1", "K", "1k", "1KB", "1.5M", " 1", "1 M",
                          "9223372036854775808", "9223372036854775807K", "8589934592G", "+1"})
    EXPECT_EQ(parseByteCount(bad), std::nullopt) << bad;
}

TEST(EntryLabelTest, ComesBackAndMayBeMissing) {
  cache::Entry entry = {{"cubin", "code"}};
  EXPECT_EQ(labelOf(entry).kind, EntryKind::Unknown);
  EXPECT_EQ(labelOf(entry).maker, "");
  label(entry, {.kind = EntryKind::TunedPlan,
                .name = "g",
                .problem = problemText("up to 16", {9, 64, 128}),
                .target = "sm_90a",
                .device = "NVIDIA H200"});
  EntryLabel read = labelOf(entry);
  EXPECT_EQ(read.kind, EntryKind::TunedPlan);
  EXPECT_EQ(read.name, "g");
  EXPECT_EQ(read.problem, "m up to 16, n 64, k 128");
  EXPECT_EQ(read.target, "sm_90a");
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_EQ(read.maker, generatorName());
  for (const char *text : {"", "kind", "kind x\nname\n\n\n", "kind kernel"})
    EXPECT_EQ(labelOf({{"label", text}}).name, "");
}

// What an engine stores is sound; parts of it, and other things under its label, are not.
TEST(ContentTest, KernelsQuantizersAndPlans) {
  TemporaryFolder folder;
  EngineOptions options;
  options.cacheDirectory = folder.path();
  Gemm gemm = must(must(Engine::create(must(Device::emulated("sm_80")), options))
                       .compile(parsed(w4a16), "", {3, 64, 128}));
  const std::string &key = gemm.report().key;
  cache::ReadEntry stored = cache::readEntry(folder.path() + "/" + key, key);
  ASSERT_TRUE(stored.entry);
  cache::Entry kernel = *stored.entry;
  EXPECT_EQ(labelOf(kernel).kind, EntryKind::Kernel);
  EXPECT_EQ(labelOf(kernel).name, "w4a16");
  EXPECT_EQ(labelOf(kernel).problem, "m any, n 64, k 128");
  EXPECT_EQ(labelOf(kernel).target, "sm_80");
  EXPECT_EQ(contentDamage(kernel), "");
  cache::Entry broken = kernel;
  broken.erase("ptx");
  EXPECT_EQ(contentDamage(broken), "it holds no kernel");
  broken = kernel;
  broken["facts"] = "hello";
  EXPECT_NE(contentDamage(broken), "");
  broken = kernel;
  broken.erase("label");
  EXPECT_EQ(contentDamage(broken), "it has no label");

  cache::Entry plan = planEntry(must(compiler::Plan::parse(gemm.report().plan)), 12.5);
  label(plan, {.kind = EntryKind::TunedPlan});
  EXPECT_EQ(contentDamage(plan), "");
  plan["microseconds"] = "nan";
  EXPECT_EQ(contentDamage(plan), "it holds no plan with its time");
  plan["microseconds"] = "1";
  plan["plan"] = "hello";
  EXPECT_EQ(contentDamage(plan), "malformed plan at 'hello'");

  cache::Entry quantizer = {{"cubin", "code"}};
  label(quantizer, {.kind = EntryKind::Quantizer});
  EXPECT_EQ(contentDamage(quantizer), "");
  quantizer.erase("cubin");
  EXPECT_EQ(contentDamage(quantizer), "it holds no machine code");
}

} // namespace
} // namespace rho
