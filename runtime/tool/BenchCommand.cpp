#include "dsl/Findings.h"
#include "runtime/Handles.h"
#include "runtime/files/SignalsHeld.h"
#include "runtime/tool/BarChart.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Inputs.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/TimingOperands.h"
#include "runtime/tool/Tool.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

namespace rho::tool {

namespace {

constexpr int memoryHits = 1000;

// A folder that is gone with the object, and when a signal ends the process.
class TemporaryFolder {
public:
  static Result<std::unique_ptr<TemporaryFolder>> create() {
    const char *named = std::getenv("TMPDIR");
    const bool isNamed = named && *named != '\0';
    const std::string pattern = std::string(isNamed ? named : "/tmp") + "/rho-bench-XXXXXX";
    auto held = std::make_unique<const files::SignalsHeld>(); // before there is a folder to lose
    std::string path = pattern;
    if (!mkdtemp(path.data()))
      return makeError(DiagId::file_not_writable,
                       {pattern, std::string(std::strerror(errno)) +
                                     (isNamed ? ", its folder is that of $TMPDIR" : "")});
    return std::make_unique<TemporaryFolder>(std::move(path), std::move(held));
  }
  TemporaryFolder(std::string path, std::unique_ptr<const files::SignalsHeld> held)
      : path(std::move(path)), held(std::move(held)), watcher([this] { watch(); }) {}
  ~TemporaryFolder() {
    done = true;
    watcher.join();
    remove();
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  // While it lives files may be written: a signal ends the process after it, with none left.
  std::scoped_lock<std::mutex> use() { return std::scoped_lock(writing); }
  const std::string path;

private:
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  void watch() {
    const sigset_t ending = files::SignalsHeld::set();
    constexpr timespec pause{0, 50'000'000};
    while (!done) {
      const int signal = sigtimedwait(&ending, nullptr, &pause);
      struct sigaction action = {};
      if (signal < 0 || sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN)
        continue;
      const std::scoped_lock unused(writing);
      remove();
      pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);
      std::raise(signal);
    }
  }

  const std::unique_ptr<const files::SignalsHeld> held; // for the watcher, by all threads
  std::mutex writing;
  std::atomic<bool> done = false;
  std::thread watcher;
};

// From text to a loaded kernel, each way that there is. Milliseconds.
struct Latency {
  double parse = 0;
  std::map<std::string, double> stages;
  double cold = 0, disk = 0, memory = 0;

