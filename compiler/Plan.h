// The planner: which placement and schedule one problem gets on one device, and why.
#pragma once

#include "compiler/Devices.h"
#include "compiler/KernelImage.h"
#include "dsl/Format.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// Where a factor of a value is applied. Hardware: by the matrix instruction, to both operands.
enum class Placement : uint8_t { Operand, Accumulator, Epilogue, Hardware };
std::string_view name(Placement placement);

struct FactorPlacement {
  std::string factor; // "weight.scale", "activation.scale", "weight.element"
  Placement placement;
  std::string reason; // one line
};

struct Schedule {
  int64_t tileM = 0, tileN = 0, tileK = 0;
  int64_t warpsM = 0, warpsN = 0, warpsK = 1;
  int pipeline = 0;
  int64_t splitK = 1; // or dsl::ScheduleDecl::streamK
  dsl::ScheduleDecl::Roles roles = dsl::ScheduleDecl::Roles::Uniform;
  int64_t clusterN = 1;   // CTAs along weight rows that share their activations by multicast
  int64_t clusterK = 1;   // 1, or splitK: parts of k that are summed inside a cluster
  bool dependent = false; // programmatic dependent launch
  dsl::ScheduleDecl::Packing packing = dsl::ScheduleDecl::Packing::Tiles; // panels: of four warps
  int64_t ctasPerSm = 1;    // of roles but uniform: how many share an SM's registers
  int64_t residentCtas = 0; // of a persistent kernel, as KernelImage has it
  static constexpr int64_t mostCtasPerSm = 32, mostResidentCtas = 1 << 16;
  dsl::ScheduleDecl::Sums sums = dsl::ScheduleDecl::Sums::Converted;
  // Of activations in parts, where a split of k divides work and not k tiles: what a k tile of each
  // part costs.
  static constexpr int64_t largestCost = 64;
  std::vector<int64_t> tileCosts = {};
  friend bool operator==(const Schedule &, const Schedule &) = default;
};

// N and K are bounded so that every byte offset within one operand fits 32 bits after the tile's
// own 64-bit base. Whether the tiles of M fit the grid's y dimension depends on their rows, and is
// checked when a kernel is compiled (grid_too_large).
inline constexpr int64_t largestExtent = int64_t(1) << 24;
inline constexpr int64_t largestBatch = int64_t(1) << 19;

struct Plan {
  Problem problem;
  std::string target;
  std::string
      mmaType; // type that operands have in the MMA: "f16", "bf16", "e4m3", "s8", "s4", "e2m1"
  dsl::ScheduleDecl::Scales groupScales = dsl::ScheduleDecl::Scales::Accumulator;
  std::vector<FactorPlacement> placements;
  Schedule schedule;
  double predictedMicroseconds = 0;
  // Canonical text of all of it, for people, and of what a kernel depends on.
  std::string print() const;
  std::string printForKernel() const;
  static Result<Plan> parse(std::string_view text);
};

// The plans that can be generated, the fastest predictions first; at least one, at most `most`.
// Errors as plan().
Result<std::vector<Plan>> rankedPlans(const dsl::Gemm &gemm, const Problem &problem,
                                      const DeviceModel &device, size_t most,
                                      const SourceMap *sources);

// The first of them. Errors: no_legal_placement, schedule_* when the user's schedule cannot be met;
// each with the span of the declaration (`sources` may be null: then without carets).
Result<Plan> plan(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
                  const SourceMap *sources);

// The most batch rows of those that share a measured plan with `m`.
int64_t mostRowsAlike(int64_t m);

} // namespace rho::compiler
