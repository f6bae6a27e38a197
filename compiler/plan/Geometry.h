// Sizes that follow from a schedule and a placed gemm: one place for every index computation that
// packing, the cost model and code generation must agree on.
#pragma once

#include "compiler/plan/Placement.h"
#include "dsl/Division.h"

#include <algorithm>
#include <optional>

namespace rho::compiler {

// 32-bit registers of an SM of every target.
inline constexpr int64_t registersPerSm = 65536;

// How a CTA tile is divided. The weight is operand A, the activation operand B: y^T = w x^T. Of
// mma.sync each warp has instructions of 16 weight rows x 8 batch rows; of wgmma four warps share
// one of 64 weight rows x tileM batch rows, of which each warp holds 16 x tileM. The fragments of a
// warp are the same, so both families share the order of codes and the epilogue.
//
// Without matrix instructions (roles gemv) a warp has the same 16 weight rows in the same threads,
// but the four threads of a quad divide each chunk's k into four runs, and each has all batch rows.
//
// A product does not depend on which k an instruction takes where, so warps that multiply by
// themselves may have runs as well: what a decode takes beside codes is then made once for a run of
// a group, not for the few codes of one instruction.
struct Geometry {
  using Roles = dsl::ScheduleDecl::Roles;
  // The batch rows of wgmma, on any operands, from 32 on (PTX ISA, wgmma.mma_async: N).
  static constexpr int64_t batchUnit = 16, mostBatch = 256;
  int64_t tileM, tileN, tileK; // batch, weight rows, k
  int64_t warpsM, warpsN;      // that multiply
  int64_t warpsK;              // groups of them that take turns along k
  int mmaK;                    // k of one MMA
  int weightBits;              // of a code: 2 to 8, or 16
  Roles roles = Roles::Uniform;
  bool streamK = false;               // CTAs have equal shares of the k tiles of all outputs
  int64_t clusterN = 1, clusterK = 1; // CTAs of a cluster along weight rows and along k
  // Whose rows make a panel. The packed weight is a sequence of panels, each of which holds all of
  // k chunk by chunk, so that it does not depend on tileK, nor on tileN where a tile has several.
  int64_t panelWarps = 1;
  bool warpsMultiply = true; // each by itself, by mma.sync
  int sparseBits = 0;        // of a code, that only the stored blocks of a residual have
  bool hasRuns = false;      // of k, the threads of a quad in each chunk

  static constexpr int64_t mostWarps = 16; // that multiply, of a CTA
  static constexpr int64_t smallestTileK = 64;
  static constexpr int64_t leastMmaRows = 8; // of the batch, that a matrix instruction has

  static constexpr int64_t warpgroup = 128;      // threads
  static constexpr int64_t instructionRows = 64; // of weights, that a wgmma instruction has
  static constexpr int64_t swizzleBytes = 128;   // of k, in one row of a wgmma operand
  static constexpr int64_t swizzledRows = 8;     // of an operand, that the swizzle repeats after
  static constexpr int64_t widestBox = 256;      // bytes of a row of a tensor map's box
  static constexpr int64_t boxAlignment = 128;   // bytes, of where a box lands in shared memory

