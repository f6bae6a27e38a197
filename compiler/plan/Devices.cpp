#include "compiler/Devices.h"

#include "compiler/Targets.h"
#include "compiler/plan/ShippedDevices.h"
#include "dsl/DeviceFields.h"
#include "dsl/Findings.h"
#include "dsl/Lasting.h"
#include "dsl/Module.h"
#include "dsl/Numbers.h"

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

Error unknownTarget(std::string_view target) {
  return makeError(DiagId::unknown_target,
                   {std::string(target), dsl::listed(target, allTargets())});
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

std::string print(const DeviceModel &device) {
  // Every field, so that none is added without a word here.
  const auto &[name, target, architecture, sms, sharedPerCta, sharedPerSm, l2Bytes, l2Bandwidth,
               registers, threads, clock, bandwidth, rates, warm] = device;
  const auto &[tensor, mma, throughput] = rates;
  std::string text = name + "\ntarget " + target + " architecture " + architecture;
  for (int64_t count : {int64_t{sms}, sharedPerCta, sharedPerSm, l2Bytes, registers, threads})
    text += ' ' + std::to_string(count);
  for (double figure : {l2Bandwidth, clock, bandwidth})
    text += ' ' + dsl::printNumber(figure);
  for (const auto *byType : {&tensor, &mma}) {
    text += "\nrates";
    for (const auto &[type, rate] : *byType)
      text += ' ' + type + ' ' + dsl::printNumber(rate);
  }
  text += "\nthroughput";
  for (double each : throughput)
    text += ' ' + dsl::printNumber(each);
  return text + (warm ? "\nwarm\n" : "\n");
}

Status checkModel(const DeviceModel &model) {
  if (!isTarget(model.target))
    return unknownTarget(model.target);
  dsl::Device figures;
  figures.sms = model.smCount;
  figures.clockGHz = model.clockGHz;
  figures.bandwidthGBs = model.bandwidthGBs;
  figures.l2Bytes = model.l2Bytes;
  figures.l2BandwidthGBs = model.l2BandwidthGBs;
  figures.sharedPerSm = model.sharedPerSm;
  figures.sharedPerCta = model.sharedPerCta;
  figures.registers = model.registersPerSm;
  figures.threads = model.threadsPerSm;
  auto within = [&](std::string_view name, double value, double least, double most) -> Status {
    if (value >= least && value <= most) // NaN is not
      return Done{};
    return makeError(DiagId::bad_device_model,
                     {model.name, std::string(name), dsl::printNumber(value),
                      dsl::printNumber(least), dsl::printNumber(most)});
  };
  auto mostOf = [&](const dsl::DeviceField &field) {
    dsl::Device most;
    most.sharedPerCta = dsl::mostSharedPerCta(model.architecture);
    return field.integer == &dsl::Device::sharedPerCta ? field.get(most) : field.most;
  };
  for (const dsl::DeviceField &field : dsl::deviceFields()) {
    double value = field.get(figures);
    if (field.optional && value == 0)
      continue;
    if (Status good = within(field.name, value, field.least, mostOf(field)); !good)
      return good;
  }
  for (size_t i = 0; i < dsl::instructionClasses; ++i)
    if (Status good = within(dsl::name(static_cast<dsl::InstructionClass>(i)),
                             model.rates.throughput[i], dsl::leastPerCycle, dsl::mostPerCycle);
        !good)
      return good;
  for (const auto *rates : {&model.rates.tensor, &model.rates.mma})
    for (const auto &[type, rate] : *rates)
      if (Status good = within(type, rate, dsl::leastPerCycle, dsl::mostPerCycle); !good)
        return good;
  return Done{};
}

std::vector<std::string> allTargets() {
  std::vector<std::string> names;
  for (const Target &target : targets())
    names.emplace_back(target.name);
  return names;
}

Result<DeviceModel> modelOfTarget(std::string_view target) {
  if (!isTarget(target))
    return unknownTarget(target);
  DeviceModel model = modelOf(*declarationOf({}, std::string(target)));
  model.target = target; // of several that run on one architecture
  return model;
}

int64_t mostSharedPerCta(std::string_view target) {
  int64_t most = dsl::mostSharedPerCta(target);
  for (const dsl::Architecture &each : dsl::architectures())
    if (targetFor(std::string(each.name)) == target)
      most = std::max(most, each.sharedPerCta);
  return most;
}

std::vector<std::string> shippedNames() {
  std::vector<std::string> names;
  for (const dsl::Device &device : shippedDevices())
    names.push_back(device.name);
  return names;
}

std::string suggestedDevice(std::string_view name) {
  std::vector<std::string> all = allTargets(), names = shippedNames();
  all.insert(all.end(), names.begin(), names.end());
  return dsl::suggestion(name, all);
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
  size_t mostShared = 0;
  for (const dsl::Device &device : shippedDevices()) {
    if (device.product == product)
      return &device;
    const size_t shared = static_cast<size_t>(
        std::mismatch(product.begin(), product.end(), device.product.begin(), device.product.end())
            .first -
        product.begin());
    if (capabilityOf(device.target) == capabilityOf(architecture) &&
        (!alike || shared > mostShared)) {
      alike = &device;
      mostShared = shared;
    }
    if (!running && targetFor(device.target) == target)
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
