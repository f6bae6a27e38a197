#include "dsl/ValueSearch.h"

#include "dsl/Evaluate.h"
#include "dsl/SortedValues.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace rho::dsl {

ValueSearch::ValueSearch(const Format &format)
    : format(format), kept(format.element().type.bits()) {}

bool ValueSearch::prepare(std::vector<uint32_t> &codes) {
  prepared = &kept.of(codes, [&](Prepared &made) { fill(made, codes); });
  return prepared->fallback >= 0;
}

void ValueSearch::fill(Prepared &made, std::vector<uint32_t> &codes) {
  made.byCode.resize(size_t(1) << format.element().type.bits());
  valueTable(format, codes.data(), made.byCode.data());
  made.fallback = -1;
  if (order.empty()) {
    order.resize(made.byCode.size());
    std::iota(order.begin(), order.end(), 0U);
  }
  entries.clear();
  for (uint32_t code : order) {
    codes[0] = code;
    if (!format.requirements.empty() && !fulfils(format, codes.data()))
      continue;
    made.fallback = made.fallback < 0 ? code : std::min<int64_t>(made.fallback, code);
    if (std::isfinite(made.byCode[code]))
      entries.push_back({made.byCode[code], code});
  }
  // The order is mostly that of the numbers before.
  if (!std::is_sorted(entries.begin(), entries.end(), precedes)) {
    std::sort(entries.begin(), entries.end(), precedes);
    if (entries.size() == order.size())
      for (size_t i = 0; i < order.size(); ++i)
        order[i] = entries[i].code;
  }
  keepFirstOfEqual(entries);
  made.values.clear();
  made.codes.clear();
  made.prefersNext.clear();
  if (entries.empty())
    return;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  entries.insert(entries.begin(), {-infinity, entries.front().code});
  entries.push_back({infinity, entries.back().code});
  for (const CodedValue &entry : entries) {
    if (!made.codes.empty())
      made.prefersNext.push_back(isPreferred(entry.code, made.codes.back()));
    made.values.push_back(entry.value);
    made.codes.push_back(static_cast<uint8_t>(entry.code));
  }
}

RHO_LANES void ValueSearch::nearest(const double *x, int64_t count, uint8_t *codes) const {
  const Prepared &of = *prepared;
  const auto fallback = static_cast<uint8_t>(of.fallback);
  if (of.values.empty()) {
    std::fill_n(codes, count, fallback);
    return;
  }
  const auto finite = std::span(of.values).subspan(1, of.values.size() - 2);
  uint64_t below[numbersAtATime];
  for (; count > 0; x += numbersAtATime, codes += numbersAtATime, count -= numbersAtATime) {
    const int64_t part = std::min(count, numbersAtATime);
    countBelow(finite, x, part, below);
    for (int64_t i = 0; i < part; ++i) {
      const uint64_t at = below[i];
      const double up = of.values[at + 1] - x[i], down = x[i] - of.values[at];
      const auto next = static_cast<uint64_t>(up < down) |
                        (static_cast<uint64_t>(up == down) & of.prefersNext[at]);
      const uint8_t code = of.codes[at + next];
      codes[i] = x[i] == x[i] ? code : fallback;
    }
  }
}

uint32_t ValueSearch::nearest(double x) const {
  uint8_t code = 0;
  nearest(&x, 1, &code);
  return code;
}

} // namespace rho::dsl
