#include "compiler/plan/Placement.h"

#include "compiler/Targets.h"
#include "compiler/decode/ElementCore.h"
#include "compiler/decode/PairTable.h"
#include "compiler/decode/Remap.h"
#include "compiler/plan/ScaledOperand.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

namespace rho::compiler {

namespace {

using dsl::Extent;
using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;
using Tables = dsl::ScheduleDecl::Tables;

std::string path(bool weight, const std::string &component) {
  return (weight ? "weight." : "activation.") + component;
}

// What numbers are made of and a tensor has once is loaded before all k tiles, but the selector
// that chooses from them, whose code is taken where the scales' are.
std::vector<bool> streamedComponents(const dsl::Format &weight, const DecodeSequence &decode) {
  std::vector<bool> result;
  for (const dsl::Component &component : weight.components)
    result.push_back(component.extent == Extent::Group);
  for (const DecodeParam &param : decode.params) {
    if (param.hasComponent())
      result[param.component] = true;
    for (int component : param.number.uses())
      if (weight.components[component].extent != Extent::Tensor ||
          param.number.fewChoices(weight) == component)
        result[component] = true;
  }
  for (const dsl::Component &component : weight.components)
    if (component.host >= 0 && result[&component - weight.components.data()])
      result[component.host] = true;
  return result;
}

int64_t operandGroupOf(const dsl::Format &weight, const DecodeSequence &decode) {
  int64_t result = 0;
  auto take = [&](int index) {
    const dsl::Component &component = weight.components[static_cast<size_t>(index)];
    if (component.extent == Extent::Group)
      result = result == 0 ? kernelGroup(component.group)
                           : std::min(result, kernelGroup(component.group));
  };
  for (const DecodeParam &param : decode.params) {
    if (param.hasComponent())
      take(param.component);
    for (int component : param.number.uses())
      take(component);
  }
  return result;
}

} // namespace

int64_t finestGroup(const dsl::Format &format) {
  int64_t finest = std::numeric_limits<int64_t>::max();
  for (const dsl::Component &component : format.components)
    if (component.extent == Extent::Group)
      finest = std::min(finest, kernelGroup(component.group));
  return finest;
}

Error errorAt(DiagId id, const std::vector<std::string> &args, Span span,
              const SourceMap *sources) {
  if (sources && span.file != Span::none)
    return Error{{makeDiagnostic(id, args, span, *sources)}};
  return makeError(id, args);
}

namespace {

// Why no codes are looked up in shared memory.
Error noTables(const dsl::Gemm &gemm, Tables tables, const std::string &why,
               const SourceMap *sources) {
  return errorAt(DiagId::schedule_tables,
                 {std::string(dsl::name(tables)), "'" + gemm.name + "'", why},
                 gemm.schedule.tables ? gemm.schedule.spans.tables : gemm.span, sources);
}

// Where each factor of one gemm without parts is applied. The steps build on each other, in the
// order of run().
class FormatPlacement {
public:
  FormatPlacement(const dsl::Gemm &gemm, Scales groupScales, Roles roles, std::string_view target,
                  const SourceMap *sources, Within within, Tables tables, bool widened)
      : gemm(gemm), weight(gemm.weight), activation(gemm.activation), groupScales(groupScales),
        roles(roles), target(target), sources(sources), within(within), tables(tables),
        widened(widened), blockScaled(groupScales == Scales::Hardware ||
                                      activation.element().type == dsl::ElementType::get("e2m1")) {}

  Result<PlacedGemm> run(const DecodeSequence *fixed) {
    for (auto step : {&FormatPlacement::checkActivation, &FormatPlacement::readFactors,
                      &FormatPlacement::chooseOperand})
      if (Status done = (this->*step)(); !done)
        return done.error();
    if (Status found = findDecode(fixed); !found)
      return found.error();
    for (auto step : {&FormatPlacement::checkComponents, &FormatPlacement::fitBlocks,
                      &FormatPlacement::placeWeightScales, &FormatPlacement::placeActivationScales})
      if (Status done = (this->*step)(); !done)
        return done.error();
    ScaledOperand own = finished(*decode, std::move(scaled));
    result.decode = *std::move(own.decode);
    result.operandRoundings = own.roundings;
    if (!fixed)
      leaveSignsOfBytes();
    if (tables == Tables::Mixed)
      if (Status mixed = mixDecodes(); !mixed)
        return mixed.error();
    result.log2Factor =
        result.decode.log2Factor + (result.blockScaling ? result.blockScaling->log2 : 0);
    if (result.decode.opposite)
      result.constant = -result.constant;
    result.streamed = streamedComponents(weight, result.decode);
    if (Status fits = checkConstant(); !fits)
      return fits.error();
    return std::move(result);
  }

private:
  const dsl::Gemm &gemm;
  const dsl::Format &weight, &activation;
  const Scales groupScales;
  const Roles roles;
  const std::string_view target;
  const SourceMap *sources;
  const Within within;
  const Tables tables;
  const bool widened, blockScaled;

