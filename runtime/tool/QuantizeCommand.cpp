#include "dsl/Findings.h"
#include "kernels/quantize/QuantizeFile.h"
#include "kernels/quantize/QuantizedFile.h"
#include "runtime/tool/FormatOption.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

namespace rho::tool {

static void printSummary(const kernels::QuantizeFileSummary &summary, double milliseconds) {
  double bits = 8 * static_cast<double>(summary.storedBytes) / static_cast<double>(summary.numbers);
  printLine("weights", std::to_string(summary.quantized) + " tensors, " +
                           std::to_string(summary.numbers) + " numbers, " +
                           byteCount(summary.weightBytes) + " to " +
                           byteCount(summary.storedBytes) + ", " + bitCount(bits));
  printLine("copied",
            std::to_string(summary.copied) + " tensors, " + byteCount(summary.copiedBytes));
  if (summary.residualBlocks > 0)
    printLine("residual", std::to_string(summary.storedBlocks) + " of " +
                              std::to_string(summary.residualBlocks) + " blocks");
  if (summary.lost.lost > 0)
    printLine("lost", std::to_string(summary.lost.lost) + " of " +
                          std::to_string(summary.lost.groups) +
                          " groups lost their largest number, " + std::to_string(summary.mostLost) +
                          " of them in '" + dsl::shown(summary.mostLostTensor) +
                          "': 'rho error' shows all tensors");
  double rate = static_cast<double>(summary.inputBytes) / milliseconds / 1e6;
  printLine("time",
            shortNumber(milliseconds / 1e3) + " s, " + shortNumber(rate) + " GB/s of the input");
}

// The steps, and the inputs of the layers that they are found on.
static Status readSteps(const Options &options, kernels::QuantizeFileOptions &task) {
  task.steps.smooth = options.has("--smooth");
  task.steps.refine = options.has("--refine");
  task.steps.permute = options.count("--permute");
  if (std::optional<int64_t> seed = options.count("--rotate"))
    task.steps.rotate = static_cast<uint64_t>(*seed);
  for (const char *calibrated : {"--smooth", "--refine", "--permute"})
    if (options.has(calibrated) && !options.has("--activations"))
      return makeError(DiagId::option_missing,
                       {"--activations", std::string(calibrated) + " needs inputs of the layers"});
  if (options.has("--activations")) {
    auto opened = kernels::SafetensorsFile::open(options.text("--activations"));
    if (!opened)
      return opened.error();
    task.activations = std::make_shared<kernels::SafetensorsFile>(std::move(*opened));
  }
  Result<std::shared_ptr<const dsl::Format>> format = activationFormatOf(options);
  if (!format)
    return format.error();
  task.activationFormat = std::move(*format);
  return Done{};
}

// Those of --format-of. Errors: format_pattern, those of openWeightFormat.
static Result<std::vector<kernels::FormatOfWeights>> formatsOf(const Options &options) {
  std::vector<kernels::FormatOfWeights> formats;
  for (const auto &[pattern, named] : options.assignments("--format-of")) {
    if (pattern.empty() || named.empty())
      return makeError(DiagId::format_pattern, {dsl::shown(pattern + "=" + named)});
    Result<std::shared_ptr<const dsl::Format>> format = openWeightFormat(named);
    if (!format)
      return format.error();
    formats.push_back({pattern, std::move(*format)});
  }
  return formats;
}

Result<int> quantizeCommand(const Options &options) {
  Result<std::string> from = options.onlyFile();
  if (!from)
    return from.error();
  for (const char *needed : {"--format", "-o"})
    if (!options.has(needed))
      return makeError(DiagId::option_missing,
                       {needed, "'rho quantize FILE --format FORMAT -o FILE' has both"});
  Result<std::shared_ptr<const dsl::Format>> format = openWeightFormat(options.text("--format"));
  if (!format)
    return format.error();
  Result<std::vector<kernels::FormatOfWeights>> formats = formatsOf(options);
  if (!formats)
    return formats.error();
  const std::string to = options.text("-o");
  printLine("input", *from);
  auto printFormat = [](const dsl::Format &printed, const std::string &of) {
    printLine("format", printed.name + ", " + bitCount(printed.bitsPerElement()) + of);
  };
  for (const kernels::FormatOfWeights &each : *formats)
    printFormat(*each.format, ", of '" + dsl::shown(each.pattern) + "'");
  printFormat(**format, formats->empty() ? "" : ", of all others");

  kernels::QuantizeFileOptions task;
  if (Status steps = readSteps(options, task); !steps)
    return steps.error();
  Stopwatch watch;
  Result<kernels::QuantizeFileSummary> summary = [&] {
    Progress progress("reading " + *from);
    task.format = *format;
    task.formats = std::move(*formats);
    for (const auto &[name, others] : options.assignments("--together"))
      task.together.push_back({name, others});
    task.tensors = {options.texts("--only"), options.texts("--skip")};
    task.metadata[kernels::versionKey] = RHO_VERSION;
    task.threads = options.threads();
    task.progress = [&](int64_t done, int64_t total, const std::string &name) {
      progress.update("quantizing " + progressBar(done, total) + ", " + dsl::visible(name));
    };
    return kernels::quantizeFile(*from, to, task);
  }();
  if (!summary)
    return summary.error();
  printSummary(*summary, watch.milliseconds());
  if (task.steps.permute)
    printLine("blocks", std::to_string(summary->blocks.after) + " of " +
                            std::to_string(summary->blocks.all) + " without outliers, " +
                            std::to_string(summary->blocks.before) + " before");
  printLine("output", to + ", " + byteCount(summary->outputBytes));
  return success;
}

} // namespace rho::tool
