// Division of counts into parts of which the last may be smaller. For a of 0 and more, b of 1 and
// more.
#pragma once

#include <cstdint>

namespace rho {

constexpr int64_t divideUp(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
constexpr int64_t roundUp(int64_t a, int64_t multiple) { return divideUp(a, multiple) * multiple; }

} // namespace rho