  int activationBits() const { return mmaRowBits / mmaK; } // of a stored element
  bool gemv() const { return roles == Roles::Gemv; }
  bool decodesApart() const { return roles == Roles::ExCP; } // a warpgroup of its own decodes
  bool specialized() const { return roles == Roles::ImFP || decodesApart(); } // has a loading warp
  // Of a batch of fewer rows than the tile only these are copied; warps read the last one in place
  // of the others, which an instruction of a warpgroup could not.
  bool trimsBatch() const {
    return specialized() && warpsMultiply && clusterN == 1 && tileM == leastMmaRows;
  }
  bool warpgroupsMultiply() const { return specialized() && !warpsMultiply; } // by wgmma
  int64_t warpgroups() const { return warpsN / 4; } // of one group along k
  int64_t mathThreads() const { return 32 * warpsM * warpsN * warpsK; }
  // Those and the others of their last warpgroup, which multiply nothing: registers change hands by
  // whole warpgroups.
  int64_t mathRoleThreads() const {
    return specialized() ? roundUp(mathThreads(), warpgroup) : mathThreads();
  }
  int64_t groupThreads() const { return 32 * warpsM * warpsN; } // that hold one set of sums
  int64_t decodeThreads() const { return decodesApart() ? warpgroup : 0; }
  int64_t threads() const {
    return mathRoleThreads() + decodeThreads() + (specialized() ? warpgroup : 0);
  }
  int64_t warpN() const { return tileN / warpsN; }
  int64_t warpM() const { return tileM / warpsM; }
  int64_t rowTiles() const { return warpN() / 16; } // m16 tiles of a warp
  // Batch rows from one accumulator of a thread to its next, which has two of them.
  int64_t batchStep() const { return gemv() ? 2 : 8; }
  int64_t batchTiles() const { return divideUp(warpM(), batchStep()); } // of a warp
  int denseBits() const { return weightBits - sparseBits; }
  // Those of dense bits come first.
  std::vector<CodePlane> planes() const { return planesOf(weightBits, sparseBits); }
  std::vector<CodePlane> densePlanes() const {
    std::vector<CodePlane> all = planes();
    all.resize(all.size() - (sparseBits > 0 ? 1 : 0));
    return all;
  }
  int64_t chunkK() const { return compiler::chunkK(denseBits()); }
  int64_t chunkCodes() const { return chunkK() / 2; } // of a thread
  // Words of a thread in a chunk of a plane of so many bits.
  int64_t planeWords(int64_t bits) const { return chunkCodes() * bits / 32; }
  int64_t chunks() const { return tileK / chunkK(); }
  int64_t panelRows() const { return panelWarps * warpN(); }
  int64_t stepsPerChunk() const { return chunkK() / mmaK; }
  // Consecutive weight rows that one thread holds: fragment row r of row tile t is weight row
  // (r % 8) * rowsPerThread + 2 t + r / 8 of the warp, so that a thread's outputs are contiguous.
  int64_t rowsPerThread() const { return warpN() / 8; }
  int64_t activationRowBytes() const { return tileK * activationBits() / 8; }
  // Of one stage: all dense planes of a tile, or one.
  int64_t codeBytes() const { return codeBytes(denseBits()); }
  int64_t codeBytes(int64_t bits) const { return tileN * tileK * bits / 8; }
  // Alignment of shared buffers: the 128-byte swizzle repeats every 1024 bytes.
  int64_t sharedAlignment() const { return specialized() ? 1024 : 128; }
  // Codes in a group's row of activation scales. A gemv takes the block of 8 that has its rows.
  int64_t scaleColumns() const { return gemv() ? 8 : tileM; }
  // What of k shares the parameters that a thread holds at a time: a group, or at least a chunk
  // where each run of k may have a group of its own.
  int64_t parameterK(int64_t group) const { return hasRuns ? std::max(group, chunkK()) : group; }
  // Groups of one chunk, one after the other along the runs of a quad.
  int64_t groupsPerChunk(int64_t group) const { return parameterK(group) / group; }
  int64_t groupsPerTile(int64_t group) const { return group >= tileK ? 1 : tileK / group; }
  // Groups whose codes of a weight row, of so many bits each, are stored side by side: as many as
  // make one word of all that a thread has of them.
  int64_t groupsTogether(int64_t bits, int64_t group) const {
    int64_t count = hasRuns ? 1 : std::max<int64_t>(1, 32 / (bits * rowsPerThread()));
    return groupsPerTile(group) % count == 0 ? count : 1;
  }
  // Codes of a weight row in a unit of its codes for groups, and such units in a tile.
  int64_t groupsPerUnit(int64_t bits, int64_t group) const {
    return groupsTogether(bits, group) * groupsPerChunk(group);
  }
  int64_t unitsPerTile(int64_t bits, int64_t group) const {
    return groupsPerTile(group) / groupsPerUnit(bits, group);
  }
};

// Whether so many warps have a power of two of a tile's weight rows each, at least 16.
constexpr int64_t leastWarpRows = 16;
inline bool dividesRows(int64_t tileN, int64_t warpsN) {
  int64_t rows = tileN / warpsN;
  return tileN % warpsN == 0 && rows >= leastWarpRows && (rows & (rows - 1)) == 0;
}

// The k that shares a code of a component in a kernel: a group, or more than any k.
inline int64_t extentK(const dsl::Component &component) {
  return component.extent == dsl::Extent::Group ? kernelGroup(component.group) : int64_t{1} << 30;
}

// Independent accumulators that a warp keeps for each of its output fragments.
int64_t mmaChains(const Geometry &geometry);

// Steps along k of one batch of wgmma instructions: enough that decoding the next one hides behind
// it, few enough that operand A of two batches fits the registers; all of a tile where operand A
// is in shared memory.
int64_t batchSteps(const Geometry &geometry);

// The same of a group whose partial sums are scaled after `flushK` of k.
int64_t groupBatchSteps(const Geometry &geometry, int64_t flushK);

// Whether the last batch of a k tile, without partial sums, runs on while the next tile is decoded.
// Its stage is released that much later, which short instructions are not worth.
bool carriesBatch(const Geometry &geometry);

// Registers of one thread in each role of a specialized kernel. All threads start with the same
// number; the loading warpgroup then gives up what the others take (PTX ISA, setmaxnreg).
struct RegisterShares {
  int64_t start, loader, decode, math;
};
RegisterShares divideRegisters(int64_t mathThreads, int64_t decodeThreads, int64_t ctasPerSm);

Geometry makeGeometry(const PlacedGemm &placed, const Schedule &schedule);

// That of a kernel's part: its activations and instructions are others.
Geometry geometryOfPart(const PlacedGemm &part, Geometry whole);
// The index in storedComponents() of a part's component.
int storedIndex(const dsl::Format &activation, size_t part, int component);

// The order of activation codes with which `reader` multiplies weights that are packed for `owner`,
// and sets reader.oneRowHalf. None where registers would mix rows.
std::optional<std::vector<uint8_t>> columnBitsFor(const PlacedGemm &owner, PlacedGemm &reader);

// Of what is stored of a residual at a time, a piece: one chunk along k of the rows of one warp.
Geometry pieceGeometry(const PlacedGemm &placed, const Geometry &geometry);
// Whether the warps of a warpgroup have pieces of the same blocks: one instruction multiplies them.
bool warpgroupsShareBlocks(const dsl::Residual &residual, const Geometry &geometry);
// What lies in a piece, one tile of each section, offsets from its first byte; and its bytes.
struct PieceParts {
  std::vector<LayoutSection> parts = {};
  int64_t bytes = 0;
};
PieceParts piecePartsOf(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry);
// Tiles of all outputs, with those that only fill the last cluster along n.
inline int64_t outputTiles(const Problem &problem, int64_t tileM, int64_t tileN,
                           int64_t clusterN = 1) {
  return roundUp(divideUp(problem.n, tileN), clusterN) * divideUp(problem.m, tileM);
}

// Pieces of one warp in a k tile.
inline int64_t piecesOfWarp(const Geometry &geometry, const Geometry &piece) {
  return geometry.tileK / piece.tileK;
}

// Everything that one pipeline stage holds in shared memory.
struct StageBuffer {
  bool weight = true;
  int component = 0; // a section of the weight, a component of the activation format, or barriers
  static constexpr int barriers = -1, pieces = -2; // the latter of a residual
  int64_t bytes = 0;                               // per stage, with what aligns the next one
};
// Parts of each buffer: the pipeline's depth; of a gemv, which keeps the activations of all of its
// k, the k tiles.
int64_t bufferStages(const Geometry &geometry, const Schedule &schedule, int64_t k);
// Where groups of warps along k leave their sums for the first of them, and then CTAs of a cluster
// along k for the first of those: bytes, 0 if there is one.
int64_t sumsBytes(const Geometry &geometry);
// Where the warpgroup that decodes leaves operand A: bytes of a stage, 0 if none decodes apart.
int64_t operandBytes(const Geometry &geometry);
// One is written and one multiplied. Without partial sums a third one waits: the last batch of a k
// tile is waited for only when the next has started.
int64_t operandStages(const PlacedGemm &placed);
// Slices along m in which a tile's outputs go through shared memory to a tensor map's copies.
struct OutputSlices {
  int64_t rows;  // of one slice
  int64_t slots; // slices that the buffer holds
  int64_t bytes; // of one slot
};
// None where each thread stores its own outputs.
std::optional<OutputSlices> outputSlices(const dsl::Gemm &gemm, const Geometry &geometry,
                                         const Problem &problem);
// Batch rows of a tile whose token scales each thread loads ahead of the products for itself: it
// has a quarter of them.
constexpr int64_t mostOwnTokens = 64;
// Where the threads of each warpgroup share what they loaded of a tile's token scales: bytes for
// one warpgroup, 0 where each loads its own.
int64_t tokenBytes(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &geometry,
                   const Problem &problem);
// Those of warps without roles have room for all pieces of a k tile that a residual could store.
std::vector<StageBuffer> stageBuffers(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                      const Geometry &geometry);

// Where a loading warp leaves the stored pieces of a residual: places of one piece each, which all
// stages share. Beside it is for each stage the place of its first piece, which the loader keeps.
struct PieceRing {
  int64_t places, pieceBytes;
  static constexpr int64_t placeBytes = 16; // of a stage
};
std::optional<PieceRing> pieceRing(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                   const Geometry &geometry, int64_t stages);

// What names the section of plane `plane` of the element, as its index names that of a component.
int planeSection(const dsl::Gemm &gemm, size_t plane);
// Where it is among the layout's; that of a component in spare bits is its host's.
size_t sectionIndex(const dsl::Format &weight, int section);

// Each component of the weight has a section of its own, at its index; the element's other dense
// planes follow.
WeightLayout makeWeightLayout(const dsl::Gemm &gemm, const PlacedGemm &placed,
                              const Geometry &geometry, const Problem &problem);
ActivationLayout makeActivationLayout(const PlacedGemm &placed, const Geometry &geometry,
                                      const Problem &problem);

// The kernel's parameters, in order.
std::vector<KernelParameter> kernelParameters(const dsl::Gemm &gemm, const Geometry &geometry,
                                              const Schedule &schedule, const Problem &problem);

} // namespace rho::compiler
