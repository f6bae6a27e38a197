// Inner products in double: the same on any host, however many lanes it has.
#pragma once

#include "dsl/Lanes.h"

#include <cstdint>

namespace rho::kernels {

// The sum of a[i] * b[i]: that of the last count % 8, one after the other, then the eight sums of
// every eighth product before them.
RHO_LANES double dot(const double *a, const double *b, int64_t count);
RHO_LANES double dot(const float *a, const double *b, int64_t count);

// sums[i] += factors[j] * x[j][i] for every j below `columns`, in this order; x: [columns][count].
RHO_LANES void addScaled(const double *factors, int64_t columns, const float *x, int64_t count,
                         double *sums);

// Rows of w that a thread takes at a time, where there are many.
constexpr int64_t rowsAtOnce = 32;
// dot() of each row of w [rows][k] with each row of x [tokens][k]: y [rows][tokens].
void products(const float *x, int64_t tokens, const double *w, int64_t rows, int64_t k, double *y);
void products(const double *x, int64_t tokens, const double *w, int64_t rows, int64_t k, double *y);

} // namespace rho::kernels
