// The exported functions of cutlass_bf16.so and, with -DFP8, cutlass_fp8.so, and what prepares
// their operands.
#include <iostream>
#include "cutlass_mixed_types.h"
#include "cutlass_mixed.h"

Config g_configs[kMaxConfigs]; // zero-initialised before any registration runs

int sm_count() {
  int device = 0, n = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}

namespace {
const Config *config(int i) {
  return i >= 0 && i < kMaxConfigs && g_configs[i].launch ? &g_configs[i] : nullptr;
}

#ifdef FP8
// A weight v > 0 gets the code of -v but for the sign bit, which is how the mainloop's lookup table
// wants it.
__global__ void encode(uint8_t *dst, const uint8_t *src, size_t bytes) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i >= bytes)
    return;
  auto code = [](unsigned v) { return v >= 1 && v <= 7 ? 8 - v : v; };
  dst[i] = uint8_t(code(src[i] & 15) | code(src[i] >> 4) << 4);
}

__global__ void pack_scales(cutlass::packed_scale_t<Mma> *dst, const Mma *src, size_t count) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < count)
    dst[i] = cutlass::packed_scale_t<Mma>(src[i]);
}
#endif
} // namespace

#ifdef FP8
#define F(name) cutlass_fp8_##name
#else
#define F(name) cutlass_bf16_##name
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int F(configs)() {
  int n = 0;
  for (int i = 0; i < kMaxConfigs; ++i)
    if (g_configs[i].launch)
      n = i + 1;
  return n;
}

EXPORT const char *F(name)(int i) { return config(i) ? config(i)->name : ""; }

// 1 if configuration i runs this problem (pointers are taken to be aligned to 16 bytes); its
// workspace's bytes
EXPORT int F(supported)(int i, int m, int n, int k, size_t *workspace_bytes) {
  void *aligned = reinterpret_cast<void *>(256);
  Problem p{aligned, aligned, aligned, aligned, m, n, k};
  if (!config(i) || !config(i)->supported(p))
    return 0;
  if (workspace_bytes)
    *workspace_bytes = config(i)->workspace(p);
  return 1;
}

// 0, or CUTLASS's status
EXPORT int F(launch)(int i, void *y, const void *x, const void *w, const void *scales, int m, int n,
                     int k, void *workspace, size_t workspace_bytes, void *stream) {
  if (!config(i))
    return int(cutlass::Status::kErrorNotSupported);
  return config(i)->launch({y, x, w, scales, m, n, k}, workspace, workspace_bytes,
                           cudaStream_t(stream));
}

// dst: W as the kernels read it, from src: [n][k] two's-complement int4, the lower half of a byte
// the even k. Once, before timing: it waits for the stream. The fp8 form also writes over src (it
// encodes it in place).
EXPORT int F(prepare)(void *dst, void *src, int n, int k, void *stream) {
  using namespace cute;
  if (n % 16 || k % 256)
    return int(cudaErrorInvalidValue);
#ifdef FP8
  size_t bytes = size_t(n) * k / 2;
  encode<<<unsigned((bytes + 255) / 256), 256, 0, cudaStream_t(stream)>>>(
      (uint8_t *)src, (const uint8_t *)src, bytes);
#endif
  if (auto e = cudaStreamSynchronize(cudaStream_t(stream)))
    return int(e);
  auto shape = make_shape(n, k, 1);
  cutlass::reorder_tensor(static_cast<const Weight *>(src),
                          make_layout(shape, RowMajorStride{k, _1{}, int64_t(n) * k}),
                          static_cast<Weight *>(dst), tile_to_shape(WeightAtom{}, shape));
  return int(cudaGetLastError());
}

#ifdef FP8
// dst: count times 8 bytes, from count e4m3 scales
EXPORT int cutlass_fp8_prepare_scales(void *dst, const void *src, size_t count, void *stream) {
  pack_scales<<<unsigned((count + 255) / 256), 256, 0, cudaStream_t(stream)>>>(
      static_cast<cutlass::packed_scale_t<Mma> *>(dst), static_cast<const Mma *>(src), count);
  return int(cudaGetLastError());
}
#endif
