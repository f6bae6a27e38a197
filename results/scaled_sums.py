#!/usr/bin/env python3
"""What it costs two warpgroups of an SM to scale their own sums: the loop of a kernel, without loads.

Usage: scaled_sums.py FILE.csv   (needs nvcc and a GPU of sm_90)

Each warpgroup multiplies a group of 128 k, four m64n128k32 on s8, from zero and scales the 64 sums of
a thread with none to two instructions each, which are multiply-adds, conversions or adds. `decode`:
operand A is first decoded from 64 codes of a thread in shared memory, 24 instructions. `order`: sums
are scaled when their instructions have ended, or while those of the next group run, whose operand has
been decoded meanwhile. Cycles are of one group of both warpgroups; the tensor cores need 512.
"""
import pathlib
import sys

from beside_wgmma import table_of

SCALINGS = {
    "nothing": "",
    "conversion": "cvt.rn.f32.s32 t, %1;\\nmov.b32 %0, t;",
    "multiply-add": "mov.b32 t, %1;\\nfma.rn.f32 %0, t, %2, %0;",
    "conversion, multiply-add": "cvt.rn.f32.s32 t, %1;\\nfma.rn.f32 %0, t, %2, %0;",
    "add, multiply-add": "mov.b32 t, %1;\\nadd.rn.f32 t, t, 0fCB400000;\\nfma.rn.f32 %0, t, %2, %0;",
}

FRAME = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
constexpr int count = 64;
template <int S> __device__ __forceinline__ void scale(float (&sums)[count], const int (&of)[count], float by) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
@SCALINGS@
  }
}
#define START(SUMS, A) \
  asm volatile("wgmma.fence.sync.aligned;\n@MMAS@wgmma.commit_group.sync.aligned;" : @OUTPUTS@ : "l"(b), \
               "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(A[4]), "r"(A[5]), "r"(A[6]), "r"(A[7]), \
               "r"(A[8]), "r"(A[9]), "r"(A[10]), "r"(A[11]), "r"(A[12]), "r"(A[13]), "r"(A[14]), "r"(A[15]))
#define WAIT asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
template <int D> __device__ __forceinline__ void decode(int (&a)[16], uint32_t from) {
  if (!D)
    return;
  int c[8];
  for (int i = 0; i < 8; i += 4)
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c[i]), "=r"(c[i + 1]), "=r"(c[i + 2]), "=r"(c[i + 3]) : "r"(from + i * 512));
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = c[i] << 4 & 0xf0f0f0f0;
    a[2 * i + 1] = c[i] & 0xf0f0f0f0;
  }
}
template <int S, int D, int Ahead> __global__ void __launch_bounds__(256, 1) run(long long *out, int times) {
  extern __shared__ __align__(1024) unsigned char tile[];
  for (int i = threadIdx.x; i < 65536 / 4; i += 256)
    reinterpret_cast<int *>(tile)[i] = 0x01010101 * (i & 3);
  asm volatile("fence.proxy.async.shared::cta;");
  uint32_t at = __cvta_generic_to_shared(tile), from = at + threadIdx.x * 16;
  uint64_t b = uint64_t(at >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
  int x[count], y[count], a[16], next[16];
  float sums[count], by = 1e-3f;
  for (int i = 0; i < count; ++i)
    sums[i] = i;
  for (int i = 0; i < 16; ++i)
    next[i] = 3 * (a[i] = threadIdx.x * i & 0x07070707);
  decode<D>(a, from);
  START(y, a);
  WAIT;
  __syncthreads();
  long long start = clock64();
#pragma unroll 1
  for (int i = 0; i < times; i += 2) {
    uint32_t now = from + (i & 6) * 4096;
    if (Ahead) {
      START(x, a);
      decode<D>(next, now);
      scale<S>(sums, y, by);
      WAIT;
      START(y, next);
      decode<D>(a, now + 4096);
      scale<S>(sums, x, by);
      WAIT;
    } else {
      decode<D>(a, now);
      START(x, a);
      WAIT;
      scale<S>(sums, x, by);
      decode<D>(a, now + 4096);
      START(y, a);
      WAIT;
      scale<S>(sums, y, by);
    }
    by *= 1.0001f;
  }
  long long took = clock64() - start;
  float all = 0;
  for (int i = 0; i < count; ++i)
    all += sums[i] + x[i] + y[i];
  if (all == 12345)
    out[1] = 1;
  if (threadIdx.x == 0 && blockIdx.x == 0)
    out[0] = took;
}
template <int S, int D, int Ahead> void measure(const char *what) {
  constexpr int times = 8000;
  long long *out, host = 0;
  cudaMalloc(&out, 64);
  auto kernel = run<S, D, Ahead>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 66560);
  for (int i = 0; i < 2; ++i)
    kernel<<<132, 256, 66560>>>(out, times);
  if (cudaMemcpy(&host, out, sizeof(host), cudaMemcpyDeviceToHost) != cudaSuccess)
    exit(1);
  printf("\"%s\",%s,%s,%.1f\n", what, D ? "yes" : "no", Ahead ? "while the next run" : "when ended",
         double(host) / times);
  cudaFree(out);
}
int main() {
  printf("each_sum,decode,order,cycles\n");
@CALLS@
}
"""


def main():
    registers = ", ".join(f"%{i}" for i in range(64))
    mmas = "".join("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {%s}, {%s}, %%64, %d;\\n"
                   % (registers, ", ".join(f"%{65 + 4 * step + i}" for i in range(4)), step > 0)
                   for step in range(4))
    outputs = ", ".join(f'"=r"(SUMS[{i}])' for i in range(64))
    scalings = "".join(f'    if (S == {i})\n      asm volatile("{{.reg .f32 t;\\n{text}}}" '
                       ': "+f"(sums[i]) : "r"(of[i]), "f"(by));\n'
                       for i, text in enumerate(SCALINGS.values()))
    calls = "".join(f'  measure<{i}, {decode}, {ahead}>("{name}");\n'
                    for ahead in (0, 1) for decode in (0, 1) for i, name in enumerate(SCALINGS))
    source = FRAME.replace("@MMAS@", mmas).replace("@OUTPUTS@", outputs)
    source = source.replace("@SCALINGS@", scalings).replace("@CALLS@", calls)
    pathlib.Path(sys.argv[1]).write_text(table_of(source))


if __name__ == "__main__":
    main()
