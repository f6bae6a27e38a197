#include "dsl/ValueSearch.h"

#include "dsl/Evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rho::dsl {

bool ValueSearch::prepare(std::vector<uint32_t> &codes) {
  table.resize(size_t(1) << format.element().type.bits());
  valueTable(format, codes.data(), table.data());
  entries.clear();
  fallback = -1;
  if (order.empty()) {
    order.resize(table.size());
    std::iota(order.begin(), order.end(), 0U);
  }
  for (uint32_t code : order) {
    codes[0] = code;
    if (!format.requirements.empty() && !fulfils(format, codes.data()))
      continue;
    fallback = fallback < 0 ? code : std::min<int64_t>(fallback, code);
    if (std::isfinite(table[code]))
      entries.push_back({table[code], code});
  }
  // The order is mostly that of the numbers before.
  if (!std::is_sorted(entries.begin(), entries.end(), precedes)) {
    std::sort(entries.begin(), entries.end(), precedes);
    if (entries.size() == order.size())
      for (size_t i = 0; i < order.size(); ++i)
        order[i] = entries[i].code;
  }
  keepFirstOfEqual(entries);
  values.clear();
  for (const CodedValue &entry : entries)
    values.push_back(entry.value);
  return fallback >= 0;
}

// Of few values all are compared, without branches.
static size_t firstNotBelow(const std::vector<double> &values, double x) {
  constexpr size_t few = 32;
  if (values.size() > few)
    return static_cast<size_t>(std::lower_bound(values.begin(), values.end(), x) - values.begin());
  uint64_t below = 0;
  for (double value : values)
    below += value < x ? 1 : 0;
  return below;
}

uint32_t ValueSearch::nearest(double x) const {
  if (entries.empty() || std::isnan(x))
    return static_cast<uint32_t>(fallback);
  size_t above = firstNotBelow(values, x);
  if (above == 0)
    return entries.front().code;
  if (above == values.size())
    return entries.back().code;
  return nearerCode(entries[above - 1], entries[above], x);
}

} // namespace rho::dsl
