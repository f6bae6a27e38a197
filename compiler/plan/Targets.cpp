#include "compiler/Targets.h"

#include <algorithm>
#include <charconv>

namespace rho::compiler {

static constexpr Target known[] = {
    {.name = "sm_80", .hasS4 = true},
    {.name = "sm_86", .hasS4 = true},
    {.name = "sm_89", .hasE4m3 = true, .hasS4 = true},
    {.name = "sm_90", .hasDependentLaunch = true, .hasE4m3 = true}, // and whatever is later
    {.name = "sm_90a", .hasWgmma = true, .hasDependentLaunch = true, .hasE4m3 = true},
    {.name = "sm_120a", .hasDependentLaunch = true, .hasE4m3 = true, .hasBlockScales = true},
};

std::span<const Target> targets() { return known; }

bool isTarget(std::string_view name) { return !name.empty() && targetOf(name).name == name; }

const Target &targetOf(std::string_view name) {
  static constexpr Target other;
  for (const Target &target : known)
    if (target.name == name)
      return target;
  return other;
}

int capabilityOf(std::string_view architecture) {
  int capability = 0;
  architecture.remove_prefix(std::min<size_t>(3, architecture.size()));
  std::from_chars(architecture.data(), architecture.data() + architecture.size(), capability);
  return capability;
}

bool isOfOneArchitecture(std::string_view target) {
  return target.back() < '0' || target.back() > '9';
}

std::string_view targetOfCapability(int capability) {
  std::string_view newest;
  for (const Target &target : known) {
    int own = capabilityOf(target.name);
    if (isOfOneArchitecture(target.name) ? capability == own : capability >= own)
      newest = target.name;
  }
  return newest;
}

bool takesOperands(const Target &target, std::string_view mmaType) {
  return mmaType == "e4m3" ? target.hasE4m3 : mmaType != "e2m1" || target.hasBlockScales;
}

std::string targetsWith(std::string_view mmaType) {
  std::string names;
  for (const Target &target : known)
    if (takesOperands(target, mmaType))
      names += (names.empty() ? "" : ", ") + std::string(target.name);
  return names;
}

} // namespace rho::compiler
