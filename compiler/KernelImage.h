// What the compiler hands to the runtime: PTX and every fact that launching needs. The runtime
// never reads these facts from the PTX.
#pragma once

#include "compiler/Layout.h"
#include "compiler/OperandRange.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace rho::compiler {

// y = x * w^T with x [m][k], w [n][k], y [m][n].
struct Problem {
  int64_t m = 0, n = 0, k = 0;
  friend bool operator==(const Problem &, const Problem &) = default;
};

// Counts along the three axes of a grid or a cluster.
struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  friend bool operator==(const Dim3 &, const Dim3 &) = default;
};

// One kernel parameter. Pointers are 8 bytes, m is a 4-byte integer; a tensor map is 128 bytes by
// value, 64-byte aligned, over the operand as a matrix of bytes with zeros outside, which must have
// a multiple of 16 bytes a row. Its rows:
//   Activation           m of activation.pitchBytes, of a partition those of the part
//   ActivationComponent  ceil(k/G) of activationGroupStride(m) codes; the component's extent is
//                        the group
//   Output               m of n values
struct KernelParameter {
  enum class Kind : uint8_t {
    Weight,              // packed weight, 256-byte aligned
    Activation,          // element codes, 16-byte aligned
    ActivationComponent, // another component of the activation format, 16-byte aligned
    ActivationTiles,     // which part has which k tiles: ActivationLayout
    Output,              // y, row-major, 16-byte aligned
    Workspace,           // workspaceBytes(m) bytes, zeroed once; every launch leaves it reusable
    M,                   // rows of x and y
  } kind;
  int index = 0;                     // of an activation's component: in storedComponents()
  int64_t boxBytes = 0, boxRows = 0; // what one copy through the tensor map moves; 0: a pointer
  bool swizzle = false;              // the map's box lies in shared memory under 128-byte swizzle
  bool trimmed = false;              // of fewer rows of the batch than a box has only these
  bool isTensorMap() const { return boxBytes > 0; }
  // Rows that a box of the tensor map has for so many of the batch. Copies of rows past the batch
  // would bring zeros, more slowly than rows.
  int64_t boxRowsFor(int64_t m) const { return trimmed ? std::min(boxRows, m) : boxRows; }
  friend bool operator==(const KernelParameter &, const KernelParameter &) = default;
};

// Why the work of a gemm cannot be divided so among CTAs, see KernelImage; empty where it can.
std::string_view gridProblem(int64_t splitK, int64_t clusterN, int64_t clusterK,
                             int64_t residentCtas);

struct KernelImage {
  std::string entry; // symbol in the PTX
  std::string ptx;
  std::string target; // "sm_80"

  // Launch facts.
  int threads = 0;         // per CTA
  int64_t sharedBytes = 0; // dynamic shared memory per CTA
  // Of a kernel that is no gemm's that is all; the rest is of a gemm.
  bool isGemm() const { return n > 0; }
  int64_t n = 0, k = 0; // the kernel is specialised on both, not on m
  int64_t tileM = 0, tileN = 0, tileK = 0;
  int pipeline = 0;
  int64_t splitK = 1; // dsl::ScheduleDecl::streamK: the k tiles of all tiles in equal shares for
                      // each of residentCtas
  // CTAs of a cluster along the grid's x and z. clusterK is 1 or splitK, whose sums then meet in
  // the cluster's shared memory instead of the workspace.
  int64_t clusterN = 1, clusterK = 1;
  // A persistent kernel's CTAs at most, a multiple of clusterN; each takes tiles until none is
  // left. 0: every tile has a CTA.
  int64_t residentCtas = 0;
  // Its threads exchange registers: ptxas heeds that only where no other code can be linked to it.
  bool wholeProgram = false;
  bool dependentLaunch = false; // may start before the kernel ahead of it in the stream has ended
  std::vector<KernelParameter> parameters;
  WeightLayout weight;
  std::vector<OperandRange> operands; // of a weight whose numbers may be beyond them
  ActivationLayout activation;

  // PTX `.loc` line i (1-based, file "rho") belongs to origins[i-1], a dotted path into the
  // declaration such as "weight.scale" or "schedule". Stable under moves of the text.
  std::vector<std::string> origins;

  bool streamsK() const { return splitK == dsl::ScheduleDecl::streamK; }
  bool sumsInWorkspace() const { return splitK != clusterK; }
  int64_t tilesM(int64_t m) const { return divideUp(m, tileM); }
  int64_t tilesN() const { return divideUp(n, tileN); }
  int64_t tilesK() const { return divideUp(k, tileK); }
  // x = tilesN rounded up to clusterN, y = tilesM(m), z = splitK; CTAs past tilesN have no tile.
  // Persistent: the same tiles, at most residentCtas, along x alone.
  Dim3 grid(int64_t m) const;
  Dim3 cluster() const;
  // Counters of output tiles, then the sums that CTAs leave. The counters have their room whatever
  // the gemm: no gemm that uses a workspace after another finds sums in place of zeros.
  static constexpr int64_t counterBytes = int64_t(1) << 18, mostSharedTiles = counterBytes / 4;
  int64_t workspaceBytes(int64_t m) const;

  // Text form for the disk cache: everything but the PTX. Error kernel_facts_invalid.
  std::string printFacts() const;
  static Result<KernelImage> parse(std::string_view facts, std::string ptx);
  friend bool operator==(const KernelImage &, const KernelImage &) = default;
};

} // namespace rho::compiler
