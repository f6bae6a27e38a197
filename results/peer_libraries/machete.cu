// vLLM's Machete (u4b8 weights, group scales) behind plain C functions: its generated dispatch,
// which chooses the schedule from m, n and k, over torch_utils.h's tensors. -DACTIVATION=Half or
// BFloat16
#include "machete_mm_launcher.cuh"
#include "machete_prepack_launcher.cuh"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace {
constexpr auto kType = ScalarType::ACTIVATION;
constexpr int kGroup = 128;
thread_local std::string message;

// 0; 1: the workspace is too small (or was only asked for); 2: machete_error() says
template <class F> int guarded(F &&f) {
  try {
    f();
    return 0;
  } catch (peer::WorkspaceTooSmall const &) {
    return 1;
  } catch (std::exception const &e) {
    message = e.what();
    return 2;
  }
}

int multiply(const void *x, const void *w, const void *scales, int m, int n, int k,
             const char *schedule) {
  return guarded([&] {
    if (m < 1 || n % 128 || k % kGroup)
      peer::fail("unsupported problem");
    Tensor a(x, kType, m, k), b(w, ScalarType::Int, k / 8, n, 1, k / 8);
    std::optional<Tensor> s = Tensor(scales, kType, k / kGroup, n), none;
    std::optional<ScalarType> same;
    machete::mm_dispatch(
        {a, b, vllm::kU4B8, same, s, none, kGroup, none, none,
         schedule && *schedule ? std::optional<std::string>(schedule) : std::nullopt});
    if (auto e = cudaGetLastError())
      peer::fail(cudaGetErrorString(e));
  });
}
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char *machete_error() { return message.c_str(); }

// y [m][n], x [m][k], scales [k/128][n]: f16 or bf16; w: machete_prepare's. schedule: null for
// Machete's choice
EXPORT int machete_launch(void *y, const void *x, const void *w, const void *scales, int m, int n,
                          int k, const char *schedule, void *workspace, size_t workspace_bytes,
                          void *stream) {
  peer::call = {y, workspace, workspace_bytes, false, 0, cudaStream_t(stream)};
  return multiply(x, w, scales, m, n, k, schedule);
}

// the workspace's bytes, or -1 where the problem is not to be run (pointers are taken to be
// aligned)
EXPORT long long machete_workspace(int m, int n, int k, const char *schedule) {
  peer::call = {nullptr, nullptr, 0, true, 0, nullptr};
  void *aligned = reinterpret_cast<void *>(256);
  return multiply(aligned, aligned, aligned, m, n, k, schedule) == 1
             ? (long long)(peer::call.needed)
             : -1;
}

// the schedules' names, a line each
EXPORT const char *machete_schedules() {
  static const std::string names = [] {
    std::string s;
    for (auto &name :
         machete::supported_schedules_dispatch({kType, vllm::kU4B8, kType, {}, {}, {}, {}}))
      s += name + "\n";
    return s;
  }();
  return names.c_str();
}

// dst: w as the kernels read it, from src: [n][k] with 8 values (weight + 8) in an int32, the
// lowest bits first
EXPORT int machete_prepare(void *dst, const void *src, int n, int k, void *stream) {
  peer::call = {dst, nullptr, 0, false, 0, cudaStream_t(stream)};
  return guarded([&] {
    machete::prepack_B_dispatch(
        {Tensor(src, ScalarType::Int, k / 8, n, 1, k / 8), kType, vllm::kU4B8, kType});
    if (auto e = cudaGetLastError())
      peer::fail(cudaGetErrorString(e));
  });
}
