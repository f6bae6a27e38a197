#include "compiler/Parallel.h"
#include "compiler/Plan.h"
#include "kernels/Synthetic.h"
#include "runtime/Kernel.h"
#include "runtime/cuda/Timing.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Inputs.h"
#include "runtime/tool/Operands.h"
#include "runtime/tool/RandomProblems.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace rho::tool {

namespace {

constexpr size_t compiledAtOnce = 64;
constexpr size_t reportEvery = 20;
constexpr int64_t mostProblems = 1'000'000; // all are in memory

struct VerifyRow {
  std::string device, gemm, launch;
  GemmShape shape;
  Comparison comparison;
  Comparison exact;   // of numbers with exact sums, where the first one says little
  std::string result; // "PASS", "FAIL" or why there is none
};

const std::vector<CsvColumn<VerifyRow>> &verifyColumns() {
  static const std::vector<CsvColumn<VerifyRow>> all = {
      {"device", [](const VerifyRow &row) { return row.device; }},
      {"gemm", [](const VerifyRow &row) { return row.gemm; }},
      {"launch", [](const VerifyRow &row) { return row.launch; }},
      {"m", [](const VerifyRow &row) { return std::to_string(row.shape.m); }},
      {"n", [](const VerifyRow &row) { return std::to_string(row.shape.n); }},
      {"k", [](const VerifyRow &row) { return std::to_string(row.shape.k); }},
      {"outputs", [](const VerifyRow &row) { return std::to_string(row.comparison.checked); }},
      {"largest_error",
       [](const VerifyRow &row) {
         return shortNumber(row.comparison.largestError.judgement.error);
       }},
      {"its_bound",
       [](const VerifyRow &row) {
         return shortNumber(row.comparison.largestError.judgement.bound);
       }},
      {"worst_error_over_bound",
       [](const VerifyRow &row) { return shortNumber(row.comparison.worstRatio.judgement.ratio); }},
      {"loose", [](const VerifyRow &row) { return std::to_string(row.comparison.loose); }},
      {"exact_outputs", [](const VerifyRow &row) { return std::to_string(row.exact.checked); }},
      {"exact_over_bound",
       [](const VerifyRow &row) { return shortNumber(row.exact.worstRatio.judgement.ratio); }},
      {"result", [](const VerifyRow &row) { return row.result; }},
  };
  return all;
}

// On a GPU several launches in a row: each finds the workspace as the last one left it, and
// dependent ones overlap.
Status launchAll(const Device &device, const Operands &operands) {
  if (device.isEmulated())
    return operands.ready.launch(operands.packed, nullptr);
  constexpr int launches = 3;
  Result<cuda::OwnedStream> stream = cuda::OwnedStream::create(device);
  if (!stream)
    return stream.error();
  for (int i = 0; i < launches; ++i)
    if (Status launched = operands.ready.launch(operands.packed, stream->get()); !launched)
      return launched;
  return device.synchronize(stream->get());
}

Result<Comparison> check(const Device &device, const Gemm &gemm, const dsl::MatrixView &w,
                         const dsl::MatrixView &x, std::optional<compiler::Summing> by = {}) {
  GemmShape shape = gemm.shape();
  Result<Operands> operands = makeOperands(device, gemm, w, x);
  if (!operands)
    return operands.error();
  if (Status launched = launchAll(device, *operands); !launched)
    return launched.error();
  Result<HostOutput> output = readOutput(operands->ready);
  if (!output)
    return output.error();
  Result<Comparison> comparison =
      compare(*operands, *output, verifyMode("", {shape.m, shape.n, shape.k}), by);
  if (comparison)
    comparison->outside += operands->differing;
  return comparison;
}

Result<Comparison> checkSynthetic(const Device &device, const Gemm &gemm, int64_t seed) {
  Sources sources;
  sources.shape = gemm.shape();
  sources.seed = seed;
  const HostMatrix w = weightOf(sources);
  const Result<HostMatrix> x = activationOf(sources);
  return x ? check(device, gemm, w.view, x->view) : x.error();
}

// Sums of these are exact however they are added, so that the bound is that of floats.
Result<Comparison> checkExact(const Device &device, const Gemm &gemm, int64_t seed) {
  const auto [m, n, k] = gemm.shape();
  const std::vector<float> w = kernels::exactWeight(n, k, static_cast<uint64_t>(seed)),
                           x = kernels::exactActivation(m, k, static_cast<uint64_t>(seed));
  constexpr auto f32 = dsl::MatrixView::Type::F32;
  return check(device, gemm, {w.data(), f32, n, k, k}, {x.data(), f32, m, k, k},
               compiler::Summing::Emulator);
}

VerifyRow checkedRow(const Device &device, const BenchGemm &declared, const GemmShape &shape,
                     const Result<Gemm> &gemm, int64_t seed) {
  VerifyRow row;
  row.device = device.name() + " " + device.target();
  row.gemm = declared.name;
  row.shape = shape;
  row.result = "FAIL";
  if (gemm)
    row.launch = launchName(gemm->impl().image().dependentLaunch);
  Status room = checkHostMemory(shape);
  auto failed = [&](const Error &error) {
    const Diagnostic &first = error.diagnostics[0];
    row.result = first.message + " [" + std::string(name(first.id)) + "]";
    return row;
  };
  if (!gemm || !room)
    return failed(gemm ? room.error() : gemm.error());
  Result<Comparison> comparison = checkSynthetic(device, *gemm, seed);
  if (!comparison)
    return failed(comparison.error());
  row.comparison = *comparison;
  if (row.comparison.saysLittle()) {
    Result<Comparison> exact = checkExact(device, *gemm, seed);
    if (!exact)
      return failed(exact.error());
    row.exact = *exact;
  }
  if (row.comparison.passed() && row.exact.passed())
    row.result = "PASS";
  return row;
}

// How to see one problem alone.
std::string runLine(const BenchGemm &gemm, const GemmShape &shape, const std::string &device,
                    int64_t seed) {
  std::string launch; // as asked for
  const dsl::Gemm *declared = gemm.module.impl().module.findGemm(gemm.name);
  if (declared && declared->schedule.dependent)
    launch = launchName(*declared->schedule.dependent);
  return "rho run " + shellWord(gemm.file) + " --gemm " + gemm.name + " --m " +
         std::to_string(shape.m) + " --n " + std::to_string(shape.n) + " --k " +
         std::to_string(shape.k) + " --seed " + std::to_string(seed) + " --device " +
         shellWord(device) + " --untuned" + (launch.empty() ? "" : " --launch " + launch);
}

// What problems are at most. Errors: bad_option_value.
Result<GemmShape> largestProblem(const Options &options) {
  GemmShape most{300, 2000, 4000};
  for (auto [name, extent, limit] : {std::tuple{"--m", &most.m, compiler::largestBatch},
                                     std::tuple{"--n", &most.n, compiler::largestExtent},
                                     std::tuple{"--k", &most.k, compiler::largestExtent}}) {
    *extent = options.count(name).value_or(*extent);
    if (*extent > limit)
      return makeError(DiagId::bad_option_value,
                       {name, std::to_string(*extent), "at most " + std::to_string(limit)});
  }
  return most;
}

std::vector<Result<Gemm>> compileAll(const Engine &engine, const std::vector<BenchGemm> &gemms,
                                     std::span<const RandomProblem> problems) {
  std::vector<Result<Gemm>> compiled(problems.size(), Gemm());
  Progress progress("compiling");
  parallelFor(static_cast<int64_t>(problems.size()), [&](int64_t i) {
    const RandomProblem &problem = problems[static_cast<size_t>(i)];
    const BenchGemm &gemm = gemms[problem.gemm];
    compiled[static_cast<size_t>(i)] = engine.compile(gemm.module, gemm.name, problem.shape);
  });
  return compiled;
}

} // namespace

