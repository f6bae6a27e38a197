// What a caller's thread does to arithmetic, kept out of results.
#pragma once

#include <cfenv>

namespace rho {

// Until destroyed numbers are rounded to nearest, subnormal ones are kept and nothing traps, also
// in threads that are started meanwhile; then all is as the caller had it. Programs that are linked
// with -ffast-math flush subnormal numbers in every thread.
class FloatEnvironment {
public:
  FloatEnvironment() {
    std::fegetenv(&callers);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&callers); }
  FloatEnvironment(const FloatEnvironment &) = delete;
  FloatEnvironment &operator=(const FloatEnvironment &) = delete;

private:
  std::fenv_t callers;
};

} // namespace rho
