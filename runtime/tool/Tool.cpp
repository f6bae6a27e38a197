#include "runtime/tool/Tool.h"

#include "compiler/Compiler.h"
#include "dsl/Findings.h"
#include "runtime/CacheEntries.h"
#include "runtime/EngineImpl.h"
#include "runtime/Handles.h"
#include "runtime/ReadNumber.h"
#include "runtime/tool/Report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

namespace rho::tool {

namespace {

Result<int> help(const Options &options) {
  if (options.files().empty()) {
    std::fputs(helpText().c_str(), stdout);
    return success;
  }
  std::string name;
  for (const std::string &word : options.files())
    name += (name.empty() ? "" : " ") + word;
  bool any = false; // of a word that several commands begin with, each
  for (const CommandSpec &spec : commandTable())
    if (spec.name == name || spec.name.starts_with(name + " ")) {
      std::fputs(((any ? "\n" : "") + helpText(spec.command)).c_str(), stdout);
      any = true;
    }
  if (any)
    return success;
  std::vector<std::string> known;
  for (const CommandSpec &spec : commandTable())
    known.emplace_back(spec.name);
  return makeError(DiagId::unknown_command,
                   {dsl::shown(name), dsl::suggestion(name, known), dsl::join(known)});
}

Result<int> version(const Options &options) {
  if (!options.files().empty())
    return makeError(DiagId::bad_option_value,
                     {"FILE", options.files()[0], "'rho --version' reads no files"});
  std::printf("rho %s (LLVM %s, build %s)\n", RHO_VERSION,
              std::string(compiler::llvmVersion()).c_str(),
              std::string(compiler::buildId()).c_str());
  return success;
}

constexpr std::pair<Command, Result<int> (*)(const Options &options)> handlers[] = {
    {Command::Run, runCommand},
    {Command::Check, checkCommand},
    {Command::Fmt, fmtCommand},
    {Command::Lsp, lspCommand},
    {Command::Compile, compileCommand},
    {Command::Bench, benchCommand},
    {Command::Tune, tuneCommand},
    {Command::Verify, verifyCommand},
    {Command::Devices, devicesCommand},
    {Command::Explain, explainCommand},
    {Command::Plan, planCommand},
    {Command::Probe, probeCommand},
    {Command::Rotate, rotateCommand},
    {Command::Quantize, quantizeCommand},
    {Command::Error, errorCommand},
    {Command::CacheList, cacheListCommand},
    {Command::CacheVerify, cacheVerifyCommand},
    {Command::CacheClear, cacheClearCommand},
    {Command::CacheExport, cacheExportCommand},
    {Command::CacheImport, cacheImportCommand},
    {Command::CacheWarm, cacheWarmCommand},
    {Command::Help, help},
    {Command::Version, version},
};
static_assert(std::size(handlers) == static_cast<size_t>(Command::Version) + 1);

Result<int> dispatch(const Options &options) {
  for (const auto &[command, run] : handlers)
    if (command == options.command())
      return run(options);
  return failure;
}

} // namespace

Result<Device> openDevice(const std::string &text) {
  if (text == "auto")
    return Device::automatic();
  if (text == "cuda")
    return Device::cuda(0);
  if (constexpr std::string_view prefix = "cuda:"; text.starts_with(prefix))
    if (auto ordinal = readNumber<int>(text.substr(prefix.size())); ordinal && *ordinal >= 0)
      return Device::cuda(*ordinal);
  const std::vector<std::string> targets = compiler::allTargets();
  if (std::find(targets.begin(), targets.end(), text) != targets.end() ||
      compiler::shippedDevice(text))
    return Device::emulated(text);
  if (text.ends_with(".rho")) {
    Result<dsl::Module> module = dsl::loadModule(text);
    if (!module)
      return module.error();
    if (module->devices.size() != 1)
      return makeError(DiagId::device_count,
                       {dsl::shown(text), std::to_string(module->devices.size())});
    return Device::emulated(compiler::modelOf(module->devices[0]));
  }
  return makeError(DiagId::bad_device,
                   {dsl::shown(text), dsl::join(targets), dsl::join(compiler::shippedNames()),
                    compiler::suggestedDevice(text)});
}

void printStored(const compiler::TargetGemm &target) {
  if (!target.weightFactors.empty())
    printLine("scales", target.weightFactors + " in the packed weight" +
                            (target.weightRoundoff > 0 ? ", rounded" : ", exact"));
  if (target.reason.empty())
    return;
  printLine("stored as", storedAs(target) + (target.roundoff > 0 ? ", rounded" : ", exact") +
                             (target.saturates ? " but for what is beyond its range: " : ": ") +
                             target.reason);
}

Result<dsl::Gemm> plannedGemm(const dsl::Module &module, const Options &options) {
  Result<const dsl::Gemm *> found = findGemm(module, options.text("--gemm"));
  if (!found)
    return found.error();
  dsl::Gemm gemm = **found;
  if (options.has("--launch"))
    gemm.schedule.dependent = options.text("--launch") == "dependent";
  return gemm;
}

Result<compiler::Problem> plannedProblem(const Options &options) {
  compiler::Problem problem;
  for (auto [needed, extent] :
       {std::pair{"--m", &problem.m}, std::pair{"--n", &problem.n}, std::pair{"--k", &problem.k}}) {
    std::optional<int64_t> given = options.count(needed);
    if (!given)
      return makeError(DiagId::option_missing, {needed, "a plan needs --m, --n and --k"});
    *extent = *given;
  }
  return problem;
}

Result<compiler::DeviceModel> openModel(const std::string &text) {
  Result<Device> device = openDevice(text);
  if (!device)
    return device.error();
  return device->impl().backend->model();
}

Result<compiler::DeviceModel> plannedModel(const Options &options) {
  Result<compiler::DeviceModel> device = openModel(options.text("--device", "auto"));
  if (!device)
    return device;
  device->warm = options.has("--warm");
  if (device->warm && device->l2BandwidthGBs <= 0)
    return makeError(DiagId::warm_without_l2, {device->name});
  return device;
}

std::string plannedFor(const compiler::DeviceModel &device) {
  return dsl::visible(device.name) + ", kernels for " + device.target +
         (device.warm ? ", L2 warm" : "");
}

Result<EngineOptions> engineOptions(const Options &options) {
  for (const char *ofCache : {"--cache-dir", "--cache-limit"})
    if (options.has(ofCache) && options.has("--no-cache"))
      return makeError(DiagId::option_conflict, {ofCache, "--no-cache", "one asks for a cache"});
  EngineOptions engine;
  engine.cacheDirectory = options.text("--cache-dir");
  engine.diskCache = !options.has("--no-cache");
  engine.cacheLimitBytes = parseByteCount(options.text("--cache-limit")).value_or(0);
  engine.useTuned = !options.has("--untuned");
  return engine;
}

int runTool(std::span<const std::string> arguments) {
  try {
    Result<Options> options = Options::parse(arguments);
    if (!options) {
      std::fputs(options.error().str().c_str(), stderr);
      return wrongUsage;
    }
    Status kept = options->checkOutputs();
    Result<int> code = kept ? dispatch(*options) : kept.error();
    errno = lineFailure();
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
    if (code && lost)
      code = makeError(DiagId::file_not_writable,
                       {"standard output", std::strerror(errno != 0 ? errno : EIO)});
    if (code)
      return *code;
    std::fputs(code.error().str().c_str(), stderr);
  } catch (const std::exception &exception) {
    // The standard library's own failures: no memory, no threads.
    std::fprintf(stderr, "error: the host gave up: %s\n", exception.what());
  }
  return failure;
}

} // namespace rho::tool
