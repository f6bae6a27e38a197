// How a kernel makes multipliers of operands from packed scales.
#pragma once

#include "compiler/decode/Sequences.h"

namespace rho::compiler {

// What a decode reads the codes of a scale as that it multiplies with. e4m3 that its rule never
// makes negative is read as ue4m3; of such a weight other codes must not be packed.
dsl::ElementType multiplierType(const dsl::Format &format, int component);

// Powers of two with every exponent of mmaType: e8m0 beside bf16. A factor that a decode leaves out
// is added to their exponents as if none were beyond the operand's then: which codes may be packed
// is for OperandRange to say. Code 0 is that exponent alone, too.
bool hasAllExponents(dsl::ElementType type, std::string_view mmaType);

// The largest s such that every scale of `type` times 2^s is finite in mmaType.
int scaleHeadroom(dsl::ElementType type, std::string_view mmaType);

// Where exponents that reach beyond the type's own, which all the subnormal numbers have, fit a
// byte, and multiplications would take two steps (scaleSequence).
std::optional<ScaleTable> scaleTable(dsl::ElementType type, std::string_view mmaType,
                                     int log2Factor);

// One 32-bit word of packed scales -> one register (s * 2^log2Factor twice) per scale: 2 registers
// for 16-bit scales, 4 for 8-bit ones, which are stored as `table` says, one of scaleTable() for
// the same type and factor. Those without a sign have that of bit `signAt` of their byte, if any.
// None when the scale type is not exact in mmaType ("f16" or "bf16").
std::optional<DecodeProgram> scaleSequence(dsl::ElementType type, std::string_view mmaType,
                                           int log2Factor, const ScaleTable &table = {},
                                           std::optional<int> signAt = std::nullopt);

// That of the multipliers of a decode.
DecodeProgram multiplierSequence(const DecodeSequence &decode, const dsl::Format &format,
                                 int component, std::string_view mmaType);

} // namespace rho::compiler
