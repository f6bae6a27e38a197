#include "compiler/OnTarget.h"

#include "compiler/Devices.h"
#include "compiler/ErrorBound.h"
#include "compiler/Targets.h"
#include "compiler/decode/ElementCore.h"
#include "compiler/plan/Placement.h"
#include "compiler/plan/ScheduleCandidates.h"
#include "dsl/Evaluate.h"
#include "dsl/Expressions.h"
#include "dsl/Numbers.h"
#include "dsl/StoredFactors.h"
#include "dsl/StoredValues.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;

// With which it is seen whether a gemm has kernels.
std::vector<Roles> rolesToTry(const dsl::Gemm &gemm, std::string_view target) {
  if (gemm.schedule.roles)
    return {*gemm.schedule.roles};
  std::vector<Roles> several = {Roles::Uniform}; // of few rows alone others are no help
  if (targetOf(target).hasWgmma)
    several.push_back(Roles::ImFP);
  return several;
}

dsl::ScheduleDecl::Tables tablesToTry(const dsl::Gemm &gemm) {
  return gemm.schedule.tables.value_or(dsl::ScheduleDecl::Tables::Registers);
}

// Why no kernel takes the gemm as it is; none: one does.
std::optional<Diagnostic> problemOf(const dsl::Gemm &gemm, std::string_view target) {
  std::optional<Diagnostic> first;
  for (Scales scales : scalesCandidates(gemm))
    for (Roles roles : rolesToTry(gemm, target)) {
      Result<PlacedGemm> placed = place(gemm, scales, roles, tablesToTry(gemm), target, nullptr);
      // Where only roles with longer tiles than the blocks take the parts, as other numbers they
      // may have shorter ones. A tile that the user fixes is the user's.
      if (placed && (gemm.schedule.tile || tilesFitBlocks(gemm, *placed, roles)))
        return std::nullopt;
      Diagnostic why = placed
                           ? makeDiagnostic(DiagId::parts_need_kernels_apart,
                                            {gemm.activation.name,
                                             "k tiles of roles " + std::string(dsl::name(roles)) +
                                                 " are longer than its blocks"})
                           : placed.error().diagnostics[0];
      if (!first || saysMore(gemm, why, *first))
        first = std::move(why);
    }
  return first;
}

// Binary digits, the largest and the least magnitude but 0, and the lowest digit, as an exponent of
// 2, of all numbers of an expression's factor.
struct Digits {
  int count = 0, lowest = 0;
  double largest = 0, least = std::numeric_limits<double>::infinity();
  bool exact = true; // else nothing is known but `largest`
};

Digits digitsOf(const std::vector<double> &values) {
  Digits result{.lowest = 1100};
  for (double value : values) {
    if (value == 0 || !std::isfinite(value))
      continue;
    const int count = significantBits(value);
    result.count = std::max(result.count, count);
    result.lowest = std::min(result.lowest, std::ilogb(value) + 1 - count);
    result.largest = std::max(result.largest, std::abs(value));
    result.least = std::min(result.least, std::abs(value));
  }
  return result;
}

Digits digitsOf(dsl::ElementType type) {
  if (type.bits() > 16)
    return {.largest = type.maxMagnitude(), .exact = false};
  if (type.bits() == 16) { // f16, bf16: the same without going through all codes
    const int lowest = type.leastExponent() - type.mantissaBits();
    return {type.mantissaBits() + 1, lowest, type.maxFinite(), std::ldexp(1.0, lowest)};
  }
  std::vector<double> values;
  for (uint32_t code = 0; code < uint32_t{1} << type.bits(); ++code)
    values.push_back(type.decode(code));
  return digitsOf(values);
}

