// Streams, events and graphs of a GPU, for benchmarks and for callers without a CUDA toolkit.
#pragma once

#include "runtime/Rho.h"
#include "runtime/cuda/CudaBackend.h"

#include <functional>
#include <memory>
#include <utility>

namespace rho::cuda {

// What the driver made in a context, and destroys there. Move-only.
template <class Handle, auto destroy> class Owned {
public:
  Owned(std::shared_ptr<const Context> context, Handle handle)
      : context(std::move(context)), handle(handle) {}
  Owned(Owned &&other) noexcept
      : context(std::move(other.context)), handle(std::exchange(other.handle, nullptr)) {}
  Owned &operator=(Owned &&) = delete;
  ~Owned() {
    if (!handle)
      return;
    const ContextScope scope(context->driver, context->handle);
    if (scope.entered())
      (context->driver.*destroy)(handle);
  }

protected:
  std::shared_ptr<const Context> context;
  Handle handle;
};

// All of these error out on emulated devices (cuda_not_available).

class OwnedStream : Owned<CUstream, &Driver::streamDestroy> {
public:
  using Owned::Owned;
  static Result<OwnedStream> create(const Device &device);
  Stream get() const { return handle; }
};

class Event : Owned<CUevent, &Driver::eventDestroy> {
public:
  using Owned::Owned;
  static Result<Event> create(const Device &device);
  Status record(Stream stream);
  // Waits for this event; milliseconds from `earlier` to it.
  Result<double> since(const Event &earlier);
};

// Work that was captured once and is launched as a whole.
class Graph : Owned<CUgraphExec, &Driver::graphExecDestroy> {
public:
  using Owned::Owned;
  // Captures what `work` enqueues on the stream, which is not the default stream.
  static Result<Graph> capture(const Device &device, Stream stream,
                               const std::function<Status()> &work);
  Status launch(Stream stream);
};

} // namespace rho::cuda
