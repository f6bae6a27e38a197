// Every gemm of docs/GRAMMAR.md runs on a target, as a reader would try it.
#include "tests/dsl/Manual.h"
#include "tests/tool/RunTool.h"

#include <gtest/gtest.h>

#include <regex>

namespace rho::test {
namespace {

TEST(Manual, GemmsRunOnATarget) {
  int gemms = 0;
  for (const Block &block : manualBlocks()) {
    if (block.info != "rho" && (!block.info.starts_with("rho ") || block.info == "rho wrong"))
      continue;
    // Blocks behind it import what has a name.
    const std::string file =
        put(block.info == "rho" ? "example.rho" : block.info.substr(4), block.text);
    const std::regex declaration("\n *gemm +(\\w+)");
    const std::string text = "\n" + block.text;
    for (std::sregex_iterator at(text.begin(), text.end(), declaration), end; at != end; ++at) {
      std::string tried;
      bool runs = false;
      for (const char *target : {"sm_90a", "sm_120a", "sm_80"}) {
        ToolResult result = runTool({"run", file, "--gemm", (*at)[1], "--m", "3", "--n", "160",
                                     "--k", "1024", "--device", target});
        runs = runs || (result.code == 0 && result.out.find("PASS") != std::string::npos);
        if (runs)
          break;
        tried += std::string(target) + ": " + result.err;
      }
      EXPECT_TRUE(runs) << "docs/GRAMMAR.md:" << block.line << ", " << (*at)[1] << "\n" << tried;
      ++gemms;
    }
  }
  EXPECT_GE(gemms, 8);
}

} // namespace
} // namespace rho::test
