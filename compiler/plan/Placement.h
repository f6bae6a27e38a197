// The placement analysis: which factors a gemm's value expressions have, and where each one may be
// applied. Legality only; the planner chooses among the legal placements by cost.
#pragma once

#include "compiler/Plan.h"
#include "compiler/decode/CodeSplit.h"
#include "compiler/decode/Sequences.h"

#include <algorithm>

namespace rho::compiler {

// Codes are stored in chunks of 16 rows: what one warp loads with at most 16 bytes a thread and
// plane, 64 k, of 8-bit codes 32, of 16-bit ones 16.
constexpr int64_t chunkK(int codeBits) { return codeBits < 8 ? 64 : 256 / codeBits; }

// One k step of every matrix instruction covers 32 bytes of each operand row.
constexpr int mmaRowBits = 256;

// A scale factor of one operand.
struct ScaleUse {
  bool weight = true;
  int component = 0;
  dsl::Extent extent = dsl::Extent::Tensor;
  int64_t group = 0;    // of a kernel, for Extent::Group
  int64_t declared = 0; // G
};

// Scales that the matrix instruction applies to both operands itself, a block of k at a time (PTX
// ISA, "Block Scaling for mma.sync").
struct BlockScaling {
  static constexpr int none = -1;                                 // no component: all scales are 1
  static constexpr int perWord = ActivationLayout::blocksPerWord; // and so of a weight
  int weight = none, activation = none;                           // components
  std::string type;  // as the instruction names it: "ue4m3" or "ue8m0"
  int64_t block = 0; // k that shares a scale
  int log2 = 0;      // the instruction's scales of both are the components' times 2^log2, together
  std::optional<CodeSplit> weightSplit, activationSplit; // of elements with a remapped code

  bool isScale(bool ofWeight, int component) const {
    return component == (ofWeight ? weight : activation);
  }
  const std::optional<CodeSplit> &split(bool ofWeight) const {
    return ofWeight ? weightSplit : activationSplit;
  }
  // Whether the codes of four blocks of a row lie in a word.
  bool isInWords(bool ofWeight, int component) const {
    return isScale(ofWeight, component) ||
           (split(ofWeight) && split(ofWeight)->selector == component);
  }
  // Operands whose sum is one of the gemm's.
  int parts(bool ofWeight) const { return split(ofWeight) && split(ofWeight)->hasRest ? 2 : 1; }
  uint32_t wordOfOnes() const { return type == "ue4m3" ? 0x38383838 : 0x7f7f7f7f; }
};

// A gemm with every factor placed: all that lowering needs to know about the formats.
struct PlacedGemm {
  std::string mmaType;             // element type of both MMA operands, and of stored activations
  bool integerAccumulator = false; // s32, else f32
  int mmaK = 0;                    // k of one MMA
  int leastGroup = 0;              // of k, whose sums can be scaled: mmaK, or half an instruction
  int weightBits = 0;              // of a weight's element code
  // Of those the low ones that only the stored blocks of a residual have: it shares the weight's
  // scales and is no weight by itself.
  int sparseBits = 0;
  DecodeSequence decode;      // weight codes -> operand A
  bool tablesPay = false;     // with tables in shared memory it takes fewer cycles than without
  bool scalesOperand = false; // group scales are multiplied into operand A
  bool mayOverflow = false; // operands may be infinite of weights that are not: see OperandRange.h
  int operandRoundings = 0; // of each product with a weight, to the operand type
  // Of a weight without a residual and activations without parts: the least k that shares what the
  // decode takes beside codes; 0: nothing changes along k.
  int64_t operandGroup = 0;
  std::vector<bool> streamed; // weight components that are read beside the codes of each k tile
  std::vector<ScaleUse> accumulator;
  std::vector<ScaleUse> epilogue;
  std::optional<BlockScaling> blockScaling; // placement hardware
  int64_t flushK = 0;  // k extent after which partial sums are scaled; 0: only at the end
  double constant = 1; // literal factors of both values
  int log2Factor = 0;  // accumulators hold the result times 2^log2Factor
  std::vector<FactorPlacement> placements; // for people, with reasons
  // Of a weight with a residual: the residual's blocks as a weight by themselves, with the same
  // activations. Their sums are added to those of the rest.
  std::shared_ptr<const PlacedGemm> residual;
  bool storesBlocks() const { return residual || sparseBits > 0; }
  bool isWide() const { return mmaK == 16; } // operands have 16 bits
  // Whether scales of the activation's groups multiply partial sums.
  bool scalesColumns() const {
    return std::any_of(accumulator.begin(), accumulator.end(),
                       [](const ScaleUse &use) { return !use.weight; });
  }
  dsl::ScheduleDecl::Tables tables() const {
    using enum dsl::ScheduleDecl::Tables;
    if (decode.program.lanes.empty())
      return Registers;
    const bool all = decode.program.lookups() == static_cast<int64_t>(decode.registers());
    return all ? Shared : Mixed;
  }

