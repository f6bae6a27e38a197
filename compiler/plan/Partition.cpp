// Activations whose k-blocks are each stored in one of several formats (COMET, Liu et al. 2025,
// sections 3.2 and 4.3: "FMPQ", "weight interleaving"): every part is placed as if it were alone,
// with decodes that all read one packed weight.
#include "compiler/plan/Geometry.h"

#include <algorithm>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;

// The smallest run of k that a scale of the weight or of the activation belongs to.
int64_t smallestGroup(const dsl::Gemm &gemm) {
  return std::min(finestGroup(gemm.weight), finestGroup(gemm.activation));
}

// Cost of a decode to compare by.
double costOf(const DecodeSequence &decode) {
  return static_cast<double>(decode.instructions()) / decode.codes;
}

DecodeSequence exchanged(DecodeSequence decode, size_t one, size_t other) {
  std::swap(decode.bits[one], decode.bits[other]);
  std::swap(decode.program.outputs[one], decode.program.outputs[other]);
  return decode;
}

// One decode for each part, all of which read what is packed for that of the owner.
struct SharedDecodes {
  std::vector<DecodeSequence> ofParts;
  double cost = 0;
};

class PartPlacer {
public:
  PartPlacer(const dsl::Gemm &gemm, Scales groupScales, Roles roles, std::string_view target,
             const SourceMap *sources)
      : gemm(gemm), groupScales(groupScales), roles(roles), target(target), sources(sources),
        parts(gemm.activation.partition->parts) {}

  Result<PlacedGemm> run() {
    if (std::string why = whyNot(); !why.empty())
      return apart(why);
    for (size_t part = 0; part < parts.size(); ++part) {
      dsl::Gemm alone = gemmOfPart(gemm, part);
      if (alone.activation.hasParts())
        return errorAt(
            DiagId::parts_not_compiled,
            {alone.activation.name, alone.activation.partition ? "partition" : "residual"},
            gemm.activationSpan, sources);
      Result<PlacedGemm> placed =
          placeFormats(alone, groupScales, roles, target, nullptr, sources, Within::Part);
      if (!placed)
        return placed;
      if (placed->blockScaling)
        return apart("instructions with block scales sum no parts");
      this->placed.push_back(*std::move(placed));
      gemms.push_back(std::move(alone));
    }
    // The one with most codes to a register: others take its registers apart.
    for (size_t part = 1; part < parts.size(); ++part)
      if (perRegister(part) > perRegister(owner))
        owner = part;
    std::optional<SharedDecodes> shared = shareCodes();
    if (!shared)
      return apart("no known order of packed codes serves operands of " + types());
    for (size_t part = 0; part < parts.size(); ++part) {
      Result<PlacedGemm> again =
          placeFormats(gemms[part], groupScales, roles, target, &shared->ofParts[part], sources);
      if (!again)
        return again;
      placed[part] = *std::move(again);
    }
    for (size_t part = 0; part < parts.size(); ++part)
      if (part != owner)
        placed[part].columnBits = *columnBitsFor(placed[owner], placed[part]);
    return joined();
  }

private:
  const dsl::Gemm &gemm;
  const Scales groupScales;
  const Roles roles;
  const std::string_view target;
  const SourceMap *sources;
  const std::vector<dsl::Part> &parts;
  std::vector<dsl::Gemm> gemms;
  std::vector<PlacedGemm> placed;
  size_t owner = 0;

  Error apart(const std::string &why) {
    const bool ofSchedule = gemm.schedule.scales && groupScales != Scales::Accumulator;
    return errorAt(DiagId::parts_need_kernels_apart, {gemm.activation.name, why},
                   ofSchedule ? gemm.schedule.spans.scales : gemm.activationSpan, sources);
  }
  int perRegister(size_t part) const { return elementsPerRegister(placed[part].mmaType); }
  std::string types() const {
    std::string text;
    for (size_t part = 0; part < parts.size(); ++part)
      text += (part == 0 ? "" : part + 1 == parts.size() ? " and " : ", ") + placed[part].mmaType;
    return text;
  }

