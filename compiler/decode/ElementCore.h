// Cores of a value expression in which the element stands alone, `element - 8` for one: as good as
// an element type of these numbers.
#pragma once

#include "compiler/decode/Synthesis.h"

namespace rho::compiler {

bool isBareElement(const dsl::Expr &core);

struct ElementCore {
  uint32_t renamed = 0;       // code c has number c ^ renamed of
  std::vector<double> values; // these; empty of an element of more than 8 bits
  // The same with NaN for what no weight holds: a requirement of the element alone excludes it.
  // Empty where there is none.
  std::vector<double> allowed;
  // The type of these numbers, where there is one: `element - 8` of u4 is s4, the top bit flipped.
  std::optional<dsl::ElementType> type;
};

// None where the core reads other components, an element with a remapped code, or computes with one
// of more than 8 bits.
std::optional<ElementCore> elementCore(const dsl::Format &format, const dsl::Expr &core);

// What a search finds for it, cheapest first: decodes of all codes, and those that need not care
// for codes that are excluded.
std::vector<SynthesizedDecode> foundDecodes(const ElementCore &core, std::string_view mmaType,
                                            int leastLog2);

// Its decodes, cheapest first, `most` at most: found by search, or extracted.
std::vector<DecodeSequence> elementSequences(const ElementCore &core, std::string_view mmaType,
                                             int leastLog2, size_t most = SIZE_MAX);

// The same for codes that are called c ^ `renamed` instead of c.
DecodeSequence withCodesRenamed(DecodeSequence sequence, uint32_t renamed);

// By the instructions for each code.
bool isShorter(const DecodeSequence &a, const DecodeSequence &b);

// Binary digits of a number, from the first to the last that is not 0.
int significantBits(double number);
// The value of the last of them, of a number that is not 0.
double lowestDigit(double number);
// Of the numbers that a core can be, at most; none where that is not known.
std::optional<int> significantBits(const dsl::Format &format, const dsl::Expr &core);

} // namespace rho::compiler
