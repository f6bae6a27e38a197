#include "compiler/Parallel.h"
#include "kernels/quantize/InputSteps.h"
#include "runtime/Kernel.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/SuiteFloor.h"
#include "runtime/tool/SuitePeers.h"
#include "runtime/tool/Tool.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

namespace rho::tool {

namespace {

class Suite {
public:
  Suite(const Device &device, std::vector<WeightShape> weights, std::vector<int64_t> sizesM,
        uint64_t seed)
      : device(device), weights(std::move(weights)), sizesM(std::move(sizesM)),
        operands(device, seed) {}

  // With `oneWeight` each gemm once more, with one packed weight for all rows.
  Status compile(const std::vector<BenchGemm> &gemms, bool useTuned, bool oneWeight);
  // From then on how long it takes to rotate inputs and quantize them is measured as well.
  Status rotate(uint64_t seed);
  void openPeers();
  Status openFloor();
  // Everything at one weight's shape.
  void measure(size_t weight);

  const SuiteResults &results() const { return found; }
  bool complete() const { return complaints.empty(); }

private:
  std::optional<double> timeQuantizer(const Gemm &gemm, const Activations &activations,
                                      const TimingOperands::Input &input) const;
  Result<SuiteRow> measureGemm(const std::string &name, const Gemm &gemm);
  // Once for each number of bytes at each shape of the weight.
  void measureFloor(const WeightShape &shape, const WeightCopies &weight);
  void take(Result<SuiteRow> row, std::string &line);
  void complain(const Error &error);

