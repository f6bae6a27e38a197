#include "runtime/tool/Bench.h"

#include "dsl/Findings.h"
#include "runtime/Handles.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

namespace rho::tool {

namespace {

constexpr const char *shippedFolder = "kernels/gemms";

// The module as declared, or as --launch asks for it.
std::vector<Module> launchWays(const Module &module, const Options &options) {
  if (!options.has("--launch"))
    return {module};
  std::string asked = options.text("--launch");
  std::vector<Module> ways;
  for (bool dependent : {false, true})
    if (asked == "both" || asked == launchName(dependent))
      ways.push_back(withLaunch(module, dependent));
  return ways;
}

} // namespace

// What is serial without saying so stays as it is: a tuned plan is kept by the text of the
// declaration.
Module withLaunch(const Module &module, bool dependent) {
  dsl::Module changed = module.impl().module;
  for (dsl::Gemm &gemm : changed.gemms)
    if (gemm.schedule.dependent.value_or(false) != dependent)
      gemm.schedule.dependent = dependent;
  return moduleOf(std::move(changed));
}

std::string_view launchName(bool dependent) { return dependent ? "dependent" : "serial"; }

std::string BenchGemm::title() const {
  const dsl::Gemm *gemm = module.impl().module.findGemm(name);
  return gemm && gemm->schedule.dependent.value_or(false) ? name + ", dependent" : name;
}

Result<std::vector<BenchGemm>> chooseGemms(const Options &options,
                                           std::span<const std::string_view> shipped) {
  std::vector<std::string> files = options.files();
  if (files.empty()) {
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(shippedFolder, error)) {
      const std::filesystem::path &path = entry.path();
      bool wanted = shipped.empty() || std::find(shipped.begin(), shipped.end(),
                                                 path.stem().string()) != shipped.end();
      if (path.extension() == ".rho" && wanted)
        files.push_back(path.string());
    }
    std::sort(files.begin(), files.end());
    if (Status kept = options.keeps(files); !kept)
      return kept.error();
  }
  if (files.empty())
    return makeError(
        DiagId::option_missing,
        {"FILE.rho", std::string("there is no folder ") + shippedFolder + " with such files here"});
  const std::string only = options.text("--gemm");
  std::vector<BenchGemm> gemms;
  std::vector<std::string> declared;
  std::optional<Error> whyNone;
  for (const std::string &file : files) {
    Result<Module> module = Module::load(file);
    if (!module)
      return module.error();
    const dsl::Module &content = module->impl().module;
    std::vector<std::string> names = module->gemms();
    if (names.empty() && only.empty())
      return content.whyNoneOf("gemm", "").value_or(makeError(DiagId::no_gemm, {"'" + file + "'"}));
    declared.insert(declared.end(), names.begin(), names.end());
    if (!only.empty())
      std::erase_if(names, [&](const std::string &name) { return name != only; });
    if (!only.empty() && !whyNone)
      whyNone = content.whyNoneOf("gemm", only);
    const std::vector<Module> ways = launchWays(*module, options);
    for (const std::string &name : names)
      for (const Module &way : ways)
        gemms.push_back({file, way, name});
  }
  if (gemms.empty()) // of that name
    return whyNone ? *whyNone
                   : makeError(DiagId::unknown_gemm,
                               {dsl::shown(only),
                                declared.empty() ? "none" : dsl::listed(only, declared)});
  return gemms;
}

std::span<const std::string_view> suiteGemms() {
  static constexpr std::array<std::string_view, 5> names = {
      "int4_g128_bf16", "int4_g128_int4_g128", "int4_g128_int8", "liquidquant_int8", "nvfp4_bf16"};
  return names;
}

std::vector<WeightShape> chooseWeights(const Options &options) {
  std::vector<WeightShape> weights;
  for (const auto &[n, k] : options.pairs("--n-k"))
    weights.push_back({n, k});
  return weights.empty() ? llamaWeights() : weights;
}

Result<GpuTask> openGpuTask(const Options &options, DiagId emulated) {
  Result<std::vector<BenchGemm>> gemms = chooseGemms(options, suiteGemms());
  if (!gemms)
    return gemms.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  if (device->isEmulated())
    return makeError(emulated, {device->target()});
  printLine("device", deviceText(*device));
  return GpuTask{std::move(*gemms), std::move(*device)};
}

} // namespace rho::tool
