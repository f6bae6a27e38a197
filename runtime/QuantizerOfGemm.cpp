#include "runtime/QuantizerOfGemm.h"

#include "runtime/Beside.h"
#include "runtime/Stopwatch.h"

namespace rho {

namespace {

// What a quantizer depends on.
std::string storedAs(const dsl::Format &format, const compiler::ActivationLayout &layout) {
  std::string text = std::to_string(layout.elementBits) + " bits, words of " +
                     std::to_string(layout.groupsPerWord) + ", columns";
  for (uint8_t bit : layout.columnBits)
    text += " " + std::to_string(bit);
  text += ", " + print(format);
  for (size_t part = 0; part < layout.parts.size(); ++part)
    text += storedAs(*format.partition->parts[part].format, layout.parts[part]);
  return text;
}

} // namespace

void warnOf(const Quantizer &quantizer, CompileReport &report) {
  if (!quantizer.warning.empty())
    report.warnings.push_back(quantizer.warning);
}

QuantizerOfGemm::QuantizerOfGemm(Engine::Impl &engine, const dsl::Format &declared,
                                 const compiler::TargetGemm &target)
    : engine(engine), declared(declared), stored(target.gemm.activation),
      declaredText(target.reason.empty() ? "" : dsl::printWithParts(declared)) {}

void QuantizerOfGemm::begin(int64_t k, const compiler::Plan &plan) {
  // The layout of a partition only the kernel knows.
  if (engine.backend->emulated() || stored.partition || engine.assembler.isAlone())
    return;
  const bool words = plan.groupScales == dsl::ScheduleDecl::Scales::Hardware;
  foreseen = {.k = k,
              .elementBits = dsl::ElementType::get(plan.mmaType).bits(),
              .groupsPerWord = words ? compiler::ActivationLayout::blocksPerWord : 1};
  pending = beside(false, [this] { return make(foreseen); });
}

QuantizerResult QuantizerOfGemm::finish(const compiler::ActivationLayout &layout,
                                        CompileReport &report) {
  const bool begun = pending.valid();
  QuantizerResult made = begun ? pending.get() : make(layout);
  if (begun && storedAs(stored, foreseen) != storedAs(stored, layout))
    made = make(layout);
  if (!made)
    return made;
  report.stages.push_back({"quantizer", milliseconds});
  report.warnings.insert(report.warnings.end(), warnings.begin(), warnings.end());
  warnOf(**made, report);
  return made;
}

QuantizerResult QuantizerOfGemm::make(const compiler::ActivationLayout &layout) {
  Stopwatch watch;
  auto format = std::make_shared<const dsl::Format>(declared);
  QuantizerResult made = engine.quantizers.get(declaredText + storedAs(stored, layout), [&] {
    return engine.backend->makeQuantizer(format, stored, layout, engine.disk, warnings);
  });
  milliseconds = watch.lap();
  return made;
}

} // namespace rho
