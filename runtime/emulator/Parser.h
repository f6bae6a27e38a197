// PTX tokens to the declarations and statements of a module. Registers and variables are resolved
// here, by scope; labels after the whole body is known.
#pragma once

#include "runtime/emulator/Lexer.h"
#include "runtime/emulator/Types.h"

#include <map>
#include <string>

namespace rho::emulator {

enum class Space : uint8_t { Generic, Global, Const, Shared, SharedCluster, Local, Param };

// .shared, .local, .global and .const arrays and scalars; parameters of entries.
struct Variable {
  std::string_view name;
  Space space = Space::Generic;
  uint32_t line = 0;
  uint64_t align = 1;
  uint64_t size = 0;            // 0: extern, sized at launch
  std::vector<uint8_t> initial; // at most `size` bytes; the rest is zero
  uint64_t address = 0;         // of a parameter, in the buffer of all
};

struct Operand {
  enum class Kind : uint8_t {
    Register, // index
    Special,  // name: "%tid.x"
    Integer,  // value
    Single,   // value: the bits of a float
    Double,   // value: the bits of a double
    Symbol,   // index of a variable, value: offset
    Label,    // name, scope
    Address,  // parts[0] + value, with the coordinates parts[1] of a tensor
    Vector,   // {parts}
    Pair,     // parts[0] | parts[1]
    Sink,     // _
  } kind = Kind::Sink;
  bool negated = false; // !%p
  uint32_t index = 0;
  uint32_t scope = 0;
  uint64_t value = 0;
  std::string_view name;
  std::vector<Operand> parts;
};

struct Statement {
  std::vector<std::string_view> opcode; // "ld", "global", "v4", "b32"
  std::vector<Operand> operands;
  bool guarded = false, guardNegated = false;
  uint32_t guard = 0;          // register
  uint32_t line = 0;           // of the PTX text
  uint32_t originLine = 0;     // of the nearest .loc before it; 0: none
  uint32_t begin = 0, end = 0; // bytes of the PTX text, without the `;`
};

// What an entry asks of its launches.
struct EntryLimits {
  uint64_t parameterBytes = 0;
  uint32_t maxThreads[3] = {0, 0, 0};      // .maxntid
  uint32_t requiredThreads[3] = {0, 0, 0}; // .reqntid; 0: not given
  uint32_t requiredCluster[3] = {0, 0, 0}; // .reqnctapercluster, likewise
  uint32_t registersPerThread = 0;         // .maxnreg, likewise
};

struct Function : EntryLimits {
  std::string_view name;
  std::vector<Variable> parameters;
  std::vector<Type> registers;
  std::vector<Statement> statements;
  std::vector<uint32_t> scopeParents;                               // scope 0 is the body
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> labels; // -> statement
  // .branchtargets
  std::map<std::pair<uint32_t, std::string_view>, std::vector<Operand>> targetLists;
};

struct Module {
  std::string_view target;
  std::vector<Variable> variables; // of the module and of all functions
  std::vector<Function> entries;
};

// `ptx` must outlive the module.
Result<Module> parseModule(std::string_view ptx);

} // namespace rho::emulator