Result<int> verifyCommand(const Options &options) {
  Result<std::vector<BenchGemm>> gemms = chooseGemms(options);
  if (!gemms)
    return gemms.error();
  const std::string deviceName = options.text("--device", "auto");
  Result<Device> device = openDevice(deviceName);
  if (!device)
    return device.error();
  EngineOptions engineOptions;
  engineOptions.diskCache = false;
  engineOptions.useTuned = false;
  Result<Engine> engine = Engine::create(*device, engineOptions);
  if (!engine)
    return engine.error();
  int64_t seed = options.count("--seed").value_or(1);
  const int64_t count = options.count("--count").value_or(200);
  if (count > mostProblems)
    return makeError(DiagId::bad_option_value,
                     {"--count", std::to_string(count), "at most " + std::to_string(mostProblems)});
  Result<GemmShape> most = largestProblem(options);
  if (!most)
    return most.error();
  std::vector<RandomProblem> problems =
      randomProblems(count, gemms->size(), *most, static_cast<uint64_t>(seed));
  printLine("device", deviceText(*device));

  std::vector<VerifyRow> rows;
  size_t failed = 0;
  for (size_t begin = 0; begin < problems.size(); begin += compiledAtOnce) {
    size_t end = std::min(problems.size(), begin + compiledAtOnce);
    const std::vector<Result<Gemm>> compiled =
        compileAll(*engine, *gemms, std::span(problems).subspan(begin, end - begin));
    Progress progress("checking");
    for (size_t i = begin; i < end; ++i) {
      const BenchGemm &gemm = (*gemms)[problems[i].gemm];
      const GemmShape &shape = problems[i].shape;
      VerifyRow &row =
          rows.emplace_back(checkedRow(*device, gemm, shape, compiled[i - begin], seed));
      progress.update("checking " + progressBar(static_cast<int64_t>(i + 1),
                                                static_cast<int64_t>(problems.size())));
      if (row.result != "PASS") {
        ++failed;
        printLine("failed", gemm.title() + ": " + row.result);
        printLine("", runLine(gemm, shape, deviceName, seed));
      }
      if (rows.size() % reportEvery == 0 || rows.size() == problems.size())
        printLine("checked", std::to_string(rows.size()) + " of " +
                                 std::to_string(problems.size()) + ", " + std::to_string(failed) +
                                 " failed");
    }
  }
  const auto loose = std::count_if(
      rows.begin(), rows.end(), [](const VerifyRow &row) { return row.comparison.saysLittle(); });
  if (loose > 0)
    printLine("loose", std::to_string(loose) + " of " + std::to_string(rows.size()) +
                           " have bounds of which a quarter are larger than the output: they "
                           "were checked again with numbers whose sums are exact");
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), csv(verifyColumns(), rows)); !written)
      return written.error();
  return failed == 0 ? success : failure;
}

} // namespace rho::tool
