#include "dsl/Device.h"

#include "dsl/DeviceFields.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"

#include <algorithm>

namespace rho::dsl {

namespace {

constexpr std::array<std::string_view, instructionClasses> classNames = {
    "ffma", "hfma2", "bfma2", "iadd", "imad", "lop3", "prmt", "shf", "dp4a", "i2f", "f2f", "lds"};

const DeviceField fields[] = {
    {"sms", "", 1, 4096, &Device::sms},
    {.name = "clock", .unit = "GHz", .least = 0.1, .most = 10, .real = &Device::clockGHz},
    {.name = "bandwidth", .unit = "GB/s", .least = 1, .most = 1e6, .real = &Device::bandwidthGBs},
    {"l2", "MiB", 1, 65536, &Device::l2Bytes, 1 << 20},
    {.name = "l2_bandwidth",
     .unit = "GB/s",
     .least = 1,
     .most = 1e6,
     .real = &Device::l2BandwidthGBs,
     .optional = true},
    {"shared_per_sm", "KiB", 16, 4096, &Device::sharedPerSm, 1 << 10},
    {"shared_per_cta", "KiB", 16, 227, &Device::sharedPerCta, 1 << 10},
    // No GPU that kernels are generated for has fewer.
    {"registers", "", 65536, 1 << 20, &Device::registers},
    {"threads", "", 1536, 8192, &Device::threads},
};

std::string printRates(const std::string &title,
                       const std::map<std::string, double, std::less<>> &rates) {
  if (rates.empty() && title != "tensor")
    return "";
  std::string out = "  " + title + " {";
  for (std::string_view type : tensorTypes)
    if (auto found = rates.find(type); found != rates.end())
      out += " " + std::string(type) + ": " + printNumber(found->second);
  return out + " }\n";
}

} // namespace

std::string_view name(InstructionClass which) { return classNames[static_cast<size_t>(which)]; }

std::optional<InstructionClass> instructionClassNamed(std::string_view name) {
  const auto *found = std::find(classNames.begin(), classNames.end(), name);
  if (found == classNames.end())
    return std::nullopt;
  return static_cast<InstructionClass>(found - classNames.begin());
}

std::vector<std::string> tensorTypeNames() { return {tensorTypes.begin(), tensorTypes.end()}; }
std::vector<std::string> instructionClassNames() { return {classNames.begin(), classNames.end()}; }

std::span<const DeviceField> deviceFields() { return fields; }

std::span<const Architecture> architectures() {
  constexpr int64_t kib = 1024;
  static constexpr Architecture all[] = {
      {"sm_80", 163 * kib}, {"sm_86", 99 * kib},   {"sm_87", 163 * kib}, {"sm_89", 99 * kib},
      {"sm_90", 227 * kib}, {"sm_100", 227 * kib}, {"sm_120", 99 * kib}, {"sm_121", 99 * kib},
  };
  return all;
}

int64_t mostSharedPerCta(std::string_view architecture) {
  if (architecture.ends_with('a') || architecture.ends_with('f'))
    architecture.remove_suffix(1);
  int64_t most = 0;
  for (const Architecture &each : architectures()) {
    if (each.name == architecture)
      return each.sharedPerCta;
    most = std::max(most, each.sharedPerCta);
  }
  return most;
}

std::optional<double> DeviceRates::rho(std::string_view type) const {
  auto found = tensor.find(type);
  if (found == tensor.end() || of(InstructionClass::Ffma) <= 0)
    return std::nullopt;
  return found->second / of(InstructionClass::Ffma);
}

std::string print(const Device &device) {
  std::string out = "device " + device.name + " {\n";
  out += "  product: \"" + device.product + "\"\n  target: " + device.target + "\n";
  for (const DeviceField &field : fields)
    if (!field.optional || field.get(device) > 0)
      out += "  " + std::string(field.name) + ": " + printNumber(field.get(device)) +
             (field.unit.empty() ? "" : " " + std::string(field.unit)) + "\n";
  out += printRates("tensor", device.rates.tensor) + printRates("mma", device.rates.mma);
  out += "  throughput {";
  for (size_t i = 0; i < instructionClasses; ++i)
    out += " " + std::string(classNames[i]) + ": " + printNumber(device.rates.throughput[i]);
  return out + " }\n}\n";
}

bool operator==(const Device &a, const Device &b) {
  return a.name == b.name && a.product == b.product && a.target == b.target && a.rates == b.rates &&
         std::all_of(std::begin(fields), std::end(fields),
                     [&](const DeviceField &field) { return field.get(a) == field.get(b); });
}

} // namespace rho::dsl
