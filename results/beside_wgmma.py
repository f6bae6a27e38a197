#!/usr/bin/env python3
"""What other instructions cost a running wgmma: why sums that are scaled on the way slow products.

Usage: beside_wgmma.py FILE.csv   (needs nvcc and a GPU of sm_90)

One warpgroup multiplies, m64nNk32 on s8 with operand A in registers or in shared memory, with always one
batch of four instructions ahead. A second one of the same SM executes nothing, multiply-adds in 2, 3 or 64 independent chains (3 leave a cycle in
four without one), or conversions and multiply-adds in turns, as the scaling of partial sums does.
Cycles are of one instruction of the first, and of one of a warp of the second.
"""
import pathlib
import subprocess
import sys
import tempfile

WIDTHS = (64, 128, 192, 256)
STREAMS = {"nothing": 0, "ffma, 2 chains": 2, "ffma, 3 chains": 3, "ffma": 64, "i2f and ffma": 65}

FRAME = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
template <int S> __device__ void issue(float *f, float s) {
#pragma unroll
  for (int i = 0; i < 64; i += 8)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float *at = f + (S < 64 ? (i + j) % (S ? S : 1) : i + j);
      if (S == 65)
        asm volatile("{.reg .f32 t;\ncvt.rn.f32.s32 t, %1;\nfma.rn.f32 %0, t, %2, %0;}"
                     : "+f"(*at) : "r"(__float_as_int(f[63 - i - j])), "f"(s));
      else
        asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(*at) : "f"(s));
    }
}
@MMAS@
template <class M, int S> __global__ void __launch_bounds__(256, 1) run(long long *out, int times) {
  extern __shared__ __align__(1024) unsigned char tile[];
  for (int i = threadIdx.x; i < 32768 / 4; i += 256)
    reinterpret_cast<int *>(tile)[i] = 0x01010101 * (i & 3);
  asm volatile("fence.proxy.async.shared::cta;");
  __shared__ volatile int done;
  done = 0;
  __syncthreads();
  long long start = clock64();
  if (threadIdx.x < 128) {
    uint64_t b = uint64_t(__cvta_generic_to_shared(tile) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
    int sums[M::count] = {};
    for (int i = 0; i < times; ++i) {
      M::start(sums, b, b + (16384 >> 4), threadIdx.x & 1);
      asm volatile("wgmma.wait_group.sync.aligned 1;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    done = 1;
    int all = 0;
    for (int sum : sums)
      all ^= sum;
    if (all == 12345)
      out[3] = 1;
    if (threadIdx.x == 0 && blockIdx.x == 0)
      out[0] = clock64() - start;
  } else if (S > 0) {
    float f[64];
    for (int i = 0; i < 64; ++i)
      f[i] = i * threadIdx.x;
    long long rounds = 0;
    for (; !done; rounds += 16)
      for (int i = 0; i < 16; ++i)
        issue<S>(f, 1.0000001f);
    float all = 0;
    for (float x : f)
      all += x;
    if (all == 12345)
      out[3] = 1;
    if (threadIdx.x == 128 && blockIdx.x == 0) {
      out[1] = rounds * (S == 65 ? 128 : 64);
      out[2] = clock64() - start;
    }
  }
}
template <class M, int S> void measure(const char *stream) {
  constexpr int times = 4000;
  long long *out, host[3] = {};
  cudaMalloc(&out, 64);
  cudaMemset(out, 0, 64);
  for (int i = 0; i < 2; ++i)
    run<M, S><<<132, 256, 33792>>>(out, times);
  if (cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost) != cudaSuccess)
    exit(1);
  printf("%d,%s,\"%s\",%.1f,%.1f,%.2f\n", M::n, M::a, stream, M::n / 2.0, host[0] / (4.0 * times),
         host[1] ? double(host[1]) / host[2] : 0);
  cudaFree(out);
}
int main() {
  printf("n,operand_a,beside,ideal_cycles,cycles,issued_per_cycle\n");
@CALLS@
}
"""


def mma(n, shared):
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    operand = f"%{count + 2}" if shared else f"{{{', '.join([f'%{count + 1}'] * 4)}}}"
    one = f"wgmma.mma_async.sync.aligned.m64n{n}k32.s32.s8.s8 {{{registers}}}, {operand}, %{count}, 1;\\n"
    outputs = ", ".join(f'"+r"(sums[{i}])' for i in range(count))
    name, where = (f"S{n}", "shared memory") if shared else (f"R{n}", "registers")
    return (f"struct {name} {{ static constexpr int n = {n}, count = {count};\n"
            f'  static constexpr const char *a = "{where}";\n'
            f"  static __device__ __forceinline__ void start(int (&sums)[count], uint64_t b, uint64_t from, int a) {{\n"
            f'    asm volatile("wgmma.fence.sync.aligned;\\n{one * 4}wgmma.commit_group.sync.aligned;"\n'
            f'                 : {outputs} : "l"(b), "r"(a), "l"(from)); }} }};\n')


def table_of(source):
    """What a CUDA program prints."""
    with tempfile.TemporaryDirectory() as folder:
        file, program = pathlib.Path(folder, "program.cu"), pathlib.Path(folder, "program")
        file.write_text(source)
        subprocess.run(["nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-O3", "-o", program, file],
                       check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def main():
    mmas = "".join(mma(n, shared) for shared in (False, True) for n in WIDTHS)
    calls = "".join(f'  measure<{place}{n}, {number}>("{name}");\n'
                    for place in "RS" for n in WIDTHS for name, number in STREAMS.items())
    source = FRAME.replace("@MMAS@", mmas).replace("@CALLS@", calls)
    pathlib.Path(sys.argv[1]).write_text(table_of(source))


if __name__ == "__main__":
    main()
