// Files that take their place when they are complete.
#include "runtime/files/OutputFile.h"
#include "tests/kernels/TemporaryFiles.h"

#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rho::files {
namespace {

using OutputFileTest = test::TemporaryFiles;

TEST_F(OutputFileTest, TakesItsPlaceWhole) {
  std::string path = put("out", "old");
  for (bool complete : {false, true}) {
    Result<OutputFile> file = OutputFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append("new", 3).ok());
    EXPECT_EQ(contentOf(path), "old");
    if (complete)
      ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(contentOf(path), "new");
  EXPECT_EQ(filesThere(), 1u);
}

// What takes long and may fail is behind a file before it takes its place.
TEST_F(OutputFileTest, IsWholeBesideItsPlaceWhenPrepared) {
  std::string path = put("out", "old");
  {
    Result<OutputFile> file = OutputFile::create(path);
    ASSERT_TRUE(file.ok() && file->append("new", 3).ok());
    ASSERT_TRUE(file->prepare().ok());
    EXPECT_EQ(contentOf(path), "old");
    EXPECT_EQ(filesThere(), 2u);
    ASSERT_TRUE(file->commit().ok());
    EXPECT_EQ(contentOf(path), "new");
    Result<OutputFile> dropped = OutputFile::create(path);
    ASSERT_TRUE(dropped.ok() && dropped->prepare().ok());
  }
  EXPECT_EQ(contentOf(path), "new");
  EXPECT_EQ(filesThere(), 1u);
}

// A process that was killed may have left them, and had the same number.
TEST_F(OutputFileTest, NamesBesideItThatAreTakenAreLeftAlone) {
  const std::string path = folder + "out";
  constexpr int taken = 300;
  for (int i = 0; i < taken; ++i)
    put("out." + std::to_string(getpid()) + "." + std::to_string(i) + ".part", "theirs");
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.ok() && file->append("new", 3).ok() && file->commit().ok());
  EXPECT_EQ(contentOf(path), "new");
  EXPECT_EQ(filesThere(), taken + 1U);
}

TEST_F(OutputFileTest, BelongsToThoseOfTheFileBefore) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give a file to others";
  std::string path = put("out", "old");
  constexpr uid_t owner = 4001;
  constexpr gid_t group = 4002;
  constexpr mode_t mode = 02660; // chown clears the bit of the group, so it must come first
  ASSERT_EQ(chown(path.c_str(), owner, group), 0);
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.ok() && file->append("new", 3).ok() && file->commit().ok());
  struct stat now = {};
  ASSERT_EQ(stat(path.c_str(), &now), 0);
  EXPECT_EQ(contentOf(path), "new");
  EXPECT_EQ(now.st_uid, owner);
  EXPECT_EQ(now.st_gid, group);
  EXPECT_EQ(now.st_mode & 07777, mode);
}

TEST_F(OutputFileTest, NamesMayBeAsLongAsAnyFilesName) {
  constexpr size_t longest = 255;
  std::string path = folder + std::string(longest, 'a');
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append("new", 3).ok() && file->commit().ok());
  EXPECT_EQ(contentOf(path), "new");
}

TEST_F(OutputFileTest, AKilledProcessLeavesNothing) {
  int nameless = open(folder.c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0)
    GTEST_SKIP() << "this file system has no files without a name";
  close(nameless);
  pid_t child = fork();
  if (child == 0) {
    Result<OutputFile> file = OutputFile::create(folder + "out");
    bool written = file.ok() && file->append("half", 4).ok();
    raise(written ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(filesThere(), 0u);
}

} // namespace
} // namespace rho::files
