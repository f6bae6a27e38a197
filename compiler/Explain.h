// Why the planner chose what it chose: every placement and division of labour with its cost.
#pragma once

#include "compiler/OnTarget.h"
#include "compiler/Plan.h"

#include <array>

namespace rho::compiler {

// What a kernel's time goes to, in microseconds as if it were alone: they overlap.
struct Cost {
  enum class Part : uint8_t { Load, Decode, Tensor, Scaling, Shared, Latency, Overhead };
  static constexpr size_t partCount = 7;
  double microseconds = 0;
  std::array<double, partCount> parts{};

  double &operator[](Part part) { return parts[static_cast<size_t>(part)]; }
  Part largest() const;
};
std::string_view name(Cost::Part part);

// The best plan of one placement of the weight's group scales, one division of labour and one place
// of tables; of tables in shared memory where they pay, or are asked for.
struct Alternative {
  dsl::ScheduleDecl::Scales scales;
  dsl::ScheduleDecl::Roles roles;
  dsl::ScheduleDecl::Tables tables;
  std::string stored; // what the activation is stored as (storedAs)
  Result<Plan> plan;  // or why there is none
  Cost cost;
  bool winner = false;      // the planner's choice
  bool mayOverflow = false; // operands of f16, of weights that f16 holds
  std::string distrust;     // why it would not be chosen if it were predicted to be the fastest
  // One line: what bounds the winner; what a loser is slower by and bound by, or why it is not
  // legal.
  std::string reason;
};

// All that the declaration leaves open, the fastest first, then what is not legal. What a schedule
// that fixes one of them gets: its activation may be stored otherwise than the winner's. Errors as
// plan().
Result<std::vector<Alternative>> explain(const dsl::Gemm &gemm, const Problem &problem,
                                         const DeviceModel &device, const SourceMap *sources);

// Microseconds of a plan's prediction that its weight's residual takes; none where it has none.
std::optional<double> residualMicroseconds(const dsl::Gemm &gemm, const Plan &plan,
                                           const DeviceModel &device);

// Microseconds of a vendor library's plain product of two matrices of one type ("f16"), what a
// quantized one has to beat; none where the device's tensor cores do not have the type.
std::optional<double> predictLibraryMicroseconds(const Problem &problem, const std::string &type,
                                                 const DeviceModel &device);

} // namespace rho::compiler
