// Streams, events and graphs of a GPU, for benchmarks and for callers without a CUDA toolkit.
#pragma once

#include "runtime/Rho.h"
#include "runtime/cuda/CudaBackend.h"

#include <functional>

namespace rho::cuda {

// All of these are move-only and error out on emulated devices (cuda_not_available).

class OwnedStream {
public:
  static Result<OwnedStream> create(const Device &device);
  OwnedStream(OwnedStream &&other) noexcept;
  OwnedStream &operator=(OwnedStream &&) = delete;
  ~OwnedStream();
  Stream get() const { return handle; }

private:
  OwnedStream(std::shared_ptr<const Context> context, CUstream handle)
      : context(std::move(context)), handle(handle) {}
  std::shared_ptr<const Context> context;
  CUstream handle;
};

class Event {
public:
  static Result<Event> create(const Device &device);
  Event(Event &&other) noexcept;
  Event &operator=(Event &&) = delete;
  ~Event();
  Status record(Stream stream);
  // Waits for this event; milliseconds from `earlier` to it.
  Result<double> since(const Event &earlier);

private:
  Event(std::shared_ptr<const Context> context, CUevent handle)
      : context(std::move(context)), handle(handle) {}
  std::shared_ptr<const Context> context;
  CUevent handle;
};

// Work that was captured once and is launched as a whole.
class Graph {
public:
  // Captures what `work` enqueues on the stream, which is not the default stream.
  static Result<Graph> capture(const Device &device, Stream stream,
                               const std::function<Status()> &work);
  Graph(Graph &&other) noexcept;
  Graph &operator=(Graph &&) = delete;
  ~Graph();
  Status launch(Stream stream);

private:
  Graph(std::shared_ptr<const Context> context, CUgraphExec handle)
      : context(std::move(context)), handle(handle) {}
  std::shared_ptr<const Context> context;
  CUgraphExec handle;
};

} // namespace rho::cuda
