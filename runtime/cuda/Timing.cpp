#include "runtime/cuda/Timing.h"

#include "runtime/Handles.h"

#include <utility>

namespace rho::cuda {
namespace {

Result<std::shared_ptr<const Context>> contextOf(const Device &device) {
  if (Status valid = checkHandle(device, "device"); !valid)
    return valid.error();
  std::shared_ptr<const Context> context = cuda::contextOf(*device.impl().backend);
  if (!context)
    return makeError(DiagId::cuda_not_available, {device.name() + " has no streams"});
  return context;
}

template <class Made, class Handle>
Result<Made> make(const Device &device, CUresult (*Driver::*create)(Handle *, unsigned),
                  unsigned flags, const char *call) {
  Result<std::shared_ptr<const Context>> context = contextOf(device);
  if (!context)
    return context.error();
  const Driver &driver = (*context)->driver;
  const ContextScope scope(driver, (*context)->handle);
  if (!scope.entered())
    return scope.entered().error();
  Handle handle = nullptr;
  if (Status made = check(driver, (driver.*create)(&handle, flags), call); !made)
    return made.error();
  return Made(std::move(*context), handle);
}

} // namespace

Result<OwnedStream> OwnedStream::create(const Device &device) {
  return make<OwnedStream>(device, &Driver::streamCreate, STREAM_NON_BLOCKING, "cuStreamCreate");
}

Result<Event> Event::create(const Device &device) {
  return make<Event>(device, &Driver::eventCreate, EVENT_DEFAULT, "cuEventCreate");
}

Status Event::record(Stream stream) {
  const ContextScope scope(context->driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  return check(context->driver, context->driver.eventRecord(handle, static_cast<CUstream>(stream)),
               "cuEventRecord");
}

Result<double> Event::since(const Event &earlier) {
  const ContextScope scope(context->driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  Status waited =
      check(context->driver, context->driver.eventSynchronize(handle), "cuEventSynchronize");
  float milliseconds = 0;
  if (waited)
    waited = check(context->driver,
                   context->driver.eventElapsedTime(&milliseconds, earlier.handle, handle),
                   "cuEventElapsedTime");
  if (!waited)
    return waited.error();
  return static_cast<double>(milliseconds);
}

Result<Graph> Graph::capture(const Device &device, Stream stream,
                             const std::function<Status()> &work) {
  Result<std::shared_ptr<const Context>> context = contextOf(device);
  if (!context)
    return context.error();
  const Driver &driver = (*context)->driver;
  const ContextScope scope(driver, (*context)->handle);
  if (!scope.entered())
    return scope.entered().error();
  auto *on = static_cast<CUstream>(stream);
  if (Status begun = check(driver, driver.streamBeginCapture(on, CAPTURE_MODE_THREAD_LOCAL),
                           "cuStreamBeginCapture");
      !begun)
    return begun.error();
  CUgraph graph = nullptr;
  auto end = [&] { return driver.streamEndCapture(on, &graph); };
  std::optional<Status> enqueued;
  try {
    enqueued = work();
  } catch (...) { // the stream must not stay as it is
    end();
    if (graph)
      driver.graphDestroy(graph);
    throw;
  }
  Status ended = check(driver, end(), "cuStreamEndCapture");
  CUgraphExec executable = nullptr;
  if (*enqueued && ended)
    ended = check(driver, driver.graphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  if (graph)
    driver.graphDestroy(graph);
  if (!*enqueued)
    return enqueued->error();
  if (!ended)
    return ended.error();
  return Graph(std::move(*context), executable);
}

Status Graph::launch(Stream stream) {
  const ContextScope scope(context->driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  return check(context->driver, context->driver.graphLaunch(handle, static_cast<CUstream>(stream)),
               "cuGraphLaunch");
}

} // namespace rho::cuda
