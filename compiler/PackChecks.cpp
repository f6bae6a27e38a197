#include "compiler/PackChecks.h"

#include "compiler/CodePair.h"
#include "compiler/LayoutMap.h"
#include "compiler/Parallel.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace rho::compiler {

using dsl::CodeArray;
using dsl::Component;
using dsl::Format;
using dsl::QuantizedMatrix;

namespace {

// The first code that isWanted(code), but for ranges that hasNone(begin, end).
template <class HasNone, class IsWanted>
std::optional<int64_t> firstCode(const CodeArray &codes, const HasNone &hasNone,
                                 const IsWanted &isWanted) {
  constexpr int64_t chunk = int64_t(1) << 20;
  Least first(codes.size());
  parallelFor(divideUp(codes.size(), chunk), [&](int64_t task) {
    const int64_t begin = task * chunk, end = std::min(codes.size(), begin + chunk);
    if (hasNone(begin, end))
      return;
    for (int64_t i = begin; i < end; ++i)
      if (isWanted(codes.get(i)))
        return first.offer(i);
  });
  return first.get();
}

// The first code that is wider than its type; codes of 8, 16 and 32 bits cannot be.
std::optional<int64_t> firstTooWide(const CodeArray &codes, int bits) {
  if (bits == codes.width() * 8)
    return std::nullopt;
  auto hasNone = [&](int64_t begin, int64_t end) { // many bytes at a time
    uint8_t all = 0;
    for (int64_t i = begin; i < end && codes.width() == 1; ++i)
      all |= codes.data()[i];
    return codes.width() == 1 && (all >> bits) == 0;
  };
  return firstCode(codes, hasNone, [&](uint32_t code) { return (code >> bits) != 0; });
}

// The first of codes of more than 8 bits that is NaN or infinite: has all bits of the exponent.
std::optional<int64_t> firstWideNonFinite(const CodeArray &codes, dsl::ElementType type) {
  if (!type.isFloat())
    return std::nullopt;
  const uint32_t exponent = ((1U << type.exponentBits()) - 1) << type.mantissaBits();
  if (std::isfinite(type.decode(exponent))) // all of its codes are
    return std::nullopt;
  return firstCode(
      codes, [](int64_t, int64_t) { return false; },
      [&](uint32_t code) { return (code & exponent) == exponent; });
}

// The first code that is NaN or infinite: of at most 8 bits kernels would decode it as a number, a
// wider one makes all outputs of its row so. One that stands for another number is none.
std::optional<int64_t> firstNonFinite(const CodeArray &codes, dsl::ElementType type,
                                      std::optional<uint32_t> remapped) {
  if (codes.width() > 1)
    return firstWideNonFinite(codes, type);
  std::optional<int64_t> first;
  for (uint32_t code = 0; code < 1U << type.bits(); ++code) {
    if (std::isfinite(type.decode(code)) || code == remapped)
      continue;
    const uint8_t *end = codes.data() + codes.size();
    const uint8_t *found = std::find(codes.data(), end, static_cast<uint8_t>(code));
    if (found != end && (!first || found - codes.data() < *first))
      first = found - codes.data();
  }
  return first;
}

// Of a matrix without parts.
std::string ownProblem(const QuantizedMatrix &weight) {
  if (weight.components.size() != weight.format->components.size())
    return "the weight lacks components";
  for (size_t c = 0; c < weight.components.size(); ++c) {
    const Component &component = weight.format->components[c];
    dsl::BlockGrid grid = codeGrid(component, weight.rows, weight.k);
    int bits = component.type.bits();
    int width = dsl::unitBits(component.type) / 8;
    const CodeArray &codes = weight.components[c];
    if (codes.size() != grid.size() || codes.width() != width)
      return "'" + component.name + "' has " + std::to_string(codes.size()) + " codes of " +
             std::to_string(codes.width()) + " bytes, " + std::to_string(grid.size()) + " of " +
             std::to_string(width) + " are needed";
    if (std::optional<int64_t> wide = firstTooWide(codes, bits))
      return "code " + std::to_string(*wide) + " of '" + component.name + "' is " +
             std::to_string(codes.get(*wide)) + ", '" + std::string(component.type.name()) +
             "' has " + std::to_string(bits) + " bits";
    std::optional<uint32_t> remapped;
    if (c == 0 && component.remap)
      remapped = component.remap->code;
    if (std::optional<int64_t> none = firstNonFinite(codes, component.type, remapped))
      return "code " + std::to_string(*none) + " of '" + component.name + "' is " +
             std::to_string(codes.get(*none)) + ", no finite number in '" +
             std::string(component.type.name()) + "'";
  }
  return {};
}

// The weight's codes and those of its residual.
std::string partsProblem(const QuantizedMatrix &weight) {
  const dsl::Residual &residual = *weight.format->residual;
  const int64_t blocks = blockGrid(residual.blocks, weight.rows, weight.k).size();
  if (weight.parts.size() != 2 || weight.choice.size() != blocks)
    return "the weight has " + std::to_string(weight.parts.size()) + " parts and " +
           std::to_string(weight.choice.size()) + " choices, 2 and " + std::to_string(blocks) +
           " are needed";
  const Format base = withoutResidual(*weight.format);
  const Format *expected[] = {&base, residual.part.format.get()};
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const QuantizedMatrix &part = weight.parts[i];
    if (!part.format || part.rows != weight.rows || part.k != weight.k)
      return "the codes of its parts are not of " + std::to_string(weight.rows) + " x " +
             std::to_string(weight.k) + " numbers of a format";
    if (dsl::meaningOf(*part.format) != dsl::meaningOf(*expected[i]))
      return "the codes of its parts are of other formats";
    if (std::string problem = ownProblem(part); !problem.empty())
      return problem;
  }
  for (size_t c = 1; residual.part.divisor != 0 && c < base.components.size(); ++c) {
    const CodeArray &ours = weight.parts[0].components[c], &theirs = weight.parts[1].components[c];
    if (!std::equal(ours.data(), ours.data() + ours.size() * ours.width(), theirs.data()))
      return "the residual has another '" + base.components[c].name +
             "' than the weight, they share it";
  }
  return {};
}

} // namespace

