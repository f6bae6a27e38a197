// PTX of kernels that are made of operations directly, not of a gemm.
#pragma once

#include "dsl/Error.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <string>

namespace rho::compiler {

// Makes a module of functions in the LLVM dialect, with scf, arith, math and tile.decode inside,
// each with its target as the attribute of this name.
inline constexpr llvm::StringLiteral targetAttribute = "rho.target";
using ModuleMaker = std::function<mlir::OwningOpRef<mlir::ModuleOp>(mlir::MLIRContext &)>;
Result<std::string> compileModule(const ModuleMaker &make);

} // namespace rho::compiler
