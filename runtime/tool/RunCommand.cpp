#include "compiler/TextFields.h"
#include "runtime/Kernel.h"
#include "runtime/tool/Bench.h"
#include "runtime/tool/Inputs.h"
#include "runtime/tool/Operands.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Tool.h"

#include <cstdio>

namespace rho::tool {

namespace {

std::string summary(const dsl::Format &format) {
  std::string text = format.name + ": ";
  if (format.partition) {
    for (const dsl::Part &part : format.partition->parts)
      text += part.name + " " + part.format->name + ", ";
    return text + "per " + dsl::print(format.partition->blocks) + ", " +
           bitCount(format.bitsPerElement());
  }
  for (const dsl::Component &component : format.components) {
    text += component.name + " " + std::string(component.type.name());
    if (component.host >= 0)
      text += " in " + format.components[component.host].name;
    else if (component.extent != dsl::Extent::Element)
      text += " per " + dsl::printExtent(component);
    text += ", ";
  }
  return text + "value = " + dsl::print(*format.value, format) + ", " +
         bitCount(format.bitsPerElement());
}

void printDeclaration(const Gemm &gemm, const Device &device) {
  const dsl::Gemm &declared = *gemm.impl().gemm;
  printLine("gemm", declared.name + ", " + shapeText(gemm.shape()) + ", output " +
                        std::string(declared.output.name()));
  printLine("weight",
            summary(declared.weight) + ", " + byteCount(gemm.packedWeightBytes()) + " packed");
  printLine("activation", summary(declared.activation));
  printStored(*gemm.impl().prepared->target);
  printLine("device", deviceText(device));
}

void printPlan(const CompileReport &report) {
  bool tuned = report.planSource == CompileReport::PlanSource::Tuned;
  printLine("chosen by",
            tuned ? "rho tune, which measured " + shortNumber(report.tunedMicroseconds) + " us"
                  : "the planner");
  std::string_view text = report.plan;
  const char *label = "plan";
  while (std::optional<std::string_view> line = compiler::takeLine(text)) {
    printLine(label, *line);
    label = "";
  }
}

void printCompilation(const Gemm &gemm) {
  const CompileReport &report = gemm.report();
  const compiler::KernelImage &image = gemm.impl().image();
  std::string resources = std::to_string(image.threads) + " threads per CTA, " +
                          byteCount(report.sharedBytes) + " of shared memory per CTA, ";
  resources += report.registers < 0
                   ? "registers not known, no driver was asked"
                   : std::to_string(report.registers) + " registers per thread, " +
                         (report.localBytes > 0 ? byteCount(report.localBytes) + " spilled"
                                                : std::string("no spills"));
  printLine("kernel", resources);
  std::string stages;
  for (const CompileReport::Stage &stage : report.stages)
    stages += stage.name + " " + shortNumber(stage.milliseconds) + " ms, ";
  printLine("compile", stages + "total " + shortNumber(report.totalMilliseconds) + " ms");
  std::string source = report.source == CompileReport::Source::Compiled
                           ? "miss, compiled"
                           : "hit, from " + std::string(name(report.source));
  printLine("cache", source + ", key " + report.key.substr(0, 16));
  for (const std::string &warning : report.warnings)
    printLine("warning", warning);
}

// How many blocks of k each part has of activations that are divided, or stored as numbers.
std::string blocksText(const dsl::QuantizedMatrix &activation) {
  std::string text;
  const int64_t all = activation.choice.size();
  const std::vector<dsl::Part> &parts = activation.format->partition->parts;
  for (size_t part = 0; part < parts.size(); ++part) {
    int64_t own = 0;
    for (int64_t block = 0; block < all; ++block)
      own += activation.choice.get(block) == part;
    text += (part == 0 ? "" : ", ") + std::to_string(own) + " of " + parts[part].name;
  }
  return text + ", " + std::to_string(all) + " in all";
}

Result<Operands> prepare(const Device &device, const Gemm &gemm, const Sources &sources) {
  Result<HostMatrix> x = activationOf(sources);
  if (!x)
    return x.error();
  std::optional<HostMatrix> w;
  if (!sources.codes)
    w = weightOf(sources);
  printLine("inputs", "weight " + (w ? w->description : "quantized, from a file") +
                          "; activation " + x->description);
  Result<Operands> operands = [&] {
    Progress progress("quantizing and packing");
    return w ? makeOperands(device, gemm, w->view, x->view)
             : makeOperands(device, gemm, *sources.codes, x->view);
  }();
  if (operands)
    printLine("packing", "quantized in " + shortNumber(operands->quantizeMilliseconds) +
                             " ms, packed in " + shortNumber(operands->packMilliseconds) + " ms");
  if (operands && operands->activation.format->partition)
    printLine("blocks", blocksText(operands->activation));
  return operands;
}

std::string summary(const Comparison::Place &place) {
  return "y[" + std::to_string(place.m) + "," + std::to_string(place.n) +
         "] = " + shortNumber(place.computed) + ", exact " + shortNumber(place.exact) + ", error " +
         shortNumber(place.judgement.error) + ", bound " + shortNumber(place.judgement.bound);
}

// Prints how the output stands to the reference; whether it is right.
Result<bool> checkOutput(const Operands &operands, const HostOutput &output, VerifyMode mode) {
  if (operands.differing > 0)
    printLine("quantizer",
              std::to_string(operands.differing) + " activation codes differ from the host's rule");
  if (mode == VerifyMode::None) {
    printLine("result", operands.differing > 0 ? "FAIL" : "not checked");
    return operands.differing == 0;
  }
  Result<Comparison> compared = [&] {
    Progress progress("computing the exact reference");
    return compare(operands, output, mode);
  }();
  if (!compared)
    return compared.error();
  const Comparison &comparison = *compared;
  const std::string checked = std::to_string(comparison.checked);
  const std::string all = std::to_string(output.view.rows * output.view.k) + " outputs";
  printLine("largest", summary(comparison.largestError));
  printLine("worst", summary(comparison.worstRatio) + ", error / bound " +
                         shortNumber(comparison.worstRatio.judgement.ratio));
  bool passed = comparison.passed() && operands.differing == 0;
  if (comparison.notFinite > 0)
    printLine("exact", std::to_string(comparison.notFinite) + " values are NaN or infinite");
  if (comparison.saysLittle())
    printLine("loose", std::to_string(comparison.loose) + " of " + checked +
                           " bounds are larger than the output, so that passing says little");
  printLine("result", passed ? "PASS: " + checked + " of " + all + " within the bound"
                      : comparison.passed()
                          ? "FAIL: codes differ from the host's"
                          : "FAIL: " + std::to_string(comparison.outside) + " of " + checked +
                                " that were checked of " + all + " outside the bound");
  return passed;
}

Status printTime(const Device &device, const Operands &operands) {
  if (device.isEmulated())
    return Done{};
  Progress progress("timing");
  std::vector<uint8_t> packed(static_cast<size_t>(operands.packed.bytes()));
  if (Status read = operands.packed.read(packed.data(), operands.packed.bytes()); !read)
    return read;
  Result<WeightCopies> copies = copyWeight(device, operands.packed.bytes(), packed);
  if (!copies)
    return copies.error();
  Result<GpuTime> time = timeOnGpu(device, operands.ready, *copies);
  if (!time)
    return time.error();
  const Gemm &gemm = operands.ready.gemm;
  double bandwidth = device.impl().backend->model().bandwidthGBs;
  double rate = gigabytesPerSecond(gemm.packedWeightBytes(), time->microseconds);
  std::string share =
      bandwidth > 0 ? ", " + fixedNumber(100 * rate / bandwidth, 1) + "% of bandwidth" : "";
  printLine("time", shortNumber(time->microseconds) + " us, " +
                        shortNumber(teraOperations(gemm.shape(), time->microseconds)) + " TOPS, " +
                        shortNumber(rate) + " GB/s of packed weight" + share);
  printLine("", "median of " + std::to_string(time->replays) + " replays of " +
                    std::to_string(time->launches) + " launches over " +
                    std::to_string(copies->size()) + " copies of the weight");
  return Done{};
}

Status launchOnce(const Device &device, const Operands &operands) {
  Progress progress(device.isEmulated() ? "running on the emulator" : "running");
  if (!device.isEmulated()) {
    if (Status launched = operands.ready.launch(operands.packed, nullptr); !launched)
      return launched;
    return device.synchronize();
  }
  Result<EmulatedTime> time = launchEmulated(device, operands.ready, operands.packed);
  if (!time)
    return time.error();
  printLine("emulated", std::to_string(time->threadInstructions) + " thread-instructions in " +
                            shortNumber(time->seconds) + " s, " + shortNumber(time->mips()) +
                            " MIPS");
  return Done{};
}

} // namespace

Result<int> runCommand(const Options &options) {
  Result<std::string> path = options.onlyFile();
  if (!path)
    return path.error();
  std::string outputPath = options.text("--output");
  if (!outputPath.empty() && !outputPath.ends_with(".npy") && !outputPath.ends_with(".safetensors"))
    return makeError(DiagId::tensor_file_kind, {outputPath});
  Result<EngineOptions> chosen = engineOptions(options);
  if (!chosen)
    return chosen.error();
  Result<Module> module = Module::load(*path);
  if (module && options.has("--launch"))
    module = withLaunch(*module, options.text("--launch") == launchName(true));
  if (!module)
    return module.error();
  Result<Sources> sources = openSources(options);
  if (!sources)
    return sources.error();
  Result<Device> device = openDevice(options.text("--device", "auto"));
  if (!device)
    return device.error();
  Result<Engine> engine = Engine::create(*device, *chosen);
  if (!engine)
    return engine.error();
  Result<Gemm> gemm = [&] {
    Progress progress("compiling");
    return engine->compile(*module, options.text("--gemm"), sources->shape);
  }();
  if (!gemm)
    return gemm.error();
  if (Status room = checkHostMemory(sources->shape); !room)
    return room.error();

  printDeclaration(*gemm, *device);
  printPlan(gemm->report());
  printCompilation(*gemm);
  Result<Operands> operands = prepare(*device, *gemm, *sources);
  if (!operands)
    return operands.error();
  if (Status launched = launchOnce(*device, *operands); !launched)
    return launched.error();
  Result<HostOutput> output = readOutput(operands->ready);
  if (!output)
    return output.error();
  if (!outputPath.empty())
    if (Status written = kernels::writeTensor(outputPath, "y", output->view); !written)
      return written.error();
  if (Status timed = printTime(*device, *operands); !timed)
    return timed.error();
  GemmShape shape = sources->shape;
  Result<bool> passed = checkOutput(
      *operands, *output, verifyMode(options.text("--verify"), {shape.m, shape.n, shape.k}));
  if (!passed)
    return passed.error();
  return *passed ? success : failure;
}

} // namespace rho::tool
