#include "compiler/plan/Geometry.h"

#include "dsl/Division.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace rho::compiler {

int64_t mmaChains(const Geometry &g) {
  constexpr int64_t enough = 4; // covers the latency of dependent instructions
  // A schedule that is refused may have warps without rows.
  return std::max<int64_t>(1, enough / std::max<int64_t>(1, g.rowTiles() * g.batchTiles()));
}

constexpr int64_t mostBatchSteps = 4; // 16 registers for each row tile

int64_t batchSteps(const Geometry &g) {
  if (g.decodesApart())
    return g.tileK / g.mmaK;
  constexpr int64_t enough = 256; // row tiles times batch rows times steps: 128 cycles at full rate
  auto fitting = static_cast<uint64_t>(enough / std::max<int64_t>(1, g.rowTiles() * g.tileM));
  auto steps = static_cast<int64_t>(std::bit_floor(fitting)); // which divide a tile's
  // At least two to a tile: a batch's registers are written again a tile later, and only the next
  // batch waits for it.
  return std::max<int64_t>(1, std::min({steps, g.tileK / g.mmaK / 2, mostBatchSteps}));
}

int64_t groupBatchSteps(const Geometry &g, int64_t flushK) {
  int64_t steps = std::min(flushK, g.tileK) / g.mmaK;
  return g.decodesApart() ? steps : std::min(steps, mostBatchSteps);
}

bool carriesBatch(const Geometry &g) {
  return g.decodesApart() || (g.warpgroupsMultiply() && g.rowTiles() * g.tileM > 32);
}

RegisterShares divideRegisters(int64_t mathThreads, int64_t decodeThreads, int64_t ctasPerSm) {
  constexpr int64_t loader = 24, decode = 80, largest = 240, unit = 8;
  int64_t threads = mathThreads + decodeThreads + Geometry::warpgroup;
  int64_t start = std::min(registersPerSm / (threads * ctasPerSm) / unit * unit, largest);
  int64_t others = loader * Geometry::warpgroup + decode * decodeThreads;
  int64_t math = (start * threads - others) / mathThreads / unit * unit;
  return {start, loader, decode, std::min(math, largest)};
}

namespace {

// Whether runs of k spare parameters of a decode: groups are finer than a chunk, a run has one of
// them at a time, and two pieces of activations, with which no bank has two readers.
bool runsSpareParameters(const PlacedGemm &placed) {
  constexpr int64_t threads = 4, leastBytes = 32;
  int64_t chunk = chunkK(placed.weightBits), run = chunk / threads;
  bool scalesChunks = placed.flushK == 0 || placed.flushK >= chunk;
  return placed.operandGroup >= run && placed.operandGroup < chunk && scalesChunks &&
         run * mmaRowBits / placed.mmaK / 8 >= leastBytes;
}

} // namespace

Geometry makeGeometry(const PlacedGemm &placed, const Schedule &schedule) {
  using Roles = Geometry::Roles;
  bool panels = schedule.packing == dsl::ScheduleDecl::Packing::Panels;
  bool runs = runsSpareParameters(placed) && !panels; // which only some kernels could read
  // wgmma takes the batch from shared memory. Eight rows of it, the least of an instruction, are
  // few registers: with them mma.sync takes fewer instructions in all and has nothing to wait for.
  // That of e4m3 is slow on Hopper. With runs that is so of 16 rows, too. A tile whose weight rows
  // are no whole instructions has no other way.
  bool sixteen = runs || schedule.tileN % Geometry::instructionRows != 0;
  bool fewRows = schedule.tileM <= (sixteen ? 16 : 8) && placed.mmaType != "e4m3";
  bool warpgroups = schedule.roles == Roles::ExCP || (schedule.roles == Roles::ImFP && !fewRows);
  return {.tileM = schedule.tileM,
          .tileN = schedule.tileN,
          .tileK = schedule.tileK,
          .warpsM = schedule.warpsM,
          .warpsN = schedule.warpsN,
          .warpsK = schedule.warpsK,
          .mmaK = placed.mmaK,
          .weightBits = placed.weightBits,
          .roles = schedule.roles,
          .streamK = schedule.streamsK(),
          .clusterN = schedule.clusterN,
          .clusterK = schedule.clusterK,
          .panelWarps = panels ? std::gcd(schedule.warpsN, int64_t{4}) : schedule.warpsN,
          .warpsMultiply = !warpgroups,
          .sparseBits = placed.sparseBits,
          .hasRuns = schedule.roles == Roles::Gemv || (runs && !warpgroups)};
}

Geometry pieceGeometry(const PlacedGemm &placed, const Geometry &g) {
  Geometry piece = g;
  if (placed.residual)
    piece.weightBits = placed.residual->weightBits;
  piece.tileK = piece.chunkK();
  return piece;
}

