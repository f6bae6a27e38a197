// Hadamard matrices of orders that are not powers of 2, from which those of more rows are made.
#pragma once

#include <cstdint>
#include <vector>

namespace rho::kernels {

inline constexpr int64_t mostHadamardCore = 1024;

// The order m of the core of a Hadamard matrix of order n = 2^p * m: 1 of a power of 2, else the
// least up to `mostHadamardCore` that Paley's constructions give (J. Math. Phys. 12, 1933: q + 1
// for a power q of a prime, q = 3 mod 4, and 2 * (q + 1) for q = 1 mod 4), else, up to 508, one of
// Goethals and Seidel's (92, 116, ..., 508). 0: none is known here, which is so of no multiple of 4
// up to 512.
int64_t hadamardCoreOrder(int64_t n);

// For such an m: [m][m], +1 and -1.
std::vector<int8_t> hadamardCore(int64_t m);

} // namespace rho::kernels