std::string codesProblem(const QuantizedMatrix &weight) {
  return weight.format->residual ? partsProblem(weight) : ownProblem(weight);
}

std::string weightProblem(const WeightLayout &layout, const QuantizedMatrix &weight) {
  if (!weight.format)
    return "the weight has no format";
  if (weight.rows != layout.n || weight.k != layout.k)
    return "the weight is " + std::to_string(weight.rows) + " x " + std::to_string(weight.k) +
           ", the layout is for " + std::to_string(layout.n) + " x " + std::to_string(layout.k);
  if (std::string problem = mismatch(layout, *weight.format); !problem.empty())
    return problem;
  return codesProblem(weight);
}

std::optional<Error> negativeScale(const std::vector<LayoutSection> &sections,
                                   const QuantizedMatrix &weight) {
  for (const LayoutSection &section : sections) {
    const CodeArray &codes = weight.components[section.component];
    if (!section.noSign)
      continue;
    const Component &component = weight.format->components[section.component];
    for (int64_t i = 0; i < codes.size(); ++i)
      if ((codes.get(i) >> (section.codeBits - 1)) != 0) {
        std::ostringstream value;
        value << component.type.decode(codes.get(i));
        return makeError(DiagId::pack_negative_scale,
                         {std::to_string(i), component.name, value.str()});
      }
  }
  return std::nullopt;
}

std::optional<Error> noSum(const std::vector<LayoutSection> &sections,
                           const QuantizedMatrix &weight) {
  for (const LayoutSection &section : sections) {
    if (section.sumType.empty())
      continue;
    const Component &component = weight.format->components[section.component];
    const CodeArray &codes = weight.components[section.component];
    for (int64_t i = 0; i < codes.size(); ++i) {
      double value = component.type.decode(codes.get(i));
      if (codePair(dsl::ElementType::get(section.sumType), value))
        continue;
      std::ostringstream text;
      text << value;
      return makeError(DiagId::pack_no_sum,
                       {std::to_string(i), component.name, text.str(), section.sumType});
    }
  }
  return std::nullopt;
}

} // namespace rho::compiler
