// Decode sequences found by search. A decode is a small function of few bits: the search runs
// through the places of a code's bits in a lane, the ways to bring them there from a word whose
// order is free, and tables of bytes; each result is proved by running all codes, and the
// throughput of the target's instructions chooses.
#pragma once

#include "compiler/decode/Sequences.h"
#include "compiler/decode/Throughput.h"

#include <string>
#include <string_view>
#include <vector>

namespace rho::compiler {

struct SynthesizedDecode {
  DecodeSequence sequence;
  std::string method; // for people
  int cycles = 0;     // of one warp for one word
};

// Sequences that decode codes with these values (2^b of them, NaN where packing refuses the code)
// to operands of mmaType, cheapest first; of those with equal cost, factors near 1 first. No factor
// is below 2^leastLog2. Empty when the values are not exact in that type, or no search covers b.
// Deterministic; takes milliseconds to tenths of a second.
std::vector<SynthesizedDecode> synthesizeDecode(const std::vector<double> &values,
                                                std::string_view mmaType, int leastLog2,
                                                const InstructionRates &rates);

// synthesizeDecode() by the rates of compute capability 9.0, once for the same values. The result
// stays valid; any thread may ask.
const std::vector<SynthesizedDecode> &knownDecodes(const std::vector<double> &values,
                                                   std::string_view mmaType, int leastLog2);

// Whether the sequence gives value * 2^log2Factor for every code in every place, whatever its
// neighbours are.
bool proveDecode(const DecodeSequence &sequence, const std::vector<double> &values,
                 std::string_view mmaType);

// The values of a bare element, by code.
std::vector<double> valuesOf(dsl::ElementType type);

// A program's instructions, one to a line.
std::string instructionLines(const DecodeProgram &program);

// The sequence and the next alternatives, with instructions, for `rho explain`.
std::string describe(const std::vector<SynthesizedDecode> &alternatives, size_t most);

} // namespace rho::compiler
