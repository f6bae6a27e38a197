// The schedules that the planner compares.
#pragma once

#include "compiler/plan/Placement.h"

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace rho::compiler {

// What an entry of a schedule may be: the user's own, or the planner's candidates.
template <class T>
std::vector<T> choices(const std::optional<T> &own, std::initializer_list<T> candidates) {
  return own ? std::vector<T>{*own} : std::vector<T>(candidates);
}

// Of activations in parts: whether a tile's k can divide the blocks that parts store.
bool tilesFitBlocks(const dsl::Gemm &gemm, const PlacedGemm &placed,
                    dsl::ScheduleDecl::Roles roles);

// Divisions of labour of a gemm on a device: the user's own, or those that have been faster than
// others.
std::vector<dsl::ScheduleDecl::Roles> roleCandidates(const dsl::Gemm &gemm,
                                                     const DeviceModel &device);

std::vector<dsl::ScheduleDecl::Scales> scalesCandidates(const dsl::Gemm &gemm);

// Mixed ones follow shared ones, without which there are none.
std::vector<dsl::ScheduleDecl::Tables> tableCandidates(const dsl::Gemm &gemm);

// Why the planner, which considers roleCandidates(), does not choose a schedule that it predicts to
// be the fastest; empty: it may.
std::string_view whyNotTrusted(const std::vector<dsl::ScheduleDecl::Roles> &considered,
                               const PlacedGemm &placed, const Schedule &schedule,
                               const Problem &problem, const DeviceModel &device);

// Usual: what has been faster than the rest where that was measured. All: every number of warps and
// stages beside what the user fixed.
enum class Variety : uint8_t { Usual, All };

// The schedules of a division of labour that respect what the user fixed, whether or not they can
// be generated.
std::vector<Schedule> scheduleCandidates(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                         dsl::ScheduleDecl::Roles roles, const Problem &problem,
                                         const DeviceModel &device, Variety variety);

// Takes from a plan, where nothing is declared, what the layout of a packed weight depends on.
void fixLayout(dsl::ScheduleDecl &schedule, const Plan &plan);

} // namespace rho::compiler
