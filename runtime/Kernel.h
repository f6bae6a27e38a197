// Compiled kernels inside an engine.
#pragma once

#include "compiler/OnTarget.h"
#include "compiler/Plan.h"
#include "runtime/Handles.h"
#include "runtime/Quantizer.h"

namespace rho {

// One kernel on one device; serves every m of its spec.
struct Kernel {
  compiler::KernelImage image;
  std::shared_ptr<const LoadedKernel> loaded;
};

// What one shape of one declaration was compiled to. Without spans: gemms of several modules share
// it.
struct Prepared {
  std::shared_ptr<const compiler::TargetGemm> target;
  compiler::Plan plan;
  std::shared_ptr<const Kernel> kernel;
  std::shared_ptr<const Quantizer> quantizer;
  std::vector<compiler::OperandRange> operands; // of all kernels that may read its weights
  std::string weightLayout;                     // Gemm::weightLayout
  CompileReport report;                         // of the compilation itself
};

struct Gemm::Impl {
  std::shared_ptr<Backend> backend;
  std::shared_ptr<const Module::Impl> module;
  const dsl::Gemm *gemm = nullptr; // in *module
  GemmShape shape;
  unsigned threads = 0; // see EngineOptions
  std::shared_ptr<const Prepared> prepared;
  CompileReport report;

  const compiler::Plan &plan() const { return prepared->plan; }
  // As declared.
  std::shared_ptr<const dsl::Format> weight() const { return {module, &gemm->weight}; }
  // As it is packed, the declared one or with scales as numbers.
  std::shared_ptr<const dsl::Format> packedWeight() const {
    return {prepared->target, &prepared->target->gemm.weight};
  }
  std::shared_ptr<const dsl::Format> activation() const { return {module, &gemm->activation}; }
  // As it is in memory, the declared one or its numbers.
  std::shared_ptr<const dsl::Format> storedActivation() const {
    return prepared->target->reason.empty()
               ? activation()
               : std::shared_ptr<const dsl::Format>(prepared->target,
                                                    &prepared->target->gemm.activation);
  }
  const compiler::KernelImage &image() const { return prepared->kernel->image; }
};

} // namespace rho
