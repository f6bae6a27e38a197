// Runs the built `rho` as a user does.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace rho::test {

struct ToolResult {
  int code = -1; // exit code; -1 when it ended by a signal
  std::string out, err;
};

// One that runs. wait() must be called.
struct ToolProcess {
  pid_t child = 0;
  std::string outputs; // its standard output and error are in files that begin so
  ToolResult wait();
};

// Arguments are passed as they are, without a shell. The disk cache is a folder of this process.
// `input` is the file that standard input comes from, `output` one that standard output goes to and
// is not read back from; of either "-": it is closed.
ToolProcess startTool(const std::vector<std::string> &arguments,
                      const std::string &input = "/dev/null", const std::string &output = "");
ToolResult runTool(const std::vector<std::string> &arguments,
                   const std::string &input = "/dev/null", const std::string &output = "");

// A folder that exists until the process ends.
const std::string &scratchFolder();

// Writes a file there and returns its path.
std::string put(const std::string &name, const std::string &text);

std::string contentOf(const std::string &path);

// A file of the source tree.
std::string shipped(const std::string &path);
std::string gemmFile(const std::string &name);

} // namespace rho::test
