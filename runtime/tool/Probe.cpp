#include "runtime/tool/Probe.h"

#include "runtime/Handles.h"
#include "runtime/cuda/Timing.h"
#include "runtime/tool/ProbeKernels.h"
#include "runtime/tool/Report.h"

#include <algorithm>

namespace rho::tool {

namespace {

constexpr int64_t mebi = int64_t{1} << 20;

struct Run {
  double cycles; // of the slowest SM
  double microseconds;
};

class Prober {
public:
  explicit Prober(const Device &device)
      : device(device), backend(*device.impl().backend), model(backend.model()) {}

  Result<std::vector<ProbedFigure>> run() {
    for (size_t i = 0; i < dsl::instructionClasses; ++i)
      if (Status done = instruction(static_cast<dsl::InstructionClass>(i)); !done)
        return done.error();
    for (const char *type : {"f16", "bf16", "e4m3", "s8", "s4"})
      if (Status done = products(type); !done)
        return done.error();
    if (Status done = memory(); !done)
      return done.error();
    return std::move(figures);
  }

private:
  // Turns that take a millisecond or more on any of these GPUs.
  static constexpr int turns = 2000;

  Status instruction(dsl::InstructionClass which) {
    ProbeKernel probe = instructionProbe(which, model.target);
    Result<Run> run = best(probe);
    if (!run)
      return run.error();
    if (which == dsl::InstructionClass::Ffma)
      figures.push_back({"clock", "GHz", model.clockGHz, run->cycles / run->microseconds * 1e-3});
    add(std::string(dsl::name(which)), "instructions / cycle", model.rates.of(which), probe, *run);
    return Done{};
  }

  Status products(const std::string &type) {
    auto declared = [&](const auto &rates) -> std::optional<double> {
      auto found = rates.find(type);
      return found == rates.end() ? std::nullopt : std::optional(found->second);
    };
    const std::string unit = "multiply-adds / cycle";
    std::optional<ProbeKernel> wgmma = wgmmaProbe(type, model.target);
    if (wgmma) {
      Result<Run> run = best(*wgmma);
      if (!run)
        return run.error();
      add("tensor " + type, unit, declared(model.rates.tensor), *wgmma, *run);
    }
    if (std::optional<ProbeKernel> mma = mmaProbe(type, model.target)) {
      Result<Run> run = best(*mma);
      if (!run)
        return run.error();
      std::optional<double> own = declared(model.rates.mma);
      add("mma " + type, unit, own || wgmma ? own : declared(model.rates.tensor), *mma, *run);
    }
    return Done{};
  }

  void add(const std::string &what, const std::string &unit, std::optional<double> declared,
           const ProbeKernel &probe, const Run &run) {
    double measured = probe.perTurn * turns * probe.threads / run.cycles;
    figures.push_back({what, unit, declared > 0 ? declared : std::nullopt, measured});
  }

  Result<std::shared_ptr<const LoadedKernel>> load(const std::string &ptx, int threads,
                                                   int64_t sharedBytes) {
    compiler::KernelImage image;
    image.entry = ProbeKernel::entry;
    image.ptx = ptx;
    image.target = model.target;
    image.threads = threads;
    image.sharedBytes = sharedBytes;
    Result<std::string> code = backend.assemble(image);
    if (!code)
      return code.error();
    return backend.load(image, *code);
  }

  Result<double> timed(const LoadedKernel &kernel, int64_t ctas,
                       std::span<const LaunchArgument> arguments) {
    Result<cuda::OwnedStream> stream = cuda::OwnedStream::create(device);
    Result<cuda::Event> begin = cuda::Event::create(device), end = cuda::Event::create(device);
    if (!stream)
      return stream.error();
    if (!begin || !end)
      return (begin ? end : begin).error();
    LaunchShape shape;
    shape.grid.x = static_cast<uint32_t>(ctas);
    if (Status recorded = begin->record(stream->get()); !recorded)
      return recorded.error();
    if (Status launched = backend.launch(kernel, shape, arguments, stream->get()); !launched)
      return launched.error();
    if (Status recorded = end->record(stream->get()); !recorded)
      return recorded.error();
    Result<double> milliseconds = end->since(*begin);
    if (!milliseconds)
      return milliseconds.error();
    return *milliseconds * 1e3;
  }

