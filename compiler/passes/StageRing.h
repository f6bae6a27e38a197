// Where a role of a specialized kernel is in a ring of stages.
#pragma once

#include "compiler/passes/ScalarBuilder.h"

namespace rho::compiler {

// A stage and the parity of the phase that its barriers are in.
struct Cursor {
  mlir::Value slot, parity;
};

// At most `depth` stages on, of as many.
inline Cursor advance(ScalarBuilder &at, Cursor now, mlir::Value stages, int64_t depth) {
  mlir::Value after = at.add(now.slot, stages);
  mlir::Value wraps = at.compare(mlir::arith::CmpIPredicate::uge, after, at.i32(depth));
  mlir::Value flipped = mlir::arith::XOrIOp::create(at.builder, at.loc, now.parity, at.i32(1));
  return {at.select(wraps, at.sub(after, at.i32(depth)), after),
          at.select(wraps, flipped, now.parity)};
}

// Any number of stages on.
inline Cursor skip(ScalarBuilder &at, Cursor now, mlir::Value stages, int64_t depth) {
  namespace arith = mlir::arith;
  mlir::Value after = at.add(now.slot, stages);
  mlir::Value rounds = arith::DivUIOp::create(at.builder, at.loc, after, at.i32(depth));
  mlir::Value flips = arith::AndIOp::create(at.builder, at.loc, rounds, at.i32(1));
  return {arith::RemUIOp::create(at.builder, at.loc, after, at.i32(depth)),
          arith::XOrIOp::create(at.builder, at.loc, now.parity, flips)};
}

// Less than `depth` stages back.
inline Cursor goBack(ScalarBuilder &at, Cursor now, int64_t stages, int64_t depth) {
  mlir::Value wraps = at.compare(mlir::arith::CmpIPredicate::ult, now.slot, at.i32(stages));
  mlir::Value flipped = mlir::arith::XOrIOp::create(at.builder, at.loc, now.parity, at.i32(1));
  return {
      at.select(wraps, at.add(now.slot, at.i32(depth - stages)), at.sub(now.slot, at.i32(stages))),
      at.select(wraps, flipped, now.parity)};
}

} // namespace rho::compiler
