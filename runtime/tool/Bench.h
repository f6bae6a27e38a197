// What `rho bench`, of single problems and of suites, `rho tune` and `rho verify` share.
#pragma once

#include "runtime/Rho.h"
#include "runtime/tool/Options.h"
#include "runtime/tool/Suite.h"

#include <span>

namespace rho::tool {

std::string_view launchName(bool dependent); // "serial", "dependent": as a schedule says it
// The module with that launch of all its gemms.
Module withLaunch(const Module &module, bool dependent);

struct BenchGemm {
  std::string file;
  Module module;
  std::string name;
  std::string title() const; // the name, with the launch unless that is serial
};

// The gemms of the files on the command line; without files those of the shipped folder, by name
// of the file: all, or the `shipped` ones. With --gemm that one of each file that has it. With
// --launch each as that asks, for `both` the serial one first. Errors: option_missing without any
// file, those of Module::load, unknown_gemm where no file has it.
Result<std::vector<BenchGemm>> chooseGemms(const Options &options,
                                           std::span<const std::string_view> shipped = {});

// The shipped gemms that suites are about, and the weights that a command line asks for: those of
// --n-k, else those of the suite.
std::span<const std::string_view> suiteGemms();
std::vector<WeightShape> chooseWeights(const Options &options);

// What suites and the tuner work on: chooseGemms(), and the device, which is printed. Errors:
// theirs, and `emulated` where the device is.
struct GpuTask {
  std::vector<BenchGemm> gemms;
  Device device;
};
Result<GpuTask> openGpuTask(const Options &options, DiagId emulated);

// rho bench --kv. Errors: wrong_file_count, those of KvCache.
Result<int> kvCommand(const Options &options);

// rho bench --suite. Errors: suite_needs_gpu, option_conflict.
Result<int> suiteCommand(const Options &options);

} // namespace rho::tool
