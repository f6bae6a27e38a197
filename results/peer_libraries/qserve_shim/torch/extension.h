// As much of PyTorch's C++ interface as QServe's GEMMs use, over raw pointers, and the stream that
// they launch on (qserve.cu explains).
#pragma once
#include <cstdint>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace at {
using Half = __half;
}
namespace torch {
enum Dtype { kHalf };
struct Device {};
struct TensorOptions {
  TensorOptions dtype(Dtype) const { return *this; }
  TensorOptions device(Device) const { return *this; }
};
struct Tensor {
  void *data;
  int rows, columns;
  int size(int dim) const { return dim == 0 || dim == -2 ? rows : columns; }
  Device device() const { return {}; }
  void *data_ptr() const { return data; }
  template <class T> T *data_ptr() const { return static_cast<T *>(data); }
};
} // namespace torch

inline thread_local cudaStream_t qserve_stream;