  double stage(const char *name) const {
    auto found = stages.find(name);
    return found == stages.end() ? 0 : found->second;
  }
  double textToPtx() const {
    return parse + stage("plan") + stage("rho") + stage("tile") + stage("llvm") + stage("ptx");
  }
  double ptxToLoaded() const { return stage("assemble") + stage("load"); }
  double textToLoaded() const { return textToPtx() + ptxToLoaded(); }
  // Until Engine::compile returns: with publishing and the quantizer, which is built beside it.
  double ready() const { return parse + cold; }
};

struct BenchRow {
  std::string file, gemm, device, target;
  GemmShape shape;
  Latency latency;
  int64_t weightBytes = 0;
  CompileReport::PlanSource planSource{};
  std::optional<double> microseconds, bandwidthShare;
  std::optional<EmulatedTime> emulated;
};

const std::vector<CsvColumn<BenchRow>> &benchColumns() {
  static const std::vector<CsvColumn<BenchRow>> all = {
      {"file", [](const BenchRow &row) { return row.file; }},
      {"gemm", [](const BenchRow &row) { return row.gemm; }},
      {"device", [](const BenchRow &row) { return row.device; }},
      {"target", [](const BenchRow &row) { return row.target; }},
      {"m", [](const BenchRow &row) { return std::to_string(row.shape.m); }},
      {"n", [](const BenchRow &row) { return std::to_string(row.shape.n); }},
      {"k", [](const BenchRow &row) { return std::to_string(row.shape.k); }},
      {"parse_ms", [](const BenchRow &row) { return shortNumber(row.latency.parse); }},
      {"plan_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("plan")); }},
      {"rho_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("rho")); }},
      {"tile_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("tile")); }},
      {"llvm_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("llvm")); }},
      {"ptx_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("ptx")); }},
      {"assemble_ms",
       [](const BenchRow &row) { return shortNumber(row.latency.stage("assemble")); }},
      {"load_ms", [](const BenchRow &row) { return shortNumber(row.latency.stage("load")); }},
      {"quantizer_ms",
       [](const BenchRow &row) { return shortNumber(row.latency.stage("quantizer")); }},
      {"text_to_ptx_ms", [](const BenchRow &row) { return shortNumber(row.latency.textToPtx()); }},
      {"ptx_to_loaded_ms",
       [](const BenchRow &row) { return shortNumber(row.latency.ptxToLoaded()); }},
      {"text_to_loaded_ms",
       [](const BenchRow &row) { return shortNumber(row.latency.textToLoaded()); }},
      {"ready_ms", [](const BenchRow &row) { return shortNumber(row.latency.ready()); }},
      {"disk_hit_ms", [](const BenchRow &row) { return shortNumber(row.latency.disk); }},
      {"memory_hit_us", [](const BenchRow &row) { return shortNumber(row.latency.memory * 1e3); }},
      {"plan_source", [](const BenchRow &row) { return std::string(name(row.planSource)); }},
      {"weight_bytes", [](const BenchRow &row) { return std::to_string(row.weightBytes); }},
      {"kernel_us", [](const BenchRow &row) { return numberOrNone(row.microseconds); }},
      {"weight_gb_per_s",
       [](const BenchRow &row) {
         return row.microseconds
                    ? shortNumber(gigabytesPerSecond(row.weightBytes, *row.microseconds))
                    : "";
       }},
      {"bandwidth_percent", [](const BenchRow &row) { return numberOrNone(row.bandwidthShare); }},
      {"tops",
       [](const BenchRow &row) {
         return row.microseconds ? shortNumber(teraOperations(row.shape, *row.microseconds)) : "";
       }},
      {"emulated_thread_instructions",
       [](const BenchRow &row) {
         return row.emulated ? std::to_string(row.emulated->threadInstructions) : "";
       }},
      {"emulated_mips",
       [](const BenchRow &row) { return row.emulated ? shortNumber(row.emulated->mips()) : ""; }},
  };
  return all;
}

void print(const BenchRow &row) {
  const Latency &latency = row.latency;
  printLine("gemm", row.gemm + " on " + dsl::visible(row.device) + ", " + shapeText(row.shape) +
                        ", " + std::string(name(row.planSource)));
  printLine("  compile", "text to PTX " + shortNumber(latency.textToPtx()) + " ms, PTX to loaded " +
                             shortNumber(latency.ptxToLoaded()) + " ms, text to loaded " +
                             shortNumber(latency.textToLoaded()) + " ms; with the quantizer " +
                             shortNumber(latency.ready()) + " ms");
  std::string stages = "parse " + shortNumber(latency.parse) + " ms";
  for (const char *name : {"plan", "rho", "tile", "llvm", "ptx", "assemble", "load", "quantizer"})
    stages += ", " + std::string(name) + " " + shortNumber(latency.stage(name)) + " ms";
  printLine("  stages", stages);
  printLine("  cache", "from disk " + shortNumber(latency.disk) + " ms, from memory " +
                           shortNumber(latency.memory * 1e3) + " us");
  if (row.microseconds) {
    std::string share =
        row.bandwidthShare ? ", " + fixedNumber(*row.bandwidthShare, 1) + "% of bandwidth" : "";
    printLine("  kernel", shortNumber(*row.microseconds) + " us, " +
                              shortNumber(gigabytesPerSecond(row.weightBytes, *row.microseconds)) +
                              " GB/s of packed weight" + share + ", " +
                              shortNumber(teraOperations(row.shape, *row.microseconds)) + " TOPS");
  }
  if (row.emulated)
    printLine("  emulated", std::to_string(row.emulated->threadInstructions) +
                                " thread-instructions, " + shortNumber(row.emulated->mips()) +
                                " MIPS");
}

std::string plot(const std::vector<BenchRow> &rows, const Device &device) {
  std::vector<Bar> bars;
  for (const BenchRow &row : rows) {
    std::optional<double> value = row.bandwidthShare;
    if (row.emulated)
      value = row.emulated->mips();
    if (value)
      bars.push_back({row.gemm + ", " + shapeText(row.shape), *value});
  }
  return barChart("rho bench on " + deviceText(device),
                  device.isEmulated() ? "million thread-instructions a second"
                                      : "packed weight read, % of the memory bandwidth",
                  bars);
}

class Bench {
public:
  Bench(const Device &device, uint64_t seed, TemporaryFolder &folder, bool useTuned)
      : device(device), operands(device, seed), folder(folder), useTuned(useTuned) {}

  Result<BenchRow> measure(const std::string &path, const std::string &name,
                           const GemmShape &shape) {
    if (Status room = checkHostMemory(shape); !room)
      return room.error();
    Progress progress("measuring " + name);
    BenchRow row;
    row.file = path;
    row.gemm = name;
    row.device = device.name();
    row.target = device.target();
    row.shape = shape;
    Result<Gemm> gemm = measureLatency(path, name, shape, row.latency);
    if (!gemm)
      return gemm.error();
    row.weightBytes = gemm->packedWeightBytes();
    row.planSource = gemm->report().planSource;
    if (Status timed = measureKernel(*gemm, row); !timed)
      return timed.error();
    return row;
  }

private:
  // Each way in an engine of its own, so that none finds what another left in memory.
  Result<Gemm> measureLatency(const std::string &path, const std::string &name,
                              const GemmShape &shape, Latency &latency) {
    Stopwatch parse;
    Result<Module> module = Module::load(path);
    latency.parse = parse.milliseconds();
    if (!module)
      return module.error();
    Result<CacheFolders> usual = cacheFolders();
    if (!usual)
      return usual.error();
    auto compile = [&](bool diskCache, double &milliseconds, bool again = false) -> Result<Gemm> {
      EngineOptions options;
      options.diskCache = diskCache;
      options.cacheDirectory = folder.path;
      options.useTuned = useTuned;
      options.tunedDirectory = usual->tuned.directory;
      Result<Engine> engine = Engine::create(device, options);
      if (!engine)
        return engine.error();
      Stopwatch watch;
      Result<Gemm> gemm = engine->compile(*module, name, shape);
      milliseconds = watch.milliseconds();
      std::vector<double> hits;
      for (int i = 0; again && gemm && i < memoryHits; ++i) {
        Stopwatch hit;
        Result<Gemm> same = engine->compile(*module, name, shape);
        hits.push_back(hit.milliseconds());
        if (!same)
          return same;
      }
      if (again)
        latency.memory = median(std::move(hits));
      return gemm;
    };
    Result<Gemm> cold = compile(false, latency.cold, true);
    if (!cold)
      return cold;
    for (const CompileReport::Stage &stage : cold->report().stages)
      latency.stages[stage.name] += stage.milliseconds;
    const auto used = folder.use();
    double filling = 0;
    if (Result<Gemm> filled = compile(true, filling); !filled)
      return filled;
    if (Result<Gemm> hit = compile(true, latency.disk); !hit)
      return hit;
    return cold;
  }

  Status measureKernel(const Gemm &gemm, BenchRow &row) {
    Result<TimingOperands::OfLaunches> all = operands.ofLaunches(gemm);
    if (!all)
      return all.error();
    if (device.isEmulated()) {
      Result<EmulatedTime> time = launchEmulated(device, all->ready, (*all->weight)[0]);
      if (!time)
        return time.error();
      row.emulated = *time;
      return Done{};
    }
    Result<GpuTime> time = timeOnGpu(device, all->ready, *all->weight);
    if (!time)
      return time.error();
    row.microseconds = time->microseconds;
    double bandwidth = device.impl().backend->model().bandwidthGBs;
    if (bandwidth > 0)
      row.bandwidthShare =
          100 * gigabytesPerSecond(row.weightBytes, time->microseconds) / bandwidth;
    return Done{};
  }

  const Device &device;
  TimingOperands operands;
  TemporaryFolder &folder; // of kernels; tuned plans are where rho tune keeps them
  const bool useTuned;
};

constexpr const char *ofCaches[] = {"--batch", "--length",   "--shortest", "--heads",
                                    "--page",  "--head-dim", "--parts"};

// Errors: option_conflict.
Status checkOfSuite(const Options &options) {
  if (options.has("--kv"))
    return makeError(DiagId::option_conflict, {"--suite", "--kv", "suites are of gemms"});
  for (const char *own : {"--n", "--k"})
    if (options.has(own))
      return makeError(DiagId::option_conflict,
                       {"--suite", own, "a suite has shapes of its own, --n-k replaces them"});
  for (const char *own : ofCaches)
    if (options.has(own))
      return makeError(DiagId::option_conflict, {"--suite", own, "it is for caches only"});
  return Done{};
}

// Errors: option_conflict.
Status checkOfCache(const Options &options) {
  for (const char *own : {"--gemm", "--m", "--n", "--k", "--n-k", "--launch", "--one-weight",
                          "--untuned", "--rotate", "--plot"})
    if (options.has(own))
      return makeError(DiagId::option_conflict,
                       {"--kv", own, "caches have no gemm, and no plan or plot of one"});
  return Done{};
}

// Errors: option_missing.
Status checkOfProblems(const Options &options) {
  for (const char *own : ofCaches)
    if (options.has(own))
      return makeError(DiagId::option_missing, {"--kv", std::string(own) + " is for caches only"});
  for (const char *own : {"--n-k", "--launch", "--one-weight", "--rotate"})
    if (options.has(own))
      return makeError(DiagId::option_missing,
                       {"--suite", std::string(own) + " is for suites only"});
  return Done{};
}

} // namespace

Result<int> benchCommand(const Options &options) {
  const bool suite = options.has("--suite"), cache = options.has("--kv");
  if (Status fit = suite   ? checkOfSuite(options)
                   : cache ? checkOfCache(options)
                           : checkOfProblems(options);
      !fit)
    return fit.error();
  if (suite || cache)
    return suite ? suiteCommand(options) : kvCommand(options);
  // Cold must mean cold: the driver would keep what it assembles in a cache of its own.
  setenv("CUDA_CACHE_DISABLE", "1", 1); // NOLINT(concurrency-mt-unsafe): no other thread runs yet
  Result<std::vector<BenchGemm>> gemms = chooseGemms(options);
  if (!gemms)
    return gemms.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  Result<std::unique_ptr<TemporaryFolder>> folder = TemporaryFolder::create();
  if (!folder)
    return folder.error();
  int64_t extent = device->isEmulated() ? 256 : 8192;
  std::vector<int64_t> sizesM = options.counts("--m", {1, 16});
  std::vector<int64_t> sizesN = options.counts("--n", {extent});
  std::vector<int64_t> sizesK = options.counts("--k", {extent});

  Bench bench(*device, static_cast<uint64_t>(options.count("--seed").value_or(1)), **folder,
              !options.has("--untuned"));
  std::vector<BenchRow> rows;
  int code = success;
  for (const BenchGemm &gemm : *gemms)
    for (int64_t n : sizesN)
      for (int64_t k : sizesK)
        for (int64_t m : sizesM) {
          Result<BenchRow> row = bench.measure(gemm.file, gemm.name, {m, n, k});
          if (!row) {
            // The other shapes are still of interest.
            std::fputs(row.error().str().c_str(), stderr);
            code = failure;
            continue;
          }
          print(*row);
          rows.push_back(std::move(*row));
        }
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), csv(benchColumns(), rows)); !written)
      return written.error();
  if (options.has("--plot"))
    if (Status written = writeText(options.text("--plot"), plot(rows, *device)); !written)
      return written.error();
  return code;
}

} // namespace rho::tool
