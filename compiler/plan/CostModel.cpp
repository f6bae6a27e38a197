#include "compiler/plan/CostModel.h"

#include "compiler/Targets.h"
#include "compiler/plan/TileCosts.h"

#include <algorithm>
#include <cmath>

namespace rho::compiler {

namespace {

// Of operands that are read again and again, the share that L2 has: all up to 0.7 of its size, none
// from 1.25 on. So on A100 and H200, sets of growing size (te42kyfo/gpu-benches, gpu-l2-cache);
// Ada's L2, in one part, keeps all up to its full size (the same, L40).
double cachedShare(double bytes, const DeviceModel &device) {
  constexpr double all = 0.7, none = 1.25;
  return std::clamp((none - bytes / static_cast<double>(device.l2Bytes)) / (none - all), 0.0, 1.0);
}

// A warm device as a product of so many bytes finds it: memory as fast as it and L2 are together.
DeviceModel warmed(double bytes, DeviceModel device) {
  device.warm = false;
  double cached = cachedShare(bytes, device);
  double fromCache = std::max(device.l2BandwidthGBs, device.bandwidthGBs);
  device.bandwidthGBs = 1 / (cached / fromCache + (1 - cached) / device.bandwidthGBs);
  return device;
}

double trafficBytes(const Problem &problem, double weightBits, double activationBits) {
  auto m = static_cast<double>(problem.m), n = static_cast<double>(problem.n),
       k = static_cast<double>(problem.k);
  return (n * weightBits + m * activationBits) * k / 8 + 2 * m * n;
}

} // namespace

std::optional<double> predictLibraryMicroseconds(const Problem &problem, const std::string &type,
                                                 const DeviceModel &device) {
  int bits = dsl::ElementType::get(type).bits();
  double bytes = trafficBytes(problem, bits, bits);
  if (device.warm)
    return predictLibraryMicroseconds(problem, type, warmed(bytes, device));
  // Of the peaks, as libraries reach them; Hopper's clock falls under matrix load (cuBLASLt's bf16
  // and fp8 on an H200, results/h200/llama.csv: 0.95 of what was measured, standard deviation
  // 0.09).
  constexpr double memoryShare = 0.9;
  double tensorShare = 0.85 * (targetOf(device.target).hasWgmma ? sustainedClock : 1);
  double memory = bytes / (device.bandwidthGBs * 1e3 * memoryShare);
  double perMicrosecond =
      rateOf(device.rates.tensor, type) * device.smCount * device.clockGHz * 1e3;
  if (perMicrosecond == 0)
    return std::nullopt;
  double macs = static_cast<double>(problem.m * problem.n) * static_cast<double>(problem.k);
  double tensor = macs / (perMicrosecond * tensorShare);
  return launchMicroseconds + std::hypot(memory, tensor);
}

Cost predict(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
             const Problem &problem, const DeviceModel &device) {
  if (device.warm) {
    double bytes =
        trafficBytes(problem, gemm.weight.bitsPerElement(), gemm.activation.bitsPerElement());
    return predict(gemm, placed, schedule, problem, warmed(bytes, device));
  }
  if (!placed.parts.empty())
    return predictParts(gemm, placed, schedule, problem, device);
  switch (schedule.roles) {
  case dsl::ScheduleDecl::Roles::Uniform:
    return predictUniform(gemm, placed, schedule, problem, device);
  case dsl::ScheduleDecl::Roles::Gemv:
    return predictGemv(gemm, placed, schedule, problem, device);
  case dsl::ScheduleDecl::Roles::ImFP:
  case dsl::ScheduleDecl::Roles::ExCP:
    break;
  }
  return predictSpecialized(gemm, placed, schedule, problem, device);
}

} // namespace rho::compiler
