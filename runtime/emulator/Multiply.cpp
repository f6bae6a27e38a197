// The inner loops of mma, compiled for several instruction sets: the loader chooses one.
#include "runtime/emulator/Matrix.h"

#include "runtime/emulator/Numbers.h"

#include <cstddef>

namespace rho::emulator {

#if defined(__x86_64__) && defined(__linux__)
#define RHO_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define RHO_CLONES
#endif

// Written out for both types: a template cannot be cloned.
RHO_CLONES void multiply(const double *a, const double *b, double *c, int k, int chunk) {
  for (int m = 0; m < 16; ++m) {
    double sum[8];
    for (int n = 0; n < 8; ++n)
      sum[n] = c[m * 8 + n];
    const double *row = a + ptrdiff_t(m) * chunk;
    for (int first = 0; first < k; first += chunk, row += ptrdiff_t(16) * chunk)
      for (int i = 0; i < chunk; ++i)
        for (int n = 0; n < 8; ++n)
          sum[n] += row[i] * b[(first + i) * 8 + n];
    for (int n = 0; n < 8; ++n)
      c[m * 8 + n] = sum[n];
  }
}

RHO_CLONES void multiply(const float *a, const float *b, float *c, int k, int chunk) {
  for (int m = 0; m < 16; ++m) {
    float sum[8];
    for (int n = 0; n < 8; ++n)
      sum[n] = c[m * 8 + n];
    const float *row = a + ptrdiff_t(m) * chunk;
    for (int first = 0; first < k; first += chunk, row += ptrdiff_t(16) * chunk)
      for (int i = 0; i < chunk; ++i)
        for (int n = 0; n < 8; ++n)
          sum[n] += row[i] * b[(first + i) * 8 + n];
    for (int n = 0; n < 8; ++n)
      c[m * 8 + n] = sum[n];
  }
}

RHO_CLONES void widenF16(const uint16_t *from, double *to, int count) {
  for (int i = 0; i < count; ++i)
    to[i] = double(f16ToF32(from[i]));
}

RHO_CLONES void widenBf16(const uint16_t *from, double *to, int count) {
  for (int i = 0; i < count; ++i)
    to[i] = double(bf16ToF32(from[i]));
}

} // namespace rho::emulator
