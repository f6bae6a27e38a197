#include "runtime/tool/Tool.h"

#include <csignal>

int main(int argc, char **argv) {
  std::signal(SIGXFSZ, SIG_IGN); // past `ulimit -f` a write fails, the process does not end
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return rho::tool::runTool(arguments);
}
