// What one k tile of a CTA costs: instructions, bytes and products, whatever hides behind what.
#pragma once

#include "compiler/plan/CostModel.h"
#include "compiler/plan/InstructionCounts.h"

namespace rho::compiler {

// A rate of the declaration, or of the operands that a product of this type is widened to; 0 where
// neither is declared.
double rateOf(const std::map<std::string, double, std::less<>> &rates, const std::string &type);

// Dense multiply-adds per cycle and SM of these operands through mma.sync; 0 where nothing is
// declared.
double mmaPerCycle(const DeviceModel &device, const PlacedGemm &placed);

// Instructions of one warp that make the decode's parameters.
double parameterInstructions(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g);

// What one warp issues, without the scaling of its accumulators.
InstructionCounts issuePerTile(const PlacedGemm &placed, const Geometry &g);

// The scaling of one warp's accumulators.
InstructionCounts scalingPerTile(const PlacedGemm &placed, const Geometry &g,
                                 dsl::ScheduleDecl::Sums sums);

// What the stored blocks of a residual add: expected values, as many as the budget allows.
struct ResidualShare {
  double bytes = 0;         // of a CTA
  double macs = 0;          // of a CTA
  InstructionCounts issued; // of a warp
};
ResidualShare residualPerTile(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g);

// What is brought into a stage, pieces of a residual included.
struct TileBytes {
  double weight = 0, activation = 0;
  double all() const { return weight + activation; }
};
TileBytes bytesPerTile(const dsl::Gemm &gemm, const PlacedGemm &placed, const Geometry &g,
                       const ResidualShare &residual);

// What the prediction of a kernel starts from.
struct PredictedKernel {
  const dsl::Gemm &gemm;
  const PlacedGemm &placed;
  const Schedule &schedule;
  const Problem &problem;
  const DeviceModel &device;
  const Geometry g = makeGeometry(placed, schedule);
  const ResidualShare residual = residualPerTile(gemm, placed, g);
  TileBytes bytes = bytesPerTile(gemm, placed, g, residual);
};

// Bytes that one CTA moves in and out of shared memory, of which `copied` come from elsewhere:
// every warp reads its codes, and the activations once for each group of weight rows.
double sharedTraffic(const Geometry &g, double copied);
// Of the registers of a unit of codes.
double lookedUpShare(const DecodeSequence &decode);
// And with tables of pairs in shared memory: a register of operands for each lookup of a warp.
double lookupTraffic(const PlacedGemm &placed, const Geometry &g);

} // namespace rho::compiler
