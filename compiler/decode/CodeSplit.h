// Remapped codes of operands that hold no such value: the sum of two operands, the codes with
// another one in place of the remapped code, and what is missing there, zero elsewhere (RaZeR, Chen
// et al. 2025, appendix D.3).
#pragma once

#include "compiler/CodePair.h"
#include "compiler/decode/DecodeProgram.h"
#include "dsl/Format.h"

#include <string>
#include <vector>

namespace rho::compiler {

// Codes of 4 bits, 8 to a register of the operand.
struct CodeSplit {
  int selector = 0;        // component
  std::vector<int> stored; // components with pairs of their own, main | rest << 4 in a word
  bool hasRest = true;     // else one operand does
  DecodeProgram tables;    // words of `stored` -> nibbles by the selector's code, main then rest
  DecodeProgram split;     // a register; pickedSelector | code, tables -> main, rest
  std::vector<CodePair> pairs; // by the selector's code; of stored ones {0, 0}

  // What stands above a selector's code where `split` takes it.
  static constexpr uint32_t pickedSelector = 0xccccccc0;
};

// How the element of a format is split for operands of its own type. Empty `problem`: it is.
CodeSplit splitCodes(const dsl::Format &format, std::string &problem);

} // namespace rho::compiler
