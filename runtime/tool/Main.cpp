#include "runtime/tool/Tool.h"

#include <csignal>
#include <fcntl.h>
#include <utility>

int main(int argc, char **argv) {
  // A standard stream that is closed must not become the first file that is opened. Who reads the
  // input or writes the output all the same gets EBADF.
  const std::pair<const char *, int> closed[] = {
      {"/dev/null", O_WRONLY}, {"/", O_RDONLY}, {"/dev/null", O_WRONLY}};
  for (int stream : {0, 1, 2})
    if (fcntl(stream, F_GETFD) < 0 && open(closed[stream].first, closed[stream].second) < 0)
      return 1;
  std::signal(SIGXFSZ, SIG_IGN); // past `ulimit -f` a write fails, the process does not end
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return rho::tool::runTool(arguments);
}