bool warpgroupsShareBlocks(const dsl::Residual &residual, const Geometry &g) {
  return g.warpgroupsMultiply() && residual.blocks.rows % (4 * g.warpN()) == 0;
}

int64_t bufferStages(const Geometry &g, const Schedule &schedule, int64_t k) {
  return g.gemv() ? divideUp(k, g.tileK) : schedule.pipeline;
}

int64_t sumsBytes(const Geometry &g) {
  int64_t parts = std::max<int64_t>(g.warpsK - 1, g.clusterK > 1 ? 1 : 0);
  return parts * g.groupThreads() * g.rowTiles() * g.batchTiles() * 16;
}

std::optional<OutputSlices> outputSlices(const dsl::Gemm &gemm, const Geometry &g,
                                         const Problem &problem) {
  // A tile of fewer batch rows is stored sooner than a copy through shared memory has begun.
  constexpr int64_t fewestRows = 32;
  constexpr int64_t bufferBytes = 32768; // more would cost stages of the ring
  int64_t bytes = gemm.output.bits() / 8;
  bool mapped = problem.n * bytes % 16 == 0; // the pitch of a tensor map
  if (!g.specialized() || !mapped || g.tileM < fewestRows)
    return std::nullopt;
  int64_t rowBytes = g.tileN * bytes;
  if (g.tileM * rowBytes <= bufferBytes)
    return OutputSlices{g.tileM, 1, g.tileM * rowBytes};
  // One is written while the other is being copied; no box has less than the swizzle's 8 rows.
  int64_t rows = std::max<int64_t>(8, bufferBytes / 2 / rowBytes / 8 * 8);
  while (g.tileM % (2 * rows) != 0)
    rows -= 8;
  return OutputSlices{rows, 2, rows * rowBytes};
}

int64_t tokenBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                   const Problem &problem) {
  bool any =
      std::any_of(gemm.activation.components.begin(), gemm.activation.components.end(),
                  [](const dsl::Component &part) { return part.extent == dsl::Extent::Row; });
  // The barriers of slices keep them until all have read them.
  bool shared =
      any && g.tileM > mostOwnTokens && placed.parts.empty() && outputSlices(gemm, g, problem);
  constexpr int64_t perScale = 4;
  return shared ? roundUp(g.tileM, Geometry::warpgroup) * perScale : 0;
}

int64_t operandBytes(const Geometry &g) {
  return g.decodesApart() ? g.tileN * g.activationRowBytes() : 0;
}
int64_t operandStages(const PlacedGemm &placed) { return placed.accumulator.empty() ? 3 : 2; }

Geometry geometryOfPart(const PlacedGemm &part, Geometry whole) {
  whole.mmaK = part.mmaK;
  return whole;
}

int storedIndex(const dsl::Format &activation, size_t part, int component) {
  int index = component;
  for (size_t before = 0; before < part; ++before)
    index += static_cast<int>(activation.partition->parts[before].format->components.size());
  return index;
}

namespace {

// Those of all parts. Loops over the k tiles of parts run one after the other: their activations
// have the same place.
std::vector<StageBuffer> buffersOfParts(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                        const Geometry &g) {
  std::vector<StageBuffer> result;
  for (size_t part = 0; part < placed.parts.size(); ++part) {
    const PlacedGemm &own = placed.parts[part];
    for (StageBuffer buffer : stageBuffers(gemmOfPart(gemm, part), own, geometryOfPart(own, g))) {
      if (!buffer.weight && buffer.component > 0)
        buffer.component = storedIndex(gemm.activation, part, buffer.component);
      auto known = std::find_if(result.begin(), result.end(), [&](const StageBuffer &other) {
        return other.weight == buffer.weight && other.component == buffer.component;
      });
      if (known == result.end())
        result.push_back(buffer);
      else
        known->bytes = std::max(known->bytes, buffer.bytes);
    }
  }
  return result;
}

} // namespace