  const Device &device;
  const std::vector<WeightShape> weights;
  const std::vector<int64_t> sizesM;
  TimingOperands operands;
  std::optional<SuitePeers> peers;
  std::optional<SuiteFloor> floor;
  std::string floors;           // of the present shape, in words
  std::set<int64_t> floorBytes; // of the present shape
  struct Kernels {
    std::string name, title;
    std::vector<Result<Gemm>> byShape; // [weight][m]
  };
  std::vector<Kernels> kernels;
  std::map<int64_t, InputTransform> rotations; // by k
  SuiteResults found;
  std::set<std::string> complaints; // each is printed once
};

void Suite::complain(const Error &error) {
  if (complaints.insert(error.str()).second)
    std::fputs(error.str().c_str(), stderr);
}

// In as many threads as there are cores, ahead of all timing: loading kernels would disturb it.
Status Suite::compile(const std::vector<BenchGemm> &gemms, bool useTuned, bool oneWeight) {
  EngineOptions options;
  options.useTuned = useTuned;
  Result<Engine> engine = Engine::create(device, options);
  if (!engine)
    return engine.error();
  auto shapes = static_cast<int64_t>(weights.size() * sizesM.size());
  for (const BenchGemm &gemm : gemms)
    kernels.push_back(
        {gemm.name, gemm.title(), std::vector<Result<Gemm>>(static_cast<size_t>(shapes), Gemm())});
  int64_t total = shapes * static_cast<int64_t>(gemms.size());
  Stopwatch watch;
  Progress progress("compiling");
  std::atomic<int64_t> done = 0;
  parallelFor(total, [&](int64_t i) {
    auto gemm = static_cast<size_t>(i / shapes), shape = static_cast<size_t>(i % shapes);
    const WeightShape &weight = weights[shape / sizesM.size()];
    kernels[gemm].byShape[shape] = engine->compile(
        gemms[gemm].module, gemms[gemm].name, {sizesM[shape % sizesM.size()], weight.n, weight.k});
    progress.update("compiling, " + std::to_string(++done) + " of " + std::to_string(total));
  });
  for (const BenchGemm &gemm : oneWeight ? gemms : std::vector<BenchGemm>()) {
    Kernels &shared =
        kernels.emplace_back(Kernels{gemm.name + "_one_weight", gemm.title() + ", one weight", {}});
    for (const WeightShape &weight : weights) {
      Result<std::vector<Gemm>> compiled =
          engine->compileShared(gemm.module, gemm.name, weight.n, weight.k, sizesM);
      for (size_t i = 0; i < sizesM.size(); ++i)
        shared.byShape.push_back(compiled ? Result<Gemm>((*compiled)[i]) : compiled.error());
      total += static_cast<int64_t>(sizesM.size());
      progress.update("compiling, " + std::to_string(total));
    }
  }
  printLine("compiled", std::to_string(total) + " kernels in " +
                            shortNumber(watch.milliseconds() / 1e3) + " s");
  return Done{};
}

Status Suite::rotate(uint64_t seed) {
  Result<Engine> engine = Engine::create(device);
  if (!engine)
    return engine.error();
  for (const WeightShape &weight : weights) {
    Result<kernels::Rotation> rotation = kernels::Rotation::ofSize(weight.k, seed);
    if (!rotation)
      return rotation.error();
    Result<InputTransform> transform = InputTransform::create(
        *engine, weight.k, kernels::inputSteps({.rotation = std::move(*rotation)}));
    if (!transform)
      return transform.error();
    rotations.insert_or_assign(weight.k, std::move(*transform));
  }
  return Done{};
}

void Suite::openPeers() {
  Result<SuitePeers> opened = SuitePeers::create(device);
  if (opened) {
    peers.emplace(std::move(*opened));
    printLine("peers", "cuBLASLt " + peers->version());
  } else {
    printLine("peers", "left out, " + opened.error().diagnostics[0].message);
  }
}

Status Suite::openFloor() {
  Result<SuiteFloor> opened = SuiteFloor::create(device);
  if (!opened)
    return opened.error();
  floor.emplace(std::move(*opened));
  return Done{};
}

void Suite::measureFloor(const WeightShape &shape, const WeightCopies &weight) {
  if (!floorBytes.insert(weight[0].bytes()).second)
    return;
  for (bool dependent : SuiteFloor::launches(device)) {
    Result<SuiteRow> row = floor->measure(dependent, shape, weight);
    if (!row) {
      complain(row.error());
      continue;
    }
    floors += (floors.empty() ? "" : ", ") + byteCount(row->weightBytes) + " " + row->launch +
              ": " + shortNumber(row->time.microseconds) + " us";
    found.add(std::move(*row));
  }
}

Result<SuiteRow> Suite::measureGemm(const std::string &name, const Gemm &gemm) {
  Result<TimingOperands::OfLaunches> all = operands.ofLaunches(gemm);
  if (!all)
    return all.error();
  Result<GpuTime> time = timeOnGpu(device, all->ready, *all->weight);
  if (!time)
    return time.error();
  const GemmShape shape = gemm.shape();
  if (shape.m <= SuiteResults::mostFloorRows)
    measureFloor({shape.n, shape.k}, *all->weight);
  const compiler::KernelImage &image = gemm.impl().image();
  SuiteRow row;
  row.name = name;
  row.device = device.name();
  row.launch = launchName(image.dependentLaunch);
  row.shape = shape;
  row.paddedM = row.shape.m;
  row.time = *time;
  row.weightBytes = gemm.packedWeightBytes();
  row.tile = extentsText({image.tileM, image.tileN, image.tileK});
  row.cluster = extentsText({image.clusterN, image.clusterK});
  row.pipeline = image.pipeline;
  row.splitK = image.splitK;
  const compiler::Plan &plan = gemm.impl().plan();
  row.roles = dsl::name(plan.schedule.roles);
  row.tables = dsl::name(plan.schedule.tables);
  row.planSource = tool::name(gemm.report().planSource);
  row.predicted = gemm.report().predictedMicroseconds;
  row.mmaType = plan.mmaType;
  row.roofline = rooflineMicroseconds(device, row.shape, row.weightBytes, row.mmaType);
  if (!dsl::isPlain(*gemm.impl().activation()))
    row.quantize = timeQuantizer(gemm, all->ready.activations, all->input);
  if (const auto rotation = rotations.find(shape.k); rotation != rotations.end()) {
    Result<Activations> rotated = gemm.makeActivations(rotation->second);
    if (!rotated)
      return rotated.error();
    row.rotateAndQuantize = timeQuantizer(gemm, *rotated, all->input);
  }
  return row;
}

// None where the host quantizes, which no graph captures.
std::optional<double> Suite::timeQuantizer(const Gemm &gemm, const Activations &activations,
                                           const TimingOperands::Input &input) const {
  Result<GpuTime> time = timeOnGpu(device, 1, [&](int, Stream stream) {
    return gemm.quantizeActivations(activations, input.x, input.type, gemm.shape().k, stream);
  });
  return time ? std::optional(time->microseconds) : std::nullopt;
}

void Suite::take(Result<SuiteRow> row, std::string &line) {
  if (!row)
    return complain(row.error());
  line += (line.empty() ? "m = " : ", ") + std::to_string(row->shape.m) + ": " +
          shortNumber(row->time.microseconds) + " us";
  found.add(std::move(*row));
}

void Suite::measure(size_t index) {
  const WeightShape &weight = weights[index];
  std::string shape = weightText(weight.n, weight.k);
  printLine("shape", shape);
  // A long product heats a GPU, which lowers its clock for a while: that of the next kernel's
  // first.
  constexpr std::chrono::milliseconds rest{100};
  auto measureAll = [&](const std::string &name, const auto &one) {
    std::string line;
    std::this_thread::sleep_for(rest);
    for (size_t i = 0; i < sizesM.size(); ++i) {
      Progress progress("measuring " + name + ", " + shape + ", m = " + std::to_string(sizesM[i]));
      take(one(i), line);
    }
    printLine("  " + name, line);
  };
  for (cuda::LtType type : peerTypes)
    if (peers)
      measureAll(peerName(type), [&](size_t i) {
        return peers->measure(type, {sizesM[i], weight.n, weight.k}, operands);
      });
  floors.clear();
  floorBytes.clear();
  for (const Kernels &kernel : kernels)
    measureAll(kernel.title, [&](size_t i) -> Result<SuiteRow> {
      const Result<Gemm> &gemm = kernel.byShape[index * sizesM.size() + i];
      return gemm ? measureGemm(kernel.name, *gemm) : gemm.error();
    });
  if (!floors.empty())
    printLine("  floor", floors);
}

} // namespace

Result<int> suiteCommand(const Options &options) {
  Result<GpuTask> task = openGpuTask(options, DiagId::suite_needs_gpu);
  if (!task)
    return task.error();
  std::vector<WeightShape> weights = chooseWeights(options);
  Suite suite(task->device, weights, options.counts("--m", suiteRows()),
              static_cast<uint64_t>(options.count("--seed").value_or(1)));
  if (Status compiled =
          suite.compile(task->gemms, !options.has("--untuned"), options.has("--one-weight"));
      !compiled)
    return compiled.error();
  if (options.has("--rotate"))
    if (Status rotated = suite.rotate(static_cast<uint64_t>(*options.count("--rotate"))); !rotated)
      return rotated.error();
  suite.openPeers();
  if (Status opened = suite.openFloor(); !opened)
    return opened.error();
  for (size_t i = 0; i < weights.size(); ++i) {
    suite.measure(i);
    // After each shape: what is there stays when a long run is cut off.
    if (options.has("--csv"))
      if (Status written = writeText(options.text("--csv"), suite.results().csv()); !written)
        return written.error();
  }
  std::printf("\n%s", suite.results().tables().c_str());
  if (options.has("--plot"))
    if (Status written = writeText(options.text("--plot"), suite.results().plots()); !written)
      return written.error();
  return suite.complete() ? success : failure;
}

} // namespace rho::tool
