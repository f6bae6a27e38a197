#include "compiler/ir/Dialects.h"

#include "compiler/decode/DecodeProgram.h"
#include "dsl/Format.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/ir/TileDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/ir/TileTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/ir/TileAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "compiler/ir/TileOps.cpp.inc"

namespace rho::tile {

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/ir/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/ir/TileAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/ir/TileOps.cpp.inc"
      >();
}

mlir::Value findShared(mlir::Block &body, llvm::StringRef label) {
  for (AllocSharedOp alloc : body.getOps<AllocSharedOp>())
    if (alloc.getLabel() == label)
      return alloc.getBuffer();
  return {};
}

using EmitError = llvm::function_ref<mlir::InFlightDiagnostic()>;

mlir::LogicalResult SharedType::verify(EmitError emitError, int64_t bytes, int64_t stages) {
  if (bytes <= 0 || bytes % 16 != 0)
    return emitError() << "shared part has " << bytes << " bytes; it must be a multiple of 16";
  if (stages < 1)
    return emitError() << "shared buffer has " << stages << " stages; it must have at least 1";
  return mlir::success();
}

mlir::LogicalResult GeometryAttr::verify(EmitError emitError, int64_t tileM, int64_t tileN,
                                         int64_t tileK, int64_t warpsM, int64_t warpsN,
                                         int64_t warpsK, llvm::StringRef mma, int64_t codeBits,
                                         int64_t splitK, llvm::StringRef roles, int64_t clusterN,
                                         int64_t clusterK, int64_t panelWarps) {
  auto powerOfTwo = [](int64_t x) { return x > 0 && (x & (x - 1)) == 0; };
  constexpr int64_t most = 4096;
  for (int64_t size : {tileK, warpsM})
    if (!powerOfTwo(size) || size > most)
      return emitError() << "k of a tile and warps along m must be powers of two up to " << most
                         << ", found " << size;
  constexpr int64_t batchUnit = 16; // of wgmma
  if (tileM > most || !(powerOfTwo(tileM) || (tileM > 0 && tileM % batchUnit == 0)))
    return emitError() << "batch rows of a tile must be a power of two or a multiple of "
                       << batchUnit << ", at most " << most << ", found " << tileM;
  if (warpsN < 1 || tileN > most || tileN % warpsN != 0 || !powerOfTwo(tileN / warpsN))
    return emitError() << tileN << " weight rows on " << warpsN
                       << " warps; each needs a power of two of them, all at most " << most;
  if (panelWarps < 1 || warpsN % panelWarps != 0)
    return emitError() << "panels are of " << panelWarps << " warps; their number must divide "
                       << warpsN;
  if (warpsK < 1 || warpsK > 16)
    return emitError() << "warps stand in " << warpsK << " groups along k; there are 1 to 16";
  if (tileM / warpsM < (roles == "gemv" ? 1 : 8) || tileN / warpsN < 16 || tileK < 64)
    return emitError() << "each warp needs at least 8 batch rows, 16 weight rows and 64 of k";
  if (mma != "f16" && mma != "bf16" && mma != "s8" && mma != "s4" && mma != "e4m3" && mma != "e2m1")
    return emitError() << "mma type is '" << mma << "'; it must be f16, bf16, s8, s4, e4m3 or e2m1";
  if ((codeBits < 2 || codeBits > 8) && codeBits != 16)
    return emitError() << "codes have " << codeBits << " bits; they must have 2 to 8, or 16";
  if (!dsl::named<dsl::ScheduleDecl::Roles>(roles.str()))
    return emitError() << "roles are '" << roles << "'; they must be uniform, imfp, excp or gemv";
  if (clusterN < 1 || clusterK < 1 || clusterN * clusterK > 8)
    return emitError() << "cluster is " << clusterN << " x " << clusterK
                       << "; it must have 1 to 8 CTAs";
  if (splitK < 0)
    return emitError() << "split is " << splitK << "; it must be at least 1, or 0 for equal shares";
  return mlir::success();
}

mlir::LogicalResult ForTilesOp::verify() {
  llvm::ArrayRef<int64_t> costs = getCosts().value_or(llvm::ArrayRef<int64_t>());
  if (costs.size() != getOfParts().size())
    return emitOpError("has ") << getOfParts().size() << " parts and " << costs.size()
                               << " costs; they are as many";
  for (int64_t cost : costs)
    if (cost < 1)
      return emitOpError("a k tile costs ") << cost << "; it must be at least 1";
  auto kernel = (*this)->getParentOfType<KernelOp>();
  if (!kernel)
    return emitOpError("stands outside of tile.kernel");
  if (getOneEach())
    return mlir::success();
  if (kernel.getGeometry().getSplitK() > 1)
    return emitOpError("splits k: each CTA has one share");
  for (AllocSharedOp alloc : kernel.getBody().getOps<AllocSharedOp>())
    if (alloc.getOverStages())
      return emitOpError("has a buffer over stages that the next tile needs: ") << alloc.getLabel();
  return mlir::success();
}

