#include "compiler/plan/Legality.h"

#include "compiler/KernelImage.h"

#include "compiler/Targets.h"
#include "compiler/plan/IntegerSums.h"
#include "compiler/plan/Resources.h"
#include "compiler/plan/TileCosts.h"
#include "dsl/Division.h"

#include <algorithm>
#include <limits>

namespace rho::compiler {

namespace {

using Scales = dsl::ScheduleDecl::Scales;
using Roles = dsl::ScheduleDecl::Roles;
using Sums = dsl::ScheduleDecl::Sums;
using Found = std::optional<Objection>;

constexpr int registerLimit = 255;

bool isPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

std::string str(int64_t value) { return std::to_string(value); }

// Why the schedule's cluster cannot be generated; empty when it can.
std::string clusterProblem(const Schedule &s) {
  constexpr int64_t portable = 8;
  if (s.clusterN * s.clusterK == 1)
    return "";
  if (s.roles != Roles::ImFP)
    return "it needs roles imfp";
  if (s.clusterN * s.clusterK > portable)
    return str(s.clusterN * s.clusterK) + " CTAs, a cluster has at most " + str(portable);
  if (s.streamsK())
    return "equal shares of k are those of single CTAs";
  if (s.clusterK != 1 && s.clusterK != s.splitK)
    return "k is split in " + str(s.splitK) + ", a cluster has all parts or one";
  if (s.tileM % (Geometry::swizzledRows * s.clusterN) != 0)
    return "of " + str(s.tileM) + " batch rows each CTA copies an equal share, a multiple of " +
           str(Geometry::swizzledRows);
  return "";
}

// Why the scales of one group of activations cannot be copied; empty when they can.
Found rowProblem(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g) {
  if (g.gemv()) // keeps those of all groups, and has its own rule
    return std::nullopt;
  for (const ScaleUse &use : placed.accumulator) {
    if (use.weight)
      continue;
    const dsl::Component &component = gemm.activation.components[use.component];
    int64_t bytes = g.tileM * dsl::unitBits(component.type) / 8;
    std::string found = "a group has " + str(bytes) + " bytes of '" + component.name + "'; ";
    if (bytes % 16 != 0)
      return Objection{DiagId::schedule_tile,
                       {"m", str(g.tileM), found + "they are copied in pieces of 16"}};
    if (g.specialized() && bytes > Geometry::widestBox)
      return Objection{
          DiagId::schedule_tile,
          {"m", str(g.tileM), found + "a tensor map copies at most " + str(Geometry::widestBox)}};
  }
  return std::nullopt;
}

} // namespace

RegisterUse registerUse(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                        int pipeline, int64_t ctasPerSm) {
  int64_t needed = estimateRegisters(gemm, placed, g, pipeline);
  if (!g.specialized())
    return {needed, std::min<int64_t>(registerLimit, registersPerSm / (g.threads() * ctasPerSm))};
  RegisterShares shares = divideRegisters(g.mathRoleThreads(), g.decodeThreads(), ctasPerSm);
  // One instruction must fit what threads start with, whatever they take later (ptxas, C7602).
  constexpr int64_t besidesSums = 26;
  int64_t ofInstruction = g.tileM / 2 + besidesSums;
  if (ofInstruction > shares.start)
    return {ofInstruction, shares.start};
  return {needed, shares.math};
}

namespace {

std::string warpsText(const Schedule &s) {
  return str(s.warpsM) + " x " + str(s.warpsN) + (s.warpsK > 1 ? " x " + str(s.warpsK) : "");
}

Objection warpsObjection(const Schedule &s, const std::string &why) {
  return {DiagId::schedule_warps, {warpsText(s), str(s.tileM), str(s.tileN), why}};
}

// What a schedule has against the outputs' rows, whatever the gemm is.
Found rowsObjection(const Problem &problem, const Schedule &s) {
  if (s.roles == Roles::Gemv && problem.m > largestGemvBatch)
    return Objection{DiagId::schedule_roles,
                     {"gemv", "m = " + str(problem.m),
                      "they take at most " + str(largestGemvBatch) + " batch rows"}};
  const int64_t all = divideUp(problem.k, s.tileK) * outputTiles(problem, s.tileM, s.tileN);
  if (s.streamsK() && all > std::numeric_limits<int32_t>::max())
    return Objection{DiagId::schedule_tile,
                     {"k", str(s.tileK),
                      "the outputs have " + str(all) + " k tiles, split_k stream takes at most " +
                          str(std::numeric_limits<int32_t>::max())}};
  const int64_t tiles = outputTiles(problem, s.tileM, s.tileN, s.clusterN);
  if (s.sumsInWorkspace() && tiles > KernelImage::mostSharedTiles)
    return Objection{
        DiagId::schedule_split_tiles,
        {s.streamsK() ? "stream" : str(s.splitK), str(tiles), str(KernelImage::mostSharedTiles)}};
  return std::nullopt;
}

// Of roles gemv, which multiply no matrix operands and have no pipeline through shared memory.
Found gemvObjection(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                    const Schedule &s) {
  auto roles = [](const std::string &what, const std::string &why) {
    return Objection{DiagId::schedule_roles, {"gemv", what, why}};
  };
  if (Found why = rowsObjection(problem, s))
    return why;
  if (placed.mmaType == "e4m3")
    return roles("activations of e4m3", "CUDA cores multiply s8, f16 and bf16");
  if (int64_t run = makeGeometry(placed, s).chunkK() / 4;
      placed.operandGroup > 0 && placed.operandGroup < run)
    return roles("groups of " + str(placed.operandGroup),
                 "a thread has runs of " + str(run) + " along k of one group");
  for (const ScaleUse &use : placed.accumulator) {
    const dsl::Component &component = gemm.activation.components[use.weight ? 0 : use.component];
    if (!use.weight && component.type.bits() < 16)
      return roles("'" + component.name + "'", "group scales of activations need 16 bits");
  }
  auto refused = [&](Span at, const std::string &what, const std::string &why) {
    Objection result = roles(what, why);
    result.at = gemm.schedule.roles ? Span{} : at;
    return result;
  };
  if (s.splitK != 1)
    return refused(gemm.schedule.spans.splitK, "a split of k", "one CTA sums all of k");
  if (s.packing == dsl::ScheduleDecl::Packing::Panels)
    return refused(gemm.schedule.spans.packing, "packing: panels",
                   "each warp streams tiles of its own");
  if (!isPowerOfTwo(s.tileM) || s.tileM > largestGemvBatch)
    return Objection{DiagId::schedule_tile,
                     {"m", str(s.tileM), "roles gemv take 1, 2 or 4 batch rows"}};
  if (s.warpsM != 1)
    return warpsObjection(s, "each warp of roles gemv has all batch rows");
  return std::nullopt;
}

// Of activations with parts: what each part would have against the schedule, and what they have
// together.
Found partsObjection(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                     const Schedule &s, const DeviceModel &device) {
  if (gemm.schedule.balance == dsl::ScheduleDecl::Balance::Cost && s.splitK == 1)
    return Objection{DiagId::schedule_balance, {"'" + gemm.name + "'", "k is not split"}};
  int64_t block = gemm.activation.partition->blocks.k;
  if (s.tileK < 1 || block % s.tileK != 0)
    return Objection{
        DiagId::schedule_tile,
        {"k", str(s.tileK),
         "it must divide the blocks of " + str(block) + ", each of which is stored in one format"}};
  Found first;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &part) {
    if (!first)
      first = objection(one, part, problem, s, device, true);
  });
  return first;
}

