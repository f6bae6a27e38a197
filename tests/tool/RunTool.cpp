#include "tests/tool/RunTool.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace rho::test {

namespace {

class Scratch {
public:
  Scratch() : path(testing::TempDir() + "rho-tool-XXXXXX") {
    if (!mkdtemp(path.data()))
      std::abort();
    path += "/";
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  std::string path;
};

} // namespace

const std::string &scratchFolder() {
  static const Scratch scratch;
  return scratch.path;
}

std::string put(const std::string &name, const std::string &text) {
  std::ofstream(scratchFolder() + name, std::ios::binary) << text;
  return scratchFolder() + name;
}

std::string contentOf(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string shipped(const std::string &path) { return std::string(RHO_SOURCE_DIR) + "/" + path; }

std::string gemmFile(const std::string &name) { return shipped("kernels/gemms/" + name + ".rho"); }

ToolProcess startTool(const std::vector<std::string> &arguments, const std::string &input,
                      const std::string &output) {
  static int started = 0;
  ToolProcess process;
  process.outputs = scratchFolder() + "process" + std::to_string(started++);
  std::string out = output.empty() ? process.outputs + ".out" : output,
              err = process.outputs + ".err";
  std::vector<std::string> owned = {RHO_TOOL};
  owned.insert(owned.end(), arguments.begin(), arguments.end());
  std::vector<char *> argv;
  argv.reserve(owned.size() + 1);
  for (std::string &argument : owned)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  setenv("RHO_CACHE_DIR", (scratchFolder() + "cache").c_str(), 1);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
  if (input == "-")
    posix_spawn_file_actions_addclose(&actions, STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  if (output == "-")
    posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), flags, 0600);
  if (posix_spawn(&process.child, RHO_TOOL, &actions, nullptr, argv.data(), environ) != 0)
    process.child = 0;
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

ToolResult ToolProcess::wait() {
  ToolResult result;
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status))
    result.code = WEXITSTATUS(status);
  child = 0;
  result.out = contentOf(outputs + ".out");
  result.err = contentOf(outputs + ".err");
  for (const char *kind : {".out", ".err"})
    std::filesystem::remove(outputs + kind);
  return result;
}

ToolResult runTool(const std::vector<std::string> &arguments, const std::string &input,
                   const std::string &output) {
  return startTool(arguments, input, output).wait();
}

} // namespace rho::test
