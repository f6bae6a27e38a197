#include "runtime/emulator/Scopes.h"

#include <charconv>

namespace rho::emulator {

std::optional<uint32_t> findRegister(const std::vector<Scope> &scopes, std::string_view name) {
  size_t stem = name.size();
  while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9')
    --stem;
  uint64_t index = 0;
  const char *digits = name.data() + stem, *end = name.data() + name.size();
  bool numbered = digits != end && (end - digits == 1 || *digits != '0') &&
                  std::from_chars(digits, end, index).ec == std::errc();
  for (size_t i = scopes.size(); i-- > 0;) {
    auto exact = scopes[i].registers.find(name);
    if (exact != scopes[i].registers.end())
      return exact->second;
    if (!numbered)
      continue;
    auto range = scopes[i].ranges.find(name.substr(0, stem));
    if (range != scopes[i].ranges.end() && index < range->second.count)
      return range->second.first + uint32_t(index);
  }
  return std::nullopt;
}

std::optional<uint32_t> findVariable(const std::vector<Scope> &scopes, std::string_view name) {
  for (size_t i = scopes.size(); i-- > 0;) {
    auto found = scopes[i].variables.find(name);
    if (found != scopes[i].variables.end())
      return found->second;
  }
  return std::nullopt;
}

} // namespace rho::emulator
