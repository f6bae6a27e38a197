// LLVM IR to PTX.
#pragma once

#include "dsl/Error.h"

#include "llvm/IR/Module.h"

#include <string>

namespace rho::compiler {

// Sets triple, data layout and the target of every function; sm_80 and so on.
void setTarget(llvm::Module &module, llvm::StringRef target);

// Optimizes the module and prints its PTX. The target is read from the module's functions.
Result<std::string> emitPtx(llvm::Module &module);

} // namespace rho::compiler