Digits digitsOf(const dsl::Expr &factor, const dsl::Format &format) {
  const dsl::Component &element = format.element();
  if (factor.kind == dsl::Expr::Kind::Component) {
    Digits digits = digitsOf(format.components[static_cast<size_t>(factor.component)].type);
    if (factor.component != 0 || !element.remap)
      return digits;
    std::vector<double> values;
    for (uint32_t code = 0; code < uint32_t{1} << element.type.bits(); ++code)
      if (code != element.remap->code)
        values.push_back(element.type.decode(code));
    for (const dsl::Remap::Entry &entry : element.remap->entries)
      if (entry.component < 0)
        values.push_back(entry.value);
    const Digits found = digitsOf(values);
    for (const dsl::Remap::Entry &entry : element.remap->entries)
      if (entry.component >= 0)
        return {.largest = std::max(
                    found.largest,
                    format.components[static_cast<size_t>(entry.component)].type.maxMagnitude()),
                .exact = false};
    return found;
  }
  const dsl::Range range = dsl::rangeOf(factor, format);
  const double largest = std::max(std::abs(range.min), std::abs(range.max));
  if (range.integer)
    return {.count = largest == 0 ? 0 : std::ilogb(largest) + 1, .largest = largest};
  return {.largest = largest, .exact = false};
}

// Of what is stored for one number.
Digits digitsOfValues(const dsl::Format &format, const dsl::Format &values) {
  const dsl::Format folded = dsl::valueOfElement(format, values);
  Digits all{.largest = 1, .least = 1};
  for (const dsl::ExprPtr &each : dsl::factorsOf(folded.value)) {
    const Digits factor = digitsOf(*each, format);
    all.count += factor.count;
    all.lowest += factor.lowest;
    all.largest *= factor.largest;
    all.least *= factor.least;
    all.exact = all.exact && factor.exact;
  }
  return all;
}

// Whether the lowest digits of numbers are above those that a type ends with.
bool hasLowest(dsl::ElementType type, const Digits &digits) {
  return type.exponentBits() == 8 || digits.lowest >= type.leastExponent() - type.mantissaBits();
}

// Whether numbers, where they are rounded to all digits of a type, are within its range. Those
// beyond what bf16 has are beyond what activations are: it saturates.
bool inRange(dsl::ElementType type, const Digits &digits) {
  const bool vanish = digits.exact && !hasLowest(type, digits) &&
                      digits.least < std::ldexp(1.0, type.leastExponent());
  return type.exponentBits() == 8 || (digits.largest <= type.maxFinite() && !vanish);
}

bool holds(dsl::ElementType type, const Digits &digits) {
  return digits.exact && digits.count <= type.mantissaBits() + 1 && hasLowest(type, digits) &&
         inRange(type, digits);
}

// Whether sums of wide parameters are decoded as operands and other factors are not: such operands
// have no size that the weights have.
bool hasSumsBesideScales(const dsl::Format &weight) {
  if (weight.hasParts())
    return false;
  bool sums = false, scales = false;
  for (const dsl::ExprPtr &factor : dsl::factorsOf(weight.value)) {
    const bool isComponent = factor->kind == dsl::Expr::Kind::Component;
    scales = scales || (isComponent && factor->component != 0);
    for (size_t i = 1; i < weight.components.size() && !isComponent; ++i)
      sums =
          sums || (weight.components[i].type.bits() > 8 && mentions(*factor, static_cast<int>(i)));
  }
  return sums && scales;
}

double rhoOf(std::string_view target) {
  const Result<DeviceModel> device = modelOfTarget(target);
  return device ? device->rates.rho("f16").value_or(0) : 0;
}

// Activations without parts as exact numbers beside which a weight's fine scales are multiplied
// into operands, where that rounds nothing: CUDA cores are too slow to scale the sums of an
// instruction, or of half of one, for tensor cores of 16 times their throughput (A100, H100, H200).
std::optional<TargetGemm> withOperandScales(const dsl::Gemm &gemm, std::string_view target) {
  constexpr double slowCudaCores = 16;
  constexpr int64_t longestGroup = 32;
  const dsl::Format &weight = gemm.weight, &activation = gemm.activation;
  auto isWide = [](const dsl::Component &component) {
    return component.extent == dsl::Extent::Group && component.type.bits() > 8;
  };
  if (weight.hasParts() || finestGroup(weight) > longestGroup ||
      gemm.schedule.scales.value_or(Scales::Operand) != Scales::Operand ||
      rhoOf(target) < slowCudaCores ||
      std::any_of(weight.components.begin(), weight.components.end(), isWide))
    return std::nullopt;
  for (const char *name : {"f16", "bf16"}) {
    const dsl::ElementType type = dsl::ElementType::get(name);
    TargetGemm result{gemm};
    result.gemm.activation = dsl::valuesAs(type, activation, false);
    const Digits digits = digitsOfValues(activation, result.gemm.activation);
    if (!holds(type, digits))
      continue;
    result.saturates = !(digits.largest <= type.maxFinite());
    for (Roles roles : rolesToTry(gemm, target)) {
      Result<PlacedGemm> placed =
          place(result.gemm, Scales::Operand, roles, tablesToTry(gemm), target, nullptr);
      if (placed && placed->scalesOperand && placed->flushK == 0 &&
          placed->operandRoundings + placed->decode.roundings == 0)
        return result;
    }
  }
  return std::nullopt;
}