  // The fastest of some runs, one CTA on each SM.
  Result<Run> best(const ProbeKernel &probe) {
    auto kernel = load(probe.ptx, probe.threads, probe.sharedBytes);
    if (!kernel)
      return kernel.error();
    int64_t ctas = model.smCount;
    Result<Buffer> out = device.allocate(ctas * (8 + int64_t{4} * probe.threads));
    if (!out)
      return out.error();
    DevicePointer address = out->address();
    const uint32_t count = turns, seed = 3;
    const LaunchArgument arguments[] = {{&address, 8}, {&count, 4}, {&seed, 4}};
    std::optional<Run> fastest;
    for (int i = 0; i < 5; ++i) {
      Result<double> time = timed(**kernel, ctas, arguments);
      if (!time)
        return time.error();
      std::vector<uint64_t> cycles(static_cast<size_t>(ctas));
      if (Status read = out->read(cycles.data(), 8 * ctas); !read)
        return read.error();
      auto slowest = static_cast<double>(*std::max_element(cycles.begin(), cycles.end()));
      if (!fastest || slowest < fastest->cycles)
        fastest = Run{slowest, *time};
    }
    return *fastest;
  }

  // Bytes per microsecond of a grid that reads `steps` steps, all of them `times` times.
  Result<double> readRate(const LoadedKernel &kernel, DevicePointer from, DevicePointer out,
                          int64_t ctas, int64_t steps, int64_t times) {
    const auto count = static_cast<uint32_t>(times), each = static_cast<uint32_t>(steps);
    const LaunchArgument arguments[] = {{&out, 8}, {&count, 4}, {&each, 4}, {&from, 8}};
    double fastest = 0;
    for (int i = 0; i < 4; ++i) {
      Result<double> time = timed(kernel, ctas, arguments);
      if (!time)
        return time;
      fastest = std::max(fastest, static_cast<double>(stepBytes(ctas) * steps * times) / *time);
    }
    return fastest;
  }

  static int64_t stepBytes(int64_t ctas) {
    return ctas * ProbeReadKernel::threads * ProbeReadKernel::bytesPerStep;
  }

  Status memory() {
    auto kernel = load(readProbe(model.target).ptx, ProbeReadKernel::threads, 0);
    if (!kernel)
      return kernel.error();
    int64_t declared = std::max(model.l2Bytes, mebi);
    int64_t bytes = std::max(8 * declared, 512 * mebi), ctas = int64_t{4} * model.smCount;
    Result<Buffer> from = device.allocate(bytes);
    Result<Buffer> out = device.allocate(ctas * ProbeReadKernel::threads * 4);
    if (!from || !out)
      return (from ? out : from).error();
    Result<double> bandwidth =
        readRate(**kernel, from->address(), out->address(), ctas, bytes / stepBytes(ctas), 4);
    if (!bandwidth)
      return bandwidth.error();
    figures.push_back({"bandwidth", "GB/s", model.bandwidthGBs, *bandwidth * 1e-3});
    std::vector<std::pair<double, double>> rates;
    ctas = model.smCount;
    int64_t before = 0;
    for (int64_t set = declared / 8; set <= 4 * declared; set += set / 8) {
      int64_t steps = set / stepBytes(ctas);
      if (steps == before || steps == 0)
        continue;
      before = steps;
      int64_t times = std::max<int64_t>(2, 1024 * mebi / (steps * stepBytes(ctas)));
      Result<double> rate = readRate(**kernel, from->address(), out->address(), ctas, steps, times);
      if (!rate)
        return rate.error();
      rates.emplace_back(steps * stepBytes(ctas), *rate);
    }
    figures.push_back(
        {"L2", "MiB", static_cast<double>(model.l2Bytes) / mebi, largestCached(rates) / mebi});
    return Done{};
  }

  const Device &device;
  Backend &backend;
  const compiler::DeviceModel &model;
  std::vector<ProbedFigure> figures;
};

} // namespace

double largestCached(const std::vector<std::pair<double, double>> &rates) {
  double fastest = 0;
  for (const auto &[bytes, rate] : rates)
    fastest = std::max(fastest, rate);
  double cached = 0;
  for (const auto &[bytes, rate] : rates)
    if (rate >= (fastest + rates.back().second) / 2)
      cached = bytes;
  return cached;
}

Result<std::vector<ProbedFigure>> probe(const Device &device) {
  if (device.isEmulated())
    return makeError(DiagId::probe_needs_gpu, {device.name()});
  Progress progress("measuring");
  return Prober(device).run();
}

} // namespace rho::tool
