// What stands behind the public handles.
#pragma once

#include "dsl/Module.h"
#include "dsl/Quantize.h"
#include "runtime/Backend.h"
#include "runtime/FloatEnvironment.h"
#include "runtime/InputTransform.h"
#include "runtime/Rho.h"
#include "runtime/cache/Sha256.h"

#include <initializer_list>
#include <map>
#include <new>
#include <stdexcept>
#include <vector>

namespace rho {

struct Module::Impl {
  dsl::Module module;
  std::vector<cache::Digest> digests; // of each gemm's declaration, without spans
  // `gemm` is one of the module's own.
  const cache::Digest &digestOf(const dsl::Gemm &gemm) const {
    return digests[static_cast<size_t>(&gemm - module.gemms.data())];
  }
};

Module moduleOf(dsl::Module module);

struct Buffer::Impl {
  std::shared_ptr<Backend> backend;
  DevicePointer address = 0; // 0 when empty
  int64_t bytes = 0;
  bool isView = false;
  std::string layout; // of the weight that a gemm packed here: Gemm::weightLayout
  Impl(std::shared_ptr<Backend> backend, DevicePointer address, int64_t bytes, bool isView)
      : backend(std::move(backend)), address(address), bytes(bytes), isView(isView) {}
  Impl(const Impl &) = delete;
  Impl &operator=(const Impl &) = delete;
  ~Impl() {
    if (address != 0 && !isView)
      backend->release(address);
  }
};

struct Device::Impl {
  std::shared_ptr<Backend> backend;
};

// What handles of one memory share, whatever rows each has of it (Activations::withRows).
struct ActivationMemory {
  int64_t rows = 0; // that there is room for
  // As compiler::storedComponents() of the stored format; [0] are element codes, those in spare
  // bits of others are empty.
  std::vector<Buffer> components;
  std::vector<Buffer> unstored;  // of components that the declared format has alone
  Buffer tiles;                  // of a partition: which part has which k tiles
  Buffer scratch;                // see quantizerScratchBytes()
  std::vector<uint8_t> choice;   // Gemm::chooseParts: the part of each block; empty: by the numbers
  std::map<int, uint32_t> given; // Gemm::fixComponent: codes of components per tensor
  // Of inputs that are transformed before they are quantized: how, and where to, f32 [rows][k].
  std::shared_ptr<const InputTransform::Impl> transform;
  Buffer transformed;
};

struct Activations::Impl {
  std::shared_ptr<Backend> backend;
  std::shared_ptr<const dsl::Format> declared; // what numbers are quantized to
  std::shared_ptr<const dsl::Format> format;   // of what is stored: it, or dsl::valuesAs() of it
  compiler::ActivationLayout layout;
  int64_t m = 0;
  std::shared_ptr<ActivationMemory> memory = std::make_shared<ActivationMemory>();
  // As compiler::storedComponents(*declared): where a quantizer puts each.
  std::vector<DevicePointer> quantized;
  DevicePointer view = 0; // Gemm::viewActivations: the caller's own codes instead of components[0]

  const compiler::ActivationLayout &layoutOf(const compiler::StoredComponent &stored) const {
    return layout.parts.empty() ? layout : layout.parts[stored.part];
  }

