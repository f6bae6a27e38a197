// rho cache, as a user runs it.
#include "runtime/CacheEntries.h"
#include "runtime/cache/Bundle.h"
#include "runtime/cache/Sha256.h"
#include "tests/runtime/TemporaryFolder.h"
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

using namespace rho;
using namespace rho::test;
using testing::HasSubstr;
using testing::MatchesRegex;

namespace {

class CacheCommandTest : public testing::Test {
protected:
  static std::string gemm(const char *name = "int4_g128_f16") {
    return shipped("kernels/gemms/" + std::string(name) + ".rho");
  }
  ToolResult rho(std::vector<std::string> arguments, const std::string &cache) const {
    arguments.insert(arguments.end(), {"--cache-dir", cache});
    return runTool(arguments);
  }
  ToolResult rho(const std::vector<std::string> &arguments) const { return rho(arguments, here); }
  // Two kernels, of n = 64 and n = 80, and a plan for each problem.
  ToolResult warm() const {
    return rho(
        {"cache", "warm", gemm(), "--m", "1,2", "--n", "64,80", "--k", "128", "--device", "sm_80"});
  }
  std::string runs(const std::string &cache) const {
    return rho({"run", gemm(), "--m", "1", "--n", "64", "--k", "128", "--device", "sm_80"}, cache)
        .out;
  }
  // As rho tune keeps it: of no declaration that is ever looked up.
  void keepPlan() const {
    ToolResult plan =
        runTool({"compile", gemm(), "--m", "9", "--n", "64", "--k", "128", "--emit", "plan"});
    cache::Entry entry = planEntry(compiler::Plan::parse(plan.out).value(), 12.5);
    label(entry, {.kind = EntryKind::TunedPlan,
                  .name = "int4_g128_f16",
                  .problem = "m up to 16, n 64, k 128",
                  .target = "sm_80",
                  .device = "a device"});
    cache::Warnings warnings;
    ASSERT_TRUE(tuned().store(cache::hex(cache::sha256("plan")), entry, warnings));
  }
  cache::DiskCache tuned() const { return cache::DiskCache({.directory = here + "/tuned"}); }
  std::vector<cache::StoredEntry> kernels() const { // without the plans
    std::vector<cache::StoredEntry> found = cache::storedEntries(here);
    std::erase_if(found,
                  [&](const auto &each) { return !fs::exists(here + "/" + each.key + "/ptx"); });
    return found;
  }

