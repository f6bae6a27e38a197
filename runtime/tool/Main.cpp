#include "runtime/tool/Tool.h"

int main(int argc, char **argv) {
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return rho::tool::runTool(arguments);
}
