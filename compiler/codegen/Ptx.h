// LLVM IR to PTX.
#pragma once

#include "dsl/Error.h"

#include "llvm/IR/Module.h"

#include <string>

namespace rho::compiler {

// Sets triple, data layout and the target (sm_80, ...) of every function, and marks the calls that
// need all threads of a warp.
void setTarget(llvm::Module &module, llvm::StringRef target);

// Optimizes the module and prints its PTX. The target is read from the module's functions.
Result<std::string> emitPtx(llvm::Module &module);

} // namespace rho::compiler