  PlacedGemm result;
  Factors w, x;
  bool splitsWeight = false; // its codes are operands, see BlockScaling
  std::optional<DecodeSequence> decode;
  std::optional<DecodeSequence> byRegisters; // of which `decode` is with tables in shared memory
  std::vector<ScaleUse> groups;              // scales of the weight's groups
  ScaledOperand scaled;                      // by these

  Error ofWeight(DiagId id, const std::vector<std::string> &args) const {
    return errorAt(id, args, gemm.weightSpan, sources);
  }
  Error ofActivation(DiagId id, const std::vector<std::string> &args) const {
    return errorAt(id, args, gemm.activationSpan, sources);
  }
  Error ofScales(DiagId id, const std::vector<std::string> &args) const {
    return errorAt(id, args, gemm.schedule.scales ? gemm.schedule.spans.scales : gemm.weightSpan,
                   sources);
  }

  Status checkActivation() {
    const std::optional<dsl::Remap> &remap = activation.element().remap;
    for (const dsl::Component &component : activation.components) {
      bool splits = blockScaled && remap && &component == &activation.components[remap->selector];
      std::string gap =
          component.rows > 1                ? "is per " + dsl::printExtent(component)
          : component.remap && !blockScaled ? "has a remapped code"
          : component.host < 0 || splits
              ? ""
              : "is in spare bits of '" + activation.components[component.host].name + "'";
      if (!gap.empty())
        return ofActivation(DiagId::no_kernels, {component.name, activation.name, gap});
    }
    return Done{};
  }

  Status readFactors() {
    Result<Factors> ofW = factorValue(weight, true, gemm.weightSpan, sources);
    if (!ofW)
      return ofW.error();
    Result<Factors> ofX = factorValue(activation, false, gemm.activationSpan, sources);
    if (!ofX)
      return ofX.error();
    w = *std::move(ofW);
    x = *std::move(ofX);
    result.constant = w.constant * x.constant;
    return Done{};
  }

  Status checkConstant() const { // by which sums are multiplied, in f32
    const double factor = std::abs(std::ldexp(result.constant, -result.log2Factor));
    if (factor == 0 || (factor >= FLT_MIN && factor <= FLT_MAX))
      return Done{};
    const std::string all = "its literal factors, the activation's and the decode's are ";
    return ofWeight(DiagId::unsupported_value,
                    {weight.name, all + dsl::printNumber(factor) + " together, no f32 number"});
  }

  // The type that both operands become, and what follows from it.
  Status chooseOperand() {
    result.mmaType = activation.element().type.name();
    bool known = result.mmaType == "f16" || result.mmaType == "bf16" || result.mmaType == "e4m3" ||
                 result.mmaType == "s8" || result.mmaType == "s4" || result.mmaType == "e2m1";
    if (!isBareElement(*x.core) || !known)
      return ofActivation(DiagId::no_mma_for_activation,
                          {activation.name, result.mmaType, dsl::print(*x.core, activation)});
    if (!takesOperands(targetOf(target), result.mmaType))
      return ofActivation(
          DiagId::no_mma_on_target,
          {activation.name, result.mmaType, std::string(target), targetsWith(result.mmaType)});
    // Neither wgmma nor anything later than sm_89 has 4-bit integers (ptxas 13.0 makes of their s4
    // instruction bitwise operations and two of s8), nor has every weight or its residual: the same
    // integers, widened.
    if (result.mmaType == "s4" && (widened || roles != Roles::Uniform || !targetOf(target).hasS4 ||
                                   !decodeSequence(weight, *w.core, result.mmaType)))
      result.mmaType = "s8";
    dsl::ElementType operand = dsl::ElementType::get(result.mmaType);
    result.weightBits = weight.element().type.bits();
    result.integerAccumulator = operand.isInteger();
    result.mmaK = mmaRowBits / operand.bits();
    // Integers and e4m3 have a shape of mma.sync with half of that k.
    bool halves = roles == Roles::Uniform && operand.bits() <= 8 && !blockScaled;
    result.leastGroup = halves ? result.mmaK / 2 : result.mmaK;
    splitsWeight = blockScaled && weight.element().remap && weight.element().type == operand &&
                   isBareElement(*w.core);
    return Done{};
  }

