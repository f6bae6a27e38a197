// D = A B + C on the fragments of one warp (PTX ISA, "Warp Level Matrix Multiply-Accumulate").
//
// Numerics: the products of one instruction are summed in double, C is added, and the sum is
// rounded once to the type of D. Integers are exact, and wrap or saturate as the instruction says.
#pragma once

#include <cstdint>

namespace rho::emulator {

// C[16][8] += A B, where A comes in blocks of 8 rows and `chunk` columns, each row-major, the two
// blocks of the same columns one after the other: what the registers of a fragment hold. B is
// [k][8], row-major.
void multiply(const double *a, const double *b, double *c, int k, int chunk);
// The same where float holds every sum exactly.
void multiply(const float *a, const float *b, float *c, int k, int chunk);

// Exact.
void widenF16(const uint16_t *from, double *to, int count);
void widenBf16(const uint16_t *from, double *to, int count);

} // namespace rho::emulator
