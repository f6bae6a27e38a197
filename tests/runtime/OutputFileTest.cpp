// Files that take their place when they are complete.
#include "runtime/files/OutputFile.h"
#include "runtime/files/SignalsHeld.h"
#include "tests/kernels/TemporaryFiles.h"

#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

// Of `folder`a, b and so on, each with this text.
class SeveralOutputs {
public:
  SeveralOutputs(const std::string &folder, const std::string &names, const std::string &text) {
    for (char name : names)
      if (Result<OutputFile> file = OutputFile::create(folder + name); file.ok()) {
        EXPECT_TRUE(file->append(text.data(), static_cast<int64_t>(text.size())).ok());
        files.push_back(std::move(*file));
      }
  }
  Status commit() {
    std::vector<OutputFile *> all;
    for (OutputFile &file : files)
      all.push_back(&file);
    return commitAll(all);
  }

private:
  std::vector<OutputFile> files;
};

TEST_F(OutputFileTest, SeveralTakeTheirPlaces) {
  put("a", "old");
  put("c", "old");
  ASSERT_TRUE(SeveralOutputs(folder, "abc", "new").commit().ok());
  for (const char *name : {"a", "b", "c"})
    EXPECT_EQ(contentOf(folder + name), "new");
  EXPECT_EQ(filesThere(), 3U);
}

// What no other file can take the place of.
void blockPlace(const std::string &path) {
  std::filesystem::remove(path);
  std::filesystem::create_directories(path + "/inside");
}

TEST_F(OutputFileTest, SeveralTakeTheirPlacesOrNone) {
  for (const std::string blocked : {"b", "c", "d"}) {
    for (const char *name : {"a", "c", "d"})
      put(name, "old");
    SeveralOutputs outputs(folder, "abcd", "new"); // of b there was none
    blockPlace(folder + blocked);
    EXPECT_EQ(outputs.commit().error().str(), "error: '" + folder + blocked +
                                                  "' cannot be written: Is a directory "
                                                  "[file_not_writable]\n");
    for (const std::string name : {"a", "c", "d"})
      if (name != blocked)
        EXPECT_EQ(contentOf(folder + name), "old");
    EXPECT_EQ(std::filesystem::exists(folder + "b"), blocked == "b");
    EXPECT_EQ(filesThere(), blocked == "b" ? 4U : 3U);
    std::filesystem::remove_all(folder + blocked);
  }
}

int exitCode(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// From now on renameat2 knows no flags in this process.
bool forbidExchange() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(OutputFileTest, WhatIsReplacedAlreadyIsNamedWhereFilesCannotBeExchanged) {
  for (const char *name : {"a", "c"})
    put(name, "old");
  constexpr int noFilter = 9;
  pid_t child = fork();
  if (child == 0) {
    SeveralOutputs outputs(folder, "abc", "new");
    blockPlace(folder + "c");
    if (!forbidExchange())
      _exit(noFilter);
    const Status done = outputs.commit();
    _exit(!done && done.error().str() == "error: '" + folder +
                                             "c' cannot be written: Is a directory; '" + folder +
                                             "a' is replaced already [file_not_writable]\n"
              ? 0
              : 1);
  }
  const int code = exitCode(child);
  if (code == noFilter)
    GTEST_SKIP() << "this kernel filters no calls";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(contentOf(folder + "a"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder + "b"));
}

TEST_F(OutputFileTest, SignalsWaitWhileTheyAreHeld) {
  for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const std::string reached = folder + "reached";
    pid_t child = fork();
    if (child == 0) {
      {
        const SignalsHeld held;
        raise(signal);
        put("reached", "here");
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    EXPECT_EQ(contentOf(reached), "here");
    std::filesystem::remove(reached);
  }
}

// Whenever the signal comes.
TEST_F(OutputFileTest, AnEndedProcessLeavesAllOrNone) {
  constexpr int rounds = 30;
  const std::string names = "abcdef";
  for (int round = 0; round < rounds; ++round) {
    for (char name : names)
      put(std::string(1, name), "0");
    pid_t child = fork();
    if (child == 0)
      for (char text = '1';; text = text == '9' ? '1' : static_cast<char>(text + 1))
        if (!SeveralOutputs(folder, names, std::string(1, text)).commit())
          _exit(1);
    usleep(static_cast<useconds_t>(5000 + 700 * round));
    kill(child, SIGTERM);
    EXPECT_EQ(exitCode(child), -1);
    for (char name : names)
      EXPECT_EQ(contentOf(folder + name), contentOf(folder + "a")) << name;
    EXPECT_EQ(filesThere(), names.size());
  }
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
