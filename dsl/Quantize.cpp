#include "dsl/Quantize.h"

#include "dsl/DeriveEncode.h"
#include "dsl/Division.h"
#include "dsl/EncodeQuotients.h"
#include "dsl/EncodeRule.h"
#include "dsl/Evaluate.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "dsl/QuantizeParts.h"
#include "dsl/SelectorSearch.h"
#include "dsl/ValueSearch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

namespace rho::dsl {

namespace {

// The first place, in row-major order, where something happened; the same for any number of
// threads since all rows are looked at.
class FirstPlace {
public:
  void note(int64_t row, int64_t column) {
    std::lock_guard<std::mutex> lock(mutex);
    if (std::pair(row, column) < place)
      place = {row, column};
  }
  bool found() const { return place.first != std::numeric_limits<int64_t>::max(); }
  int64_t row() const { return place.first; }
  int64_t column() const { return place.second; }

private:
  std::mutex mutex;
  std::pair<int64_t, int64_t> place = {std::numeric_limits<int64_t>::max(), 0};
};

// Numbers that are encoded together: rows [rowBegin, rowEnd), columns [begin, end).
struct Block {
  int64_t rowBegin, rowEnd, begin, end;
  friend bool operator==(const Block &, const Block &) = default;
};

class Quantizer {
public:
  Quantizer(std::shared_ptr<const Format> shared, const MatrixView &input,
            const QuantizeOptions &options)
      : format(*shared), input(input), reject(options.rejectNonFinite), threads(options.threads),
        columnWeights(options.columnWeights), given(options.given),
        clamped(clampedElements(format)), quotients(format.element().type),
        run(finestGroup(format, input.k)), highBand(bandRows(format)) {
    if (std::optional<double> literals = literalDivisor(format);
        literals && (format.requirements.empty() || !clamped.empty())) {
      byDivision = true;
      factor = *literals;
    }
    out.format = std::move(shared);
    out.rows = input.rows;
    out.k = input.k;
    for (const Component &component : format.components) {
      out.components.emplace_back(component.type.bits(),
                                  codeGrid(component, input.rows, input.k).size());
      rules.push_back(rulesOf(component));
    }
  }

  // Elements alone, with these codes of all other components.
  Result<QuantizedMatrix> finish(QuantizedMatrix &&given, double scale) {
    byDivision = true;
    factor = scale;
    out.components = std::move(given.components);
    out.components[0] = CodeArray(format.element().type.bits(), out.rows * out.k);
    encodeBands(format.encodeOrder.size());
    return result();
  }

  Result<QuantizedMatrix> finish() {
    encodeTensors(0);
    return result();
  }

private:
  Result<QuantizedMatrix> result() {
    if (nonFinite.found()) {
      double value = input.at(nonFinite.row(), nonFinite.column());
      return makeError(DiagId::non_finite_input,
                       {nameOfNonFinite(value), std::to_string(nonFinite.row()),
                        std::to_string(nonFinite.column())});
    }
    if (unfulfilled.found())
      return unfulfilledError();
    return std::move(out);
  }

  // What one thread works with.
  struct State {
    int64_t firstRow = 0;        // of x
    std::vector<double> x;       // the numbers of a band of rows
    std::vector<double> values;  // decoded components; the element's is unused
    std::vector<uint32_t> codes; // for the value search
    std::vector<double> decoded;
    ValueSearch search;
    SelectorSearch selectors;
    std::vector<double> errors; // by selector
    EncodeRule::Partial partial = {};
    int trials = 0; // candidates under trial
    // What errorOf makes of the block, where the search has summed it up on its way.
    Block measured = {0, 0, 0, 0};
    double measuredError = 0;
  };

  static std::vector<EncodeRule> rulesOf(const Component &component) {
    std::vector<EncodeRule> candidates;
    if (isBest(component.encode))
      for (const ExprPtr &candidate : component.encode->operands)
        candidates.emplace_back(*candidate);
    else if (component.encode)
      candidates.emplace_back(*component.encode);
    return candidates;
  }

  CodeArray &codesOf(int index) { return out.components[static_cast<size_t>(index)]; }
  const std::vector<EncodeRule> &rulesOf(int index) const {
    return rules[static_cast<size_t>(index)];
  }
  int64_t placeOf(int index, int64_t row, int64_t column) const {
    return codeIndex(format.component(index), input.k, row, column);
  }

