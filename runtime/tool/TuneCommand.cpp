#include "runtime/EngineImpl.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"
#include "runtime/tool/Tuning.h"

#include <atomic>
#include <cstdio>
#include <set>

namespace rho::tool {

namespace {

class Tuner {
public:
  Tuner(const Device &device, Engine engine, int64_t candidates, uint64_t seed)
      : device(device), engine(std::move(engine)), candidates(candidates), operands(device, seed) {}

  void tune(const BenchGemm &gemm, const GemmShape &shape);

  const std::vector<TunedRow> &rows() const { return found; }
  const std::vector<MeasuredRow> &everyCandidate() const { return measured; }
  bool complete() const { return complaints.empty(); }

private:
  Result<double> measure(const Gemm &candidate);
  void complain(const std::string &text);

  const Device &device;
  const Engine engine;
  const int64_t candidates;
  TimingOperands operands;
  std::optional<ExpectedRows> expected; // of the present gemm and shape
  std::vector<TunedRow> found;
  std::vector<MeasuredRow> measured;
  std::set<std::string> complaints; // each is printed once
};

void Tuner::complain(const std::string &text) {
  if (complaints.insert(text).second)
    std::fputs(text.c_str(), stderr);
}

// Checks the result of one launch, then times many.
Result<double> Tuner::measure(const Gemm &candidate) {
  Result<TimingOperands::OfLaunches> all = operands.ofLaunches(candidate);
  if (!all)
    return all.error();
  Result<const dsl::QuantizedMatrix *> codes = operands.codes(candidate);
  if (!codes)
    return codes.error();
  if (!expected || expected->period() != (*codes)->rows) {
    Result<ExpectedRows> exact = ExpectedRows::create(device, candidate, **codes, all->input);
    if (!exact)
      return exact.error();
    expected = std::move(*exact);
  }
  Status done = all->ready.launch((*all->weight)[0], nullptr);
  if (done)
    done = device.synchronize();
  if (done)
    done = expected->check(all->ready);
  if (!done)
    return done.error();
  Result<GpuTime> time = timeOnGpu(device, all->ready, *all->weight);
  if (!time)
    return time.error();
  return time->microseconds;
}

void Tuner::tune(const BenchGemm &gemm, const GemmShape &shape) {
  expected.reset();
  std::string what = gemm.title() + ", m = " + std::to_string(shape.m) + ": ";
  Result<TuneReport> report = [&] {
    Progress progress(what + "planning");
    int64_t count = 0;
    std::atomic<int64_t> total = candidates;
    TuneOptions options;
    options.candidates = candidates;
    options.compiled = [&](int64_t done, int64_t of) {
      total = of;
      progress.update(what + "compiling " + progressBar(done, of));
    };
    return engine.tune(
        gemm.module, gemm.name, shape,
        [&](const Gemm &candidate) {
          Result<double> time = measure(candidate);
          progress.update(what + "measuring " + progressBar(++count, total));
          return time;
        },
        options);
  }();
  if (!report)
    return complain(report.error().str());
  for (const TuneReport::Candidate &candidate : report->candidates)
    if (!candidate.microseconds)
      complain(what + scheduleText(candidate.plan) + ": " + candidate.microseconds.error().str());
  for (const std::string &warning : report->warnings)
    printLine("warning", warning);
  if (!report->kept)
    complain(what + "the plan is not kept\n");
  for (MeasuredRow &each : measuredRows(gemm.name, device, shape, *report))
    measured.push_back(std::move(each));
  const TunedRow &row = found.emplace_back(tunedRow(gemm.name, device, shape, *report));
  printLine("  m = " + std::to_string(shape.m),
            (row.planned ? "planned " + shortNumber(*row.planned) + " us, " : "") + "best " +
                shortNumber(row.best) + " us" +
                (row.planned ? ", ratio " + fixedNumber(*row.ratio(), 3) : "") + ", number " +
                std::to_string(row.rank) + " of " + std::to_string(row.candidates) + ": " +
                row.bestSchedule);
}

} // namespace

Result<int> tuneCommand(const Options &options) {
  if (!options.has("--n-k") && !options.has("--suite"))
    return makeError(DiagId::option_missing,
                     {"--n-k", "it or --suite says what shapes to tune for"});
  Result<GpuTask> task = openGpuTask(options, DiagId::tuner_needs_gpu);
  if (!task)
    return task.error();
  Result<EngineOptions> chosen = engineOptions(options);
  if (!chosen)
    return chosen.error();
  Result<Engine> engine = Engine::create(task->device, *chosen);
  if (!engine)
    return engine.error();
  const std::string &folder = engine->impl().tuned.directory();
  printLine("kept in", folder.empty() ? "no folder: $HOME is not set" : folder);
  Tuner tuner(task->device, *engine, options.count("--candidates").value_or(24),
              static_cast<uint64_t>(options.count("--seed").value_or(1)));
  for (const BenchGemm &gemm : task->gemms)
    for (const WeightShape &weight : chooseWeights(options)) {
      printLine(gemm.title(), weightText(weight.n, weight.k));
      for (int64_t m : options.counts("--m", suiteRows()))
        tuner.tune(gemm, {m, weight.n, weight.k});
      // After each weight: what is there stays when a long run is cut off.
      if (options.has("--csv"))
        if (Status written = writeText(options.text("--csv"), tunedCsv(tuner.rows())); !written)
          return written.error();
      if (options.has("--measured"))
        if (Status written =
                writeText(options.text("--measured"), measuredCsv(tuner.everyCandidate()));
            !written)
          return written.error();
    }
  if (std::string summary = plannerSummary(tuner.rows()); !summary.empty())
    printLine("planner", summary);
  return tuner.complete() ? success : failure;
}

} // namespace rho::tool
