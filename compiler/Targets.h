// The architectures that kernels are generated for, and what their instructions are.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rho::compiler {

struct Target {
  std::string_view name;
  bool hasWgmma = false; // and TMA and clusters
  bool hasDependentLaunch = false;
  bool hasE4m3 = false; // matrix instructions on operands of that type
  bool hasS4 = false;   // that are none of bitwise operations and two of s8
  bool hasBlockScales = false;
};

std::span<const Target> targets(); // the oldest first
bool isTarget(std::string_view name);
// That of this name; for others one without any of these.
const Target &targetOf(std::string_view name);
// 90 of "sm_90a".
int capabilityOf(std::string_view architecture);
// Whether PTX of a target runs on that architecture only, and not on later ones: it has a letter.
bool isOfOneArchitecture(std::string_view target);
// The newest target whose PTX runs on a GPU of this compute capability, 10 * major + minor; empty:
// none.
std::string_view targetOfCapability(int capability);
// Whether its matrix instructions take operands of a type.
bool takesOperands(const Target &target, std::string_view mmaType);
// The targets whose do, in words; empty: all.
std::string targetsWith(std::string_view mmaType);

} // namespace rho::compiler