// Activations of integers as exact numbers of 16 bits, whose sums are scaled, beside groups of a
// weight that are no multiple of wgmma's k for bytes, but of its k for 16 bits: codes would be left
// to mma.sync.
std::optional<TargetGemm> withShorterInstructions(const dsl::Gemm &gemm, std::string_view target) {
  constexpr int64_t kOfBytes = 32, kOfHalves = 16;
  const int64_t group = finestGroup(gemm.weight);
  if (!targetOf(target).hasWgmma || !gemm.activation.element().type.isInteger() ||
      gemm.weight.hasParts() || gemm.schedule.roles || gemm.schedule.scales ||
      group % kOfBytes == 0 || group % kOfHalves != 0)
    return std::nullopt;
  for (const char *name : {"f16", "bf16"}) {
    const dsl::ElementType type = dsl::ElementType::get(name);
    TargetGemm result{gemm};
    result.gemm.activation = dsl::valuesAs(type, gemm.activation, false);
    result.gemm.schedule.scales = Scales::Accumulator; // products with them would be rounded
    const Digits digits = digitsOfValues(gemm.activation, result.gemm.activation);
    if (!holds(type, digits) || digits.largest > type.maxFinite())
      continue;
    Result<PlacedGemm> placed =
        place(result.gemm, Scales::Accumulator, Roles::ImFP, tablesToTry(gemm), target, nullptr);
    if (!placed || placed->operandRoundings + placed->decode.roundings > 0)
      continue;
    result.reason = "scales for each " + std::to_string(group) + " of k are finer than " +
                    std::to_string(kOfBytes) + ", the k of wgmma for codes";
    return result;
  }
  return std::nullopt;
}

// The same in place of codes that have a kernel, where it is faster: integer sums are converted
// before they are scaled, and floats have their instruction's k of 32.
std::optional<TargetGemm> inPlaceOfCodes(const dsl::Gemm &gemm, std::string_view target) {
  if (gemm.activation.hasParts() || gemm.activation.element().type.bits() > 8)
    return std::nullopt;
  constexpr int64_t ofIntegers = 32, ofFloats = 16;
  const int64_t group = finestGroup(gemm.weight);
  if (group > (gemm.activation.element().type.isInteger() ? ofIntegers : ofFloats))
    return std::nullopt;
  std::optional<TargetGemm> found = withOperandScales(gemm, target);
  if (!found)
    return withShorterInstructions(gemm, target);
  if (found->saturates)
    return std::nullopt;
  found->reason = "beside codes the sums of every " + std::to_string(group) +
                  " of k would be scaled, by CUDA cores with 1/" + dsl::printNumber(rhoOf(target)) +
                  " of the throughput of tensor cores, which is slower";
  return found;
}

