// The published GPU that each bare target stands for when no GPU is at hand.
#include "compiler/Plan.h"

namespace rho::compiler {

namespace {

// Vendor datasheets and architecture whitepapers; clocks are boost clocks.
const DeviceModel models[] = {
    {.name = "NVIDIA A100-SXM4-80GB",
     .target = "sm_80",
     .smCount = 108,
     .sharedPerCta = 163 * 1024,
     .sharedPerSm = 164 * 1024,
     .l2Bytes = 40LL << 20,
     .clockGHz = 1.41,
     .bandwidthGBs = 2039},
    {.name = "NVIDIA A40",
     .target = "sm_86",
     .smCount = 84,
     .sharedPerCta = 99 * 1024,
     .sharedPerSm = 100 * 1024,
     .l2Bytes = 6LL << 20,
     .clockGHz = 1.74,
     .bandwidthGBs = 696},
    {.name = "NVIDIA L40S",
     .target = "sm_89",
     .smCount = 142,
     .sharedPerCta = 99 * 1024,
     .sharedPerSm = 100 * 1024,
     .l2Bytes = 96LL << 20,
     .clockGHz = 2.52,
     .bandwidthGBs = 864},
    {.name = "NVIDIA H200",
     .target = "sm_90a",
     .smCount = 132,
     .sharedPerCta = 227 * 1024,
     .sharedPerSm = 228 * 1024,
     .l2Bytes = 60LL << 20,
     .clockGHz = 1.98,
     .bandwidthGBs = 4800},
};

} // namespace

Result<DeviceModel> modelOfTarget(std::string_view target) {
  std::string valid;
  for (const DeviceModel &model : models) {
    if (model.target == target)
      return model;
    valid += (valid.empty() ? "" : ", ") + model.target;
  }
  return makeError(DiagId::unknown_target, {std::string(target), valid});
}

std::vector<std::string> allTargets() {
  std::vector<std::string> result;
  for (const DeviceModel &model : models)
    result.push_back(model.target);
  return result;
}

} // namespace rho::compiler
