// The names that a place in a PTX text can see.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rho::emulator {

struct Scope {
  // "%r" declared as %r<100> covers %r0 to %r99.
  struct Range {
    uint32_t first, count;
  };
  std::unordered_map<std::string_view, uint32_t> registers;
  std::unordered_map<std::string_view, Range> ranges;
  std::unordered_map<std::string_view, uint32_t> variables;
  uint32_t id = 0;
};

// The innermost declaration of a name, or none. scopes[0] is the module.
std::optional<uint32_t> findRegister(const std::vector<Scope> &scopes, std::string_view name);
std::optional<uint32_t> findVariable(const std::vector<Scope> &scopes, std::string_view name);

} // namespace rho::emulator