// Whether it fits a CTA's shared memory and a thread's registers. Where neither, the planner's
// choice of a pipeline is no reason.
Found resourceObjection(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                        const Schedule &s, const DeviceModel &device) {
  Geometry g = makeGeometry(placed, s);
  int64_t shared = sharedBytes(gemm, placed, g, s, problem);
  auto [registers, limit] = registerUse(gemm, placed, g, s.pipeline, s.ctasPerSm);
  bool fitsShared = shared <= device.sharedPerCta, fitsRegisters = registers <= limit;
  if (!fitsShared && (fitsRegisters || gemm.schedule.pipeline))
    return Objection{DiagId::schedule_shared_memory,
                     {str(s.tileM), str(s.tileN), str(s.tileK), str(s.pipeline), str(shared),
                      device.target, str(device.sharedPerCta)}};
  if (!fitsRegisters)
    return Objection{DiagId::schedule_registers,
                     {str(s.tileM), str(s.tileN), warpsText(s), str(registers), str(limit)}};
  return std::nullopt;
}

// What is in the way of one schedule of a gemm without parts: rules in the order in which they
// depend on each other.
class ScheduleRules {
public:
  ScheduleRules(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                const Schedule &s, const DeviceModel &device, bool ofPart)
      : gemm(gemm), placed(placed), problem(problem), s(s), device(device), ofPart(ofPart),
        gemv(s.roles == Roles::Gemv) {}

