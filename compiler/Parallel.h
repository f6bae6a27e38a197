// Splits a loop over all cores of the host.
#pragma once

#include "dsl/Parallel.h"

namespace rho {

// Calls body(i) once for every i in [0, count), in any order and from several threads at once.
// Results must not depend on which thread runs which i.
template <class Body> void parallelFor(int64_t count, const Body &body) {
  dsl::parallel(count, 0, [&](const auto &next) {
    for (int64_t i = next(); i < count; i = next())
      body(i);
  });
}

} // namespace rho