mlir::LogicalResult PipelineOp::verify() {
  constexpr int most = dsl::ScheduleDecl::mostStages;
  if (getDepth() < 2 || getDepth() > most)
    return emitOpError("depth is ") << getDepth() << "; it must be between 2 and " << most;
  if (getInits().getTypes() != getResultTypes())
    return emitOpError("init and result types differ");
  bool decodes = !getDecode().empty();
  if (getProduce().front().getNumArguments() != 2 ||
      (decodes && getDecode().front().getNumArguments() != 3) ||
      getConsume().front().getNumArguments() != (decodes ? 3 : 2) + getInits().size())
    return emitOpError("bodies take the k tile and the slot, decode and then consume also the "
                       "operand's slot, and consume the carried values");
  for (mlir::Region *region : getRegions())
    if (!region->empty() &&
        (region->front().empty() || !llvm::isa<YieldOp>(region->front().back())))
      return emitOpError("bodies must end in tile.yield");
  if (getConsume().front().back().getOperandTypes() != getResultTypes())
    return emitOpError("consume must yield the carried values");
  return mlir::success();
}

mlir::LogicalResult FillPairTablesOp::verify() {
  const size_t codes = compiler::DecodeProgram::lanesOfTable, tables = getNumbers().size();
  if (getLanes().size() != codes ||
      !llvm::all_of(getLanes(), [](int32_t lane) { return lane >= 0 && lane <= UINT16_MAX; }))
    return emitOpError("table is of ")
           << getLanes().size() << " lanes; it must be of " << codes << " from 0 to 65535";
  if ((tables != 0 && tables != 2 && tables != 4) || getCode() >= codes)
    return emitOpError("has ") << tables << " numbers for code " << getCode()
                               << "; there must be none, 2 or 4 for one below " << codes;
  const int64_t bytes = getBuffer().getType().getBytes(),
                needed = compiler::DecodeProgram::tableBytes(
                    tables == 0 ? 1 : static_cast<int64_t>(tables));
  if (bytes < needed)
    return emitOpError("buffer has ") << bytes << " bytes, its tables " << needed;
  return mlir::success();
}

mlir::LogicalResult ConvertScalesOp::verify() {
  const int64_t unit = getUnit(), bits = dsl::ElementType::fromName(getElement().str())->bits();
  if (getShift() < 0 || getShift() + bits > unit)
    return emitOpError("takes ") << bits << " bits from bit " << getShift() << " of units of "
                                 << unit;
  if (const std::optional<int64_t> sign = getSign(); sign && (*sign < 0 || *sign >= unit))
    return emitOpError("takes the sign from bit ") << *sign << " of units of " << unit;
  const int64_t words = getWords().getType().getNumElements(), units = getType().getNumElements();
  if (units * unit > words * 32)
    return emitOpError("takes ") << units << " units of " << unit << " bits from " << words
                                 << " words";
  return mlir::success();
}

mlir::LogicalResult DecodeOp::verify() {
  Result<compiler::DecodeProgram> program = compiler::DecodeProgram::parse(getProgram().str());
  if (!program)
    return emitOpError(program.error().diagnostics[0].message);
  if (program->params != static_cast<int>(getParameters().size()))
    return emitOpError("program has ")
           << program->params << " parameters, " << getParameters().size() << " are given";
  if (program->words() > static_cast<int>(getWords().size()))
    return emitOpError("program reads ")
           << program->words() << " words, " << getWords().size() << " are given";
  if (program->outputs.size() != getRegisters().size())
    return emitOpError("program has ")
           << program->outputs.size() << " outputs, " << getRegisters().size() << " are taken";
  return mlir::success();
}

mlir::LogicalResult MmaOp::verify() {
  bool integer = getElement() == "s8" || getElement() == "s4";
  bool halves = integer || getElement() == "e4m3"; // there are instructions of half the k
  if (getA().size() != 4 && !(halves && getA().size() == 2))
    return emitOpError("operand A has ")
           << getA().size() << " registers; it must have 4" << (halves ? ", or 2 of a half" : "");
  auto ofB = static_cast<int64_t>(getA().size() / 2);
  if (getB().getType().getNumElements() < ofB * (getStep() + 1))
    return emitOpError("operand B has no registers of step ") << getStep();
  if (getC().getType().getElementType().isInteger() != integer ||
      getC().getType() != getResult().getType())
    return emitOpError("accumulator type does not match '") << getElement() << "' operands";
  return mlir::success();
}

