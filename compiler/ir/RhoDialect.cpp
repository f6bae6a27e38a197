#include "compiler/ir/Dialects.h"

#include "compiler/decode/DecodeProgram.h"
#include "compiler/decode/RowNumber.h"
#include "compiler/decode/Sequences.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/ir/RhoDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/ir/RhoTypes.cpp.inc"
#define GET_OP_CLASSES
#include "compiler/ir/RhoOps.cpp.inc"

namespace rho::ir {

void RhoDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/ir/RhoTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/ir/RhoOps.cpp.inc"
      >();
}

static mlir::LogicalResult checkRole(mlir::Operation *op, llvm::StringRef role) {
  if (role == "weight" || role == "activation" || role == "residual")
    return mlir::success();
  return op->emitOpError("role is '")
         << role << "'; it must be 'weight', 'residual' or 'activation'";
}

mlir::LogicalResult GemmOp::verify() {
  if (getBody().front().empty() || !llvm::isa<ReturnOp>(getBody().front().back()))
    return emitOpError("body must end in rho.return");
  return mlir::success();
}

mlir::LogicalResult OperandOp::verify() { return checkRole(*this, getRole()); }
mlir::LogicalResult ComponentOp::verify() { return checkRole(*this, getRole()); }

mlir::LogicalResult DecodeOp::verify() {
  Result<compiler::DecodeProgram> program = compiler::DecodeProgram::parse(getProgram().str());
  if (!program)
    return emitOpError(program.error().diagnostics[0].message);
  if (program->params != static_cast<int>(getParameters().size()) ||
      getForms().size() != getParameters().size())
    return emitOpError("program has ")
           << program->params << " parameters, " << getParameters().size() << " and "
           << getForms().size() << " forms are given";
  for (mlir::Attribute form : getForms()) {
    llvm::StringRef text = llvm::cast<mlir::StringAttr>(form).getValue();
    if (!compiler::parseForm(text))
      return emitOpError("form is '")
             << text << "'; it must be byte, bytes, places, multiplier, number, "
             << "choices, pairs or pairs_begin, '.', and 0 or 1, perhaps '.1'";
  }
  return mlir::success();
}

mlir::LogicalResult NumberOp::verify() {
  std::optional<compiler::RowNumber> number = compiler::RowNumber::parse(getTerms().str());
  if (!number)
    return emitOpError("terms are '") << getTerms() << "'; they must be such as 1*#1*#2 + -8";
  for (int component : number->uses())
    if (component > static_cast<int>(getComponents().size()))
      return emitOpError("terms name #")
             << component << " of " << getComponents().size() << " components";
  return mlir::success();
}

mlir::LogicalResult MmaOp::verify() {
  if (getWeight().getType().getElement() != getActivation().getType().getElement())
    return emitOpError("operands have elements '")
           << getWeight().getType().getElement() << "' and '"
           << getActivation().getType().getElement() << "'; they must be equal";
  return mlir::success();
}

mlir::LogicalResult SumOp::verify() {
  if (getValues().size() < 2 || getValues().size() != getFactors().size())
    return emitOpError("has ") << getValues().size() << " values and " << getFactors().size()
                               << " factors; they are as many, at least 2";
  return mlir::success();
}

} // namespace rho::ir