  Found firstBroken() {
    for (auto rule :
         {&ScheduleRules::balance, &ScheduleRules::cudaCores, &ScheduleRules::tensorCores,
          &ScheduleRules::tile, &ScheduleRules::blockScales, &ScheduleRules::warpRoles,
          &ScheduleRules::activationScales, &ScheduleRules::residual, &ScheduleRules::sums,
          &ScheduleRules::cluster, &ScheduleRules::warps, &ScheduleRules::parts,
          &ScheduleRules::resources})
      if (Found broken = (this->*rule)())
        return broken;
    return std::nullopt;
  }

private:
  const dsl::Gemm &gemm;
  const PlacedGemm &placed;
  const Problem &problem;
  const Schedule &s;
  const DeviceModel &device;
  const bool ofPart, gemv;
  Geometry g; // from tile() on

  static Objection ofTile(const char *extent, int64_t value, const std::string &why) {
    return {DiagId::schedule_tile, {extent, str(value), why}};
  }
  Objection ofWarps(const std::string &why) const { return warpsObjection(s, why); }

  Found balance() {
    if (!gemm.schedule.balance || ofPart)
      return std::nullopt;
    return Objection{
        DiagId::schedule_balance,
        {"'" + gemm.name + "'", "all k tiles of its activation are stored alike, as " +
                                    std::string(gemm.activation.element().type.name())}};
  }

  Found cudaCores() { return gemv ? gemvObjection(gemm, placed, problem, s) : std::nullopt; }

  // A device's declaration leaves out what its tensor cores do not have. Costs of roles that wgmma
  // has are by its rates.
  Found tensorCores() {
    const double rate = s.roles == Roles::Uniform ? mmaPerCycle(device, placed)
                                                  : rateOf(device.rates.tensor, placed.mmaType);
    if (gemv || rate > 0)
      return std::nullopt;
    return Objection{DiagId::schedule_roles,
                     {std::string(dsl::name(s.roles)), device.name,
                      "it declares no rate of " + placed.mmaType + " operands"}};
  }

  Found tile() {
    if (!dividesRows(s.tileN, s.warpsN)) {
      const std::string rows = "a power of two of rows, from " + str(leastWarpRows);
      if (!gemm.schedule.warps)
        return ofTile("n", s.tileN,
                      "of 1 to " + str(Geometry::mostWarps) + " warps none have " + rows +
                          ", each");
      return ofTile("n", s.tileN, "each of its " + str(s.warpsN) + " warps needs " + rows);
    }
    if (!isPowerOfTwo(s.tileK) || s.tileK < Geometry::smallestTileK)
      return ofTile("k", s.tileK,
                    "it must be a power of two of at least " + str(Geometry::smallestTileK));
    g = makeGeometry(placed, s);
    bool takesAny = g.warpgroupsMultiply() && s.tileM % Geometry::batchUnit == 0;
    if (!gemv && !takesAny && (!isPowerOfTwo(s.tileM) || s.tileM < Geometry::leastMmaRows))
      return ofTile("m", s.tileM,
                    "it must be a power of two of at least " + str(Geometry::leastMmaRows) +
                        ", or where warpgroups multiply a multiple of " + str(Geometry::batchUnit) +
                        ", or with roles gemv 1, 2 or 4");
    return std::nullopt;
  }

  Found blockScales() {
    if (!placed.blockScaling || s.tileK >= BlockScaling::perWord * placed.blockScaling->block)
      return std::nullopt;
    return ofTile("k", s.tileK,
                  "it must have at least " + str(BlockScaling::perWord) + " blocks of " +
                      str(placed.blockScaling->block) + ", whose scales are loaded together");
  }

  Found warpRoles() {
    if (!g.specialized())
      return s.warpsK > 1 && !gemv
                 ? Found(ofWarps("groups of warps along k need roles imfp or gemv"))
                 : std::nullopt;
    if (!targetOf(device.target).hasWgmma)
      return Objection{DiagId::schedule_roles,
                       {std::string(dsl::name(s.roles)), device.target, "they need sm_90a"}};
    if (s.warpsM != 1)
      return ofWarps("with roles " + std::string(dsl::name(s.roles)) +
                     " each has all batch rows, they stand 1 x N or 1 x N x K");
    if (g.warpgroupsMultiply() && s.tileN % Geometry::instructionRows != 0)
      return ofTile("n", s.tileN,
                    "warpgroups multiply " + str(Geometry::instructionRows) +
                        " rows at a time; warps that multiply by themselves take 16, with roles "
                        "imfp, at most 16 batch rows and no operands of e4m3");
    if (g.warpgroupsMultiply() && s.warpsN % 4 != 0)
      return ofWarps("warps that share wgmma instructions stand 1 x 4, 1 x 8, 1 x 12 or 1 x 16");
    if (g.decodesApart() && (s.warpsN > 8 || s.warpsK > 1))
      return ofWarps("roles excp have one or two warpgroups that multiply, 1 x 4 or 1 x 8, and one "
                     "group of warps along k");
    // A barrier tells only this phase from the last: all phases of a stage must be one group's.
    // Without partial sums a group's last batch reads its stage until the group's next tile starts,
    // of a residual the pieces of a tile are multiplied only then.
    bool holdsTwo = placed.accumulator.empty() || placed.residual;
    int64_t stages = s.warpsK * (holdsTwo ? 2 : 1);
    if (s.pipeline % s.warpsK != 0 || s.pipeline < stages)
      return ofWarps(str(s.warpsK) + " groups along k need a pipeline of a multiple of " +
                     str(s.warpsK) + " stages, at least " + str(stages));
    if (s.tileM > Geometry::mostBatch)
      return ofTile("m", s.tileM,
                    "a wgmma instruction has at most " + str(Geometry::mostBatch) + " batch rows");
    if (g.activationRowBytes() % Geometry::swizzleBytes != 0)
      return ofTile("k", s.tileK,
                    "it must cover a multiple of " + str(Geometry::swizzleBytes) +
                        " bytes of activations");
    return std::nullopt;
  }

