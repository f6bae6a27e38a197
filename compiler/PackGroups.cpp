#include "compiler/PackGroups.h"

#include "compiler/LayoutMap.h"
#include "compiler/Parallel.h"

#include <algorithm>

namespace rho::compiler {

using dsl::CodeArray;
using dsl::Component;
using dsl::QuantizedMatrix;

namespace {

// Puts change(code) in place of the code of each element of the groups for whose code of a
// component `isWanted` holds.
template <class Wanted, class Change>
void changeElements(QuantizedMatrix &weight, int component, const Wanted &isWanted,
                    const Change &change) {
  const Component &declared = weight.format->components[static_cast<size_t>(component)];
  const CodeArray &codes = weight.components[static_cast<size_t>(component)];
  CodeArray &elements = weight.components[0];
  const int64_t group = dsl::blocksOf(declared).k, columns = group == 0 ? weight.k : group;
  parallelFor(weight.rows, [&](int64_t row) {
    for (int64_t first = 0; first < weight.k; first += columns) {
      if (!isWanted(codes.get(dsl::codeIndex(declared, weight.k, row, first))))
        continue;
      const int64_t end = row * weight.k + std::min(first + columns, weight.k);
      for (int64_t place = row * weight.k + first; place < end; ++place)
        elements.set(place, change(elements.get(place)));
    }
  });
}

bool hasAny(const CodeArray &codes, const std::vector<bool> &isWanted) {
  for (int64_t i = 0; i < codes.size(); ++i)
    if (isWanted[codes.get(i)])
      return true;
  return false;
}

} // namespace

std::optional<QuantizedMatrix> asStored(const std::vector<LayoutSection> &sections,
                                        const QuantizedMatrix &weight) {
  std::optional<QuantizedMatrix> changed;
  auto copy = [&]() -> QuantizedMatrix & {
    if (!changed)
      changed = weight;
    return *changed;
  };
  for (const LayoutSection &section : sections) {
    if (section.component == 0 || section.codeTable.empty())
      continue;
    const dsl::ElementType type = weight.format->components[section.component].type;
    std::vector<bool> isZero(size_t(1) << type.bits());
    for (uint32_t code = 0; code < isZero.size(); ++code)
      isZero[code] = type.decode(code) == 0;
    if (hasAny(weight.components[section.component], isZero))
      changeElements(
          copy(), section.component, [&](uint32_t code) { return bool(isZero[code]); },
          [](uint32_t) { return 0U; });
  }
  for (const LayoutSection &section : sections) {
    if (section.negatedBy == 0)
      continue;
    const std::vector<uint32_t> negated = negatedCodes(*weight.format);
    changeElements(
        copy(), section.negatedBy,
        [&](uint32_t code) { return (code >> section.negatedBit & 1) != 0; },
        [&](uint32_t code) { return negated[code]; });
  }
  return changed;
}

} // namespace rho::compiler
