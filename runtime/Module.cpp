#include "runtime/Handles.h"

namespace rho {

Module moduleOf(dsl::Module module) {
  auto impl = std::make_shared<Module::Impl>();
  impl->module = std::move(module);
  for (const dsl::Gemm &gemm : impl->module.gemms) {
    cache::Sha256 hash;
    hash.field(dsl::printWithParts(gemm.weight));
    hash.field(dsl::printWithParts(gemm.activation));
    hash.field(dsl::print(gemm));
    impl->digests.push_back(hash.finish());
  }
  Module result;
  result.pimpl = std::move(impl);
  return result;
}

Result<Module> Module::parse(std::string_view text, std::string_view name, const Imports &imports) {
  const FloatEnvironment numbers;
  Result<dsl::Module> parsed = dsl::parseModule(
      text, name, imports ? imports : [](const std::string &) { return std::nullopt; });
  if (!parsed)
    return parsed.error();
  return moduleOf(std::move(*parsed));
}

Result<Module> Module::load(const std::string &path) {
  const FloatEnvironment numbers;
  Result<dsl::Module> parsed = dsl::loadModule(path);
  if (!parsed)
    return parsed.error();
  return moduleOf(std::move(*parsed));
}

std::vector<std::string> Module::gemms() const {
  std::vector<std::string> names;
  if (pimpl)
    for (const dsl::Gemm &gemm : pimpl->module.gemms)
      names.push_back(gemm.name);
  return names;
}

} // namespace rho