  Found activationScales() { return rowProblem(gemm, placed, g); }

  Found residual() {
    if (!placed.storesBlocks())
      return std::nullopt;
    int64_t rows = gemm.weight.residual->blocks.rows;
    if (rows % g.warpN() != 0)
      return ofWarps("a warp has " + str(g.warpN()) + " weight rows, which blocks of " + str(rows) +
                     " rows of the residual are no multiple of");
    int64_t pieces = piecesOfWarp(g, pieceGeometry(placed, g));
    if (pieces > BandWord::storedBits)
      return ofTile("k", s.tileK,
                    "its warps have " + str(pieces) + " pieces of a residual each, at most " +
                        str(BandWord::storedBits));
    return std::nullopt;
  }

  Found sums() {
    if (s.sums != Sums::Biased)
      return std::nullopt;
    std::string why = whyNotBiased(gemm, placed, problem, s.roles);
    return why.empty()
               ? std::nullopt
               : Found(Objection{DiagId::schedule_sums, {"'" + gemm.name + "'", std::move(why)}});
  }

  Found cluster() {
    std::string why = clusterProblem(s);
    return why.empty() ? std::nullopt
                       : Found(Objection{DiagId::schedule_cluster,
                                         {str(s.clusterN), str(s.clusterK), std::move(why)}});
  }

  Found warps() {
    if (!isPowerOfTwo(s.warpsM))
      return ofWarps("those along m must be a power of two");
    if (!gemv && s.tileM / s.warpsM < Geometry::leastMmaRows)
      return ofWarps("each warp needs at least " + str(Geometry::leastMmaRows) + " batch rows");
    if (s.warpsM * s.warpsN * s.warpsK > Geometry::mostWarps)
      return ofWarps("a CTA has at most " + str(Geometry::mostWarps) + " warps");
    return std::nullopt;
  }

  Found resources() { return resourceObjection(gemm, placed, problem, s, device); }

  // How k is divided among CTAs.
  Found parts() {
    if (gemm.schedule.ctas && !g.streamK)
      return Objection{DiagId::schedule_ctas,
                       {str(*gemm.schedule.ctas), "it counts those of split_k: stream, others "
                                                  "follow from tiles and parts of k"}};
    if (Found why = rowsObjection(problem, s))
      return why;
    if (const int64_t tilesK = divideUp(problem.k, s.tileK); s.splitK > tilesK)
      return Objection{DiagId::schedule_split_k, {str(s.splitK), str(tilesK)}};
    return std::nullopt;
  }
};

} // namespace

Status checkProblem(const Problem &problem) {
  struct Bound {
    const char *name;
    int64_t value, limit;
  };
  for (const Bound &bound :
       {Bound{"m", problem.m, largestBatch}, Bound{"n", problem.n, largestExtent},
        Bound{"k", problem.k, largestExtent}})
    if (bound.value < 1 || bound.value > bound.limit)
      return makeError(DiagId::bad_problem,
                       {bound.name, std::to_string(bound.value), std::to_string(bound.limit)});
  return Done{};
}

Status checkRows(const Plan &plan) {
  if (Status good = checkProblem(plan.problem); !good)
    return good;
  if (Found why = rowsObjection(plan.problem, plan.schedule))
    return makeError(why->id, why->args);
  return Done{};
}

Found objection(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                const Schedule &s, const DeviceModel &device, bool ofPart) {
  if (placed.parts.empty())
    return ScheduleRules(gemm, placed, problem, s, device, ofPart).firstBroken();
  Found why = partsObjection(gemm, placed, problem, s, device);
  return why ? why : resourceObjection(gemm, placed, problem, s, device);
}

} // namespace rho::compiler
