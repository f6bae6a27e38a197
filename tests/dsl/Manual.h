// The fenced blocks of docs/GRAMMAR.md.
#pragma once

#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace rho::test {

struct Block {
  std::string info, text;
  int line = 0; // of the opening fence
};

inline std::vector<Block> blocksOf(const std::string &manual) {
  std::vector<Block> blocks;
  std::istringstream lines(manual);
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside)
        blocks.push_back({line.substr(3), "", number});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  EXPECT_FALSE(inside) << "the last fence is open";
  return blocks;
}

inline const std::vector<Block> &manualBlocks() {
  static const std::vector<Block> blocks = blocksOf(text(sourceDir() / "docs/GRAMMAR.md"));
  return blocks;
}

} // namespace rho::test
