// For functions whose loops have no branches, so that they are vectorised: with wider vectors where
// the host has them. The same sums, products and divisions on any number of lanes. A function that
// is declared apart has it there, too: none becomes such a one behind its first call.
#pragma once

#if defined(__x86_64__) && defined(__clang__)
#define RHO_LANES __attribute__((target_clones("avx2", "default")))
#else
#define RHO_LANES
#endif
