// vLLM's Marlin (u4b8 weights, groups of 128) behind plain C functions, with its own choice of
// threads and tiles.
#include "torch_utils.h"
#include "kernel.h"

namespace marlin { // marlin.cu's
void marlin_mm(const void *A, const void *B, void *C, void *C_tmp, void *b_bias, void *a_s,
               void *b_s, void *g_s, void *zp, int prob_m, int prob_n, int prob_k, int lda,
               void *workspace, vllm::ScalarType const &a_type, vllm::ScalarType const &b_type,
               vllm::ScalarType const &c_type, vllm::ScalarType const &s_type, bool has_bias,
               bool has_zp, int num_groups, int group_size, int dev, cudaStream_t stream,
               int thread_k_init, int thread_n_init, int sms, bool use_atomic_add,
               bool use_fp32_reduce, bool is_zp_float);
}
torch::stable::Tensor gptq_marlin_repack(torch::stable::Tensor &, int64_t, int64_t, int64_t, bool);

namespace {
constexpr int kGroup = 128;
thread_local std::string message;

struct Device {
  int id = 0, sms = 1;
  Device() {
    cudaGetDevice(&id);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, id);
  }
  size_t lock_bytes() const { return (size_t(sms) * sizeof(int) + 255) / 256 * 256; }
};

template <class F> int guarded(F &&f) {
  try {
    f();
    if (auto e = cudaGetLastError())
      peer::fail(cudaGetErrorString(e));
    return 0;
  } catch (std::exception const &e) {
    message = e.what();
    return 2;
  }
}
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char *marlin_error() { return message.c_str(); }

// the workspace's bytes; it is to be zero before the first launch, and every launch leaves its
// locks zero
EXPORT size_t marlin_workspace(int m) {
  Device d;
  size_t rows = m > 48 ? 64 : (m + 15) / 16 * 16;
  return d.lock_bytes() + d.sms * rows * marlin::max_thread_n * sizeof(float);
}

// type: 0 x, scales and y are f16; 1 they are bf16; 2 x is int8 with f32 x_scales [m], scales and y
// are f16; 3 the same with bf16. y [m][n], x [m][k], scales [k/128][n] permuted, w
// marlin_prepare's. 0, or 2: marlin_error()
EXPORT int marlin_launch(int type, void *y, const void *x, const void *w, const void *scales,
                         const void *x_scales, int m, int n, int k, void *workspace,
                         size_t workspace_bytes, void *stream) {
  return guarded([&] {
    Device d;
    if (type < 0 || type > 3 || k % kGroup || k <= kGroup || n % marlin::min_thread_n)
      peer::fail("unsupported problem");
    if (workspace_bytes < marlin_workspace(m))
      peer::fail("the workspace is too small");
    auto out = type % 2 ? vllm::kBFloat16 : vllm::kFloat16;
    auto in = type < 2 ? out : vllm::kS8;
    auto *locks = static_cast<char *>(workspace);
    marlin::marlin_mm(x, w, y, locks + d.lock_bytes(), nullptr, const_cast<void *>(x_scales),
                      const_cast<void *>(scales), nullptr, nullptr, m, n, k, k, locks, in,
                      vllm::kU4B8, out, out, false, false, k / kGroup, kGroup, d.id,
                      cudaStream_t(stream), -1, -1, d.sms, false, true, false);
  });
}

// dst: w as the kernels read it, from src: [k/8][n] int32, each 8 values (weight + 8) of ascending
// k, the lowest bits first
EXPORT int marlin_prepare(int type, void *dst, const void *src, int n, int k, void *stream) {
  return guarded([&] {
    peer::call = {dst, nullptr, 0, false, 0, cudaStream_t(stream)};
    torch::stable::Tensor w(src, torch::headeronly::ScalarType::Int, k / 8, n);
    gptq_marlin_repack(w, k, n, 4, type >= 2);
  });
}
