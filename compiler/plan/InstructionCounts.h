// How many instructions of each class a kernel issues, and what they cost on a device.
#pragma once

#include "compiler/decode/DecodeProgram.h"
#include "compiler/plan/Placement.h"
#include "dsl/Device.h"

#include <array>

namespace rho::compiler {

// Warp instructions.
struct InstructionCounts {
  std::array<double, dsl::instructionClasses> of{};
  double others = 0; // that only take their turn to be issued: copies, barriers, matrix products

  double &operator[](dsl::InstructionClass which) { return of[static_cast<size_t>(which)]; }
  double operator[](dsl::InstructionClass which) const { return of[static_cast<size_t>(which)]; }
  InstructionCounts &operator+=(const InstructionCounts &more);
  double total() const;
};
InstructionCounts operator*(double times, InstructionCounts counts);

InstructionCounts countDecode(const DecodeProgram &program);

// One accumulator's way into the sums: once for each group of k.
InstructionCounts countScaling(const PlacedGemm &placed, dsl::ScheduleDecl::Sums sums);

// Cycles that an SM's pipes are busy with it: of floating-point and multiply-adds, of integers, of
// conversions and of shared memory. s32 to f32 is an integer operation where it is as fast as one.
struct PipeCycles {
  double fma = 0, alu = 0, conversion = 0, shared = 0;
  double slowest() const;
  double sum() const { return fma + alu + conversion + shared; }
};
PipeCycles pipeCycles(const InstructionCounts &counts, const dsl::DeviceRates &rates);

// Cycles from one warp instruction of a class to the next on one of an SM's four schedulers.
double issueCycles(dsl::InstructionClass which, const dsl::DeviceRates &rates);

} // namespace rho::compiler
