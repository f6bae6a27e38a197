// The same as WordSearch for codes whose bits do not divide a word's (3, 5, 6 and 7): how the
// operand registers of a unit are taken out of several words.
#pragma once

#include "compiler/decode/WordSearch.h"

#include <optional>
#include <vector>

namespace rho::compiler {

// Codes of a unit and its words: as planesOf() divides such codes.
int codesOfUnit(int codeBits);

// A cheap plan for the registers of a unit of codes of `codeBits` bits, with lanes of `laneBits`
// bits, each by one of `forms`; `extra[i]` is the arithmetic of form i. As many codes as there is
// room for lie whole in each word; what is left of the words holds the others in pieces. None where
// no plan is found that costs less than `bound`.
std::optional<WordPlan> searchUnit(const std::vector<LaneForm> &forms,
                                   const std::vector<OpCounts> &extra, int codeBits, int laneBits,
                                   const InstructionRates &rates, WordCost bound);

} // namespace rho::compiler
