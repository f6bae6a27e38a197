#pragma once

#include "dsl/Quantize.h"

#include <algorithm>

namespace rho {

inline bool sameCodes(const dsl::CodeArray &a, const dsl::CodeArray &b) {
  if (a.size() != b.size())
    return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.get(i) != b.get(i))
      return false;
  return true;
}

inline bool sameCodes(const dsl::QuantizedMatrix &a, const dsl::QuantizedMatrix &b) {
  auto same = [](const auto &x, const auto &y) { return sameCodes(x, y); };
  return std::equal(a.components.begin(), a.components.end(), b.components.begin(),
                    b.components.end(), same) &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), same) &&
         sameCodes(a.choice, b.choice);
}

} // namespace rho
