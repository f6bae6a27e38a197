// Arithmetic on 32-bit indices and structured control flow, at one insertion point.
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <functional>

namespace rho::compiler {

struct ScalarBuilder {
  using Value = mlir::Value;
  mlir::OpBuilder &builder;
  mlir::Location loc;

  Value i32(int64_t value) {
    return mlir::arith::ConstantIntOp::create(builder, loc, builder.getI32Type(), value);
  }
  Value add(Value a, Value b) { return mlir::arith::AddIOp::create(builder, loc, a, b); }
  Value sub(Value a, Value b) { return mlir::arith::SubIOp::create(builder, loc, a, b); }
  Value mul(Value a, Value b) { return mlir::arith::MulIOp::create(builder, loc, a, b); }
  Value compare(mlir::arith::CmpIPredicate predicate, Value a, Value b) {
    return mlir::arith::CmpIOp::create(builder, loc, predicate, a, b);
  }
  Value select(Value condition, Value a, Value b) {
    return mlir::arith::SelectOp::create(builder, loc, condition, a, b);
  }

  // for i in [first, last) with carried values; `body` returns the next ones.
  using Body = std::function<llvm::SmallVector<Value>(Value i, mlir::ValueRange carried)>;
  mlir::ValueRange loop(Value first, Value last, Value step, mlir::ValueRange inits,
                        const Body &body) {
    auto result = mlir::scf::ForOp::create(builder, loc, first, last, step, inits);
    mlir::OpBuilder::InsertionGuard guard(builder);
    mlir::Block *block = result.getBody();
    if (inits.empty()) { // has its terminator already
      builder.setInsertionPoint(block->getTerminator());
      body(result.getInductionVar(), {});
      return {};
    }
    builder.setInsertionPointToEnd(block);
    llvm::SmallVector<Value> carried = body(result.getInductionVar(), result.getRegionIterArgs());
    mlir::scf::YieldOp::create(builder, loc, carried);
    return result.getResults();
  }

  void forEach(Value first, Value last, Value step, const std::function<void(Value i)> &body) {
    loop(first, last, step, {}, [&](Value i, mlir::ValueRange) {
      body(i);
      return llvm::SmallVector<Value>();
    });
  }

  // While `holds` says so of the carried values; `body` returns the next ones.
  mlir::ValueRange
  loopWhile(mlir::ValueRange inits, const std::function<Value(mlir::ValueRange carried)> &holds,
            const std::function<llvm::SmallVector<Value>(mlir::ValueRange)> &body) {
    llvm::SmallVector<mlir::Type> types(inits.getTypes());
    llvm::SmallVector<mlir::Location> places(types.size(), loc);
    auto result = mlir::scf::WhileOp::create(builder, loc, types, inits);
    mlir::OpBuilder::InsertionGuard guard(builder);
    mlir::Block *before = builder.createBlock(&result.getBefore(), {}, types, places);
    mlir::scf::ConditionOp::create(builder, loc, holds(before->getArguments()),
                                   before->getArguments());
    mlir::Block *after = builder.createBlock(&result.getAfter(), {}, types, places);
    llvm::SmallVector<Value> carried = body(after->getArguments());
    mlir::scf::YieldOp::create(builder, loc, carried);
    return result.getResults();
  }

  void when(Value condition, const std::function<void()> &body) {
    auto guarded = mlir::scf::IfOp::create(builder, loc, condition);
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&guarded.getThenRegion().front());
    body();
  }
};

} // namespace rho::compiler
