// D = A B + C on the fragments of one warp (PTX ISA, "Warp Level Matrix Multiply-Accumulate").
//
// Numerics: the products of one instruction are summed in double, C is added, and the sum is
// rounded once to the type of D. Integers are exact, and wrap or saturate as the instruction says.
#pragma once

#include <cstdint>

namespace rho::emulator {

// C[16][8] += A[16][k] B[k][8], row-major.
void multiply(const double *a, const double *b, double *c, int k);
// The same where float holds every sum exactly.
void multiply(const float *a, const float *b, float *c, int k);

} // namespace rho::emulator
