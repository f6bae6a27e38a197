#include "runtime/tool/Timing.h"

#include "dsl/Division.h"
#include "runtime/Backend.h"
#include "runtime/Handles.h"
#include "runtime/Scalar.h"
#include "runtime/cuda/Timing.h"

#include <algorithm>
#include <optional>

namespace rho::tool {

namespace {

// Enough to rank choices.
constexpr Measuring trial{
    .launches = 5, .leastReplays = 1, .mostReplays = 5, .milliseconds = 2, .warmUp = 1};

} // namespace

int copiesNeeded(const Device &device, int64_t bytes) {
  if (device.isEmulated())
    return 1;
  constexpr int64_t most = 4096;
  const int64_t l2Bytes = device.impl().backend->model().l2Bytes;
  return static_cast<int>(
      std::clamp<int64_t>(4 * l2Bytes / std::max<int64_t>(bytes, 1) + 2, 2, most));
}

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

Result<ReadyGemm> makeReady(const Device &device, const Gemm &gemm, DevicePointer x,
                            ScalarType type) {
  GemmShape shape = gemm.shape();
  Result<Activations> activations = gemm.makeActivations();
  if (!activations)
    return activations.error();
  Status done = gemm.quantizeActivations(*activations, x, type, shape.k);
  if (done)
    done = device.synchronize();
  if (!done)
    return done.error();
  // What no kernel writes is no number, and within no bound.
  const std::vector<uint8_t> unwritten(size_t{1} << 20, 0xff);
  Result<Buffer> output =
      filledBuffer(device, shape.m * shape.n * scalarBytes(gemm.outputType()), unwritten);
  if (!output)
    return output.error();
  Result<Buffer> workspace = device.allocate(gemm.workspaceBytes());
  if (!workspace)
    return workspace.error();
  return ReadyGemm{gemm, std::move(*output), std::move(*workspace), std::move(*activations)};
}

Result<Buffer> filledBuffer(const Device &device, int64_t bytes, std::span<const uint8_t> pattern) {
  Result<Buffer> buffer = device.allocate(bytes);
  if (!buffer)
    return buffer;
  auto step = static_cast<int64_t>(pattern.size());
  for (int64_t at = 0; at < bytes; at += step)
    if (Status written = buffer->write(pattern.data(), std::min(step, bytes - at), at); !written)
      return written.error();
  return buffer;
}

Result<WeightCopies> copyWeight(const Device &device, int64_t bytes,
                                std::span<const uint8_t> pattern) {
  const int copies = copiesNeeded(device, bytes);
  WeightCopies buffers;
  while (static_cast<int>(buffers.size()) < copies) {
    Result<Buffer> buffer = filledBuffer(device, bytes, pattern);
    if (!buffer)
      return buffer.error();
    buffers.push_back(std::move(*buffer));
  }
  return buffers;
}

Result<GpuTime> timeOnGpu(const Device &device, int copies,
                          const std::function<Status(int copy, Stream stream)> &launch,
                          const Measuring &measuring) {
  GpuTime time;
  // Whole rounds over the copies, so that a replay goes on where the last one ended.
  time.launches = roundUp(measuring.launches, copies);

  Result<cuda::OwnedStream> stream = cuda::OwnedStream::create(device);
  if (!stream)
    return stream.error();
  Result<cuda::Graph> graph = cuda::Graph::capture(device, stream->get(), [&]() -> Status {
    for (int i = 0; i < time.launches; ++i)
      if (Status launched = launch(i % copies, stream->get()); !launched)
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
  auto replay = [&]() -> Result<double> { // milliseconds
    Status done = begin->record(stream->get());
    if (done)
      done = graph->launch(stream->get());
    if (done)
      done = end->record(stream->get());
    if (!done)
      return done.error();
    return end->since(*begin);
  };

  double last = 0, passed = 0;
  constexpr double least = 1e-3;
  while (passed < measuring.warmUp) {
    Result<double> warmUp = replay();
    if (!warmUp)
      return warmUp.error();
    last = std::max(*warmUp, least);
    passed += last;
  }
  time.replays = static_cast<int>(std::clamp<double>(
      measuring.milliseconds / last, measuring.leastReplays, measuring.mostReplays));
  std::vector<double> samples;
  for (int i = 0; i < time.replays; ++i) {
    Result<double> sample = replay();
    if (!sample)
      return sample.error();
    samples.push_back(*sample * 1e3 / time.launches);
  }
  time.least = *std::min_element(samples.begin(), samples.end());
  time.most = *std::max_element(samples.begin(), samples.end());
  time.microseconds = median(std::move(samples));
  return time;
}

Result<GpuTime> timeOnGpu(const Device &device, const ReadyGemm &ready,
                          const WeightCopies &weights) {
  return timeOnGpu(device, static_cast<int>(weights.size()), [&](int copy, Stream stream) {
    return ready.launch(weights[static_cast<size_t>(copy)], stream);
  });
}

Result<FastestTime>
timeFastest(const Device &device, int choices, int copies,
            const std::function<Status(int choice, int copy, Stream stream)> &launch) {
  auto time = [&](int choice, const Measuring &measuring) {
    return timeOnGpu(
        device, copies, [&](int copy, Stream stream) { return launch(choice, copy, stream); },
        measuring);
  };
  int best = 0;
  std::optional<Result<GpuTime>> fastest;
  for (int i = 0; i < choices; ++i) {
    // Outside of a graph first: libraries load kernels at their first launch.
    Status launched = launch(i, 0, nullptr);
    if (launched)
      launched = device.synchronize();
    Result<GpuTime> tried = launched ? time(i, trial) : launched.error();
    if (!fastest || (tried && (!*fastest || tried->microseconds < (*fastest)->microseconds))) {
      best = i;
      fastest = std::move(tried);
    }
  }
  if (!*fastest)
    return fastest->error();
  Result<GpuTime> measured = time(best, {});
  if (!measured)
    return measured.error();
  return FastestTime{best, choices, *measured};
}

Result<EmulatedTime> launchEmulated(const Device &device, const ReadyGemm &ready,
                                    const Buffer &weight) {
  Backend &backend = *device.impl().backend;
  EmulationTotals before = backend.emulationTotals();
  if (Status launched = ready.launch(weight, nullptr); !launched)
    return launched.error();
  EmulationTotals after = backend.emulationTotals();
  return EmulatedTime{after.threadInstructions - before.threadInstructions,
                      after.seconds - before.seconds};
}

} // namespace rho::tool
