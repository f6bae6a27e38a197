// The inner product of mma, compiled for several instruction sets: the loader chooses one.
#include "runtime/emulator/Matrix.h"

namespace rho::emulator {

#if defined(__x86_64__) && defined(__linux__)
#define RHO_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define RHO_CLONES
#endif

RHO_CLONES void multiply(const double *a, const double *b, double *c, int k) {
  for (int m = 0; m < 16; ++m) {
    double sum[8];
    for (int n = 0; n < 8; ++n)
      sum[n] = c[m * 8 + n];
    for (int i = 0; i < k; ++i) {
      double x = a[m * k + i];
      for (int n = 0; n < 8; ++n)
        sum[n] += x * b[i * 8 + n];
    }
    for (int n = 0; n < 8; ++n)
      c[m * 8 + n] = sum[n];
  }
}

RHO_CLONES void multiply(const float *a, const float *b, float *c, int k) {
  for (int m = 0; m < 16; ++m) {
    float sum[8];
    for (int n = 0; n < 8; ++n)
      sum[n] = c[m * 8 + n];
    for (int i = 0; i < k; ++i) {
      float x = a[m * k + i];
      for (int n = 0; n < 8; ++n)
        sum[n] += x * b[i * 8 + n];
    }
    for (int n = 0; n < 8; ++n)
      c[m * 8 + n] = sum[n];
  }
}

} // namespace rho::emulator