  Status findDecode(const DecodeSequence *fixed) {
    dsl::Format stored = weight;
    if (splitsWeight)
      stored.components[0].remap.reset();
    decode = fixed ? *fixed : decodeSequence(stored, *w.core, result.mmaType);
    if (!decode)
      return noDecode(gemm, w, result.mmaType, sources);
    return tables == Tables::Registers ? Done{} : lookUpInShared(stored);
  }

  Status lookUpInShared(const dsl::Format &stored) {
    auto refuse = [&](const std::string &why) { return noTables(gemm, tables, why, sources); };
    if (roles == Roles::Gemv)
      return refuse("roles gemv have none, others have");
    if (weight.residual)
      return refuse("codes of a residual are not looked up there");
    auto pairs = pairDecode(stored, *w.core, result.mmaType, decode->log2Factor);
    if (!pairs)
      return refuse("codes of 4 bits are looked up there, alone in their factor, for operands of "
                    "f16 and bf16 that hold each of their numbers");
    result.tablesPay = isCheaper(*pairs, *decode);
    byRegisters = std::exchange(decode, std::move(pairs));
    return Done{};
  }

  ScaledOperand scaledBy(const DecodeSequence &start) const { // by scales of groups
    return scaleOperand(weight, *w.core, groups, start, result, within != Within::Residual);
  }

  // `start`, of which `product` is scaledBy(), as scales are placed, and what that rounds.
  ScaledOperand finished(DecodeSequence start, ScaledOperand product) const {
    const int roundings = start.roundings;
    if (result.scalesOperand) {
      product.roundings += roundings;
      return product;
    }
    for (const ScaleUse &use : groups)
      leaveSignsToScale(start, weight, use.component);
    return {withoutScale(std::move(start), result.mmaType), roundings, ""};
  }

  // Groups are stored with opposite numbers only where nothing else reads or adds to them.
  void leaveSignsOfBytes() {
    if (within != Within::Gemm || weight.residual || !weight.element().remap || splitsWeight ||
        !isBareElement(*w.core))
      return;
    for (const ScaleUse &use : groups)
      if (auto decode = remappedOfOneSign(weight, result.mmaType, use.component);
          decode && isCheaper(*decode, result.decode))
        result.decode = *std::move(decode);
  }

  Status mixDecodes() {
    auto finish = [&](const DecodeSequence &start) {
      return finished(start, result.scalesOperand ? scaledBy(start) : ScaledOperand());
    };
    const ScaledOperand rest = finish(*byRegisters);
    ScaledOperand pairs{result.decode, result.operandRoundings, ""};
    const int more = rest.decode ? rest.decode->log2Factor - pairs.decode->log2Factor : 0;
    if (more != 0) {
      auto start = pairDecode(weight, *w.core, result.mmaType, decode->log2Factor + more);
      pairs = start ? finish(*start) : ScaledOperand();
    }
    std::optional<DecodeSequence> mixed;
    if (rest.decode && pairs.decode)
      mixed = mixedDecode(*pairs.decode, *rest.decode);
    if (!mixed)
      return noTables(gemm, tables,
                      "the decode in registers wants codes in other places, or scales times "
                      "other powers of two, than tables",
                      sources);
    result.decode = *std::move(mixed);
    result.operandRoundings = std::max(pairs.roundings, rest.roundings);
    return Done{};
  }

