// One compiled configuration of CUTLASS's mixed-input GEMM, entered in a table that
// cutlass_mixed_api.cu owns.
#pragma once
#include <cstddef>
#include <cuda_runtime.h>

struct Problem {
  void *y;            // [m][n] bf16
  const void *x;      // [m][k] bf16, or e4m3
  const void *w;      // [n][k] int4, prepared
  const void *scales; // [k/128][n] bf16, or 8 e4m3 each
  int m, n, k;
};

struct Config {
  const char *name;
  int (*supported)(const Problem &);
  size_t (*workspace)(const Problem &);
  int (*launch)(const Problem &, void *workspace, size_t workspace_bytes, cudaStream_t stream);
};

constexpr int kMaxConfigs = 32;
constexpr int kGroup = 128;
extern Config g_configs[kMaxConfigs];

int sm_count(); // of the current device
