// The operands of a family's tests.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace rho::test {

// Two formats and where the weight's group scale goes; empty: it has none.
struct Operands {
  const char *weight, *activation, *scales;
};

inline std::ostream &operator<<(std::ostream &out, const Operands &operands) {
  return out << operands.weight << " x " << operands.activation << ' ' << operands.scales;
}

inline std::string nameOfOperands(const testing::TestParamInfo<Operands> &info) {
  std::string scales = info.param.scales;
  return std::string(info.param.weight) + "_" + info.param.activation +
         (scales.empty() ? "" : "_" + scales);
}

} // namespace rho::test
