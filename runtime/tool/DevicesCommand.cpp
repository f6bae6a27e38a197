#include "compiler/Devices.h"
#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "dsl/Numbers.h"
#include "runtime/tool/Table.h"
#include "runtime/tool/Tool.h"

#include <cstdio>

namespace rho::tool {

namespace {

// Operand types from narrow to wide.
constexpr const char *operandTypes[] = {"s4", "e2m1", "s8", "e4m3", "f16", "bf16"};

std::vector<std::string> rowOf(const dsl::Device &device) {
  std::vector<std::string> row = {device.name,
                                  device.target,
                                  std::to_string(device.sms),
                                  dsl::printNumber(device.clockGHz),
                                  dsl::printNumber(device.bandwidthGBs),
                                  std::to_string(device.l2Bytes >> 20)};
  for (const char *type : operandTypes) {
    std::optional<double> rho = device.rates.rho(type);
    row.push_back(rho ? dsl::printNumber(*rho) : "-");
  }
  row.push_back(dsl::visible(device.product));
  return row;
}

} // namespace

Result<int> devicesCommand(const Options &options) {
  std::vector<dsl::Device> devices = compiler::shippedDevices();
  if (!options.files().empty())
    devices.clear();
  for (const std::string &path : options.files()) {
    Result<dsl::Module> module = dsl::loadModule(path);
    if (!module)
      return module.error();
    if (module->devices.empty())
      return makeError(DiagId::no_device, {path});
    devices.insert(devices.end(), module->devices.begin(), module->devices.end());
  }
  std::vector<std::vector<std::string>> rows = {
      {"device", "target", "SMs", "GHz", "GB/s", "L2 MiB"}};
  for (const char *type : operandTypes)
    rows[0].push_back("rho " + std::string(type));
  rows[0].emplace_back("product");
  for (const dsl::Device &device : devices)
    rows.push_back(rowOf(device));
  std::fputs(table(rows).c_str(), stdout);
  std::puts(
      "\nrho: multiply-adds of the tensor cores on an operand type to those of the CUDA cores "
      "on f32, per SM and cycle");
  return success;
}

} // namespace rho::tool