  // Of activations that are a partition: each part as if it were alone. What is above is that of
  // part `owner`, whose decode the packed weight is laid out for.
  std::vector<PlacedGemm> parts;
  size_t owner = 0;
  // Of another part: where codes of the activation lie (ActivationLayout), and whether the
  // registers of a unit of codes belong to one fragment row half instead of one by one to both.
  std::vector<uint8_t> columnBits;
  bool oneRowHalf = false;

  // Matrix instructions for one pair of fragments.
  int products() const {
    return blockScaling ? blockScaling->parts(true) * blockScaling->parts(false) : 1;
  }
};

// The least of the groups along k that components have, as kernels have them; more than any k where
// there are none.
int64_t finestGroup(const dsl::Format &format);

// The gemm whose weight is the residual of another's.
dsl::Gemm residualOf(const dsl::Gemm &gemm);

// The weight whose codes a kernel decodes.
dsl::Format decodedWeight(const dsl::Gemm &gemm, const PlacedGemm &placed);

// The factors of a value expression; of a format with a residual without that: Factors.cpp.
struct Factors {
  dsl::ExprPtr core;               // the factor with the element
  std::vector<int> coreParameters; // other components inside the core
  std::vector<ScaleUse> scales;
  double constant = 1;
};
Result<Factors> factorValue(const dsl::Format &format, bool weight, Span span,
                            const SourceMap *sources);

// Why no sequence makes operands of the weight's core: NoDecode.cpp.
Error noDecode(const dsl::Gemm &gemm, const Factors &w, const std::string &mmaType,
               const SourceMap *sources);

// Whether a part's sums go on from those of the parts before it: f32, with nothing to be scaled by
// but a constant.
bool addsToSums(const PlacedGemm &part);

// The gemm of one part of an activation that is a partition.
dsl::Gemm gemmOfPart(const dsl::Gemm &gemm, size_t part);

// Calls visit(gemm, placed) for the gemm of each part, of an activation without parts for itself.
template <class Visit>
void forEachGemm(const dsl::Gemm &gemm, const PlacedGemm &placed, const Visit &visit) {
  if (placed.parts.empty())
    visit(gemm, placed);
  for (size_t part = 0; part < placed.parts.size(); ++part)
    visit(gemmOfPart(gemm, part), placed.parts[part]);
}

// Places every factor; `groupScales` says where a weight's group scale goes, `roles` which family
// of instructions of `target` multiplies, `tables` where codes are looked up. Errors say why that
// is not legal.
Result<PlacedGemm> place(const dsl::Gemm &gemm, dsl::ScheduleDecl::Scales groupScales,
                         dsl::ScheduleDecl::Roles roles, dsl::ScheduleDecl::Tables tables,
                         std::string_view target, const SourceMap *sources);

// As a plan says it.
inline Result<PlacedGemm> place(const dsl::Gemm &gemm, const Plan &plan, const SourceMap *sources) {
  return place(gemm, plan.groupScales, plan.schedule.roles, plan.schedule.tables, plan.target,
               sources);
}

// Whether of two ways that are not legal `found` says more of why than `kept`: of places for scales
// and tables which nobody asked for it says little that they are not legal.
bool saysMore(const dsl::Gemm &gemm, const Diagnostic &found, const Diagnostic &kept);

// What a weight is: all of a gemm's, beside one of the activation's parts, or its residual, of
// which nobody chooses where its scales are applied.
enum class Within : uint8_t { Gemm, Part, Residual };
// Those of an activation without parts, with this decode of the weight; null: the best. `widened`:
// activations of s4 are multiplied as s8 whether or not the weight could be.
Result<PlacedGemm> placeFormats(const dsl::Gemm &gemm, dsl::ScheduleDecl::Scales groupScales,
                                dsl::ScheduleDecl::Roles roles, std::string_view target,
                                const DecodeSequence *fixed, const SourceMap *sources,
                                Within within = Within::Gemm, dsl::ScheduleDecl::Tables tables = {},
                                bool widened = false);
// Of an activation that is a partition of blocks of all rows: Partition.cpp.
Result<PlacedGemm> placeParts(const dsl::Gemm &gemm, dsl::ScheduleDecl::Scales groupScales,
                              dsl::ScheduleDecl::Roles roles, std::string_view target,
                              const SourceMap *sources);

// Of a weight with a residual, whose base is placed as `dense` alone: ResidualPlacement.cpp.
Result<PlacedGemm> placeResidual(const dsl::Gemm &gemm, PlacedGemm dense,
                                 dsl::ScheduleDecl::Scales groupScales,
                                 dsl::ScheduleDecl::Roles roles, std::string_view target,
                                 const SourceMap *sources);

// Fits the block-scaled instruction with operands of `mmaType` to the group scales of both
// operands. Why none fits; empty: `scaling` is the one. `splitsWeight`: its codes are operands, and
// those of a remapped one the sums of two.
std::string fitBlockScaling(const dsl::Gemm &gemm, const std::vector<ScaleUse> &weightScales,
                            const std::vector<ScaleUse> &activationScales, std::string_view mmaType,
                            bool splitsWeight, BlockScaling &scaling);

// A diagnostic at a span, without caret when there is no source text at hand.
Error errorAt(DiagId id, const std::vector<std::string> &args, Span span, const SourceMap *sources);

} // namespace rho::compiler
