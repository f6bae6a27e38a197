// What quantize_activations.cu takes from CUDA, for clang without CUDA's headers. Included ahead of
// it.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct ThreadIndex {
  struct Tid {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_tid_x(); }
  } x;
};
struct BlockIndex {
  struct Ctaid {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_ctaid_x(); }
  } x;
};
struct GridDimension {
  struct Nctaid {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_nctaid_x(); }
  } x;
};
static constexpr ThreadIndex threadIdx{};
static constexpr BlockIndex blockIdx{};
static constexpr GridDimension gridDim{};

template <class To, class From> __device__ To bitsAs(From from) {
  return __builtin_bit_cast(To, from);
}
__device__ inline double __longlong_as_double(long long x) { return bitsAs<double>(x); }
__device__ inline long long __double_as_longlong(double x) { return bitsAs<long long>(x); }
__device__ inline float __int_as_float(int x) { return bitsAs<float>(x); }
__device__ inline float __uint_as_float(unsigned x) { return bitsAs<float>(x); }
__device__ inline int __float_as_int(float x) { return bitsAs<int>(x); }
__device__ inline unsigned __float_as_uint(float x) { return bitsAs<unsigned>(x); }
__device__ inline double fabs(double x) { return __builtin_fabs(x); }
__device__ inline float fabsf(float x) { return __builtin_fabsf(x); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline double floor(double x) { return __builtin_floor(x); }
__device__ inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T> __device__ T min(T a, T b) { return b < a ? b : a; }
template <class T> __device__ T max(T a, T b) { return a < b ? b : a; }

__device__ inline void __threadfence() { __nvvm_membar_gl(); }
__device__ inline unsigned atomicAdd(unsigned *to, unsigned x) {
  return __atomic_fetch_add(to, x, __ATOMIC_RELAXED);
}
__device__ inline unsigned atomicExch(unsigned *to, unsigned x) {
  return __atomic_exchange_n(to, x, __ATOMIC_RELAXED);
}
__device__ inline unsigned __shfl_xor_sync(unsigned lanes, unsigned x, int distance) {
  return __nvvm_shfl_sync_bfly_i32(lanes, x, distance, 31);
}
__device__ inline float __shfl_xor_sync(unsigned lanes, float x, int distance) {
  return bitsAs<float>(__shfl_xor_sync(lanes, bitsAs<unsigned>(x), distance));
}
__device__ inline double __shfl_xor_sync(unsigned lanes, double x, int distance) {
  auto raw = bitsAs<unsigned long long>(x);
  unsigned long long low = __shfl_xor_sync(lanes, static_cast<unsigned>(raw), distance);
  unsigned long long high = __shfl_xor_sync(lanes, static_cast<unsigned>(raw >> 32), distance);
  return bitsAs<double>(low | high << 32);
}
