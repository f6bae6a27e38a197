// QServe's W4A8 GEMMs behind plain C functions. GROUP and CHANNEL name copies of the two
// gemm_cuda.cu that the build changes in one way: their launches, which go to the default stream,
// go to qserve_stream.
#include <torch/extension.h>
#include <cuda_pipeline_primitives.h>

namespace group {
#include GROUP
}
#undef KERNEL_LAUNCH_CODE
#undef L2_CACHEHINT
namespace channel {
#include CHANNEL
}

namespace {
torch::Tensor tensor(const void *p, int rows, int columns) {
  return {const_cast<void *>(p), rows, columns};
}
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// y [m][n] half; x [m][k] int8; w, zeros, scales_i8 as QServe packs them; w_scales [n], x_scales
// [m] half
EXPORT int qserve_group_launch(void *y, const void *x, const void *w, const void *zeros,
                               const void *scales_i8, const void *w_scales, const void *x_scales,
                               int m, int n, int k, void *stream) {
  if (m < 1 || n % 64 || k % 128 || k < 256)
    return int(cudaErrorInvalidValue);
  qserve_stream = cudaStream_t(stream);
  group::gemm_forward_cuda(tensor(x, m, k), tensor(w, n, k / 2), tensor(zeros, k / 128, n),
                           tensor(scales_i8, k / 128, n), tensor(w_scales, 1, n),
                           tensor(x_scales, 1, m), tensor(y, m, n));
  return int(cudaGetLastError());
}

// w_szeros: [n] half, scale times zero point; x_sums: [m] half, the sum of each row of x before
// quantization
EXPORT int qserve_channel_launch(void *y, const void *x, const void *w, const void *w_scales,
                                 const void *x_scales, const void *w_szeros, const void *x_sums,
                                 int m, int n, int k, void *stream) {
  if (m < 1 || n % (m > 256 ? 128 : 64) || k % 128 || k < 256)
    return int(cudaErrorInvalidValue);
  qserve_stream = cudaStream_t(stream);
  channel::gemm_forward_cuda(tensor(x, m, k), tensor(w, n, k / 2), tensor(w_scales, 1, n),
                             tensor(x_scales, 1, m), tensor(w_szeros, 1, n), tensor(x_sums, 1, m),
                             tensor(y, m, n));
  return int(cudaGetLastError());
}