  // Which of `count` candidates has the least error, the first of equal ones; NaN is as bad as can
  // be.
  template <class ErrorOf> static size_t leastOf(size_t count, const ErrorOf &errorOf) {
    size_t best = 0;
    double least = 0;
    for (size_t i = 0; i < count; ++i) {
      double here = errorOf(i);
      if (std::isnan(here))
        here = std::numeric_limits<double>::infinity();
      if (i == 0 || here < least) {
        best = i;
        least = here;
      }
    }
    return best;
  }

  // Stores the best of the candidates of a component at `at`. `value(i)` is that of candidate i,
  // `encodeFiner` encodes what depends on it, false where that is impossible, and `error` says how
  // far off it then is. What fails in a trial is not reported.
  template <class Value, class EncodeFiner, class SquaredError>
  bool choose(int index, int64_t at, int &trials, const Value &value,
              const EncodeFiner &encodeFiner, const SquaredError &error) {
    ElementType type = format.component(index).type;
    const size_t count = rulesOf(index).size();
    ++trials;
    const size_t best = leastOf(count, [&](size_t i) {
      codesOf(index).set(at, type.encode(value(i)));
      return encodeFiner() ? error() : std::numeric_limits<double>::infinity();
    });
    --trials;
    if (best > 0 && best + 1 == count)
      return true; // all of it is still there
    codesOf(index).set(at, type.encode(value(best)));
    return encodeFiner();
  }

  // --- components of the whole matrix: `position` in the encoding order and all after it

  bool encodeTensors(size_t position) {
    if (position == format.encodeOrder.size() ||
        format.component(format.encodeOrder[position]).extent != Extent::Tensor)
      return encodeBands(position);
    int index = format.encodeOrder[position];
    if (const auto found = given.find(index); found != given.end()) {
      codesOf(index).set(0, found->second);
      return encodeTensors(position + 1);
    }
    std::vector<double> values = tensorValues();
    if (rulesOf(index).size() == 1) {
      codesOf(index).set(0, format.component(index).type.encode(reduceAll(index, 0, values)));
      return encodeTensors(position + 1);
    }
    std::vector<double> candidates;
    for (size_t i = 0; i < rulesOf(index).size(); ++i)
      candidates.push_back(reduceAll(index, i, values));
    return choose(
        index, 0, tensorTrials, [&](size_t i) { return candidates[i]; },
        [&] { return encodeTensors(position + 1); }, [&] { return errorOfAll(); });
  }

  std::vector<double> tensorValues() {
    std::vector<double> values(format.components.size(), 0);
    for (int index : format.encodeOrder)
      if (format.component(index).extent == Extent::Tensor)
        values[static_cast<size_t>(index)] =
            format.component(index).type.decode(codesOf(index).get(0));
    return values;
  }

  double reduceAll(int index, size_t candidate, const std::vector<double> &values) {
    const EncodeRule &rule = rulesOf(index)[candidate];
    EncodeRule::Partial all = rule.begin();
    std::mutex mutex;
    parallel(input.rows, threads, [&](const auto &next) {
      EncodeRule::Partial mine = rule.begin();
      std::vector<double> x(static_cast<size_t>(input.k));
      for (int64_t row = next(); row < input.rows; row = next()) {
        input.readRow(row, x.data());
        rule.reduce(mine, x.data(), input.k, values.data());
      }
      std::lock_guard<std::mutex> lock(mutex);
      rule.combine(all, mine); // minimum and maximum: in any order
    });
    return rule.finish(all, values.data());
  }

  // Row by row, so that it does not depend on the threads.
  double errorOfAll() {
    std::vector<double> errors(static_cast<size_t>(input.rows));
    parallel(input.rows, threads, [&](const auto &next) {
      State state = newState();
      state.x.resize(static_cast<size_t>(input.k));
      for (int64_t row = next(); row < input.rows; row = next()) {
        state.firstRow = row;
        input.readRow(row, state.x.data());
        errors[static_cast<size_t>(row)] = errorOf({row, row + 1, 0, input.k}, state);
      }
    });
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  }

  // --- bands of rows that share no component but those of the whole matrix

  State newState() {
    return {0, {}, tensorValues(), {}, {}, ValueSearch(format), SelectorSearch(format), {}};
  }

