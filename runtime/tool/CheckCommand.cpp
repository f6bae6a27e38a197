#include "compiler/Devices.h"
#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <cstdio>

namespace rho::tool {

namespace {

std::string declared(const dsl::Format &format) {
  std::string text = "format " + format.name + ": " + bitCount(format.bitsPerElement());
  if (format.value)
    text += ", value = " + dsl::print(*format.value, format);
  auto part = [&](const dsl::Part &part, const dsl::Blocks &blocks) {
    text += ", " + part.name + " = " + part.format->name + " per " + dsl::print(blocks);
  };
  dsl::forEachPart(format, part);
  return text;
}

std::string declared(const dsl::Gemm &gemm) {
  return "gemm " + gemm.name + ": weight " + gemm.weight.name + ", activation " +
         gemm.activation.name + ", output " + std::string(gemm.output.name());
}

// The text of a module has index 0 among its sources, before its imports.
void printDeclarations(const std::string &path, const dsl::Module &module) {
  for (const dsl::Format &format : module.formats)
    if (format.span.file == 0)
      std::printf("%s: %s\n", path.c_str(), declared(format).c_str());
  for (const dsl::Gemm &gemm : module.gemms)
    std::printf("%s: %s\n", path.c_str(), declared(gemm).c_str());
  for (const dsl::Module::WithoutValue &each : module.withoutValue)
    if (each.span.file == 0)
      std::printf("%s: %s %s: of any %s\n", path.c_str(), std::string(each.kind).c_str(),
                  each.name.c_str(), each.parameter.c_str());
  for (const dsl::Device &device : module.devices)
    std::printf("%s: device %s: %s, kernels for %s\n", path.c_str(), device.name.c_str(),
                dsl::visible(device.product).c_str(), compiler::modelOf(device).target.c_str());
}

} // namespace

Result<int> checkCommand(const Options &options) {
  if (options.files().empty())
    return makeError(DiagId::option_missing, {"FILE.rho", "'rho check' needs a file"});
  int code = success;
  for (const std::string &path : options.files()) {
    Result<dsl::Module> module = dsl::loadModule(path);
    if (module) {
      printDeclarations(path, *module);
    } else {
      std::fputs(module.error().str().c_str(), stderr);
      code = failure;
    }
  }
  return code;
}

} // namespace rho::tool
