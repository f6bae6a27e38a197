// Which schedules can be generated for a placed gemm, and why others cannot.
#pragma once

#include "compiler/Plan.h"
#include "compiler/plan/Geometry.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

constexpr int64_t largestGemvBatch = 4; // rows of roles gemv

// Why a schedule cannot be generated; empty when it can.
struct Objection {
  DiagId id;
  std::vector<std::string> args;
};

// `ofPart`: the schedule is that of activations with parts, `gemm` the one of a part alone.
std::optional<Objection> objection(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                   const Problem &problem, const Schedule &s,
                                   const DeviceModel &device, bool ofPart = false);

// Registers of a thread, and what limits them.
struct RegisterUse {
  int64_t needed, limit;
};
RegisterUse registerUse(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                        int pipeline, int64_t ctasPerSm);

} // namespace rho::compiler
