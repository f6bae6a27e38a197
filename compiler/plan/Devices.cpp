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
    {.name = "NVIDIA RTX PRO 6000 Blackwell",
     .target = "sm_120a",
     .smCount = 188,
     .sharedPerCta = 99 * 1024,
     .sharedPerSm = 100 * 1024,
     .l2Bytes = 128LL << 20,
     .clockGHz = 2.617,
     .bandwidthGBs = 1792},
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

// Architecture whitepapers, "dense" rows. sm_90 and sm_120 have no s4 instruction of their own: s8
// does the work. e2m1 only where block-scaled instructions exist.
std::optional<double> peakTeraOperations(const DeviceModel &device, std::string_view mmaType) {
  struct Rates { // multiply-adds per cycle and SM
    std::string_view family;
    double half, byte, nibble;
  };
  static constexpr Rates rates[] = {{"sm_80", 1024, 2048, 4096},
                                    {"sm_86", 512, 1024, 2048},
                                    {"sm_89", 512, 1024, 2048},
                                    {"sm_90", 2048, 4096, 4096},
                                    {"sm_120", 512, 1024, 1024}};
  for (const Rates &rate : rates)
    if (device.target.starts_with(rate.family)) {
      if (mmaType == "e2m1" && rate.family != "sm_120")
        return std::nullopt;
      double perCycle = mmaType == "e2m1"                      ? 2 * rate.byte
                        : mmaType == "s4"                      ? rate.nibble
                        : mmaType == "s8" || mmaType == "e4m3" ? rate.byte
                                                               : rate.half;
      return 2 * perCycle * device.smCount * device.clockGHz * 1e-3;
    }
  return std::nullopt;
}

} // namespace rho::compiler
