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
// Whether its matrix instructions take operands of a type.
bool takesOperands(const Target &target, std::string_view mmaType);
// The targets whose do, in words; empty: all.
std::string targetsWith(std::string_view mmaType);

} // namespace rho::compiler
