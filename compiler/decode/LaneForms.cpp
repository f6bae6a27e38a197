#include "compiler/decode/LaneForms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace rho::compiler {

namespace {

// The bits of `index` at the places of `mask`, lowest first.
uint32_t spread(uint32_t index, uint32_t mask) {
  uint32_t result = 0;
  for (; mask != 0; mask &= mask - 1, index >>= 1)
    if (index & 1)
      result |= mask & -mask;
  return result;
}

uint32_t nextOfAsManyBits(uint32_t mask) {
  uint32_t lowest = mask & -mask, carried = mask + lowest;
  return (((mask ^ carried) >> 2) / lowest) | carried;
}

// -0 before +0, NaN last.
bool less(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(b) && !std::isnan(a);
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

std::vector<int> ascending(const std::vector<double> &values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    double x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return less(x, y) || (!less(y, x) && a < b);
  });
  return order;
}

// Renames the bits of a permutation of codes so that equal decodes get equal permutations: to code
// xor a constant where that is possible, else to the smallest. `bitOf` as in LaneForm.
void canonicalize(std::vector<uint8_t> &stored, std::vector<int> &bitOf) {
  int bits = std::countr_zero(stored.size());
  bitOf.resize(static_cast<size_t>(bits));
  std::iota(bitOf.begin(), bitOf.end(), 0);
  constexpr int mostRenamed = 4; // 24 orders of 16 codes; codes of more bits keep their order
  if (bits > mostRenamed)
    return;
  std::vector<uint8_t> best, renamed(stored.size());
  bool bestIsXor = false;
  std::vector<int> order = bitOf, bestOrder;
  do {
    bool isXor = true;
    for (size_t code = 0; code < stored.size(); ++code) {
      uint8_t name = 0;
      for (int i = 0; i < bits; ++i)
        name |= static_cast<uint8_t>((stored[code] >> i & 1) << order[static_cast<size_t>(i)]);
      renamed[code] = name;
      isXor = isXor && (name ^ renamed[0]) == static_cast<int>(code);
    }
    if (best.empty() || (isXor && !bestIsXor) || (isXor == bestIsXor && renamed < best)) {
      best = renamed;
      bestIsXor = isXor;
      bestOrder = order;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  stored = best;
  bitOf = bestOrder;
}

class FormSearch {
public:
  FormSearch(const std::vector<double> &values, dsl::ElementType lane, bool arithmetic)
      : values(values), arithmetic(arithmetic), laneBits(lane.bits()),
        signBit(lane.isFloat() ? 1u << (laneBits - 1) : 0),
        exponentField(lane.isFloat() ? ((1u << lane.exponentBits()) - 1) << lane.mantissaBits()
                                     : 0) {
    numbers.resize(size_t{1} << laneBits);
    for (uint32_t code = 0; code < numbers.size(); ++code)
      numbers[code] = lane.decode(code);
    order = ascending(values);
    for (int code : order)
      if (std::isfinite(values[static_cast<size_t>(code)]))
        sorted.push_back(values[static_cast<size_t>(code)]);
    complete = sorted.size() == values.size();
    if (const size_t count = sorted.size(); count >= 2) {
      valueSpan = sorted[count - 1] - sorted[0];
      lowStep = sorted[1] - sorted[0];
      highStep = sorted[count - 1] - sorted[count - 2];
    }
  }

  std::vector<LaneForm> run() {
    if (sorted.size() < 2 || sorted.front() == sorted.back())
      return {};
    int bits = std::countr_zero(values.size());
    for (uint32_t places = (1u << bits) - 1; places < numbers.size();) {
      if (complete)
        tryConstants(places);
      else
        tryPlaced(places);
      places = nextOfAsManyBits(places);
    }
    if (laneBits == 8 && complete && bits > 1)
      runWeighted(bits);
    std::vector<LaneForm> result;
    for (auto &[key, form] : found)
      result.push_back(std::move(form));
    return result;
  }

private:
  const std::vector<double> &values;
  bool arithmetic;
  int laneBits;
  uint32_t signBit, exponentField;
  bool complete = false;                           // no code without a value
  std::vector<double> numbers;                     // of the lane's bit patterns
  std::vector<int> order;                          // codes by value
  std::vector<double> sorted;                      // finite values, ascending
  double valueSpan = 0, lowStep = 0, highStep = 0; // of those, from end to end and at the ends
  // By places, weight, power of two and order of codes.
  using Key = std::tuple<uint32_t, uint32_t, int, std::vector<uint8_t>>;
  static constexpr int affineKey = std::numeric_limits<int>::max();
  std::map<Key, LaneForm> found;
  // What canonicalize() makes of permutations of codes.
  std::map<std::vector<uint8_t>, std::pair<std::vector<uint8_t>, std::vector<int>>> renamings;

  // Number of the i-th smallest pattern. Float patterns without sign ascend with their numbers.
  double numberAt(uint32_t i, uint32_t places, uint32_t constant) const {
    return numbers[patternAt(i, places) | constant];
  }
  uint32_t patternAt(uint32_t i, uint32_t places) const {
    uint32_t top = std::bit_floor(places);
    if (top != std::bit_floor(static_cast<uint32_t>(numbers.size() - 1)))
      return spread(i, places);
    auto half = static_cast<uint32_t>(values.size() / 2);
    if (signBit != 0) // sign and magnitude
      return i < half ? top | spread(half - 1 - i, places & ~top) : spread(i - half, places & ~top);
    return spread(i ^ half, places); // two's complement
  }

  // The two smallest patterns of some places and the largest: nearly all constants fail on these.
  struct Ends {
    uint32_t first, second, last;
  };
  enum class Line : uint8_t { None, Rising, Falling };
  Line lineOf(uint32_t constant, const Ends &ends) const {
    const double first = numbers[ends.first | constant];
    const double span = numbers[ends.last | constant] - first;
    if (!std::isfinite(span) || span == 0)
      return Line::None;
    const double step = (numbers[ends.second | constant] - first) * valueSpan;
    return step == lowStep * span                  ? Line::Rising
           : arithmetic && step == highStep * span ? Line::Falling
                                                   : Line::None;
  }

  // All constants beside these places, from the largest on.
  void tryConstants(uint32_t places) {
    const auto last = static_cast<uint32_t>(values.size() - 1);
    const Ends ends{patternAt(0, places), patternAt(1, places), patternAt(last, places)};
    // A constant sign is a slope's business, or the other half of a symmetric set.
    const uint32_t others = static_cast<uint32_t>(numbers.size() - 1) & ~places & ~signBit;
    // What a constant has of the exponent makes all numbers larger or smaller alike, where it has
    // any: one of these says whether others are worth a trial.
    const uint32_t exponents = others & exponentField, rest = others & ~exponentField;
    std::vector<uint32_t> constants;
    for (uint32_t low = rest;; low = (low - 1) & rest) {
      if (exponents != 0 && lineOf(low | (exponents & -exponents), ends) != Line::None)
        for (uint32_t high = exponents; high != 0; high = (high - 1) & exponents)
          constants.push_back(high | low);
      if (lineOf(low, ends) != Line::None)
        constants.push_back(low);
      if (low == 0)
        break;
    }
    std::sort(constants.begin(), constants.end(), std::greater<>());
    for (uint32_t constant : constants)
      if (const Line line = lineOf(constant, ends); line != Line::None)
        tryLine(places, constant, line == Line::Falling);
  }

  // Whether numbers and values lie on one line; `falling`: the largest number is the least value.
  void tryLine(uint32_t places, uint32_t constant, bool falling) {
    auto count = static_cast<uint32_t>(values.size());
    double first = numberAt(0, places, constant),
           span = numberAt(count - 1, places, constant) - first;
    double sign = falling ? -1 : 1, slope = sign * valueSpan / span;
    auto valueAt = [&](uint32_t i) { return sorted[falling ? count - 1 - i : i]; };
    for (uint32_t i = 0; i < count; ++i)
      if ((numberAt(i, places, constant) - first) * slope != valueAt(i) - valueAt(0))
        return;
    LaneForm form;
    form.places = places;
    form.constant = constant;
    form.slope = slope;
    form.offset = valueAt(0) - slope * first;
    int log2 = std::ilogb(slope);
    form.affine = form.offset != 0 || slope != std::ldexp(1.0, log2);
    form.log2 = -log2;
    if (form.affine && !arithmetic)
      return;
    std::vector<uint8_t> stored(count);
    for (uint32_t i = 0; i < count; ++i)
      stored[static_cast<size_t>(order[falling ? count - 1 - i : i])] = packed(i, places);
    keep(std::move(form), std::move(stored));
  }

  // The bits of the i-th smallest pattern, gathered from `places`.
  uint8_t packed(uint32_t i, uint32_t places) const {
    uint32_t pattern = patternAt(i, places);
    uint8_t result = 0;
    for (int bit = 0; places != 0; places &= places - 1, ++bit)
      if (pattern & places & -places)
        result |= static_cast<uint8_t>(1u << bit);
    return result;
  }

  // The last bit of a code adds a number to the lane.
  void runWeighted(int bits) {
    auto count = static_cast<uint32_t>(values.size());
    std::vector<uint32_t> patterns(count), ranked(count);
    for (uint32_t places = (1u << (bits - 1)) - 1; places < numbers.size();
         places = nextOfAsManyBits(places))
      for (uint32_t weight = 1; places + weight < numbers.size(); ++weight) {
        if (std::has_single_bit(weight) && (weight & places) == 0)
          continue; // a place of its own
        for (uint32_t i = 0; i < count; ++i)
          patterns[i] = spread(i % (count / 2), places) + (i < count / 2 ? 0 : weight);
        std::iota(ranked.begin(), ranked.end(), 0);
        std::sort(ranked.begin(), ranked.end(), [&](uint32_t a, uint32_t b) {
          double x = numbers[patterns[a]], y = numbers[patterns[b]];
          return less(x, y) || (!less(y, x) && a < b);
        });
        tryWeighted(places, weight, patterns, ranked);
      }
  }

  void tryWeighted(uint32_t places, uint32_t weight, const std::vector<uint32_t> &patterns,
                   const std::vector<uint32_t> &ranked) {
    size_t last = ranked.size() - 1;
    auto numberOf = [&](size_t i) { return numbers[patterns[ranked[i]]]; };
    double span = numberOf(last) - numberOf(0);
    if (!std::isfinite(span) || span == 0)
      return;
    int log2 = std::ilogb(span) - std::ilogb(sorted[last] - sorted[0]);
    for (size_t i = 0; i <= last; ++i)
      if (numberOf(i) != std::ldexp(sorted[i], log2))
        return;
    std::vector<uint8_t> stored(ranked.size());
    for (size_t i = 0; i <= last; ++i)
      stored[static_cast<size_t>(order[i])] = static_cast<uint8_t>(ranked[i]);
    LaneForm form;
    form.places = places;
    form.weight = weight;
    form.log2 = log2;
    keep(std::move(form), std::move(stored));
  }

  // With codes that have no value: each of the others is a pattern's number times a power of two.
  void tryPlaced(uint32_t places) {
    auto count = static_cast<uint32_t>(values.size());
    auto least = std::upper_bound(sorted.begin(), sorted.end(), 0.0);
    double smallest = numbers[places & -places];
    if (least == sorted.end() || !(smallest > 0) || !std::isfinite(smallest))
      return;
    int log2 = std::ilogb(smallest) - std::ilogb(*least);
    if (std::ldexp(*least, log2) != smallest)
      return;
    std::vector<uint8_t> stored(count);
    std::vector<bool> taken(count);
    uint32_t next = 0, set = 0; // bits that are set in some code with a value
    std::vector<int> without;
    for (int code : order) {
      double wanted = std::ldexp(values[static_cast<size_t>(code)], log2);
      if (!std::isfinite(wanted)) {
        without.push_back(code);
        continue;
      }
      while (next < count && less(numberAt(next, places, 0), wanted))
        ++next;
      if (next == count || numberAt(next, places, 0) != wanted)
        return;
      taken[next] = true;
      stored[static_cast<size_t>(code)] = packed(next++, places);
      set |= stored[static_cast<size_t>(code)];
    }
    // A bit that never is goes next to the one before: where else it might lie is too much to try.
    uint32_t before = 0;
    for (uint32_t rest = places; rest != 0; rest &= rest - 1, set >>= 1) {
      const uint32_t place = rest & -rest;
      if ((set & 1) == 0 && place != before << 1)
        return;
      before = place;
    }
    auto gap = taken.begin();
    for (int code : without) {
      gap = std::find(gap, taken.end(), false);
      stored[static_cast<size_t>(code)] =
          packed(static_cast<uint32_t>(gap - taken.begin()), places);
      ++gap;
    }
    LaneForm form;
    form.places = places;
    form.log2 = log2;
    form.slope = std::ldexp(1.0, -log2);
    keep(std::move(form), std::move(stored));
  }

  // Of several constants of an affine form the one whose slope is nearest to one.
  static double steepness(const LaneForm &form) {
    return std::fabs(std::log2(std::fabs(form.slope)));
  }

  void keep(LaneForm form, std::vector<uint8_t> stored) {
    auto [renaming, isFirst] = renamings.try_emplace(stored);
    if (isFirst) {
      canonicalize(stored, form.bitOf);
      renaming->second = {std::move(stored), form.bitOf};
    }
    std::tie(stored, form.bitOf) = renaming->second;
    form.stored = stored;
    Key key{form.places, form.weight, form.affine ? affineKey : form.log2, std::move(stored)};
    auto [entry, isNew] = found.try_emplace(std::move(key), form);
    if (!isNew && steepness(form) <= steepness(entry->second)) // of equals the smallest constant
      entry->second = std::move(form);
  }
};

} // namespace

std::vector<LaneForm> laneForms(const std::vector<double> &values, dsl::ElementType lane,
                                bool arithmetic) {
  return FormSearch(values, lane, arithmetic).run();
}

} // namespace rho::compiler