  // Makes the memory that m rows need, where there is none yet.
  Status allocate();
  DevicePointer component(size_t i) const {
    return i == 0 && view ? view : memory->components[i].address();
  }

private:
  // Memory for one of storedComponents(), of either format.
  Result<Buffer> allocate(const compiler::StoredComponent &stored) const;
  // Sets `quantized`, once `components` are there.
  Status makeQuantized();
};

// What activations hold, back on the host in natural order.
Result<dsl::QuantizedMatrix> readActivations(const Activations &activations);
Result<dsl::QuantizedMatrix> readActivations(const Activations::Impl &from);
// That activations are ones of a gemm: of its device, shape, format and layout. Errors:
// empty_handle, wrong_device, activations_mismatch.
Status checkActivations(const Activations &activations, const Gemm::Impl &gemm);

// Of what the caller gives on the device, unless said otherwise.
inline constexpr uint64_t dataAlignment = 16;

// Errors null_pointer and misaligned_pointer.
inline Status checkPointer(DevicePointer address, const char *what, uint64_t alignment) {
  if (address == 0)
    return makeError(DiagId::null_pointer, {what});
  if (address % alignment != 0)
    return makeError(DiagId::misaligned_pointer,
                     {what, std::to_string(address), std::to_string(alignment)});
  return Done{};
}

// What a launch reads or writes on the device.
struct Memory {
  const char *what;
  DevicePointer first;
  int64_t bytes;
};

// That `written` has no byte of the others. Errors: buffers_overlap.
inline Status checkApart(const Memory &written, std::initializer_list<Memory> others) {
  for (const Memory &other : others)
    if (written.bytes > 0 && other.bytes > 0 &&
        (written.first - other.first < static_cast<uint64_t>(other.bytes) ||
         other.first - written.first < static_cast<uint64_t>(written.bytes)))
      return makeError(DiagId::buffers_overlap, {written.what, other.what});
  return Done{};
}

// A caller may cast any number to one. Errors: bad_scalar_type.
inline Status checkScalarType(ScalarType type) {
  if (type > ScalarType::BF16)
    return makeError(DiagId::bad_scalar_type, {std::to_string(static_cast<int>(type))});
  return Done{};
}

// Of a grid's y and z. Source: CUDA C++ Programming Guide, "Technical specifications per compute
// capability".
inline constexpr int64_t mostGridRows = 65535;
// Of m batch rows in tiles of `tileM`. Error: grid_too_large.
Status checkGrid(int64_t m, int64_t tileM);
inline constexpr int64_t mostStride = int64_t(1) << 32; // of a caller's rows, in elements

// Of rows of k numbers. Errors: bad_stride.
inline Status checkStride(int64_t stride, int64_t k) {
  if (stride < k || stride > mostStride)
    return makeError(DiagId::bad_stride,
                     {std::to_string(stride), std::to_string(k), std::to_string(mostStride)});
  return Done{};
}

// What a launch that failed on its way leaves in a workspace, whose first `bytes` are counters that
// are 0 between launches: the emulator stops in the middle, after a GPU's fault nothing of its
// memory is of use.
inline void clearCounters(Backend &backend, const Buffer &workspace, int64_t bytes) {
  bytes = backend.emulated() ? std::min(bytes, workspace.bytes()) : 0;
  const std::vector<uint8_t> zeros(static_cast<size_t>(bytes));
  if (bytes > 0)
    (void)backend.write(workspace.address(), zeros.data(), bytes);
}

// Numbers of the host in a buffer of their own.
template <class T> Result<Buffer> upload(const Device &device, const T &numbers) {
  // A buffer has an address even where nothing is in it.
  auto bytes = static_cast<int64_t>(std::span(numbers).size_bytes());
  Result<Buffer> buffer = device.allocate(std::max<int64_t>(4, bytes));
  if (!buffer)
    return buffer;
  if (Status written = buffer->write(numbers.data(), bytes); !written)
    return written.error();
  return buffer;
}

// Work of the host: what memory cannot hold is an error as well, and arithmetic is not the
// caller's.
template <class Make> auto onHost(const std::string &bytes, const Make &make) {
  FloatEnvironment numbers;
  auto error = [&] {
    return decltype(make())(makeError(DiagId::out_of_memory, {bytes, "the host"}));
  };
  try {
    return make();
  } catch (const std::bad_alloc &) {
    return error();
  } catch (const std::length_error &) { // more than any memory
    return error();
  }
}

template <class Make> auto onHost(const Make &make) { return onHost("more", make); }

// A null-safe way to a handle's insides: error empty_handle.
template <class Handle> Status checkHandle(const Handle &handle, const char *what) {
  if (!handle.valid())
    return makeError(DiagId::empty_handle, {what});
  return Done{};
}

} // namespace rho