mlir::LogicalResult BlockMmaOp::verify() {
  int64_t step = getStep(), perStep = getPerStep();
  if (getA().size() != 4)
    return emitOpError("operand A has ") << getA().size() << " registers; it must have 4";
  if (getB().getType().getNumElements() < 2 * step + 2)
    return emitOpError("operand B has no registers of step ") << getStep();
  if (!getC().getType().getElementType().isF32() || getC().getType() != getResult().getType())
    return emitOpError("accumulators must be f32");
  bool known = (getElement() == "e2m1" && getScale() == "ue4m3" && perStep == 4) ||
               (getElement() == "e2m1" && getScale() == "ue8m0" && perStep == 2) ||
               (getElement() == "e4m3" && getScale() == "ue8m0" && perStep == 1);
  if (!known)
    return emitOpError("there is no instruction with operands of '")
           << getElement() << "' and " << perStep << " scales of '" << getScale() << "'";
  if (getByte() % getPerStep() != 0 || getByte() + getPerStep() > 4 || getThreadA() > 1 ||
      getThreadB() > 3)
    return emitOpError("selects scales from byte ")
           << getByte() << ", threads " << getThreadA() << " and " << getThreadB()
           << "; they begin at a multiple of their number, threads are 0 to 1 and 0 to 3";
  return mlir::success();
}

mlir::LogicalResult CopyPanelOp::verify() {
  int64_t bytes = getBuffer().getType().getBytes();
  int64_t panels = getPanels();
  if (panels < 1 || getPanel() >= getPanels() || bytes % (16 * panels) != 0)
    return emitOpError("fills share ")
           << getPanel() << " of " << panels << " of " << bytes
           << " bytes; shares are numbered from 0 and multiples of 16 bytes";
  return mlir::success();
}

mlir::LogicalResult StoreBoxOp::verify() {
  auto kernel = getOperation()->getParentOfType<KernelOp>();
  if (!kernel)
    return emitOpError("stands outside of tile.kernel");
  GeometryAttr geometry = kernel.getGeometry();
  SharedType part = getBuffer().getType();
  int64_t rows = getRows();
  if (rows < 8 || rows % 8 != 0 || geometry.getTileM() % (rows * part.getStages()) != 0)
    return emitOpError("slices have ")
           << rows << " rows and the buffer holds " << part.getStages()
           << "; they must be multiples of 8 and fill a tile of " << geometry.getTileM();
  int64_t bytes = rows * geometry.getTileN() * dsl::ElementType::get(getElement().str()).bits() / 8;
  if (part.getBytes() != bytes)
    return emitOpError("buffer part has ") << part.getBytes() << " bytes; " << rows << " rows of "
                                           << getElement() << " have " << bytes;
  return mlir::success();
}

mlir::LogicalResult DotOp::verify() {
  int64_t rows = static_cast<int64_t>(getB().size());
  if (getA().size() != 2 || rows < 1 || rows > 2)
    return emitOpError("has ") << getA().size() << " weight rows and " << rows
                               << " batch rows; there are 2 and 1 or 2";
  for (mlir::Value row : getB())
    if (row.getType() != getB()[0].getType() ||
        llvm::cast<mlir::VectorType>(row.getType()).getElementType() !=
            getC().getType().getElementType())
      return emitOpError("batch rows must be vectors of one length of the accumulator's type");
  auto row = llvm::cast<mlir::VectorType>(getB()[0].getType());
  int64_t position = getPosition();
  if (row.getNumElements() < (position + 1) * (row.getElementType().isInteger() ? 1 : 2))
    return emitOpError("batch rows have no numbers of register ") << position;
  return mlir::success();
}

mlir::LogicalResult StoreOperandOp::verify() {
  if (getA().size() != 4)
    return emitOpError("operand A has ") << getA().size() << " registers; it must have 4";
  return mlir::success();
}

mlir::LogicalResult WarpgroupMmaOp::verify() {
  int64_t steps = getSteps();
  if (getOperand() && !getA().empty())
    return emitOpError("operand A is in registers and in shared memory; it must be in one of them");
  if (steps < 1 || (!getOperand() && getA().empty()) ||
      static_cast<int64_t>(getA().size()) % (4 * steps) != 0)
    return emitOpError("operand A has ")
           << getA().size() << " registers; it must have 4 for each step and row tile";
  int64_t rowTiles = std::max<int64_t>(1, static_cast<int64_t>(getA().size()) / (4 * steps));
  if (getResults().empty() || static_cast<int64_t>(getResults().size()) % rowTiles != 0)
    return emitOpError("has ") << getResults().size() << " accumulators for " << rowTiles
                               << " row tiles";
  if (!getC().empty() && getC().getTypes() != getResultTypes())
    return emitOpError("accumulator and result types differ");
  return mlir::success();
}

} // namespace rho::tile
