// The compiler as a library: declaration + device -> plan -> spec -> PTX. Needs no GPU. This header
// and everything that it includes is free of MLIR and LLVM.
#pragma once

#include "compiler/KernelImage.h"
#include "compiler/Plan.h"
#include "dsl/Module.h"

namespace rho::compiler {

// The textual stages after the declaration itself, in order. Each one's text is accepted by
// reenter().
enum class Stage : uint8_t { Rho, Tile, Llvm, Ptx };

struct StageTime {
  std::string name; // "rho", "tile", "llvm", "ptx"
  double milliseconds;
};

struct Compiled {
  KernelImage image;
  std::vector<StageTime> times;
};

// Everything that determines a kernel, as canonical text (no spans, no paths): the formats, the
// plan and the target. Equal specs give equal PTX.
std::string printSpec(const dsl::Gemm &gemm, const Plan &plan);

// Spec -> PTX. Errors name the declaration (`sources` may be null): those of plan(), and bad_ir
// where a pass failed.
Result<Compiled> compile(const dsl::Gemm &gemm, const Plan &plan, const SourceMap *sources);

// The text of one stage of compile(). Errors as there.
Result<std::string> emit(const dsl::Gemm &gemm, const Plan &plan, Stage stage,
                         const SourceMap *sources);
// Continues from a printed stage to PTX or to any later stage. Errors: bad_ir, bad_stage_order,
// unknown_target.
Result<std::string> reenter(std::string_view text, std::string_view name, Stage from, Stage to);

// Changes whenever the code that generates kernels may have changed; part of every cache key.
std::string_view buildId();
std::string_view llvmVersion();

} // namespace rho::compiler
