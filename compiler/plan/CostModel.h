// Predicted time of one gemm under one schedule: the seed of the planner's choice.
#pragma once

#include "compiler/Explain.h"
#include "compiler/plan/Geometry.h"

#include <cmath>
#include <initializer_list>

namespace rho::compiler {

// After LiquidGEMM equation 6: per k tile the load, CUDA-core issue and tensor core, of which the
// slowest counts most (a norm of their times), times tiles and waves, plus pipeline fill, epilogue
// and split-K reduction.
Cost predict(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
             const Problem &problem, const DeviceModel &device);

// Of the blocks of a partition, those that each part stores as far as its budget says; without a
// budget as many as any other.
std::vector<double> expectedShares(const dsl::Partition &partition);

// What a k tile of each part of an activation costs, by predictions, in small whole numbers.
std::vector<int64_t> tileCosts(const dsl::Gemm &gemm, const PlacedGemm &placed,
                               const Schedule &schedule, const Problem &problem,
                               const DeviceModel &device);

// What predict() is of activations in parts: each has its share of the k tiles and starts its own
// pipeline.
Cost predictParts(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                  const Problem &problem, const DeviceModel &device);

// Of times that overlap: the slowest decides, and others add the more the closer they come.
constexpr double overlapSharpness = 4;
inline double overlapped(std::initializer_list<double> times, double sharpness = overlapSharpness) {
  double sum = 0;
  for (double time : times)
    sum += std::pow(time, sharpness);
  return std::pow(sum, 1 / sharpness);
}

// From a load's issue until its bytes are there.
constexpr double memoryLatencyMicroseconds = 0.8;

// Of a launch, until its CTAs begin.
constexpr double launchMicroseconds = 2.0;

// Of mma.sync kernels, whose warps all do the same.
Cost predictUniform(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                    const Problem &problem, const DeviceModel &device);

// Of wgmma kernels, whose warps have roles.
Cost predictSpecialized(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                        const Problem &problem, const DeviceModel &device);

// Of kernels that multiply on CUDA cores.
Cost predictGemv(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                 const Problem &problem, const DeviceModel &device);

// Hopper's clock falls under matrix load: of the boost clock.
constexpr double sustainedClock = 0.855;

// Bytes per cycle that one SM moves through ldmatrix and 16-byte loads, three quarters of the peak
// as measured on an H200.
inline double sharedBytesPerCycle(const DeviceModel &device) {
  return 0.75 * 4 * device.rates.of(dsl::InstructionClass::Lds);
}

} // namespace rho::compiler