// The activation of `gemm`, without parts, as numbers; none where no kernel takes those either.
std::optional<TargetGemm> withValues(const dsl::Gemm &gemm, std::string_view target) {
  const dsl::Format &format = gemm.activation;
  if (format.hasParts())
    return std::nullopt;
  if (std::optional<TargetGemm> exact = withOperandScales(gemm, target))
    return exact;
  const dsl::ElementType f16 = dsl::ElementType::get("f16"), bf16 = dsl::ElementType::get("bf16");
  const auto types =
      hasSumsBesideScales(gemm.weight) ? std::array{bf16, f16} : std::array{f16, bf16};
  TargetGemm result{gemm};
  auto fits = [&](dsl::ElementType type, bool keepsGroups, bool rounds) {
    dsl::Format values = dsl::valuesAs(type, format, keepsGroups);
    const Digits digits = digitsOfValues(format, values);
    if (rounds ? !inRange(type, digits) : !holds(type, digits))
      return false;
    result.gemm.activation = std::move(values);
    result.roundoff = rounds ? roundoff(type) : 0;
    result.saturates = !(digits.largest <= type.maxFinite());
    return !problemOf(result.gemm, target);
  };
  for (bool rounds : {false, true})
    for (bool keepsGroups : {false, true})
      for (dsl::ElementType type : types)
        if (fits(type, keepsGroups, rounds))
          return result;
  return std::nullopt;
}

// Of a partition, with those parts as numbers that no kernel takes as codes, or all that can be;
// none where no kernel takes those parts together.
std::optional<TargetGemm> withParts(const dsl::Gemm &gemm, std::string_view target, bool all) {
  TargetGemm result{gemm};
  for (size_t i = 0; i < gemm.activation.partition->parts.size(); ++i) {
    const dsl::Gemm alone = gemmOfPart(gemm, i);
    if (dsl::isPlain(alone.activation) || (!all && !problemOf(alone, target)))
      continue;
    std::optional<TargetGemm> part = withValues(alone, target);
    if (!part)
      return std::nullopt;
    result.roundoff = std::max(result.roundoff, part->roundoff);
    result.saturates = result.saturates || part->saturates;
    result.gemm.activation.partition->parts[i].format =
        std::make_shared<const dsl::Format>(std::move(part->gemm.activation));
  }
  if (problemOf(result.gemm, target))
    return std::nullopt;
  return result;
}

// Of a partition whose codes have kernels of uniform roles alone, since other roles' k tiles are
// longer than its blocks: as exact numbers that these roles take, which is faster.
std::optional<TargetGemm> inPlaceOfShortBlocks(const dsl::Gemm &gemm, std::string_view target) {
  if (!gemm.activation.partition || gemm.schedule.roles || gemm.schedule.tile ||
      !targetOf(target).hasWgmma)
    return std::nullopt;
  dsl::Gemm byRoles = gemm;
  byRoles.schedule.roles = Roles::ImFP;
  std::optional<Diagnostic> problem = problemOf(byRoles, target);
  if (!problem || problem->id != DiagId::parts_need_kernels_apart)
    return std::nullopt;
  std::optional<TargetGemm> found = withParts(byRoles, target, true);
  if (!found || found->roundoff > 0 || found->saturates)
    return std::nullopt;
  found->gemm.schedule.roles.reset();
  found->reason = "numbers are faster, since " + problem->message;
  return found;
}

// Of a format with parts, all of them as one matrix of numbers.
std::optional<TargetGemm> withoutParts(const dsl::Gemm &gemm, std::string_view target) {
  TargetGemm result{gemm};
  for (dsl::ElementType type : {dsl::ElementType::get("f16"), dsl::ElementType::get("bf16")}) {
    result.gemm.activation = dsl::plainFormat(type);
    result.roundoff = roundoff(type);
    bool fits = true;
    auto take = [&](const dsl::Format &format) {
      fits =
          fits && (type.exponentBits() == 8 ||
                   (format.value && inRange(type, digitsOfValues(format, result.gemm.activation))));
    };
    dsl::forEachPart(gemm.activation,
                     [&](const dsl::Part &part, const dsl::Blocks &) { take(*part.format); });
    if (gemm.activation.residual)
      take(gemm.activation);
    if (fits && !problemOf(result.gemm, target))
      return result;
  }
  return std::nullopt;
}

// With its activation as numbers; none where no kernel takes those either.
std::optional<TargetGemm> withNumbers(const dsl::Gemm &gemm, std::string_view target) {
  std::optional<TargetGemm> found;
  if (!gemm.activation.hasParts())
    found = withValues(gemm, target);
  for (bool all : {false, true})
    if (!found && gemm.activation.partition)
      found = withParts(gemm, target, all);
  if (!found && gemm.activation.hasParts())
    found = withoutParts(gemm, target);
  return found;
}