std::vector<StageBuffer> stageBuffers(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                      const Geometry &g) {
  if (!placed.parts.empty())
    return buffersOfParts(gemm, placed, g);
  std::vector<StageBuffer> result;
  result.reserve(8); // as a rule enough: every candidate of the planner asks
  std::vector<CodePlane> planes = g.densePlanes();
  for (size_t plane = 0; plane < planes.size() && !g.gemv(); ++plane) // else straight to registers
    result.push_back({true, planeSection(gemm, plane), g.codeBytes(planes[plane].bits)});
  result.push_back({false, 0, g.tileM * g.activationRowBytes()});
  for (size_t i = 1; i < gemm.weight.components.size(); ++i) {
    const dsl::Component &component = gemm.weight.components[i];
    if (placed.streamed[i] && component.host < 0 && !g.gemv())
      result.push_back(
          {true, static_cast<int>(i),
           g.groupsPerTile(extentK(component)) * g.tileN * dsl::unitBits(component.type) / 8});
  }
  for (const ScaleUse &use : placed.accumulator) {
    if (use.weight)
      continue;
    const dsl::Component &component = gemm.activation.components[use.component];
    result.push_back(
        {false, use.component,
         g.groupsPerTile(use.group) * g.scaleColumns() * dsl::unitBits(component.type) / 8});
  }
  for (size_t i = 1; i < gemm.activation.components.size() && placed.blockScaling; ++i) {
    const dsl::Component &component = gemm.activation.components[i];
    auto index = static_cast<int>(i);
    if (placed.blockScaling->isInWords(false, index) && component.host < 0)
      result.push_back({false, index, g.groupsPerTile(component.group) * g.tileM});
  }
  if (placed.storesBlocks() && !g.specialized() && !g.gemv())
    result.push_back({true, StageBuffer::pieces,
                      g.warpsN * piecesOfWarp(g, pieceGeometry(placed, g)) *
                          piecePartsOf(gemm, placed, g).bytes});
  if (g.specialized()) // a full and an empty barrier
    result.push_back({false, StageBuffer::barriers, 16});
  for (StageBuffer &buffer : result) {
    bool byBox = g.specialized() && !buffer.weight && buffer.component != StageBuffer::barriers;
    int64_t alignment = byBox ? Geometry::boxAlignment : 16;
    buffer.bytes = roundUp(buffer.bytes, alignment);
  }
  return result;
}

// Three times what the stages hold where blocks of the budget are spread evenly: they are not, and
// a loader that waits for places waits for the memory's latency as well. At least two rounds of
// what the k tiles can store that the groups of warps multiply at a time.
std::optional<PieceRing> pieceRing(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                   const Geometry &g, int64_t stages) {
  if (!placed.storesBlocks() || !g.specialized())
    return std::nullopt;
  const dsl::Residual &declared = *gemm.weight.residual;
  Geometry piece = pieceGeometry(placed, g);
  int64_t most = g.warpsN * piecesOfWarp(g, piece); // of a k tile
  double expected = declared.part.most() * static_cast<double>(most * stages);
  int64_t places = std::max(2 * g.warpsK * most, static_cast<int64_t>(std::ceil(3 * expected)));
  places = std::min(places, most * stages);
  // Numbers of pieces are taken modulo the ring.
  places = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(places)));
  return PieceRing{places, piecePartsOf(gemm, placed, g).bytes};
}

int planeSection(const dsl::Gemm &gemm, size_t plane) {
  return static_cast<int>(plane == 0 ? 0 : gemm.weight.components.size() + plane - 1);
}

size_t sectionIndex(const dsl::Format &weight, int section) {
  auto components = static_cast<int>(weight.components.size());
  if (section < components)
    section = dsl::hostOf(weight, section);
  int last = std::min(section, components);
  auto guests = std::count_if(weight.components.begin(), weight.components.begin() + last,
                              [](const dsl::Component &component) { return component.host >= 0; });
  return static_cast<size_t>(section - guests);
}

std::vector<KernelParameter> kernelParameters(const dsl::Gemm &gemm, const Geometry &g,
                                              const Schedule &schedule, const Problem &problem) {
  using Kind = KernelParameter::Kind;
  std::vector<KernelParameter> result{{Kind::Weight, 0}};
  const std::vector<StoredComponent> all = storedComponents(gemm.activation);
  for (size_t i = 0; i < all.size(); ++i) {
    const dsl::Component &component = all[i].declared();
    int index = static_cast<int>(i);
    if (all[i].component == 0) {
      result.push_back({Kind::Activation, index});
      if (g.specialized()) {
        result.back().boxBytes = Geometry::swizzleBytes;
        result.back().boxRows = g.tileM / g.clusterN;
        result.back().swizzle = true;
        result.back().trimmed = g.trimsBatch();
      }
      continue;
    }
    if (component.host >= 0)
      continue; // stored with its host
    result.push_back({Kind::ActivationComponent, index});
    if (g.specialized() && component.extent == dsl::Extent::Group) {
      result.back().boxBytes = g.tileM * dsl::unitBits(component.type) / 8;
      result.back().boxRows = g.groupsPerTile(component.group);
    }
  }
  if (gemm.activation.partition)
    result.push_back({Kind::ActivationTiles, 0});
  result.push_back({Kind::Output, 0});
  if (std::optional<OutputSlices> slices = outputSlices(gemm, g, problem)) {
    result.back().boxBytes = Geometry::swizzleBytes;
    result.back().boxRows = slices->rows;
    result.back().swizzle = true;
  }
  if (schedule.sumsInWorkspace())
    result.push_back({Kind::Workspace, 0});
  result.push_back({Kind::M, 0});
  return result;
}

} // namespace rho::compiler