  bool encodeBands(size_t position) {
    std::atomic<bool> good = true;
    int64_t bands = divideUp(input.rows, highBand);
    parallel(bands, threads, [&](const auto &next) {
      State state = newState();
      state.codes.resize(format.components.size());
      for (int64_t band = next(); band < bands; band = next()) {
        int64_t first = band * highBand;
        if (!encodeBand(position, {first, std::min(input.rows, first + highBand), 0, input.k},
                        state))
          good = false;
      }
    });
    return good;
  }

  bool encodeBand(size_t position, const Block &band, State &state) {
    state.firstRow = band.rowBegin;
    state.x.resize(static_cast<size_t>((band.rowEnd - band.rowBegin) * input.k));
    for (int64_t row = band.rowBegin; row < band.rowEnd; ++row)
      input.readRow(row, numbers(state, row));
    for (int64_t row = band.rowBegin; reject && row < band.rowEnd; ++row)
      if (const double *x = numbers(state, row); !allFinite(x, input.k)) {
        nonFinite.note(row, std::find_if_not(x, x + input.k, isFinite) - x);
        return true; // reported
      }
    return encodeParts(position, band, state);
  }

  static bool isFinite(double value) { return std::isfinite(value); }
  // Without branches, so that it is vectorised.
  static bool allFinite(const double *x, int64_t count) {
    uint64_t unusual = 0;
    for (int64_t i = 0; i < count; ++i) {
      constexpr uint64_t exponent = uint64_t(0x7ff) << 52;
      unusual |= (std::bit_cast<uint64_t>(x[i]) & exponent) == exponent ? 1 : 0;
    }
    return unusual == 0;
  }

  double *numbers(State &state, int64_t row) const {
    return state.x.data() + (row - state.firstRow) * input.k;
  }

  // Encodes the component at `position` of the order, and all after it, of the numbers of a block
  // that shares all before it.
  bool encodeParts(size_t position, const Block &block, State &state) {
    if (position == format.encodeOrder.size())
      return encodeElements(block, state);
    int index = format.encodeOrder[position];
    const Component &c = format.component(index);
    int64_t high = c.rows, wide = c.extent == Extent::Group ? c.group : input.k;
    bool several = rulesOf(index).size() > 1, good = true;
    for (int64_t row = block.rowBegin; row < block.rowEnd; row += high)
      for (int64_t begin = block.begin; begin < block.end; begin += wide) {
        Block part{row, std::min(block.rowEnd, row + high), begin,
                   std::min(block.end, begin + wide)};
        loadValues(position, part, state);
        if (!several) {
          codesOf(index).set(placeOf(index, row, begin),
                             c.type.encode(reduce(index, 0, part, state)));
          continue;
        }
        std::vector<double> candidates;
        for (size_t i = 0; i < rulesOf(index).size(); ++i)
          candidates.push_back(reduce(index, i, part, state));
        if (position + 1 == format.encodeOrder.size() &&
            chooseSelector(index, part, candidates, state)) {
          good &= encodeElements(part, state);
          continue;
        }
        good &= choose(
            index, placeOf(index, row, begin), state.trials,
            [&](size_t i) { return candidates[i]; },
            [&] { return encodeParts(position + 1, part, state); },
            [&] { return errorOf(part, state); });
      }
    return several ? good : encodeParts(position + 1, block, state);
  }

  // What choose() finds where the component is the selector of a remapped code and nothing else is
  // to be encoded but elements, without encoding them for each candidate. False: another component,
  // or a format whose selector is not searched so.
  bool chooseSelector(int index, const Block &part, const std::vector<double> &candidates,
                      State &state) {
    if (!SelectorSearch::covers(format) || format.element().remap->selector != index)
      return false;
    state.errors.assign(state.selectors.selectors(), 0);
    for (int64_t row = part.rowBegin; row < part.rowEnd; ++row)
      for (int64_t begin = part.begin; begin < part.end; begin += run) {
        loadCodes(row, begin, state.codes);
        if (!state.selectors.prepare(state.codes))
          return false;
        state.selectors.addErrors(
            numbers(state, row) + begin,
            columnWeights.empty() ? nullptr : &columnWeights[static_cast<size_t>(begin)],
            std::min(part.end, begin + run) - begin, state.errors.data());
      }
    const ElementType type = format.component(index).type;
    const size_t best = leastOf(candidates.size(),
                                [&](size_t i) { return state.errors[type.encode(candidates[i])]; });
    codesOf(index).set(placeOf(index, part.rowBegin, part.begin), type.encode(candidates[best]));
    return true;
  }

