// Numbers as sums of two codes.
#pragma once

#include "dsl/ElementType.h"

namespace rho::compiler {

struct CodePair {
  uint32_t main = 0, rest = 0;
  friend bool operator==(const CodePair &, const CodePair &) = default;
};

// Two codes of a type with numbers of one sign that sum to `value`; the rest is 0 where one code
// has it. Of several the one with the largest main number.
std::optional<CodePair> codePair(dsl::ElementType type, double value);

} // namespace rho::compiler
