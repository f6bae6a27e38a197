// tile.decode to instructions, one for one with its program.
#include "compiler/decode/DecodeProgram.h"
#include "compiler/ir/Dialects.h"
#include "compiler/passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include <map>
#include <utility>

namespace rho::compiler {

#define GEN_PASS_DEF_LOWERDECODE
#include "compiler/passes/Passes.h.inc"

namespace {

using mlir::Value;
using Op = DecodeInstr::Op;

// Constants of a function that stay in registers. A permutation takes one constant; of a table of
// two, ptxas keeps the other in a uniform register, from which it moves it before each use. So that
// is made, once, of a bit that is never set (of the lanes below a lane the 32nd), which ptxas does
// not know.
class KeptConstants {
public:
  Value get(mlir::Operation *user, uint32_t number) {
    auto function = user->getParentOfType<mlir::FunctionOpInterface>();
    Value &kept = values[{function, number}];
    if (kept)
      return kept;
    Value &zero = zeros[function];
    mlir::OpBuilder builder(function.getContext());
    mlir::Location loc = user->getLoc();
    auto constant = [&](uint32_t of) {
      return mlir::arith::ConstantIntOp::create(builder, loc, builder.getI32Type(),
                                                static_cast<int32_t>(of));
    };
    if (zero) {
      builder.setInsertionPointAfterValue(zero);
    } else {
      builder.setInsertionPointToStart(&function.getFunctionBody().front());
      Value below = mlir::NVVM::LaneMaskLtOp::create(builder, loc, builder.getI32Type());
      zero = mlir::arith::ShRUIOp::create(builder, loc, below, constant(31));
    }
    return kept = mlir::arith::AddIOp::create(builder, loc, zero, constant(number));
  }

private:
  std::map<mlir::Operation *, Value> zeros; // by function
  std::map<std::pair<mlir::Operation *, uint32_t>, Value> values;
};

// Which registers hold a half of another register twice, by themselves.
struct Half {
  Value word;
  llvm::StringRef half; // "l" or "h"
};
using Halves = llvm::DenseMap<Value, Half>;

class Emission {
public:
  Emission(tile::DecodeOp op, KeptConstants &kept, Halves &halvesTwice)
      : op(op), loc(op.getLoc()), builder(op), kept(kept), halvesTwice(halvesTwice) {}

  void run() {
    DecodeProgram program = *DecodeProgram::parse(op.getProgram().str());
    for (const DecodeInstr &instr : program.instructions) {
      Value operands[3];
      for (int i = 0; i < operandCount(instr.op); ++i)
        operands[i] = read(instr.operands[i]);
      using Kind = DecodeInstr::Operand::Kind;
      const auto &[a, b, selectors] = instr.operands;
      if (instr.op == Op::Prmt && a.kind == Kind::Const && b.kind == Kind::Const &&
          selectors.kind != Kind::Const)
        operands[0] = kept.get(op, a.value);
      // The bytes beside a register's are the other one: the selectors are the constant it takes.
      if (instr.op == Op::Prmt && a.kind != Kind::Const && b.kind == Kind::Const && b.value != 0 &&
          selectors.kind == Kind::Const)
        operands[1] = kept.get(op, b.value);
      // -1 less a register is to be a multiplication: bitwise operations have the busier pipe.
      if (instr.op == Op::Mad && b.kind == Kind::Const && b.value == UINT32_MAX)
        operands[1] = kept.get(op, b.value);
      temps.push_back(ofWholePair(instr, operands));
    }
    for (size_t i = 0; i < program.outputs.size(); ++i)
      op.getResult(static_cast<unsigned>(i)).replaceAllUsesWith(temps[program.outputs[i]]);
    op.erase();
  }

private:
  tile::DecodeOp op;
  mlir::Location loc;
  mlir::OpBuilder builder;
  KeptConstants &kept;
  Halves &halvesTwice;
  std::vector<Value> temps;

  Value read(const DecodeInstr::Operand &operand) {
    using Kind = DecodeInstr::Operand::Kind;
    switch (operand.kind) {
    case Kind::Word:
      return op.getWords()[operand.value];
    case Kind::Param:
      return op.getParameters()[operand.value];
    case Kind::Temp:
      return temps[operand.value];
    case Kind::Const:
    case Kind::None:
      break;
    }
    return mlir::arith::ConstantIntOp::create(builder, loc, builder.getI32Type(),
                                              static_cast<int32_t>(operand.value));
  }

  // What is computed of a half of a register and of constants is computed of both halves: other
  // instructions want that of the other half.
  Value ofWholePair(const DecodeInstr &instr, Value (&operands)[3]) {
    auto isNumber = [](const DecodeInstr::Operand &operand) { // or none
      return operand.kind == DecodeInstr::Operand::Kind::None ||
             (operand.kind == DecodeInstr::Operand::Kind::Const &&
              operand.value >> 16 == (operand.value & 0xffff));
    };
    const bool ofFloats = instr.op == Op::MulF16 || instr.op == Op::AddF16 ||
                          instr.op == Op::FmaF16 || instr.op == Op::FmaBF16;
    auto found = halvesTwice.find(operands[0]);
    if (!ofFloats || found == halvesTwice.end() || !isNumber(instr.operands[1]) ||
        !isNumber(instr.operands[2]))
      return emit(instr.op, operands[0], operands[1], operands[2]);
    const auto [pair, half] = found->second;
    return twice(emit(instr.op, pair, operands[1], operands[2]), half);
  }