  double reduce(int index, size_t candidate, const Block &block, State &state) const {
    const EncodeRule &rule = rulesOf(index)[candidate];
    EncodeRule::Partial &partial = state.partial;
    rule.begin(partial);
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row)
      rule.reduce(partial, numbers(state, row) + block.begin, block.end - block.begin,
                  state.values.data());
    return rule.finish(partial, state.values.data());
  }

  // The values of the components before `until` in the encoding order at the first number of a
  // block, which shares them.
  void loadValues(size_t until, const Block &block, State &state) {
    for (size_t position = 0; position < until; ++position) {
      int index = format.encodeOrder[position];
      if (format.component(index).extent != Extent::Tensor)
        state.values[static_cast<size_t>(index)] = format.component(index).type.decode(
            codesOf(index).get(placeOf(index, block.rowBegin, block.begin)));
    }
  }

  // --- elements

  bool encodeElements(const Block &block, State &state) {
    bool good = true, measures = !byDivision && (state.trials > 0 || tensorTrials > 0);
    state.measured = measures ? block : Block{0, 0, 0, 0};
    state.measuredError = 0;
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row)
      for (int64_t begin = block.begin; begin < block.end; begin += run) {
        Block part{row, row + 1, begin, std::min(block.end, begin + run)};
        if (byDivision)
          divideElements(part, state);
        else
          good &= searchElements(part, state);
      }
    return good;
  }

  void divideElements(const Block &part, State &state) {
    loadValues(format.encodeOrder.size(), part, state);
    double scale = factor;
    for (size_t c = 1; c < state.values.size(); ++c)
      scale *= state.values[c];
    ElementType type = format.element().type;
    const double *x = numbers(state, part.rowBegin);
    CodeArray &codes = out.components[0];
    int64_t first = part.rowBegin * input.k;
    if (scale == 0) {
      uint32_t zero = type.encode(0);
      if (!clamped.empty())
        zero = clamped[zero];
      for (int64_t column = part.begin; column < part.end; ++column)
        codes.set(first + column, zero);
    } else if (type.bits() <= 8) {
      uint8_t *to = codes.data() + first + part.begin;
      quotients.encode(x + part.begin, part.end - part.begin, scale, to);
      for (int64_t i = 0; !clamped.empty() && i < part.end - part.begin; ++i)
        to[i] = clamped[to[i]];
    } else {
      for (int64_t column = part.begin; column < part.end; ++column)
        codes.set(first + column, type.encode(x[column] / scale));
    }
  }

  void loadCodes(int64_t row, int64_t column, std::vector<uint32_t> &codes) {
    for (int index : format.encodeOrder)
      codes[static_cast<size_t>(index)] = codesOf(index).get(placeOf(index, row, column));
  }

  bool searchElements(const Block &part, State &state) {
    loadCodes(part.rowBegin, part.begin, state.codes);
    if (!state.search.prepare(state.codes)) {
      if (tensorTrials == 0 && state.trials == 0)
        unfulfilled.note(part.rowBegin, part.begin);
      return false;
    }
    const double *x = numbers(state, part.rowBegin) + part.begin;
    const int64_t count = part.end - part.begin;
    uint8_t *codes = out.components[0].data() + part.rowBegin * input.k + part.begin;
    state.search.nearest(x, count, codes);
    if (state.measured.rowEnd == 0)
      return true;
    double sum = state.measuredError;
    for (int64_t i = 0; i < count; ++i) {
      double difference = x[i] - state.search.valueOf(codes[i]);
      sum += weighted(difference * difference, part.begin + i);
    }
    state.measuredError = sum;
    return true;
  }

