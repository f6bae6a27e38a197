// Plans beside plan()'s own: those that are worth measuring, the way back from the one that was
// chosen, and those that several problems share a packed weight with.
#pragma once

#include "compiler/OperandRange.h"
#include "compiler/Plan.h"

namespace rho::compiler {

// Plans to be measured against each other, the fastest predictions first: plan()'s own, and at most
// 3 that agree in roles, tables and tile. At least one, at most `most`. Errors as plan().
Result<std::vector<Plan>> planCandidates(const dsl::Gemm &gemm, const Problem &problem,
                                         const DeviceModel &device, size_t most,
                                         const SourceMap *sources);

// The plan that has the schedule of `found`, which comes from a file or was made for another m,
// with its placements and prediction for this problem. Errors: plan_differs where `found` is for
// another weight, device or declaration, else those of plan(), whose rules it is held to.
Result<Plan> adoptPlan(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device,
                       const Plan &found, const SourceMap *sources);

// A plan for each problem, all of one n and k, such that all read a weight that is packed in one
// way: of these ways that with the least product of predicted times, and of its plans the fastest.
// Errors: those of plan(), no_shared_layout.
Result<std::vector<Plan>> sharedPlans(const dsl::Gemm &gemm, const std::vector<Problem> &problems,
                                      const DeviceModel &device, const SourceMap *sources);
// The fastest plan for `m` that reads the weight of `other`, a plan of the same gemm, and makes no
// operands of it but these. Errors: as above.
Result<Plan> planSharing(const dsl::Gemm &gemm, const Plan &other,
                         const std::vector<OperandRange> &operands, int64_t m,
                         const DeviceModel &device, const SourceMap *sources);

// The operands that a plan's kernel makes of a weight whose numbers may be beyond them: what it is
// to be checked for as it is packed. Errors: those of plan().
Result<std::vector<OperandRange>> operandRanges(const dsl::Gemm &gemm, const Plan &plan);

} // namespace rho::compiler
