// The commands of `rho`. Each gives the exit code, or an error that goes to stderr with code 1.
#pragma once

#include "compiler/Devices.h"
#include "compiler/OnTarget.h"
#include "dsl/Module.h"
#include "runtime/CacheEntries.h"
#include "runtime/tool/Options.h"

namespace rho::tool {

// Exit codes.
inline constexpr int success = 0;
inline constexpr int failure = 1;    // an error, diagnostics, or a result outside its bound
inline constexpr int wrongUsage = 2; // the command line itself

Result<int> runCommand(const Options &options);
Result<int> checkCommand(const Options &options);
Result<int> fmtCommand(const Options &options);
Result<int> lspCommand(const Options &options);
Result<int> compileCommand(const Options &options);
Result<int> benchCommand(const Options &options);
Result<int> tuneCommand(const Options &options);
Result<int> verifyCommand(const Options &options);
Result<int> devicesCommand(const Options &options);
Result<int> explainCommand(const Options &options);
Result<int> planCommand(const Options &options);
Result<int> probeCommand(const Options &options);
Result<int> rotateCommand(const Options &options);
Result<int> quantizeCommand(const Options &options);
Result<int> errorCommand(const Options &options);
Result<int> cacheListCommand(const Options &options);
Result<int> cacheVerifyCommand(const Options &options);
Result<int> cacheClearCommand(const Options &options);
Result<int> cacheExportCommand(const Options &options);
Result<int> cacheImportCommand(const Options &options);
Result<int> cacheWarmCommand(const Options &options);

// What --device names: auto, cuda, cuda:I, an emulated target, a device of kernels/devices or a
// path to a file that declares one. Errors: bad_device, device_count, those of Device::cuda and of
// the file.
Result<Device> openDevice(const std::string &text);

// What the planner knows of such a device.
Result<compiler::DeviceModel> openModel(const std::string &text);
// Of the commands that predict: --device and --warm. Error warm_without_l2.
Result<compiler::DeviceModel> plannedModel(const Options &options);
// Its line of a report.
std::string plannedFor(const compiler::DeviceModel &device);

// The gemm of --gemm, with the launch of --launch. Errors: as of Engine::compile.
Result<dsl::Gemm> plannedGemm(const dsl::Module &module, const Options &options);

// Prints how activations are stored where it is not by their codes, and why.
void printStored(const compiler::TargetGemm &target);

// What --m, --n and --k say together. Errors: option_missing.
Result<compiler::Problem> plannedProblem(const Options &options);

// What --cache-dir, --cache-limit, --no-cache and --untuned say. Errors: option_conflict.
Result<EngineOptions> engineOptions(const Options &options);

// The folders that these options, and the environment, name. Errors: no_cache_folder,
// file_not_readable for one that is there and cannot be listed.
Result<CacheFolders> openCacheFolders(const Options &options);

// The whole tool: parses, dispatches, prints errors.
int runTool(std::span<const std::string> arguments);

} // namespace rho::tool
