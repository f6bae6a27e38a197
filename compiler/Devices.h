// Devices as the planner sees them: described by the shipped declarations, by a user's own, or
// found by a driver.
#pragma once

#include "dsl/Device.h"
#include "dsl/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// A GPU as found or as described. `target` is what kernels are generated for, "sm_80" .. "sm_120a";
// `architecture` is the GPU's own, for which there may be no generator.
struct DeviceModel {
  std::string name;
  std::string target;
  std::string architecture;
  int smCount = 0;
  int64_t sharedPerCta = 0;                       // bytes, opt-in limit
  int64_t sharedPerSm = 0;                        // bytes
  static constexpr int64_t reservedPerCta = 1024; // of them
  int64_t l2Bytes = 0;
  double l2BandwidthGBs = 0;  // 0: no figure is known
  int64_t registersPerSm = 0; // 32 bits each
  int64_t threadsPerSm = 0;
  double clockGHz = 0;
  double bandwidthGBs = 0;
  dsl::DeviceRates rates;
  // Predict for launches repeated on the same operands, as many benchmarks time them: L2 has what
  // it kept of the launch before. Else operands are in memory.
  bool warm = false;
};

DeviceModel modelOf(const dsl::Device &device);
// All of it as text: devices of one text get the same plans.
std::string print(const DeviceModel &device);
// That kernels are generated for its target, and its figures are within the limits of a
// declaration's. Errors unknown_target, bad_device_model.
Status checkModel(const DeviceModel &model);

// Architectures that kernels are generated for.
std::vector<std::string> allTargets();

// The device that a bare target stands for when no GPU is at hand: the first shipped one of that
// architecture. Error unknown_target lists the valid names.
Result<DeviceModel> modelOfTarget(std::string_view target);

// Bytes that a CTA may have on the GPU that has most of those that run kernels of a target.
int64_t mostSharedPerCta(std::string_view target);

// kernels/devices, compiled in. Of one architecture the first stands for it.
const std::vector<dsl::Device> &shippedDevices();
const dsl::Device *shippedDevice(std::string_view name);
std::vector<std::string> shippedNames();
// ", did you mean 'h200'" where a target or a shipped device is near, else nothing.
std::string suggestedDevice(std::string_view name);
// What is declared of a GPU that a driver found: by its product, else by its architecture ("sm_90",
// with or without suffix), of several the one whose product begins most like its own, else by that
// of the kernels that it runs: never null.
const dsl::Device *declarationOf(std::string_view product, const std::string &architecture);

// Dense multiplications and additions that the tensor cores of this GPU could do, in 10^12 a second
// at its clock, on operands of an MMA type ("f16", "bf16", "e4m3", "s8", "s4"), by the fastest
// instruction of the architecture. None where the architecture's rate is not known.
std::optional<double> peakTeraOperations(const DeviceModel &device, std::string_view mmaType);

} // namespace rho::compiler