// With numbers of bf16 in place of activations that no kernel takes: what a message is about then
// is the weight.
TargetGemm withPlainActivation(const dsl::Gemm &gemm) {
  const dsl::ElementType bf16 = dsl::ElementType::get("bf16");
  TargetGemm result{gemm};
  result.gemm.activation = gemm.activation.hasParts() ? dsl::plainFormat(bf16)
                                                      : dsl::valuesAs(bf16, gemm.activation, false);
  result.gemm.activation.name = gemm.activation.name;
  return result;
}

// `without`: what is in the way beside such activations. A scale that has no place may be either
// operand's, and codes that have none beside an instruction for codes may have none as numbers.
bool isOfActivation(const Diagnostic &problem, const dsl::Gemm &gemm,
                    const std::optional<Diagnostic> &without) {
  if (dsl::isPlain(gemm.activation)) // it is numbers already
    return false;
  const bool ofCodes = !gemm.activation.hasParts() && gemm.activation.element().type.bits() <= 8;
  if (problem.id == DiagId::no_legal_placement || problem.id == DiagId::no_decode)
    return without && (without->id != problem.id || ofCodes);
  return problem.id == DiagId::no_mma_on_target || problem.id == DiagId::no_mma_for_activation ||
         problem.id == DiagId::no_kernels || problem.id == DiagId::unsupported_value ||
         (gemm.activation.hasParts() && (problem.id == DiagId::parts_not_compiled ||
                                         problem.id == DiagId::parts_need_kernels_apart));
}

} // namespace

TargetGemm onTarget(const dsl::Gemm &gemm, std::string_view target) {
  std::optional<Diagnostic> problem = problemOf(gemm, target);
  if (!problem) {
    if (std::optional<TargetGemm> found = inPlaceOfCodes(gemm, target))
      return *std::move(found);
    return inPlaceOfShortBlocks(gemm, target).value_or(TargetGemm{gemm});
  }
  std::optional<dsl::PlainFactors> plain = dsl::plainFactors(gemm.weight);
  dsl::Gemm stored = gemm; // with the weight's scales as numbers
  auto withFactors = [&](TargetGemm found) {
    found.weightFactors = plain->components;
    found.weightRoundoff = plain->roundoff;
    return found;
  };
  std::optional<Diagnostic> storedProblem;
  if (plain) {
    stored.weight = plain->format;
    storedProblem = problemOf(stored, target);
    if (!storedProblem)
      return withFactors({stored});
  }
  std::optional<TargetGemm> found = withNumbers(gemm, target);
  if (!found && plain)
    if (std::optional<TargetGemm> both = withNumbers(stored, target)) {
      found = withFactors(*std::move(both));
      problem = storedProblem;
    }
  if (!found) { // where it is the weight that no kernel takes, whatever the activation, say that
    TargetGemm plainer = withPlainActivation(stored);
    const Diagnostic &why = storedProblem ? *storedProblem : *problem;
    if (isOfActivation(why, gemm, problemOf(plainer.gemm, target)))
      found = storedProblem ? withFactors(std::move(plainer)) : std::move(plainer);
  }
  // Of a weight that has no kernel as it is, the other way says what is in the way there, too.
  if (!found) {
    const bool saysLess =
        problem->id == DiagId::no_decode || problem->id == DiagId::no_residual_kernel;
    return saysLess && storedProblem ? withFactors({stored}) : TargetGemm{gemm};
  }
  found->reason = std::move(problem->message);
  return *std::move(found);
}

std::string storedAs(const TargetGemm &target) {
  if (target.reason.empty())
    return "codes";
  const dsl::Format &stored = target.gemm.activation;
  if (!stored.partition)
    return std::string(stored.element().type.name());
  std::string types;
  dsl::forEachPart(stored, [&](const dsl::Part &part, const dsl::Blocks &) {
    types += (types.empty() ? "" : ", ") + std::string(part.format->element().type.name());
  });
  return types;
}

} // namespace rho::compiler