  double errorOf(const Block &block, State &state) const {
    if (state.measured == block)
      return state.measuredError;
    double sum = 0;
    state.decoded.resize(static_cast<size_t>(block.end - block.begin));
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      const double *x = numbers(state, row);
      out.valuesOf(row, block.begin, block.end, state.decoded.data());
      for (int64_t column = block.begin; column < block.end; ++column) {
        double difference = x[column] - state.decoded[static_cast<size_t>(column - block.begin)];
        sum += weighted(difference * difference, column);
      }
    }
    return sum;
  }

  double weighted(double squaredError, int64_t column) const {
    return columnWeights.empty() ? squaredError
                                 : columnWeights[static_cast<size_t>(column)] * squaredError;
  }

  // Names the first requirement that no code fulfils, or all of them where only together they
  // cannot be fulfilled.
  Error unfulfilledError() {
    int64_t row = unfulfilled.row(), column = unfulfilled.column();
    std::vector<uint32_t> codes(format.components.size());
    loadCodes(row, column, codes);
    std::string all;
    for (const Requirement &requirement : format.requirements) {
      const std::string text = print(requirement, format);
      Format alone = format;
      alone.requirements = {requirement};
      if (!ValueSearch(alone).prepare(codes)) {
        all = text;
        break;
      }
      all += (all.empty() ? "" : " and ") + text;
    }
    return makeError(DiagId::requirement_unfulfilled,
                     {format.name, all, std::to_string(row), std::to_string(column)});
  }

  const Format &format;
  const MatrixView &input;
  const bool reject;
  const unsigned threads;
  const std::span<const double> columnWeights;
  const std::map<int, uint32_t> &given;
  const std::vector<uint8_t> clamped; // codes by codes, where a requirement bounds the element
  bool byDivision = false;
  double factor = 1;               // of S
  const QuotientEncoder quotients; // where codes have at most 8 bits
  const int64_t run, highBand;     // numbers along k, and rows, that are encoded together
  int tensorTrials = 0;
  std::vector<std::vector<EncodeRule>> rules; // by component; several where one is the best
  QuantizedMatrix out;
  FirstPlace nonFinite, unfulfilled;
};

std::optional<Error> wrongWeights(std::span<const double> weights, int64_t k) {
  if (weights.empty())
    return std::nullopt;
  if (static_cast<int64_t>(weights.size()) != k)
    return makeError(DiagId::bad_column_weights, {std::to_string(weights.size()) + " weights for " +
                                                  std::to_string(k) + " columns"});
  for (size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || std::isinf(weights[i]))
      return makeError(DiagId::bad_column_weights,
                       {"weight " + printNumber(weights[i]) + " of column " + std::to_string(i)});
  return std::nullopt;
}

Status checkGiven(const Format &format, const std::map<int, uint32_t> &given) {
  for (const auto &[index, code] : given) {
    const bool known = index > 0 && static_cast<size_t>(index) < format.components.size();
    if (!known || format.component(index).extent != Extent::Tensor)
      return makeError(DiagId::bad_fixed_component, {"'" + format.name + "' has no component " +
                                                     std::to_string(index) + " per tensor"});
  }
  return Done{};
}

} // namespace

Result<QuantizedMatrix> quantizeElements(QuantizedMatrix matrix, const MatrixView &input,
                                         double factor, const QuantizeOptions &options) {
  return Quantizer(matrix.format, input, options).finish(std::move(matrix), factor);
}

Result<QuantizedMatrix> quantize(std::shared_ptr<const Format> format, const MatrixView &input,
                                 const QuantizeOptions &options) {
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  bool shaped = input.rows >= 1 && input.rows <= limit && input.k >= 1 && input.k <= limit &&
                input.stride >= input.k;
  if (!shaped || !input.data)
    return makeError(DiagId::bad_matrix,
                     {std::to_string(input.rows), std::to_string(input.k),
                      std::to_string(input.stride), input.data ? "" : " and without data"});
  if (std::optional<Error> error = wrongWeights(options.columnWeights, input.k))
    return *error;
  if (!options.residualScores.empty() && !format->residual)
    return makeError(DiagId::bad_block_scores,
                     {std::to_string(options.residualScores.size()) + " scores",
                      "format '" + format->name + "' has no residual"});
  if (Status good = checkChoice(*format, options.choice, input.rows, input.k); !good)
    return good.error();
  if (Status good = checkGiven(*format, options.given); !good)
    return good.error();
  if (format->hasParts())
    return quantizeParts(*format, input, options);
  return Quantizer(std::move(format), input, options).finish();
}

} // namespace rho::dsl
