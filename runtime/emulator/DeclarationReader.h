// Declarations of PTX that need no names of others: variables, parameters, numbers of threads.
#pragma once

#include "runtime/emulator/TokenReader.h"

namespace rho::emulator {

class DeclarationReader : protected TokenReader {
protected:
  using TokenReader::TokenReader;

  // Whether a directive such as ".shared" names the space of a variable.
  static bool spaceOf(std::string_view directive, Space &space);
  // [.align N] [.v2 | .v4] .type; align is 0 where the text has none.
  void typeAndAlign(Type &type, uint64_t &align, uint64_t &elements);
  // [type] name [dims] [= initial]. Without a type it is that of the declarator before.
  Variable variableDeclarator(Space space);
  // Up to three numbers of threads; those not given are 1.
  void threeCounts(uint32_t (&out)[3]);
  // .param type [.ptr ...] name [dims], laid out behind the function's other parameters.
  void parameter(Function &function);

private:
  void initializer(Variable &variable, uint64_t elementBytes);

  Type declType = Type::None;
  uint64_t declAlign = 0, declElements = 1;
};

} // namespace rho::emulator