  std::string whyNot() const {
    const dsl::Partition &partition = *gemm.activation.partition;
    if (gemm.activation.residual)
      return "it has a residual beside them";
    if (gemm.weight.residual)
      return "the weight has a residual, whose blocks the loops of several parts do not load";
    if (partition.blocks.rows != 0)
      return "a k tile is stored alike for all rows, blocks per " + dsl::print(partition.blocks) +
             " are not; per tensor k[" + std::to_string(partition.blocks.k) + "] they are";
    if (partition.blocks.k % Geometry::smallestTileK != 0)
      return "blocks of " + std::to_string(partition.blocks.k) +
             " are no multiple of the smallest k tile, " + std::to_string(Geometry::smallestTileK);
    if (roles == Roles::Gemv || roles == Roles::ExCP)
      return "roles " + std::string(dsl::name(roles)) + " have one loop along k";
    if (groupScales != Scales::Accumulator)
      return "they take group scales in accumulators, not in " +
             std::string(dsl::name(groupScales));
    return "";
  }

  // The cheapest decodes that agree on how codes are packed.
  std::optional<SharedDecodes> shareCodes() {
    Result<Factors> weight = factorValue(gemm.weight, true, gemm.weightSpan, sources);
    if (!weight)
      return std::nullopt;
    std::vector<std::vector<DecodeSequence>> known;
    for (const PlacedGemm &part : placed) {
      known.push_back(decodeSequences(gemm.weight, *weight->core, part.mmaType));
      for (DecodeSequence &decode : known.back())
        decode = withoutScale(std::move(decode), part.mmaType);
      // Which of four registers are those of the other row half, or of k, is free.
      for (size_t i = 0, count = known.back().size(); i < count; ++i)
        if (const DecodeSequence decode = known.back()[i];
            decode.registers() == 4 && decode.params.empty()) {
          known.back().push_back(exchanged(decode, 1, 2));
          known.back().push_back(exchanged(decode, 2, 3));
        }
    }
    std::optional<SharedDecodes> best;
    for (const DecodeSequence &ofOwner : known[owner]) {
      SharedDecodes shared{std::vector<DecodeSequence>(parts.size()), costOf(ofOwner)};
      shared.ofParts[owner] = ofOwner;
      bool all = true;
      for (size_t part = 0; part < parts.size() && all; ++part)
        if (part != owner)
          all = addReader(part, known[part], shared);
      if (all && (!best || shared.cost < best->cost))
        best = std::move(shared);
    }
    return best;
  }

  bool addReader(size_t part, const std::vector<DecodeSequence> &known, SharedDecodes &shared) {
    PlacedGemm written = placed[owner];
    written.decode = shared.ofParts[owner];
    std::optional<DecodeSequence> best;
    for (const DecodeSequence &decode : known) {
      std::optional<DecodeSequence> reader = readingCodesOf(written.decode, decode);
      if (!reader || (best && costOf(*reader) >= costOf(*best)))
        continue;
      PlacedGemm read = placed[part];
      read.decode = *reader;
      std::optional<std::vector<uint8_t>> bits = columnBitsFor(written, read);
      // Codes change places only among those that share all scales.
      if (bits && int64_t{1} << bits->size() <= smallestGroup(gemms[part]))
        best = std::move(reader);
    }
    if (!best)
      return false;
    shared.cost += costOf(*best);
    shared.ofParts[part] = *std::move(best);
    return true;
  }

  PlacedGemm joined() const {
    PlacedGemm result = placed[owner];
    result.parts = placed;
    result.owner = owner;
    result.placements.clear();
    for (size_t part = 0; part < parts.size(); ++part) {
      for (size_t i = 0; i < placed[part].streamed.size(); ++i)
        result.streamed[i] = result.streamed[i] || placed[part].streamed[i];
      for (FactorPlacement placement : placed[part].placements) {
        bool ofWeight = placement.factor.starts_with("weight.");
        placement.reason += " (part '" + parts[part].name + "')";
        if (!ofWeight)
          placement.factor = "activation." + parts[part].name +
                             placement.factor.substr(placement.factor.rfind('.'));
        result.placements.push_back(std::move(placement));
      }
    }
    return result;
  }
};

} // namespace

bool addsToSums(const PlacedGemm &part) {
  bool own = std::any_of(part.epilogue.begin(), part.epilogue.end(),
                         [](const ScaleUse &use) { return !use.weight; });
  return !own && (!part.integerAccumulator || part.flushK > 0);
}

dsl::Gemm gemmOfPart(const dsl::Gemm &gemm, size_t part) {
  dsl::Gemm result = gemm;
  result.activation = *gemm.activation.partition->parts[part].format;
  return result;
}

Result<PlacedGemm> placeParts(const dsl::Gemm &gemm, Scales groupScales, Roles roles,
                              std::string_view target, const SourceMap *sources) {
  return PartPlacer(gemm, groupScales, roles, target, sources).run();
}

} // namespace rho::compiler
