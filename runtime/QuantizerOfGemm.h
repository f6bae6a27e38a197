// The quantizer of a gemm's activations, made beside its kernel.
#pragma once

#include "compiler/OnTarget.h"
#include "runtime/EngineImpl.h"

#include <future>

namespace rho {

// What a report says of a quantizer in use.
void warnOf(const Quantizer &quantizer, CompileReport &report);

using QuantizerResult = Result<std::shared_ptr<const Quantizer>>;

// NVRTC takes as long as all of the kernel, so it begins with the kernel where the layout of the
// activations can be foreseen and the calling thread may have another beside it.
class QuantizerOfGemm {
public:
  // All three outlive it. `declared`: the format that the user's numbers are rounded to, which
  // `target` may store as another.
  QuantizerOfGemm(Engine::Impl &engine, const dsl::Format &declared,
                  const compiler::TargetGemm &target);
  void begin(int64_t k, const compiler::Plan &plan);
  // `layout` is that of the kernel. Errors: those of Backend::makeQuantizer.
  QuantizerResult finish(const compiler::ActivationLayout &layout, CompileReport &report);

private:
  QuantizerResult make(const compiler::ActivationLayout &layout);

  Engine::Impl &engine;
  const dsl::Format &declared, &stored;
  const std::string declaredText; // where it is stored as another
  compiler::ActivationLayout foreseen;
  cache::Warnings warnings;
  double milliseconds = 0;
  std::future<QuantizerResult> pending; // the last, so that its thread ends before the rest does
};

} // namespace rho
