#include "dsl/ValueSearch.h"

#include "dsl/Evaluate.h"

#include <algorithm>
#include <cmath>

namespace rho::dsl {

bool ValueSearch::prepare(std::vector<uint32_t> &codes) {
  table.resize(size_t(1) << format.element().type.bits());
  valueTable(format, codes.data(), table.data());
  entries.clear();
  fallback = -1;
  for (uint32_t code = 0; code < table.size(); ++code) {
    codes[0] = code;
    if (!format.requirements.empty() && !fulfils(format, codes.data()))
      continue;
    if (fallback < 0)
      fallback = code;
    if (std::isfinite(table[code]))
      entries.push_back({table[code], code});
  }
  // Of equal values the even code, then the lower, is kept.
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    if (a.value != b.value)
      return a.value < b.value;
    return a.code % 2 != b.code % 2 ? a.code % 2 == 0 : a.code < b.code;
  });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](const Entry &a, const Entry &b) { return a.value == b.value; }),
                entries.end());
  return fallback >= 0;
}

uint32_t ValueSearch::nearest(double x) const {
  if (entries.empty() || std::isnan(x))
    return static_cast<uint32_t>(fallback);
  auto above = std::lower_bound(entries.begin(), entries.end(), x,
                                [](const Entry &entry, double v) { return entry.value < v; });
  if (above == entries.begin())
    return above->code;
  if (above == entries.end())
    return entries.back().code;
  auto below = above - 1;
  double up = above->value - x, down = x - below->value;
  if (up != down)
    return up < down ? above->code : below->code;
  if (above->code % 2 != below->code % 2)
    return above->code % 2 == 0 ? above->code : below->code;
  return std::min(above->code, below->code);
}

} // namespace rho::dsl
