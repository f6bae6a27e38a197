#include "runtime/emulator/Program.h"

#include "runtime/emulator/Decode.h"
#include "runtime/emulator/GlobalMemory.h"

namespace rho::emulator {

Result<Program> Program::parse(std::string_view ptx) {
  auto impl = std::make_shared<Impl>();
  impl->text = std::string(ptx);
  Result<Module> module = parseModule(impl->text);
  if (!module)
    return std::move(module.error());
  impl->target = std::string(module->target);
  std::vector<uint64_t> addresses(module->variables.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    Variable &variable = module->variables[i];
    addresses[i] = variable.address;
    if (variable.space != Space::Global && variable.space != Space::Const)
      continue;
    addresses[i] = reserveAddresses(variable.size);
    impl->variables.push_back(
        {addresses[i], variable.size, variable.space == Space::Const, std::move(variable.initial)});
  }
  for (const Function &function : module->entries) {
    Entry &entry = impl->entries.emplace_back();
    static_cast<EntryLimits &>(entry) = function;
    entry.name = std::string(function.name);
    if (std::optional<Error> error =
            Decoder(*module, function, entry, addresses).decodeAll(impl->text))
      return std::move(*error);
  }
  Program program;
  program.pimpl = std::move(impl);
  return program;
}

std::vector<std::string> Program::entries() const {
  std::vector<std::string> names;
  for (const Entry &entry : pimpl->entries)
    names.push_back(entry.name);
  return names;
}

} // namespace rho::emulator
