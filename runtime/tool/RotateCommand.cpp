#include "dsl/Findings.h"
#include "kernels/quantize/RotateFile.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

namespace rho::tool {

Result<int> rotateCommand(const Options &options) {
  Result<std::string> from = options.onlyFile();
  if (!from)
    return from.error();
  for (const char *needed : {"--inputs", "--outputs", "-o"})
    if (!options.has(needed))
      return makeError(DiagId::option_missing,
                       {needed, "'rho rotate FILE --inputs GLOB --outputs GLOB -o FILE' has all"});
  kernels::RotateFileOptions task{.inputs = options.texts("--inputs"),
                                  .outputs = options.texts("--outputs"),
                                  .fusions = {},
                                  .block = options.count("--block"),
                                  .seed = {},
                                  .threads = options.threads(),
                                  .progress = {}};
  for (const auto &[norm, weights] : options.assignments("--fuse"))
    task.fusions.push_back({norm, weights});
  if (std::optional<int64_t> seed = options.count("--seed"))
    task.seed = static_cast<uint64_t>(*seed);
  const std::string to = options.text("-o");
  printLine("input", *from);
  Stopwatch watch;
  Result<kernels::RotateFileSummary> summary = [&] {
    Progress progress("reading " + *from);
    task.progress = [&](int64_t done, int64_t total, const std::string &name) {
      progress.update("rotating " + progressBar(done, total) + ", " + dsl::visible(name));
    };
    return kernels::rotateFile(*from, to, task);
  }();
  if (!summary)
    return summary.error();
  const double milliseconds = watch.milliseconds();
  printLine("rotation", std::to_string(summary->size) + " x " + std::to_string(summary->size) +
                            (task.seed ? ", signs of seed " + std::to_string(*task.seed) : ""));
  printLine("inputs", "of " + std::to_string(summary->inputs) + " weights");
  printLine("outputs", "of " + std::to_string(summary->outputs) + " weights, " +
                           std::to_string(summary->biases) + " biases");
  if (!task.fusions.empty())
    printLine("norms", std::to_string(summary->norms) + " became 1");
  printLine("copied", std::to_string(summary->copied) + " tensors");
  printLine("time", shortNumber(milliseconds / 1e3) + " s, " +
                        shortNumber(static_cast<double>(summary->inputBytes) / milliseconds / 1e6) +
                        " GB/s of the input");
  printLine("output", to + ", " + byteCount(summary->outputBytes));
  return success;
}

} // namespace rho::tool
