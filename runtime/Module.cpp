#include "runtime/Handles.h"

namespace rho {
namespace {

std::shared_ptr<const Module::Impl> freeze(dsl::Module module) {
  auto impl = std::make_shared<Module::Impl>();
  impl->module = std::move(module);
  for (const dsl::Gemm &gemm : impl->module.gemms) {
    cache::Sha256 hash;
    hash.field(dsl::printWithParts(gemm.weight));
    hash.field(dsl::printWithParts(gemm.activation));
    hash.field(dsl::print(gemm));
    impl->digests.push_back(hash.finish());
  }
  return impl;
}

} // namespace

Result<Module> Module::parse(std::string_view text, std::string_view name) {
  Result<dsl::Module> parsed =
      dsl::parseModule(text, name, [](const std::string &) { return std::nullopt; });
  if (!parsed)
    return parsed.error();
  Module module;
  module.pimpl = freeze(std::move(*parsed));
  return module;
}

Result<Module> Module::load(const std::string &path) {
  Result<dsl::Module> parsed = dsl::loadModule(path);
  if (!parsed)
    return parsed.error();
  Module module;
  module.pimpl = freeze(std::move(*parsed));
  return module;
}

std::vector<std::string> Module::gemms() const {
  std::vector<std::string> names;
  if (pimpl)
    for (const dsl::Gemm &gemm : pimpl->module.gemms)
      names.push_back(gemm.name);
  return names;
}

} // namespace rho