  TemporaryFolder folder;
  const std::string here = folder.path() + "/here", there = folder.path() + "/there";
  const std::string bundle = folder.path() + "/kernels.bundle";
};

TEST_F(CacheCommandTest, warmCompilesOnceAndLaterRunsLoad) {
  ToolResult first = warm();
  EXPECT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_EQ(first.err, "");
  EXPECT_THAT(first.out, HasSubstr("folder      " + here + "\n"));
  EXPECT_THAT(first.out, HasSubstr("kernels     2: 2 compiled, 0 were there, 2 further shapes "
                                   "share them\n"));
  EXPECT_EQ(kernels().size(), 2U);
  EXPECT_THAT(warm().out, HasSubstr("2: 0 compiled, 2 were there, 2 further"));
  EXPECT_THAT(runs(here), HasSubstr("cache       hit, from disk"));
}

TEST_F(CacheCommandTest, warmSaysWhatIsNotKept) {
  ToolResult small = rho({"cache", "warm", gemm(), "--n-k", "64x128,80x128", "--device", "sm_80",
                          "--cache-limit", "1K"});
  EXPECT_EQ(small.code, 1);
  // One stays, unless the two that are stored at the same time each make room for themselves.
  EXPECT_THAT(small.err, HasSubstr(" of 2 kernels are not in cache folder " + here +
                                   ": its limit of 1024 bytes is too low [cache_not_warm]\n"));
  fs::create_directories(there);
  writeText(there + "/locks", "a file");
  ToolResult told = rho({"cache", "warm", gemm(), "--n-k", "64x128", "--device", "sm_80"}, there);
  EXPECT_EQ(told.code, 1);
  EXPECT_THAT(told.out, HasSubstr("warning     cache folder " + there + " is not writable"));
  EXPECT_EQ(told.err, "error: 1 of 1 kernels are not in cache folder " + there +
                          ": the warnings say why [cache_not_warm]\n");
  writeText(folder.path() + "/file", "");
  ToolResult unwritable = rho({"cache", "warm", gemm(), "--n-k", "64x128", "--device", "sm_80"},
                              folder.path() + "/file/cache");
  EXPECT_EQ(unwritable.code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("Not a directory [file_not_readable]"));
  const std::string roles = folder.path() + "/roles.rho";
  writeText(roles, "format w { element: s4 scale: f16 per channel value = element * scale }\n"
                   "gemm g { weight: w activation: f16 output: f16 schedule { roles: imfp } }");
  ToolResult failing = rho({"cache", "warm", roles, "--n-k", "64x128", "--device", "sm_80"});
  EXPECT_EQ(failing.code, 1);
  EXPECT_THAT(failing.out, HasSubstr("0: 0 compiled, 0 were there, 0 further shapes share them, "
                                     "1 failed\n"));
  EXPECT_THAT(failing.err, HasSubstr("error: "));
}

TEST_F(CacheCommandTest, warmNeedsShapes) {
  EXPECT_EQ(rho({"cache", "warm", gemm(), "--n", "64"}).err,
            "error: --n-k is missing, it, or --n and --k, says what shapes to compile for "
            "[option_missing]\n");
  EXPECT_EQ(rho({"cache", "warm", gemm(), "--n", "64", "--n-k", "1x1"}).err,
            "error: --n-k and --n do not go together: it says n and k [option_conflict]\n");
}

TEST_F(CacheCommandTest, listShowsWhatIsThere) {
  ToolResult empty = rho({"cache", "list"});
  EXPECT_EQ(empty.code, 0) << empty.err;
  EXPECT_THAT(empty.out, HasSubstr("kernels     " + here + ": 0 of 0 bytes, at most 1.07 GB\n"));
  EXPECT_FALSE(fs::exists(here)); // a look creates nothing
  warm();
  keepPlan();
  // The last used is shown first.
  std::string last = kernels()[0].key;
  fs::last_write_time(here + "/" + last + "/used",
                      fs::file_time_type::clock::now() + std::chrono::minutes(1));
  ToolResult list = rho({"cache", "list"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr(here + ": 6 of "));
  EXPECT_THAT(list.out, HasSubstr(here + "/tuned: 1 of "));
  std::vector<std::string> rows;
  std::istringstream lines(list.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("kernel ") || line.starts_with("tuned plan "))
      rows.push_back(line);
  ASSERT_EQ(rows.size(), 3U) << list.out;
  EXPECT_THAT(rows[0], HasSubstr(last.substr(0, 16)));
  EXPECT_THAT(rows[0] + rows[1], HasSubstr("m any, n 64, k 128 "));
  EXPECT_THAT(rows[0] + rows[1], HasSubstr("m any, n 80, k 128 "));
  for (int i : {0, 1})
    EXPECT_THAT(rows[static_cast<size_t>(i)],
                MatchesRegex("kernel +int4_g128_f16 +m any, n .*, k 128 +sm_80 +NVIDIA "
                             "A100-SXM4-80GB \\(emulated\\), emulator +this build +[0-9.]+ KB +"
                             "20..-..-.. ..:.. +[0-9a-f]+"));
  EXPECT_THAT(rows[2], HasSubstr("tuned plan  int4_g128_f16  m up to 16, n 64, k 128"));
}

TEST_F(CacheCommandTest, verifyReportsAndClearRemovesWhatIsDamaged) {
  warm();
  keepPlan();
  EXPECT_EQ(rho({"cache", "verify"}).code, 0);
  const std::string damaged = kernels()[0].key;
  writeText(here + "/" + damaged + "/ptx", "nonsense");
  std::string foreign = cache::hex(cache::sha256("foreign"));
  cache::Warnings warnings;
  ASSERT_TRUE(tuned().store(foreign, {{"note", "hello"}}, warnings));
  ToolResult verified = rho({"cache", "verify"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, HasSubstr("damaged     " + here + "/" + damaged + ": ptx has fewer"));
  EXPECT_THAT(verified.out,
              HasSubstr("damaged     " + here + "/tuned/" + foreign + ": it has no label\n"));
  EXPECT_THAT(verified.out, HasSubstr("kernels     5 sound\n"));
  EXPECT_THAT(verified.out, HasSubstr("tuned       1 sound\n"));
  EXPECT_TRUE(fs::exists(here + "/" + damaged)); // it only looks
  EXPECT_THAT(rho({"cache", "list"}).out, HasSubstr("\ndamaged "));

  ToolResult cleared = rho({"cache", "clear", "--damaged"});
  EXPECT_EQ(cleared.code, 0) << cleared.err;
  EXPECT_FALSE(fs::exists(here + "/" + damaged));
  EXPECT_EQ(kernels().size(), 1U);
  EXPECT_EQ(tuned().entries().size(), 1U);
  EXPECT_EQ(rho({"cache", "verify"}).code, 0);
}

// As after `ulimit -n`: with one descriptor more an entry's folder is opened, and not its files.
TEST_F(CacheCommandTest, whatCannotBeReadNowIsNoDamage) {
  warm();
  const std::string damaged = kernels()[0].key;
  writeText(here + "/" + damaged + "/ptx", "nonsense");
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  auto withFewFiles = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--cache-dir", here});
    rlimit before = {};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few = {4, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    ToolProcess process = startTool(arguments);
    setrlimit(RLIMIT_NOFILE, &before);
    return process.wait();
  };
  ToolResult verified = withFewFiles({"cache", "verify"});
  EXPECT_EQ(verified.code, 1);
  for (const cache::StoredEntry &entry : kernels())
    EXPECT_THAT(verified.out, HasSubstr("no access   " + here + "/" + entry.key +
                                        ": manifest: Too many open files\n"));
  EXPECT_THAT(verified.out, HasSubstr("kernels     0 sound\n"));
  ToolResult cleared = withFewFiles({"cache", "clear", "--damaged"});
  EXPECT_EQ(cleared.code, 0) << cleared.err;
  EXPECT_EQ(cleared.out, "kernels     0 removed, 0 bytes, 6 without access kept\n"
                         "tuned       0 removed, 0 bytes\n");
  EXPECT_EQ(kernels().size(), 2U);
  EXPECT_THAT(rho({"cache", "clear", "--damaged"}).out, HasSubstr("kernels     1 removed, "));
  EXPECT_FALSE(fs::exists(here + "/" + damaged));
}

TEST_F(CacheCommandTest, clearKeepsWhatWasMeasuredUnlessTold) {
  warm();
  keepPlan();
  writeText(here + "/notes.txt", "mine");
  fs::create_directories(here + "/" + std::string(64, 'a'));
  writeText(here + "/" + std::string(64, 'a') + "/config.json", "mine, too");
  const std::string theirs = here + "/" + std::string(64, 'b') + "/manifest";
  fs::create_directories(here + "/" + std::string(64, 'b'));
  writeText(theirs, "mine as well, of another program");
  ToolResult cleared = rho({"cache", "clear"});
  EXPECT_EQ(cleared.code, 0) << cleared.err;
  EXPECT_THAT(cleared.out, HasSubstr("kernels     6 removed, "));
  EXPECT_TRUE(fs::exists(theirs));
  EXPECT_THAT(cleared.out, HasSubstr("tuned       1 kept, --tuned removes them too\n"));
  EXPECT_TRUE(kernels().empty());
  EXPECT_EQ(tuned().entries().size(), 1U);
  EXPECT_EQ(rho({"cache", "clear", "--tuned"}).code, 0);
  EXPECT_TRUE(tuned().entries().empty());
  EXPECT_TRUE(fs::exists(here + "/notes.txt"));
  EXPECT_TRUE(fs::exists(here + "/" + std::string(64, 'a') + "/config.json"));
  EXPECT_EQ(rho({"cache", "clear", "--tuned", "--damaged"}).err,
            "error: --damaged and --tuned do not go together: what is damaged goes from both "
            "folders [option_conflict]\n");
}

TEST_F(CacheCommandTest, aBundleMovesKernelsAndPlans) {
  warm();
  keepPlan();
  ToolResult exported = rho({"cache", "export", bundle});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("kernels     6 exported, "));
  EXPECT_THAT(exported.out, HasSubstr("tuned       1 exported, "));
  ToolResult imported = rho({"cache", "import", bundle}, there);
  EXPECT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(imported.out, "kernels     6 imported, 0 were there\n"
                          "tuned       1 imported, 0 were there\n");
  EXPECT_EQ(rho({"cache", "verify"}, there).code, 0);
  EXPECT_THAT(runs(there), HasSubstr("cache       hit, from disk"));
  EXPECT_EQ(rho({"cache", "import", bundle}, there).out, "kernels     0 imported, 6 were there\n"
                                                         "tuned       0 imported, 1 were there\n");
}

// Of a file of an entry the bundle would take the place, of one among locks it would be cleared.
TEST_F(CacheCommandTest, aBundleLiesOutsideOfTheEntries) {
  warm();
  const std::string key = kernels()[0].key, entry = here + "/" + key;
  fs::create_directory_symlink(entry, there + "-linked");
  for (const std::string &file :
       {entry + "/facts", entry + "/./facts", there + "-linked/facts", here + "/locks/" + key}) {
    const ToolResult refused = rho({"cache", "export", file});
    EXPECT_EQ(refused.code, 1) << file;
    EXPECT_THAT(refused.err, HasSubstr("it would lie in one of its own folders [option_conflict]"));
  }
  const std::string free(64, 'a');
  keepPlan();
  fs::remove_all(here + "/staging");
  for (const std::string &folder : {here, here + "/tuned"})
    for (const std::string &name : {free, std::string("staging"), std::string("locks")}) {
      const ToolResult refused = rho({"cache", "export", folder + "/" + name});
      EXPECT_EQ(refused.code, 1) << name;
      EXPECT_THAT(refused.err,
                  HasSubstr("it would have a name of one of its own [option_conflict]"));
    }
  fs::remove_all(here + "/tuned");
  EXPECT_THAT(rho({"cache", "export", here + "/tuned"}).err,
              HasSubstr("it would have a name of one of its own [option_conflict]"));
  EXPECT_EQ(rho({"cache", "export", here + "/kernels.bundle"}).code, 0);
  EXPECT_EQ(rho({"cache", "verify"}).code, 0);
}

TEST_F(CacheCommandTest, exportLeavesOutWhatNobodyCouldUse) {
  warm();
  const std::string damaged = kernels()[0].key, sound = kernels()[1].key;
  cache::DiskCache disk({.directory = here});
  cache::Entry foreign = disk.inspect(sound).entry.value();
  EntryLabel label = labelOf(foreign);
  label.maker = "build 1";
  ::rho::label(foreign, label);
  cache::Warnings warnings;
  ASSERT_TRUE(disk.store(cache::hex(cache::sha256("foreign")), foreign, warnings));
  // Quantizers are those of a program, which builds may share.
  cache::Entry quantizer = {{"cubin", std::string("\x7f"
                                                  "ELF")}};
  ::rho::label(quantizer, {.kind = EntryKind::Quantizer});
  EXPECT_TRUE(labelOf(quantizer).servesThisBuild());
  EXPECT_NE(labelOf(quantizer).maker, generatorName());
  writeText(here + "/" + damaged + "/ptx", "nonsense");
  EXPECT_THAT(rho({"cache", "list"}).out, HasSubstr("another build"));
  std::string out = rho({"cache", "export", bundle}).out;
  EXPECT_THAT(out, HasSubstr("kernels     5 exported, "));
  EXPECT_THAT(out, HasSubstr(", 2 damaged, without access or of another build left out\n"));
  EXPECT_EQ(rho({"cache", "export", "/none/x"}).code, 1);
  // As every other output: through a link, and with the mode of the file that was there.
  const std::string link = bundle + ".link";
  ASSERT_EQ(chmod(bundle.c_str(), 0600), 0);
  std::filesystem::create_symlink(bundle, link);
  ASSERT_EQ(rho({"cache", "export", link}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::status(bundle).permissions(), std::filesystem::perms(0600));
  std::filesystem::remove(bundle);
  EXPECT_THAT(rho({"cache", "export", link}).err, HasSubstr("a symbolic link to nothing"));
  std::filesystem::remove(link);
}

TEST_F(CacheCommandTest, importTakesAllOrNothing) {
  warm();
  ASSERT_EQ(rho({"cache", "export", bundle}).code, 0);
  const std::string whole = readText(bundle);
  auto refused = [&](const std::string &why) {
    ToolResult result = rho({"cache", "import", bundle}, there);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_TRUE(cache::storedEntries(there).empty());
  };
  writeText(bundle, whole.substr(0, whole.size() - 30));
  refused("[bundle_damaged]");
  std::string other = whole;
  other.replace(other.find("build ") + 6, 4, "0000");
  writeText(bundle, other);
  refused("[bundle_foreign]");
  auto write = [&](const cache::BundleItem &second) {
    Result<cache::BundleWriter> writer = cache::BundleWriter::create(bundle, generatorName());
    cache::ReadEntry sound = cache::DiskCache({.directory = here}).inspect(kernels()[0].key);
    ASSERT_TRUE(writer && sound.entry);
    ASSERT_TRUE(writer->add({"kernels", kernels()[0].key, *sound.entry}));
    ASSERT_TRUE(writer->add(second));
    ASSERT_TRUE(writer->finish());
  };
  const std::string key = cache::hex(cache::sha256("x"));
  write({"kernels", key, {{"note", "hello"}}});
  refused("entry " + key + ": it has no label [bundle_damaged]");
  write({"elsewhere", key, {}});
  refused("entry " + key + ": there is no folder 'elsewhere' [bundle_damaged]");
  writeText(bundle, whole);
  ToolResult small = rho({"cache", "import", bundle, "--cache-limit", "1K"}, there);
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.out,
              HasSubstr("6 imported, 0 were there, 5 are not kept: the limit is 1.02 KB\n"));
}

TEST_F(CacheCommandTest, importSaysWhatTheLimitRemoved) {
  warm();
  ASSERT_EQ(rho({"cache", "export", bundle}).code, 0);
  const int64_t bytes = cache::bytesOf(cache::storedEntries(here));
  for (const char *n : {"96", "112"})
    EXPECT_EQ(
        rho({"run", gemm(), "--m", "1", "--n", n, "--k", "128", "--device", "sm_80"}, there).code,
        0);
  ToolResult imported =
      rho({"cache", "import", bundle, "--cache-limit", std::to_string(bytes * 5 / 4)}, there);
  EXPECT_EQ(imported.code, 0) << imported.out << imported.err;
  EXPECT_THAT(imported.out, MatchesRegex("kernels     6 imported, 0 were there, [1-4] of others "
                                         "removed: the limit is .* KB\ntuned .*\n"));
}

TEST_F(CacheCommandTest, aLimitKeepsWhatWasUsedLast) {
  warm();
  int64_t bytes = cache::bytesOf(cache::storedEntries(here));
  std::string older = kernels()[1].key;
  fs::last_write_time(here + "/" + older + "/used",
                      fs::file_time_type::clock::now() - std::chrono::hours(5));
  ToolResult third = rho({"run", gemm(), "--m", "1", "--n", "96", "--k", "128", "--device", "sm_80",
                          "--cache-limit", std::to_string(bytes * 5 / 4)});
  EXPECT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(kernels().size(), 2U);
  EXPECT_FALSE(fs::exists(here + "/" + older));
}

TEST_F(CacheCommandTest, mistakesAreNamed) {
  const ToolResult help = runTool({"cache"});
  EXPECT_EQ(help.code, 0);
  for (const char *command : {"list", "verify", "clear", "export", "import", "warm"})
    EXPECT_THAT(help.out, HasSubstr("rho cache " + std::string(command) + " "));
  EXPECT_EQ(runTool({"help", "cache"}).out, help.out);
  EXPECT_EQ(runTool({"cache", "--help"}).out, help.out);
  EXPECT_EQ(runTool({"cache", "--tuned"}).code, 2);
  EXPECT_THAT(runTool({"cache", "lost"}).err, HasSubstr("did you mean 'cache list'"));
  EXPECT_EQ(runTool({"cache", "lost"}).code, 2);
  EXPECT_EQ(rho({"cache", "list", "x.rho"}).err,
            "error: x.rho and rho cache list do not go together: it works on the cache folder, "
            "which --cache-dir names [option_conflict]\n");
  EXPECT_EQ(rho({"cache", "export"}).err,
            "error: 0 files are given, 'rho cache export' works on one [wrong_file_count]\n");
  EXPECT_EQ(rho({"cache", "import", bundle, "--cache-limit", "much"}).code, 2);
  EXPECT_THAT(rho({"cache", "import", bundle}).err, HasSubstr("[file_not_readable]"));
  writeText(folder.path() + "/file", "");
  EXPECT_EQ(rho({"cache", "list"}, folder.path() + "/file").err,
            "error: '" + folder.path() +
                "/file' cannot be read: Not a directory [file_not_readable]\n");
  EXPECT_THAT(runTool({"help", "cache", "clear"}).out, HasSubstr("--damaged"));
  EXPECT_THAT(runTool({"cache", "list", "--help"}).out, HasSubstr("rho cache list [options]"));
}

TEST(CacheDiagnosticsTest, thoseThatTakeTheRightMachine) {
  EXPECT_EQ(makeError(DiagId::no_cache_folder).str(),
            "error: no cache folder is named: $RHO_CACHE_DIR, $XDG_CACHE_HOME and $HOME are not "
            "set [no_cache_folder]\n");
  EXPECT_EQ(makeError(DiagId::cache_not_cleared, {"/c", "2"}).str(),
            "error: cache folder /c has 2 entries that cannot be removed [cache_not_cleared]\n");
}

} // namespace
