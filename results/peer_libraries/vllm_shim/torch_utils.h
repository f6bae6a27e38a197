// As much of PyTorch's stable C++ interface as vLLM's Machete and Marlin use, over raw pointers:
// the operands are wrapped, never owned, and what they allocate comes from the caller (Call).
#pragma once
#include <cstdint>
#include <cuda_runtime.h>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace peer {
struct WorkspaceTooSmall {};

// What the launch in progress on this thread may use.
struct Call {
  void *output = nullptr;
  void *workspace = nullptr;
  size_t workspace_bytes = 0;
  bool query = false; // stop where the workspace is asked for
  size_t needed = 0;  // its bytes
  cudaStream_t stream = nullptr;
};
inline thread_local Call call;

template <class... Message> [[noreturn]] void fail(Message const &...message) {
  std::ostringstream s;
  (s << ... << message);
  throw std::runtime_error(s.str());
}
} // namespace peer

#define STD_TORCH_CHECK(condition, ...) ((condition) ? (void)0 : ::peer::fail(__VA_ARGS__))
#define STD_TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) STD_TORCH_CHECK(condition, __VA_ARGS__)

namespace torch::headeronly {
enum class ScalarType {
  Byte,
  Char,
  Int,
  Long,
  Half,
  Float,
  BFloat16,
  Float8_e4m3fn,
  Float8_e8m0fnu
};
enum class MemoryFormat { Contiguous };
struct Half {};
struct BFloat16 {};
template <class T> struct CppTypeToScalarType;
template <> struct CppTypeToScalarType<Half> {
  static constexpr ScalarType value = ScalarType::Half;
};
template <> struct CppTypeToScalarType<BFloat16> {
  static constexpr ScalarType value = ScalarType::BFloat16;
};
template <> struct CppTypeToScalarType<float> {
  static constexpr ScalarType value = ScalarType::Float;
};
inline const char *toString(ScalarType) { return "(type)"; }
} // namespace torch::headeronly

namespace torch::stable {
struct Device {
  int index() const { return 0; }
  bool is_cuda() const { return true; }
};

class Tensor { // of up to two dimensions
public:
  using Type = headeronly::ScalarType;
  Tensor() = default;
  Tensor(const void *data, Type type, int64_t rows, int64_t columns, int64_t row_stride,
         int64_t column_stride)
      : data_(const_cast<void *>(data)), type_(type), size_{rows, columns},
        stride_{row_stride, column_stride} {}
  Tensor(const void *data, Type type, int64_t rows, int64_t columns)
      : Tensor(data, type, rows, columns, columns, 1) {}

  int64_t dim() const { return 2; }
  int64_t size(int64_t i) const { return size_[i < 0 ? i + 2 : i]; }
  int64_t stride(int64_t i) const { return stride_[i < 0 ? i + 2 : i]; }
  int64_t numel() const { return size_[0] * size_[1]; }
  std::vector<int64_t> sizes() const { return {size_[0], size_[1]}; }
  bool is_contiguous() const { return stride_[1] == 1 && stride_[0] == size_[1]; }
  int64_t element_size() const {
    return type_ == Type::Long                              ? 8
           : type_ == Type::Int || type_ == Type::Float     ? 4
           : type_ == Type::Half || type_ == Type::BFloat16 ? 2
                                                            : 1;
  }
  Type scalar_type() const { return type_; }
  Device device() const { return {}; }
  bool is_cuda() const { return true; }
  int32_t get_device_index() const { return 0; }
  void *data_ptr() const { return data_; }
  const void *const_data_ptr() const { return data_; }
  void *mutable_data_ptr() const { return data_; }

private:
  void *data_ = nullptr;
  Type type_ = Type::Byte;
  int64_t size_[2] = {0, 0}, stride_[2] = {0, 1};
};

inline Tensor transpose(Tensor const &t, int64_t, int64_t) {
  return {t.data_ptr(), t.scalar_type(), t.size(1), t.size(0), t.stride(1), t.stride(0)};
}

// A matrix: the output.
template <class... Rest>
Tensor empty(std::vector<int64_t> const &sizes, headeronly::ScalarType type = {}, Rest const &...) {
  return {peer::call.output, type, sizes[0], sizes.size() > 1 ? sizes[1] : 1};
}

// A number of bytes: the workspace.
template <class Bytes, class... Rest, class = std::enable_if_t<std::is_integral_v<Bytes>>>
Tensor empty(Bytes bytes, headeronly::ScalarType type, Rest const &...) {
  peer::call.needed = size_t(bytes);
  if (peer::call.query || peer::call.needed > peer::call.workspace_bytes)
    throw peer::WorkspaceTooSmall{};
  return {peer::call.workspace, type, 1, int64_t(bytes)};
}

namespace accelerator {
struct DeviceGuard {
  explicit DeviceGuard(int32_t) {}
};
} // namespace accelerator
} // namespace torch::stable

inline cudaStream_t get_current_cuda_stream(int32_t = -1) { return peer::call.stream; }

// Operators are not registered: what would be is called directly.
struct NoLibrary {
  template <class F> void impl(const char *, F const &) {}
};
#define TORCH_BOX(f) (f)
#define STABLE_TORCH_LIBRARY_IMPL(library, key, m)                                                 \
  [[maybe_unused]] static void register_##library##_##key(NoLibrary m)
