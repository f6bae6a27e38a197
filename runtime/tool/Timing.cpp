#include "runtime/tool/Timing.h"

#include "runtime/Backend.h"
#include "runtime/Handles.h"
#include "runtime/cuda/Timing.h"

#include <algorithm>

namespace rho::tool {

namespace {

constexpr int minLaunches = 20;
constexpr int warmups = 3;
constexpr int replays = 15;

// Enough copies that a launch finds nothing of its weight in the L2 cache: what was read since
// fills it twice.
int copiesNeeded(int64_t weightBytes, int64_t l2Bytes) {
  constexpr int64_t most = 256;
  return static_cast<int>(
      std::clamp<int64_t>(2 * l2Bytes / std::max<int64_t>(weightBytes, 1) + 2, 2, most));
}

Result<std::vector<Buffer>> copyWeight(const Device &device, const Buffer &weight, int copies) {
  std::vector<uint8_t> host(static_cast<size_t>(weight.bytes()));
  if (Status read = weight.read(host.data(), weight.bytes()); !read)
    return read.error();
  std::vector<Buffer> buffers;
  for (int i = 0; i < copies; ++i) {
    Result<Buffer> buffer = device.allocate(weight.bytes());
    if (!buffer)
      return buffer.error();
    if (Status written = buffer->write(host.data(), weight.bytes()); !written)
      return written.error();
    buffers.push_back(std::move(*buffer));
  }
  return buffers;
}

} // namespace

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1)
    return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double teraOperations(const GemmShape &shape, double microseconds) {
  return 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k) / microseconds / 1e6;
}

double gigabytesPerSecond(int64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

Result<GpuTime> timeOnGpu(const Device &device, const ReadyGemm &prepared) {
  GpuTime time;
  time.copies = copiesNeeded(prepared.weight.bytes(), device.impl().backend->model().l2Bytes);
  Result<std::vector<Buffer>> weights = copyWeight(device, prepared.weight, time.copies);
  if (!weights)
    return weights.error();
  // Whole rounds over the copies, so that a replay goes on where the last one ended.
  time.launches = (minLaunches + time.copies - 1) / time.copies * time.copies;

  Result<cuda::OwnedStream> stream = cuda::OwnedStream::create(device);
  if (!stream)
    return stream.error();
  Result<cuda::Graph> graph = cuda::Graph::capture(device, stream->get(), [&]() -> Status {
    for (int i = 0; i < time.launches; ++i)
      if (Status launched = prepared.launch((*weights)[i % time.copies], stream->get()); !launched)
        return launched;
    return Done{};
  });
  if (!graph)
    return graph.error();
  Result<cuda::Event> begin = cuda::Event::create(device);
  if (!begin)
    return begin.error();
  Result<cuda::Event> end = cuda::Event::create(device);
  if (!end)
    return end.error();

  std::vector<double> samples;
  for (int i = 0; i < warmups + replays; ++i) {
    Status done = begin->record(stream->get());
    if (done)
      done = graph->launch(stream->get());
    if (done)
      done = end->record(stream->get());
    if (!done)
      return done.error();
    Result<double> passed = end->since(*begin);
    if (!passed)
      return passed.error();
    if (i >= warmups)
      samples.push_back(*passed * 1e3 / time.launches);
  }
  time.replays = replays;
  time.microseconds = median(std::move(samples));
  return time;
}

Result<EmulatedTime> launchEmulated(const Device &device, const ReadyGemm &prepared) {
  Backend &backend = *device.impl().backend;
  EmulationTotals before = backend.emulationTotals();
  if (Status launched = prepared.launch(prepared.weight, nullptr); !launched)
    return launched.error();
  EmulationTotals after = backend.emulationTotals();
  return EmulatedTime{after.threadInstructions - before.threadInstructions,
                      after.seconds - before.seconds};
}

} // namespace rho::tool