  // Whether a unit of codes in both halves of an instruction's k has a parameter for each.
  bool hasOfEachHalf(int component) const {
    return std::any_of(decode->params.begin(), decode->params.end(), [&](const DecodeParam &param) {
      const std::vector<int> uses = param.number.uses();
      return param.kHalf == 1 && (param.component == component ||
                                  std::find(uses.begin(), uses.end(), component) != uses.end());
    });
  }

  Status checkComponents() {
    for (int parameter : w.coreParameters) {
      const dsl::Component &component = weight.components[parameter];
      const bool shared = decode->hasBothHalves() && !hasOfEachHalf(parameter);
      const int least = shared ? result.mmaK : result.mmaK / 2;
      if (component.extent == Extent::Group && component.group % least != 0 && !splitsWeight)
        return ofWeight(DiagId::no_kernels,
                        {component.name, weight.name,
                         "stands beside the element per " + dsl::printExtent(component) +
                             ", no multiple of " + std::to_string(least) + " of k"});
    }
    for (const dsl::Format *format : {&weight, &activation})
      for (const dsl::Component &component : format->components)
        if (component.extent != Extent::Element && component.type.isCodebook())
          return errorAt(DiagId::unsupported_value,
                         {format->name,
                          "'" + component.name +
                              "' is a codebook, of which only elements and factors have kernels"},
                         format == &weight ? gemm.weightSpan : gemm.activationSpan, sources);
    return Done{};
  }

  Status fitBlocks() {
    auto notLegal = [&](Scales where, const std::string &why) {
      return ofScales(DiagId::scales_not_legal, {std::string(dsl::name(where)), gemm.name, why});
    };
    if (!blockScaled)
      return Done{};
    BlockScaling scaling;
    std::string why =
        !targetOf(target).hasBlockScales
            ? "instructions with block scales need sm_120a, the target is " + std::string(target)
        : roles != Roles::Uniform
            ? "instructions with block scales need roles uniform"
            : fitBlockScaling(gemm, w.scales, x.scales, result.mmaType, splitsWeight, scaling);
    if (!why.empty())
      return notLegal(Scales::Hardware, why);
    if (groupScales != Scales::Hardware)
      return notLegal(groupScales, "e2m1 operands are those of instructions with block scales, "
                                   "which need scales: hardware");
    result.blockScaling = scaling;
    return Done{};
  }

  void place(std::string factor, Placement where, std::string reason) {
    result.placements.push_back({std::move(factor), where, std::move(reason)});
  }
  void accumulate(const ScaleUse &use, const std::string &name, const std::string &reason) {
    result.accumulator.push_back(use);
    result.flushK = result.flushK == 0 ? use.group : std::min(result.flushK, use.group);
    place(path(use.weight, name), Placement::Accumulator, reason);
  }
  // Whether a scale needs no place in the sum over k.
  bool placeOutside(const ScaleUse &use, const std::string &name) {
    if (use.extent != Extent::Group) {
      result.epilogue.push_back(use);
      place(name, Placement::Epilogue, "constant along k, once per output");
      return true;
    }
    if (!result.blockScaling)
      return false;
    place(name, Placement::Hardware,
          "the instruction takes " + result.blockScaling->type + " per k[" +
              std::to_string(result.blockScaling->block) + "]");
    return true;
  }

  // How codes of elements are decoded, in how many instructions without scales.
  std::string decodeText() const {
    auto perEight = [](const DecodeSequence &one) { return 8.0 * one.instructions() / one.codes; };
    double length = perEight(*decode);
    std::string places;
    if (tables == Tables::Mixed) {
      length = std::lerp(length, perEight(*byRegisters), 1.0 / mixedWords);
      places = ", " + std::to_string(mixedWords - 1) + " words of " + std::to_string(mixedWords) +
               " looked up in shared memory";
    } else if (decode->program.tables() > 0) {
      places = ", looked up in shared memory";
    }
    return "decoded to " + result.mmaType + " in " + dsl::printNumber(length) +
           " instructions per 8" + places;
  }

  void placeElements() {
    place(path(true, weight.element().name), Placement::Operand, decodeText());
    for (bool isWeight : {true, false}) {
      if (!result.blockScaling || !result.blockScaling->split(isWeight))
        continue;
      const CodeSplit &split = *result.blockScaling->split(isWeight);
      place(path(isWeight, (isWeight ? weight : activation).components[split.selector].name),
            Placement::Operand,
            "remapped codes are the sum of " +
                std::to_string(result.blockScaling->parts(isWeight)) + " operands, made in " +
                std::to_string(split.split.instructions.size()) + " instructions per 8");
    }
  }

