#include "dsl/Findings.h"
#include "runtime/Kernel.h"
#include "runtime/tool/BarChart.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Inputs.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Timing.h"
#include "runtime/tool/Tool.h"

#include "dsl/Quantize.h"
#include "kernels/Synthetic.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <unistd.h>

namespace rho::tool {

namespace {

constexpr const char *defaultFolder = "kernels/gemms";
constexpr int memoryHits = 1000;

// A folder that is gone with the object.
class TemporaryFolder {
public:
  static Result<std::unique_ptr<TemporaryFolder>> create() {
    std::error_code error;
    std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    std::string pattern = (parent / "rho-bench-XXXXXX").string();
    if (error || !mkdtemp(pattern.data()))
      return makeError(DiagId::file_not_writable, {pattern, "no temporary folder can be made"});
    return std::make_unique<TemporaryFolder>(pattern);
  }
  explicit TemporaryFolder(std::string path) : path(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  const std::string path;
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

struct Row {
  std::string file, gemm, device, target;
  GemmShape shape;
  Latency latency;
  int64_t weightBytes = 0;
  std::optional<double> microseconds, bandwidthShare;
  std::optional<EmulatedTime> emulated;
};

struct Column {
  const char *name;
  std::string (*value)(const Row &row);
};

std::string optional(const std::optional<double> &value) {
  return value ? shortNumber(*value) : "";
}

// Quoted where the text holds what separates cells (RFC 4180).
std::string cell(const std::string &text) {
  if (text.find_first_of(",\"\n") == std::string::npos)
    return text;
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

const std::vector<Column> &columns() {
  static const std::vector<Column> all = {
      {"file", [](const Row &row) { return cell(row.file); }},
      {"gemm", [](const Row &row) { return row.gemm; }},
      {"device", [](const Row &row) { return cell(row.device); }},
      {"target", [](const Row &row) { return row.target; }},
      {"m", [](const Row &row) { return std::to_string(row.shape.m); }},
      {"n", [](const Row &row) { return std::to_string(row.shape.n); }},
      {"k", [](const Row &row) { return std::to_string(row.shape.k); }},
      {"parse_ms", [](const Row &row) { return shortNumber(row.latency.parse); }},
      {"plan_ms", [](const Row &row) { return shortNumber(row.latency.stage("plan")); }},
      {"rho_ms", [](const Row &row) { return shortNumber(row.latency.stage("rho")); }},
      {"tile_ms", [](const Row &row) { return shortNumber(row.latency.stage("tile")); }},
      {"llvm_ms", [](const Row &row) { return shortNumber(row.latency.stage("llvm")); }},
      {"ptx_ms", [](const Row &row) { return shortNumber(row.latency.stage("ptx")); }},
      {"assemble_ms", [](const Row &row) { return shortNumber(row.latency.stage("assemble")); }},
      {"load_ms", [](const Row &row) { return shortNumber(row.latency.stage("load")); }},
      {"quantizer_ms", [](const Row &row) { return shortNumber(row.latency.stage("quantizer")); }},
      {"text_to_ptx_ms", [](const Row &row) { return shortNumber(row.latency.textToPtx()); }},
      {"ptx_to_loaded_ms", [](const Row &row) { return shortNumber(row.latency.ptxToLoaded()); }},
      {"text_to_loaded_ms", [](const Row &row) { return shortNumber(row.latency.textToLoaded()); }},
      {"ready_ms", [](const Row &row) { return shortNumber(row.latency.ready()); }},
      {"disk_hit_ms", [](const Row &row) { return shortNumber(row.latency.disk); }},
      {"memory_hit_us", [](const Row &row) { return shortNumber(row.latency.memory * 1e3); }},
      {"weight_bytes", [](const Row &row) { return std::to_string(row.weightBytes); }},
      {"kernel_us", [](const Row &row) { return optional(row.microseconds); }},
      {"weight_gb_per_s",
       [](const Row &row) {
         return row.microseconds
                    ? shortNumber(gigabytesPerSecond(row.weightBytes, *row.microseconds))
                    : "";
       }},
      {"bandwidth_percent", [](const Row &row) { return optional(row.bandwidthShare); }},
      {"tops",
       [](const Row &row) {
         return row.microseconds ? shortNumber(teraOperations(row.shape, *row.microseconds)) : "";
       }},
      {"emulated_thread_instructions",
       [](const Row &row) {
         return row.emulated ? std::to_string(row.emulated->threadInstructions) : "";
       }},
      {"emulated_mips",
       [](const Row &row) { return row.emulated ? shortNumber(row.emulated->mips()) : ""; }},
  };
  return all;
}

std::string csv(const std::vector<Row> &rows) {
  std::string text;
  for (const Column &column : columns())
    text += (text.empty() ? "" : ",") + std::string(column.name);
  text += "\n";
  for (const Row &row : rows) {
    std::string line;
    for (const Column &column : columns())
      line += (&column == &columns().front() ? "" : ",") + column.value(row);
    text += line + "\n";
  }
  return text;
}

void print(const Row &row) {
  const Latency &latency = row.latency;
  printLine("gemm", row.gemm + " on " + row.device + ", m = " + std::to_string(row.shape.m) +
                        ", n = " + std::to_string(row.shape.n) +
                        ", k = " + std::to_string(row.shape.k));
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

std::string plot(const std::vector<Row> &rows, const Device &device) {
  std::vector<Bar> bars;
  for (const Row &row : rows) {
    std::optional<double> value = row.bandwidthShare;
    if (row.emulated)
      value = row.emulated->mips();
    if (value)
      bars.push_back({row.gemm + ", m = " + std::to_string(row.shape.m) + ", n = " +
                          std::to_string(row.shape.n) + ", k = " + std::to_string(row.shape.k),
                      *value});
  }
  return barChart("rho bench on " + device.name() + ", " + device.target(),
                  device.isEmulated() ? "million thread-instructions a second"
                                      : "packed weight read, % of the memory bandwidth",
                  bars);
}

// Weights by declaration and shape: quantizing takes longer than all that is measured.
class Weights {
public:
  explicit Weights(uint64_t seed) : seed(seed) {}

  Result<std::shared_ptr<const dsl::QuantizedMatrix>> get(const Gemm &gemm) {
    std::shared_ptr<const dsl::Format> format = gemm.impl().weight();
    GemmShape shape = gemm.shape();
    std::string key = dsl::print(*format) + std::to_string(shape.n) + "x" + std::to_string(shape.k);
    if (key == lastKey)
      return last;
    last = nullptr; // one at a time: each can fill much of the memory
    std::vector<float> values = kernels::syntheticWeight(shape.n, shape.k, seed);
    dsl::MatrixView view{values.data(), dsl::MatrixView::Type::F32, shape.n, shape.k, shape.k};
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(std::move(format), view, true);
    if (!codes)
      return codes.error();
    last = std::make_shared<const dsl::QuantizedMatrix>(std::move(*codes));
    lastKey = std::move(key);
    return last;
  }

private:
  uint64_t seed;
  std::string lastKey;
  std::shared_ptr<const dsl::QuantizedMatrix> last;
};

class Bench {
public:
  Bench(const Device &device, uint64_t seed, std::string folder)
      : device(device), seed(seed), weights(seed), folder(std::move(folder)) {}

  Result<Row> measure(const std::string &path, const std::string &name, const GemmShape &shape) {
    if (Status room = checkHostMemory(shape); !room)
      return room.error();
    Progress progress("measuring " + name);
    Row row;
    row.file = path;
    row.gemm = name;
    row.device = device.name();
    row.target = device.target();
    row.shape = shape;
    Result<Gemm> gemm = measureLatency(path, name, shape, row.latency);
    if (!gemm)
      return gemm.error();
    row.weightBytes = gemm->packedWeightBytes();
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
    auto compile = [&](bool diskCache, double &milliseconds, bool again = false) -> Result<Gemm> {
      EngineOptions options;
      options.diskCache = diskCache;
      options.cacheDirectory = folder;
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
    double filling = 0;
    if (Result<Gemm> filled = compile(true, filling); !filled)
      return filled;
    if (Result<Gemm> hit = compile(true, latency.disk); !hit)
      return hit;
    return cold;
  }

  Status measureKernel(const Gemm &gemm, Row &row) {
    const GemmShape &shape = row.shape;
    Result<std::shared_ptr<const dsl::QuantizedMatrix>> codes = weights.get(gemm);
    if (!codes)
      return codes.error();
    Result<Buffer> weight = gemm.packQuantized(**codes);
    if (!weight)
      return weight.error();
    Result<Activations> activations = gemm.makeActivations();
    if (!activations)
      return activations.error();
    std::vector<float> x = kernels::syntheticActivation(shape.m, shape.k, seed);
    int64_t inputBytes = shape.m * shape.k * 4;
    Result<Buffer> input = device.allocate(inputBytes);
    if (!input)
      return input.error();
    if (Status written = input->write(x.data(), inputBytes); !written)
      return written;
    Status done =
        gemm.quantizeActivations(*activations, input->address(), ScalarType::F32, shape.k);
    if (done)
      done = device.synchronize();
    if (!done)
      return done;
    Result<Buffer> output =
        device.allocate(shape.m * shape.n * (gemm.outputType() == ScalarType::F32 ? 4 : 2));
    if (!output)
      return output.error();
    Result<Buffer> workspace = device.allocate(gemm.workspaceBytes());
    if (!workspace)
      return workspace.error();
    ReadyGemm prepared{gemm, std::move(*weight), std::move(*output), std::move(*workspace),
                       std::move(*activations)};
    return device.isEmulated() ? timeEmulated(prepared, row) : timeGpu(prepared, row);
  }

  Status timeEmulated(const ReadyGemm &prepared, Row &row) {
    Result<EmulatedTime> time = launchEmulated(device, prepared);
    if (!time)
      return time.error();
    row.emulated = *time;
    return Done{};
  }

  Status timeGpu(const ReadyGemm &prepared, Row &row) {
    Result<GpuTime> time = timeOnGpu(device, prepared);
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
  uint64_t seed;
  Weights weights;
  std::string folder;
};

// The named files, or those of the shipped gemms in order of name.
Result<std::vector<std::string>> chooseFiles(const Options &options) {
  if (!options.files().empty())
    return options.files();
  std::vector<std::string> files;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(defaultFolder, error))
    if (entry.path().extension() == ".rho")
      files.push_back(entry.path().string());
  if (files.empty())
    return makeError(
        DiagId::option_missing,
        {"FILE.rho", std::string("there is no folder ") + defaultFolder + " with such files here"});
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<int64_t> countsOr(const Options &options, const char *name,
                              std::vector<int64_t> otherwise) {
  return options.has(name) ? options.counts(name) : std::move(otherwise);
}

} // namespace

Result<int> benchCommand(const Options &options) {
  // Cold must mean cold: the driver would keep what it assembles in a cache of its own.
  setenv("CUDA_CACHE_DISABLE", "1", 1); // NOLINT(concurrency-mt-unsafe): no other thread runs yet
  Result<std::vector<std::string>> files = chooseFiles(options);
  if (!files)
    return files.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  Result<std::unique_ptr<TemporaryFolder>> folder = TemporaryFolder::create();
  if (!folder)
    return folder.error();
  int64_t extent = device->isEmulated() ? 256 : 8192;
  std::vector<int64_t> sizesM = countsOr(options, "--m", {1, 16});
  std::vector<int64_t> sizesN = countsOr(options, "--n", {extent});
  std::vector<int64_t> sizesK = countsOr(options, "--k", {extent});

  Bench bench(*device, static_cast<uint64_t>(options.count("--seed").value_or(1)), (*folder)->path);
  std::vector<Row> rows;
  int code = success;
  for (const std::string &file : *files) {
    Result<Module> module = Module::load(file);
    if (!module)
      return module.error();
    std::vector<std::string> gemms = module->gemms();
    if (options.has("--gemm"))
      gemms = {options.text("--gemm")};
    for (const std::string &gemm : gemms)
      for (int64_t n : sizesN)
        for (int64_t k : sizesK)
          for (int64_t m : sizesM) {
            GemmShape shape{m, n, k};
            Result<Row> row = bench.measure(file, gemm, shape);
            if (!row) {
              // The other shapes are still of interest.
              std::fputs(row.error().str().c_str(), stderr);
              code = failure;
              continue;
            }
            print(*row);
            rows.push_back(std::move(*row));
          }
  }
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), csv(rows)); !written)
      return written.error();
  if (options.has("--plot"))
    if (Status written = writeText(options.text("--plot"), plot(rows, *device)); !written)
      return written.error();
  return code;
}

} // namespace rho::tool
