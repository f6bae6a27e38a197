// Decodes of codes of 2 and 4 bits by byte permutation: one Prmt looks up four of eight bytes.
#pragma once

#include "compiler/decode/Sequences.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::compiler {

// A way to make operands of codes by tables.
struct TableDecode {
  DecodeSequence sequence;
  std::string method;
};

// lanes[code]: what a lane shall hold, of 16 codes in 8 or 16 bits, of 4 codes in 8. Every
// construction that these tables admit.
std::vector<TableDecode> tableDecodes(const std::vector<uint32_t> &lanes, int laneBits);

// The same of which the lane of `code` is not known before a kernel runs: the low bits of parameter
// h are it, for weight row half h. A group of four codes is of one row half.
TableDecode tableWithParameter(const std::vector<uint32_t> &lanes, int laneBits, uint32_t code);

// The same for lanes of 8 bits half of which, the parameter's among them, have their top bit set or
// clear; none where an odd number has. `top`: the parameter's.
std::optional<TableDecode> pairsWithParameter(const std::vector<uint32_t> &lanes, uint32_t code,
                                              bool top);

// Codes that stand for offset + slope * byte, of a byte below 128 for each code, for `code` the
// lowest byte of parameter h; to operands of 16 bits ("f16", "bf16"). `chosen`: for `code` one of
// the four bytes of parameter h, which parameter 2 + h, of form Places, takes.
struct ByteLine {
  double offset, slope;
};
TableDecode bytesWithParameter(const std::vector<uint32_t> &bytes, uint32_t code, bool chosen,
                               ByteLine line, std::string_view mmaType);

// One 32-bit word of packed codes, `storedBits` apart, of which `bits`, 1 or 2, from bit `shift` on
// count, -> for each of the first `codes` a parameter of form Places.
DecodeProgram placesSequence(int bits, int storedBits, int shift, int codes);
// The same of form Pairs, where each code names one of the tables that DecodeProgram::lanes has.
// Its parameter is 4 * lane in all four bytes.
DecodeProgram tablePlacesSequence(int bits, int storedBits, int shift, int codes);

} // namespace rho::compiler