  Status placeWeightScales() {
    placeElements();
    for (const ScaleUse &use : w.scales)
      if (!placeOutside(use, path(true, weight.components[use.component].name)))
        groups.push_back(use);
    scaled = scaledBy(*decode);
    return groupScales == Scales::Operand && !groups.empty() ? scaleOperands() : scaleSums();
  }

  // Why a scale has no place, by the reasons against operands and against sums: it is forced to the
  // one that has a reason, or both have.
  Error notPlaced(const ScaleUse &use, const std::string &operands, const std::string &sums) const {
    if (operands.empty() || sums.empty())
      return ofScales(DiagId::scales_not_legal,
                      {sums.empty() ? "operand" : "accumulator", gemm.name, operands + sums});
    return ofScales(DiagId::no_legal_placement,
                    {weight.components[use.component].name, weight.name, operands + "; " + sums});
  }

  Status scaleOperands() {
    if (!scaled.why.empty())
      return notPlaced(groups[0], scaled.why, groupProblem(groups[0], result));
    result.scalesOperand = true;
    // All scales together make numbers of the weights' size; without one of them nobody knows
    // which.
    result.mayOverflow =
        result.mmaType == "f16" && groups.size() < w.scales.size() &&
        std::any_of(
            groups.begin(), groups.end(),
            [&](const ScaleUse &use) { return weight.components[use.component].type.bits() > 8; });
    for (const ScaleUse &use : groups)
      place(path(true, weight.components[use.component].name), Placement::Operand,
            "multiplied into the decoded operand");
    return Done{};
  }

  Status scaleSums() {
    for (const ScaleUse &use : groups) {
      if (std::string why = groupProblem(use, result); !why.empty())
        return notPlaced(use, scaled.why, why);
      accumulate(use, weight.components[use.component].name,
                 scaled.why.empty() ? "scales the partial sum of each group"
                                    : "forced: " + scaled.why);
    }
    return Done{};
  }

  Status placeActivationScales() {
    for (const ScaleUse &use : x.scales) {
      const dsl::Component &component = activation.components[use.component];
      if (placeOutside(use, path(false, component.name)))
        continue;
      std::string why = groupProblem(use, result);
      if (use.group != use.declared) // nobody makes copies of these
        why = "group " + std::to_string(use.declared) + " of activations is no power of two";
      if (!why.empty())
        return ofActivation(DiagId::no_legal_placement, {component.name, activation.name, why});
      accumulate(use, component.name, "activations are not decoded again");
    }
    return Done{};
  }
};

} // namespace

Result<PlacedGemm> placeFormats(const dsl::Gemm &gemm, Scales groupScales, Roles roles,
                                std::string_view target, const DecodeSequence *fixed,
                                const SourceMap *sources, Within within, Tables tables,
                                bool widened) {
  return FormatPlacement(gemm, groupScales, roles, target, sources, within, tables, widened)
      .run(fixed);
}

Result<PlacedGemm> place(const dsl::Gemm &gemm, Scales groupScales, Roles roles, Tables tables,
                         std::string_view target, const SourceMap *sources) {
  if (gemm.activation.partition)
    return tables != Tables::Registers
               ? noTables(gemm, tables, "beside activations in parts there are none", sources)
               : placeParts(gemm, groupScales, roles, target, sources);
  Result<PlacedGemm> result =
      placeFormats(gemm, groupScales, roles, target, nullptr, sources, Within::Gemm, tables);
  if (!result)
    return result;
  if (gemm.weight.residual)
    return placeResidual(gemm, *std::move(result), groupScales, roles, target, sources);
  result->operandGroup = operandGroupOf(gemm.weight, result->decode);
  return result;
}

bool saysMore(const dsl::Gemm &gemm, const Diagnostic &found, const Diagnostic &kept) {
  const bool ofTables = found.id == DiagId::schedule_tables && !gemm.schedule.tables;
  return !gemm.schedule.scales && kept.id == DiagId::scales_not_legal &&
         found.id != DiagId::scales_not_legal && !ofTables;
}

} // namespace rho::compiler
