#include "dsl/Quantize.h"

#include "dsl/DeriveEncode.h"
#include "dsl/EncodeRule.h"
#include "dsl/Evaluate.h"
#include "dsl/Parallel.h"
#include "dsl/QuantizeParts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

namespace rho::dsl {

namespace {

// The values of all codes that may be chosen, sorted, for formats that are no plain product.
class ValueSearch {
public:
  explicit ValueSearch(const Format &format) : format(format) {}

  // Prepares for numbers whose other components have these codes (codes[0] is overwritten). False
  // where no code fulfils the requirements.
  bool prepare(std::vector<uint32_t> &codes) {
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

  uint32_t nearest(double x) const {
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

private:
  struct Entry {
    double value;
    uint32_t code;
  };
  const Format &format;
  std::vector<double> table;
  std::vector<Entry> entries;
  int64_t fallback = -1;
};

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

class Quantizer {
public:
  Quantizer(std::shared_ptr<const Format> shared, const MatrixView &input, bool reject,
            unsigned threads)
      : format(*shared), input(input), reject(reject), threads(threads),
        byDivision(isProduct(format) && format.requirements.empty()) {
    out.format = std::move(shared);
    out.rows = input.rows;
    out.k = input.k;
    for (const Component &component : format.components)
      out.components.emplace_back(component.type.bits(), codeCount(component));
    for (const Component &component : format.components)
      rules.emplace_back(component.encode ? *component.encode : *format.value);
    for (const Component &component : format.components)
      if (component.extent == Extent::Group)
        run = std::min(run, component.group);
  }

  Result<QuantizedMatrix> finish() {
    std::vector<double> tensorValues(format.components.size(), 0);
    for (int index : format.encodeOrder)
      if (component(index).extent == Extent::Tensor)
        encodeTensor(index, tensorValues);
    parallel(input.rows, threads, [&](const auto &next) {
      RowState state{std::vector<double>(static_cast<size_t>(input.k)), tensorValues,
                     std::vector<uint32_t>(format.components.size()), ValueSearch(format)};
      for (int64_t row = next(); row < input.rows; row = next())
        encodeRow(row, state);
    });
    if (nonFinite.found()) {
      double value = input.at(nonFinite.row(), nonFinite.column());
      return makeError(DiagId::non_finite_input,
                       {std::isnan(value) ? "NaN" : "infinity", std::to_string(nonFinite.row()),
                        std::to_string(nonFinite.column())});
    }
    if (unfulfilled.found())
      return unfulfilledError();
    return std::move(out);
  }

private:
  // What one thread works with: the numbers of a row and the components at one place of it.
  struct RowState {
    std::vector<double> x;
    std::vector<double> values;  // decoded components; the element's is unused
    std::vector<uint32_t> codes; // for the value search
    ValueSearch search;
  };

  const Component &component(int index) const {
    return format.components[static_cast<size_t>(index)];
  }
  CodeArray &codesOf(int index) { return out.components[static_cast<size_t>(index)]; }
  int64_t groups(const Component &c) const { return (input.k + c.group - 1) / c.group; }

  int64_t codeCount(const Component &c) const {
    switch (c.extent) {
    case Extent::Element:
      return input.rows * input.k;
    case Extent::Group:
      return input.rows * groups(c);
    case Extent::Row:
      return input.rows;
    case Extent::Tensor:
      break;
    }
    return 1;
  }

  void load(int64_t row, std::vector<double> &x) const {
    int64_t begin = row * input.stride;
    switch (input.type) {
    case MatrixView::Type::F32:
      return loadAs<float>(begin, x, [](float value) { return value; });
    case MatrixView::Type::F16:
      return loadAs<uint16_t>(
          begin, x, [type = ElementType::get("f16")](uint16_t code) { return type.decode(code); });
    case MatrixView::Type::BF16:
      return loadAs<uint16_t>(begin, x, [](uint16_t code) {
        return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
      });
    }
  }

  // A user's buffer may be aligned to nothing.
  template <class Stored, class Decode>
  void loadAs(int64_t begin, std::vector<double> &x, Decode decode) const {
    const char *from =
        static_cast<const char *>(input.data) + begin * static_cast<int64_t>(sizeof(Stored));
    for (int64_t i = 0; i < input.k; ++i) {
      Stored stored;
      std::memcpy(&stored, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
      x[static_cast<size_t>(i)] = decode(stored);
    }
  }

  double store(int index, int64_t at, double value) {
    ElementType type = component(index).type;
    uint32_t code = type.encode(value);
    codesOf(index).set(at, code);
    return type.decode(code);
  }

  void encodeTensor(int index, std::vector<double> &values) {
    const EncodeRule &rule = rules[static_cast<size_t>(index)];
    EncodeRule::Partial all = rule.begin();
    std::mutex mutex;
    parallel(input.rows, threads, [&](const auto &next) {
      EncodeRule::Partial mine = rule.begin();
      std::vector<double> x(static_cast<size_t>(input.k));
      for (int64_t row = next(); row < input.rows; row = next()) {
        load(row, x);
        rule.reduce(mine, x.data(), input.k, values.data());
      }
      std::lock_guard<std::mutex> lock(mutex);
      rule.combine(all, mine); // minimum and maximum: in any order
    });
    values[static_cast<size_t>(index)] = store(index, 0, rule.finish(all, values.data()));
  }

  void encodeRow(int64_t row, RowState &state) {
    load(row, state.x);
    if (reject) {
      for (int64_t column = 0; column < input.k; ++column)
        if (!std::isfinite(state.x[static_cast<size_t>(column)]))
          return nonFinite.note(row, column);
    }
    for (int index : format.encodeOrder) {
      const Component &c = component(index);
      if (c.extent == Extent::Row)
        encodePart(index, row, 0, input.k, state);
      if (c.extent == Extent::Group)
        for (int64_t group = 0; group < groups(c); ++group)
          encodePart(index, row * groups(c) + group, group * c.group,
                     std::min(input.k, (group + 1) * c.group), state, row);
    }
    for (int64_t begin = 0; begin < input.k; begin += run) {
      loadGroups(row, begin, state);
      encodeElements(row, begin, std::min(input.k, begin + run), state);
    }
  }

  // Encodes one value of a component of a row: that of the columns [begin, end).
  void encodePart(int index, int64_t at, int64_t begin, int64_t end, RowState &state,
                  int64_t row = -1) {
    if (row >= 0)
      loadGroups(row, begin, state, index);
    const EncodeRule &rule = rules[static_cast<size_t>(index)];
    EncodeRule::Partial partial = rule.begin();
    rule.reduce(partial, state.x.data() + begin, end - begin, state.values.data());
    state.values[static_cast<size_t>(index)] =
        store(index, at, rule.finish(partial, state.values.data()));
  }

  // The values of the group components at a column, those before `until` in the encoding order.
  void loadGroups(int64_t row, int64_t column, RowState &state, int until = -1) {
    for (int index : format.encodeOrder) {
      if (index == until)
        return;
      const Component &c = component(index);
      if (c.extent == Extent::Group)
        state.values[static_cast<size_t>(index)] =
            c.type.decode(codesOf(index).get(row * groups(c) + column / c.group));
    }
  }

  void encodeElements(int64_t row, int64_t begin, int64_t end, RowState &state) {
    if (!byDivision)
      return searchElements(row, begin, end, state);
    double scale = 1;
    for (size_t c = 1; c < state.values.size(); ++c)
      scale *= state.values[c];
    ElementType type = format.element().type;
    const double *x = state.x.data();
    CodeArray &codes = out.components[0];
    if (scale == 0)
      return; // codes start as 0
    if (type.isInteger()) {
      uint8_t *to = codes.data() + row * input.k;
      divideToIntegers(type, x + begin, end - begin, scale, to + begin);
    } else {
      for (int64_t column = begin; column < end; ++column)
        codes.set(row * input.k + column, type.encode(x[column] / scale));
    }
  }

  // ElementType::encode of x / scale without its branches, so that it is vectorised.
  static void divideToIntegers(ElementType type, const double *x, int64_t count, double scale,
                               uint8_t *to) {
    const double low = type.minFinite(), high = type.maxFinite();
    const auto mask = static_cast<int32_t>((1u << type.bits()) - 1);
    constexpr double magic = 0x1.8p52; // its last bit is 1: adding it rounds to an integer
    for (int64_t i = 0; i < count; ++i) {
      double q = x[i] / scale;
      q = q < low ? low : q;
      q = q > high ? high : q;
      q = q == q ? q : 0; // NaN
      double rounded = (q + magic) - magic;
      to[i] = static_cast<uint8_t>(static_cast<int32_t>(rounded) & mask);
    }
  }

  void searchElements(int64_t row, int64_t begin, int64_t end, RowState &state) {
    for (int index : format.encodeOrder) {
      const Component &c = component(index);
      int64_t at = c.extent == Extent::Group ? row * groups(c) + begin / c.group
                   : c.extent == Extent::Row ? row
                                             : 0;
      state.codes[static_cast<size_t>(index)] = codesOf(index).get(at);
    }
    if (!state.search.prepare(state.codes))
      return unfulfilled.note(row, begin);
    CodeArray &codes = out.components[0];
    for (int64_t column = begin; column < end; ++column)
      codes.set(row * input.k + column, state.search.nearest(state.x[static_cast<size_t>(column)]));
  }

  // Names the first requirement that no code fulfils, or all of them where only together they
  // cannot be fulfilled.
  Error unfulfilledError() {
    int64_t row = unfulfilled.row(), column = unfulfilled.column();
    std::vector<uint32_t> codes(format.components.size());
    for (int index : format.encodeOrder) {
      const Component &c = component(index);
      int64_t at = c.extent == Extent::Group ? row * groups(c) + column / c.group
                   : c.extent == Extent::Row ? row
                                             : 0;
      codes[static_cast<size_t>(index)] = codesOf(index).get(at);
    }
    std::string all;
    for (const Requirement &requirement : format.requirements) {
      std::string text = print(*requirement.expr, format) + (requirement.atMost ? " <= " : " >= ") +
                         std::to_string(requirement.bound);
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
  const bool byDivision;
  int64_t run = std::numeric_limits<int64_t>::max() / 2; // numbers that share every other component
  std::vector<EncodeRule> rules;                         // by component; the element's is unused
  QuantizedMatrix out;
  FirstPlace nonFinite, unfulfilled;
};

} // namespace

Result<QuantizedMatrix> quantize(std::shared_ptr<const Format> format, const MatrixView &input,
                                 bool rejectNonFinite, unsigned threads) {
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  bool shaped = input.rows >= 1 && input.rows <= limit && input.k >= 1 && input.k <= limit &&
                input.stride >= input.k;
  if (!shaped || !input.data)
    return makeError(DiagId::bad_matrix,
                     {std::to_string(input.rows), std::to_string(input.k),
                      std::to_string(input.stride), input.data ? "" : " and without data"});
  if (format->hasParts())
    return quantizeParts(*format, input, rejectNonFinite, threads);
  return Quantizer(std::move(format), input, rejectNonFinite, threads).finish();
}

} // namespace rho::dsl
