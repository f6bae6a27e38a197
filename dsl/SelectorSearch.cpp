#include "dsl/SelectorSearch.h"

#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/SortedValues.h"
#include "dsl/ValueSearch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

namespace rho::dsl {

// Selectors whose errors are summed side by side.
constexpr int64_t lanes = 4;

static size_t selectorCodes(const Format &format) {
  const std::optional<Remap> &remap = format.element().remap;
  return remap ? remap->entries.size() : 0;
}

SelectorSearch::SelectorSearch(const Format &format)
    : format(format), padded(static_cast<size_t>(
                          divideUp(static_cast<int64_t>(selectorCodes(format)), lanes) * lanes)),
      kept(format.element().type.bits()) {}

bool SelectorSearch::covers(const Format &format) {
  return format.element().remap && format.element().type.bits() <= maxSearchedElementBits &&
         format.requirements.empty();
}

bool SelectorSearch::prepare(std::vector<uint32_t> &codes) {
  codes[static_cast<size_t>(format.element().remap->selector)] = 0;
  prepared = &kept.of(codes, [&](Prepared &made) { fill(made, codes); });
  return prepared->usable;
}

void SelectorSearch::fill(Prepared &made, std::vector<uint32_t> &codes) const {
  const Remap &remap = *format.element().remap;
  const auto selector = static_cast<size_t>(remap.selector);
  const size_t size = size_t(1) << format.element().type.bits();
  std::vector<double> first(size), table(size);
  made.usable = true;
  made.remapped.assign(padded, std::numeric_limits<double>::quiet_NaN());
  for (uint32_t code = 0; code < remap.entries.size(); ++code) {
    codes[selector] = code;
    valueTable(format, codes.data(), table.data());
    made.remapped[code] = table[remap.code];
    if (code == 0)
      first = table;
    for (size_t i = 0; i < size; ++i)
      if (i != remap.code && std::bit_cast<uint64_t>(table[i]) != std::bit_cast<uint64_t>(first[i]))
        made.usable = false;
  }
  codes[selector] = 0;
  made.values.clear();
  for (size_t i = 0; i < size; ++i)
    if (i != remap.code && std::isfinite(first[i]))
      made.values.push_back(first[i]);
  made.usable = made.usable && !made.values.empty();
  std::sort(made.values.begin(), made.values.end());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  made.values.insert(made.values.begin(), -infinity);
  made.values.push_back(infinity);
}

RHO_LANES void SelectorSearch::addErrors(const double *x, const double *weights, int64_t count,
                                         double *errors) const {
  const std::span<const double> values = prepared->values;
  const auto finite = values.subspan(1, values.size() - 2);
  for (int64_t at = 0; at < count; at += numbersAtATime) {
    const int64_t part = std::min(count - at, numbersAtATime);
    uint64_t below[numbersAtATime];
    countBelow(finite, x + at, part, below);
    double squares[numbersAtATime];
    for (int64_t i = 0; i < part; ++i) {
      const double up = values[below[i] + 1] - x[at + i], down = x[at + i] - values[below[i]];
      const double distance = up < down ? up : down;
      squares[i] = distance * distance;
    }
    for (size_t s = 0; s < padded; s += lanes) {
      double sums[lanes];
      std::copy_n(errors + s, lanes, sums);
      for (int64_t i = 0; i < part; ++i) {
        const double weight = weights ? weights[at + i] : 1;
        for (size_t lane = 0; lane < lanes; ++lane) {
          const double distance = x[at + i] - prepared->remapped[s + lane];
          const double square = distance * distance;
          sums[lane] += weight * (square < squares[i] ? square : squares[i]);
        }
      }
      std::copy_n(sums, lanes, errors + s);
    }
  }
}

} // namespace rho::dsl
