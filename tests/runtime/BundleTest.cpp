// Bundles of entries: all of one, or an error and nothing of it.
#include "runtime/cache/Bundle.h"

#include "runtime/cache/Sha256.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

namespace fs = std::filesystem;

namespace rho::cache {
namespace {

using testing::HasSubstr;

constexpr const char *origin = "build 17";

class BundleTest : public testing::Test {
protected:
  void write(const std::vector<BundleItem> &items, const std::string &from = origin) const {
    Result<BundleWriter> writer = BundleWriter::create(path, from);
    ASSERT_TRUE(writer) << writer.error().str();
    for (const BundleItem &item : items)
      ASSERT_TRUE(writer->add(item));
    Status finished = writer->finish();
    ASSERT_TRUE(finished) << finished.error().str();
  }
  // What is wrong; "" when all is read.
  std::string read(std::vector<BundleItem> &items) const {
    Status status = readBundle(
        path, origin,
        [](const BundleItem &item) { return item.entry.contains("bad") ? "it is bad" : ""; },
        [&](const BundleItem &item) -> Status {
          items.push_back(item);
          return Done{};
        });
    return status ? "" : status.error().str();
  }
  void expectRefused(const std::string &reason) const {
    std::vector<BundleItem> items;
    EXPECT_EQ(read(items), "error: '" + path + "' is no sound bundle of cache entries: " + reason +
                               " [bundle_damaged]\n");
    EXPECT_TRUE(items.empty());
  }
  static std::string keyOf(const std::string &text) { return hex(sha256(text)); }

  TemporaryFolder folder;
  const std::string path = folder.path() + "/x.bundle";
  const std::vector<BundleItem> items = {
      {"kernels", keyOf("a"), {{"cubin", std::string("\0\n\xff", 3)}, {"ptx", "some\ntext"}}},
      {"tuned", keyOf("b"), {{"plan", ""}}},
      {"kernels", keyOf("c"), {}},
  };
};

TEST_F(BundleTest, GivesBackWhatWasWritten) {
  write({});
  std::vector<BundleItem> none;
  EXPECT_EQ(read(none), "");
  EXPECT_TRUE(none.empty());
  write(items); // in place of it
  std::vector<BundleItem> found;
  EXPECT_EQ(read(found), "");
  ASSERT_EQ(found.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(found[i].folder, items[i].folder);
    EXPECT_EQ(found[i].key, items[i].key);
    EXPECT_EQ(found[i].entry, items[i].entry);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST_F(BundleTest, EveryTruncationIsRefusedAsAWhole) {
  write(items);
  const std::string whole = readText(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    writeText(path, whole.substr(0, length));
    std::vector<BundleItem> found;
    EXPECT_THAT(read(found), HasSubstr("[bundle_damaged]")) << length;
    EXPECT_TRUE(found.empty()) << length;
  }
  writeText(path, whole + "\n");
  expectRefused("it goes on after its end");
}

TEST_F(BundleTest, EveryChangedByteIsRefusedAsAWhole) {
  write(items);
  const std::string whole = readText(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    writeText(path, changed);
    std::vector<BundleItem> found;
    EXPECT_THAT(read(found), HasSubstr("[bundle_")) << at; // damaged, or of another origin
    EXPECT_TRUE(found.empty()) << at;
  }
}

TEST_F(BundleTest, OtherVersionsAndOriginsAreRefused) {
  write(items, "build 16");
  std::vector<BundleItem> found;
  EXPECT_EQ(read(found), "error: '" + path +
                             "' comes from build 16, this is build 17: none of its kernels would "
                             "be found [bundle_foreign]\n");
  write(items);
  std::string text = readText(path);
  writeText(path, "rho-bundle 2" + text.substr(text.find('\n')));
  expectRefused("it does not begin as one of this version");
  EXPECT_TRUE(found.empty());
}

// Sound checksums do not help names that lead elsewhere.
TEST_F(BundleTest, NoNameLeavesItsFolder) {
  const std::string key = keyOf("a");
  for (const std::string &name :
       {std::string("../evil"), std::string("/etc/evil"), std::string(".."), std::string("."),
        std::string("a/b"), std::string(), std::string("used"), std::string("manifest"),
        std::string("used\0y", 6), std::string("\x1b[2J"), std::string("x\r")}) {
    SCOPED_TRACE(name);
    write({items[0], {"kernels", key, {{name, "evil"}}}});
    expectRefused("entry " + key + ": manifest has a bad line");
  }
  for (const char *name : {"..", "../x", "/etc", "", "Kernels"}) {
    SCOPED_TRACE(name);
    write({items[0], {name, key, {}}});
    expectRefused("an entry has a bad line");
  }
  for (const std::string &bad : {std::string("../../x"), key + "0", std::string(64, 'g')}) {
    SCOPED_TRACE(bad);
    write({items[0], {"kernels", bad, {}}});
    expectRefused("an entry has a bad line");
  }
}

TEST_F(BundleTest, OneBadEntryKeepsAllOut) {
  write({items[0], {"kernels", keyOf("bad"), {{"bad", "x"}}}, items[1]});
  expectRefused("entry " + keyOf("bad") + ": it is bad");
}

// Lengths are believed only as far as the file goes.
TEST_F(BundleTest, HugeLengthsAllocateNothing) {
  std::string body = "rho-cache 1\nkey " + keyOf("a") + "\nfile ptx 200000000 00\n";
  std::string manifest = body + "sum " + hex(sha256(body)) + "\n";
  writeText(path, std::string("rho-bundle 1\norigin ") + origin + "\nentry kernels " + keyOf("a") +
                      " " + std::to_string(manifest.size()) + "\n" + manifest);
  expectRefused("entry " + keyOf("a") + ": it is cut short");
  writeText(path, std::string("rho-bundle 1\norigin ") + origin + "\nentry kernels " + keyOf("a") +
                      " 18446744073709551615\n");
  expectRefused("an entry has a bad line");
  writeText(path, std::string(100000, 'x'));
  expectRefused("it does not begin as one of this version");
}

TEST_F(BundleTest, OnlyRegularFilesAreReadAndReplaced) {
  std::vector<BundleItem> found;
  EXPECT_EQ(read(found), "error: '" + path +
                             "' cannot be read: No such file or directory [file_not_readable]\n");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(read(found), HasSubstr("it is no regular file [file_not_readable]"));
  EXPECT_THAT(BundleWriter::create(path, origin).error().str(),
              HasSubstr("it is no regular file [file_not_writable]"));
  EXPECT_THAT(BundleWriter::create(folder.path() + "/none/x", origin).error().str(),
              HasSubstr("No such file or directory [file_not_writable]"));
}

TEST_F(BundleTest, AnUnfinishedOneLeavesTheOldInPlace) {
  write(items);
  const std::string whole = readText(path);
  {
    Result<BundleWriter> writer = BundleWriter::create(path, origin);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add(items[0]));
  }
  EXPECT_EQ(readText(path), whole);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

} // namespace
} // namespace rho::cache