  Value emit(Op kind, Value a, Value b, Value c) {
    switch (kind) {
    case Op::And:
      return mlir::arith::AndIOp::create(builder, loc, a, b);
    case Op::Or:
      return mlir::arith::OrIOp::create(builder, loc, a, b);
    case Op::Xor:
      return mlir::arith::XOrIOp::create(builder, loc, a, b);
    case Op::AndOr:
      return lop3(a, b, c, "0xEA");
    case Op::AndXor:
      return lop3(a, b, c, "0x6A");
    case Op::Select:
      return lop3(a, b, c, "0xCA");
    case Op::Shl:
      return mlir::arith::ShLIOp::create(builder, loc, a, b);
    case Op::Shr:
      return mlir::arith::ShRUIOp::create(builder, loc, a, b);
    case Op::RotateLeft: // a funnel shift of a register with itself
      return mlir::LLVM::FshlOp::create(builder, loc, a, a, b);
    case Op::Prmt:
      if (llvm::APInt bytes; a == b && mlir::matchPattern(c, mlir::m_ConstantInt(&bytes))) {
        if (bytes == 0x1010)
          return twice(a, "l");
        if (bytes == 0x3232)
          return twice(a, "h");
      }
      return mlir::NVVM::PermuteOp::create(builder, loc, builder.getI32Type(), a, b, c,
                                           mlir::NVVM::PermuteMode::DEFAULT);
    case Op::Mad:
      return mlir::arith::AddIOp::create(builder, loc,
                                         mlir::arith::MulIOp::create(builder, loc, a, b), c);
    case Op::MulF16:
      return word(mlir::arith::MulFOp::create(builder, loc, halves(a, true), halves(b, true)));
    case Op::AddF16:
      return word(mlir::arith::AddFOp::create(builder, loc, halves(a, true), halves(b, true)));
    case Op::ToE4M3:
      return ptx("{\n.reg .b16 l, h;\ncvt.rn.satfinite.e4m3x2.f16x2 l, $1;\nmov.b16 h, 0;\n"
                 "mov.b32 $0, {l, h};\n}",
                 "=r,r", a);
    case Op::Pair: {
      auto shared = mlir::LLVM::LLVMPointerType::get(builder.getContext(), 3);
      Value at = mlir::arith::AddIOp::create(builder, loc, a, b);
      return mlir::LLVM::LoadOp::create(builder, loc, builder.getI32Type(),
                                        mlir::LLVM::IntToPtrOp::create(builder, loc, shared, at),
                                        4);
    }
    case Op::FmaF16:
    case Op::FmaBF16:
      break;
    }
    bool f16 = kind == Op::FmaF16;
    return word(
        mlir::math::FmaOp::create(builder, loc, halves(a, f16), halves(b, f16), halves(c, f16)));
  }

  // Written out: of two bitwise operations with a constant each, ptxas makes two instructions,
  // since one instruction takes only one constant. As one it puts the other constant in a register.
  Value lop3(Value a, Value b, Value c, llvm::StringRef table) {
    return ptx(("lop3.b32 $0, $1, $2, $3, " + table + ";").str(), "=r,r,r,r", {a, b, c});
  }

  // A half of a word, twice. Written so that ptxas sees halves: instructions on two of them read
  // either one from a register, a permutation of bytes it leaves as one.
  Value twice(Value word, llvm::StringRef half) {
    Value both = ptx(
        ("{\n.reg .b16 l, h;\nmov.b32 {l, h}, $1;\nmov.b32 $0, {" + half + ", " + half + "};\n}")
            .str(),
        "=r,r", word);
    halvesTwice[both] = {word, half};
    return both;
  }

  Value ptx(const std::string &text, llvm::StringRef constraints, mlir::ValueRange operands) {
    return mlir::LLVM::InlineAsmOp::create(builder, loc, mlir::TypeRange{builder.getI32Type()},
                                           operands, text, constraints,
                                           /*has_side_effects=*/false, /*is_align_stack=*/false,
                                           mlir::LLVM::tailcallkind::TailCallKind::None,
                                           mlir::LLVM::AsmDialectAttr(), mlir::ArrayAttr())
        .getResult(0);
  }

  Value halves(Value word, bool f16) {
    mlir::Type half = f16 ? mlir::Type(builder.getF16Type()) : builder.getBF16Type();
    return mlir::LLVM::BitcastOp::create(builder, loc, mlir::VectorType::get({2}, half), word);
  }
  Value word(Value halves) {
    return mlir::LLVM::BitcastOp::create(builder, loc, builder.getI32Type(), halves);
  }
};

struct LowerDecodePass : impl::LowerDecodeBase<LowerDecodePass> {
  void runOnOperation() override {
    llvm::SmallVector<tile::DecodeOp> decodes;
    getOperation().walk([&](tile::DecodeOp op) { decodes.push_back(op); });
    KeptConstants kept;
    Halves halvesTwice;
    for (tile::DecodeOp op : decodes)
      Emission(op, kept, halvesTwice).run();
  }
};

} // namespace
} // namespace rho::compiler
