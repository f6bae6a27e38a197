#include "compiler/Devices.h"

#include "compiler/Targets.h"
#include "compiler/plan/ShippedDevices.h"
#include "dsl/Findings.h"
#include "dsl/Lasting.h"
#include "dsl/Module.h"

#include <algorithm>

namespace rho::compiler {

namespace {

// What is generated for an architecture: itself, else the newest one whose PTX runs there.
std::string targetFor(const std::string &architecture) {
  if (isTarget(architecture))
    return architecture;
  std::string_view best = targets().front().name;
  for (const Target &target : targets())
    if (!isOfOneArchitecture(target.name) &&
        capabilityOf(target.name) <= capabilityOf(architecture))
      best = target.name;
  return std::string(best);
}

std::vector<dsl::Device> readShipped() {
  std::vector<dsl::Device> devices;
  for (const ShippedText &shipped : shippedDeviceTexts())
    if (Result<dsl::Module> module = dsl::parseModule(shipped.text, shipped.name, nullptr))
      devices.insert(devices.end(), module->devices.begin(), module->devices.end());
  return devices;
}

} // namespace

DeviceModel modelOf(const dsl::Device &device) {
  return {.name = device.product,
          .target = targetFor(device.target),
          .architecture = device.target,
          .smCount = static_cast<int>(device.sms),
          .sharedPerCta = device.sharedPerCta,
          .sharedPerSm = device.sharedPerSm,
          .l2Bytes = device.l2Bytes,
          .l2BandwidthGBs = device.l2BandwidthGBs,
          .registersPerSm = device.registers,
          .threadsPerSm = device.threads,
          .clockGHz = device.clockGHz,
          .bandwidthGBs = device.bandwidthGBs,
          .rates = device.rates};
}

std::vector<std::string> allTargets() {
  std::vector<std::string> names;
  for (const Target &target : targets())
    names.emplace_back(target.name);
  return names;
}

Result<DeviceModel> modelOfTarget(std::string_view target) {
  if (isTarget(target))
    return modelOf(*declarationOf({}, std::string(target)));
  return makeError(DiagId::unknown_target, {std::string(target), dsl::join(allTargets())});
}

int64_t mostSharedPerCta(std::string_view target) {
  int64_t most = 0;
  for (const dsl::Device &device : shippedDevices())
    if (targetFor(device.target) == target)
      most = std::max(most, device.sharedPerCta);
  return most;
}

const std::vector<dsl::Device> &shippedDevices() {
  static const auto &devices = dsl::lasting(readShipped());
  return devices;
}

const dsl::Device *shippedDevice(std::string_view name) {
  for (const dsl::Device &device : shippedDevices())
    if (device.name == name)
      return &device;
  return nullptr;
}

const dsl::Device *declarationOf(std::string_view product, const std::string &architecture) {
  const std::string target = targetFor(architecture);
  const dsl::Device *alike = nullptr, *running = nullptr;
  for (const dsl::Device &device : shippedDevices()) {
    if (device.product == product)
      return &device;
    if (!alike && capabilityOf(device.target) == capabilityOf(architecture))
      alike = &device;
    if (!running && device.target == target)
      running = &device;
  }
  return alike ? alike : running;
}

std::optional<double> peakTeraOperations(const DeviceModel &device, std::string_view mmaType) {
  const auto &tensor = device.rates.tensor;
  auto rate = tensor.find(mmaType);
  if (rate == tensor.end() && mmaType == "s4") // by instructions on wider integers
    rate = tensor.find("s8");
  if (rate == tensor.end())
    return std::nullopt;
  return 2 * rate->second * device.smCount * device.clockGHz * 1e-3;
}

} // namespace rho::compiler
