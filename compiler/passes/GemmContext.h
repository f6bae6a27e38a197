// What lowering knows about one gemm beside its operations, rebuilt from the texts that the
// operation carries, so that a printed module means the same when it is read back.
#pragma once

#include "compiler/ir/Dialects.h"
#include "compiler/plan/Geometry.h"

namespace rho::compiler {

// Dotted paths into the declaration that operations can come from: "gemm", "output", "schedule",
// then "weight.<component>" and "activation.<component>".
std::vector<std::string> originsOf(const dsl::Gemm &gemm);
// "activation.low.scale".
std::string originOf(const dsl::Format &activation, const StoredComponent &stored);
// That of a stage's buffer. Parts of an activation have one buffer for their elements: of the
// first.
std::string originOf(const dsl::Gemm &gemm, const StageBuffer &buffer);

// The location of an operation that comes from `origin`: line i + 1 of file "rho".
mlir::Location locationOf(mlir::MLIRContext *context, const std::vector<std::string> &origins,
                          llvm::StringRef origin);

// "low." of a part of an activation: what names of its components begin with; empty without parts.
std::string partPrefix(const dsl::Format &activation, size_t part);

struct GemmContext {
  dsl::Gemm gemm;
  Plan plan;
  PlacedGemm placed;
  Geometry geometry;
  std::vector<std::string> origins;
  std::string weightOrigin;                    // of all components of the weight; empty: their own
  std::shared_ptr<const GemmContext> residual; // of the weight's, with the tile of a piece
  std::string prefix;                          // partPrefix()
  int firstStored = 0;                         // storedIndex() of the activation's element

  size_t parts() const { return placed.parts.empty() ? 1 : placed.parts.size(); }
};

// The same of one part of the activation alone; without parts itself.
GemmContext contextOfPart(const GemmContext &whole, size_t part);

// The location of what comes from a component.
mlir::Location componentLocation(mlir::MLIRContext *context, const GemmContext &gemm, bool ofWeight,
                                 int component);

// Emits an error on the operation when its texts do not parse or cannot be placed.
mlir::FailureOr<GemmContext> contextOf(ir::GemmOp op);

// That a body which was read back is the one that PlaceFactors makes of the plan: lowering takes
// places from both. Programs of decodes may be others with as many outputs. Emits an error.
mlir::LogicalResult checkPlacedBody(ir::GemmOp op, const GemmContext &context);

} // namespace rho::compiler
