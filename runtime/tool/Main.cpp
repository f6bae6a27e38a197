#include "runtime/tool/Tool.h"

#include <csignal>
#include <fcntl.h>

int main(int argc, char **argv) {
  // A standard stream that is closed must not become the first file that is opened.
  for (int stream : {0, 1, 2})
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY) < 0)
      return 1;
  std::signal(SIGXFSZ, SIG_IGN); // past `ulimit -f` a write fails, the process does not end
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return rho::tool::runTool(arguments);
}
