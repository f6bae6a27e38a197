#include "compiler/Requirements.h"

#include "compiler/Parallel.h"
#include "dsl/Division.h"
#include "dsl/Evaluate.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

namespace rho::compiler {

using dsl::Extent;
using dsl::Format;
using dsl::QuantizedMatrix;

namespace {

void mark(const dsl::Expr &expr, std::vector<bool> &used) {
  if (expr.kind == dsl::Expr::Kind::Component)
    used[expr.component] = true;
  for (const dsl::ExprPtr &operand : expr.operands)
    mark(*operand, used);
}

// Looks for broken requirements. A weight has few different tuples of codes beside the element's,
// so each tuple is evaluated once, for all element codes if a requirement reads the element.
class BreachFinder {
public:
  explicit BreachFinder(const QuantizedMatrix &weight)
      : weight(weight), format(*weight.format), used(format.components.size()) {
    for (const dsl::Requirement &requirement : format.requirements)
      mark(*requirement.expr, used);
    elementBits = format.element().type.bits();
    // Columns in steps that share every component read beside the element; one by one when the
    // element is read and too wide for a table.
    for (size_t c = 1; c < used.size(); ++c)
      if (used[c] && format.components[c].extent == Extent::Group)
        step = std::gcd(step, format.components[c].group);
    if (step == 0)
      step = weight.k;
    if (used[0] && elementBits > 8)
      step = 1;
  }

  // The first breach, row by row.
  std::optional<Place> find() const {
    if (format.requirements.empty())
      return std::nullopt;
    constexpr int64_t rowsPerTask = 64;
    std::mutex mutex;
    std::optional<Place> first;
    parallelFor(divideUp(weight.rows, rowsPerTask), [&](int64_t task) {
      std::optional<Place> found =
          findIn(task * rowsPerTask, std::min(weight.rows, (task + 1) * rowsPerTask));
      std::lock_guard lock(mutex);
      if (found && (!first || found->n < first->n))
        first = found;
    });
    return first;
  }

private:
  using Table = std::vector<char>; // per element code, or one entry when it is not read

  uint32_t codeAt(size_t c, int64_t row, int64_t k) const {
    return weight.components[c].get(dsl::codeIndex(format.components[c], weight.k, row, k));
  }

  Table evaluate(std::vector<uint32_t> codes) const {
    bool all = used[0] && elementBits <= 8;
    Table table(all ? size_t(1) << elementBits : 1);
    for (uint32_t code = 0; code < table.size(); ++code) {
      if (all)
        codes[0] = code;
      table[code] = static_cast<char>(dsl::fulfils(format, codes.data()));
    }
    return table;
  }

  std::optional<Place> findIn(int64_t begin, int64_t end) const {
    std::map<std::vector<uint32_t>, Table> known;
    std::vector<uint32_t> codes(used.size());
    for (int64_t row = begin; row < end; ++row)
      for (int64_t k = 0; k < weight.k; k += step) {
        for (size_t c = 1; c < used.size(); ++c)
          codes[c] = used[c] ? codeAt(c, row, k) : 0;
        codes[0] = used[0] && elementBits > 8 ? codeAt(0, row, k) : 0;
        auto entry = known.find(codes);
        if (entry == known.end())
          entry = known.emplace(codes, evaluate(codes)).first;
        const Table &table = entry->second;
        if (table.size() == 1) {
          if (!table[0])
            return Place{row, k};
          continue;
        }
        // Elements of up to 8 bits are stored one a byte.
        const uint8_t *elements = weight.components[0].data() + row * weight.k;
        for (int64_t column = k; column < std::min(weight.k, k + step); ++column)
          if (!table[elements[column]])
            return Place{row, column};
      }
    return std::nullopt;
  }

  const QuantizedMatrix &weight;
  const Format &format;
  std::vector<bool> used;
  int elementBits = 0;
  int64_t step = 0;
};

} // namespace

std::optional<Place> firstBreach(const QuantizedMatrix &weight) {
  return BreachFinder(weight).find();
}

} // namespace rho::compiler
