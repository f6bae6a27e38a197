// A decoded module: what Program holds and the machine executes.
#pragma once

#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/Parser.h"

namespace rho::emulator {

struct Warp;
struct Inst;

// What the warp does after an instruction.
enum class Flow : uint8_t {
  Next,
  Leave, // blocked, exited or failed: Warp says which
};

// Executes one instruction for the lanes in `mask`, which is never empty.
using Handler = Flow (*)(Warp &warp, const Inst &inst, uint32_t mask);

// One instruction with resolved operands. Registers are byte offsets into the warp's register file,
// where each holds its 32 lanes one after the other; a predicate is one 32-bit lane mask.
// Immediates are registers too, filled once: handlers know only registers.
struct Inst {
  Handler run = nullptr;
  uint32_t guard = 0;     // predicate; 0: none
  uint32_t guardFlip = 0; // ~0 for @!p
  uint32_t d = 0, a = 0, b = 0, c = 0, e = 0;
  uint32_t list = 0; // into Entry::lists: operands that are vectors
  uint32_t list2 = 0;
  uint32_t statement = 0; // into Entry::statements
  int64_t imm = 0;
  // Meaning by family (a vector's length, a width, a rounding mode).
  uint8_t n = 0, width = 0, mode = 0, flag = 0;
  uint32_t aux = 0;
};

// An instruction whose accesses to registers of wgmma are checked before it runs.
struct CheckedInst {
  Inst inst;
  std::vector<uint32_t> reads, writes; // registers that some wgmma has in D or A
};

// A special register as a register-file slot that the warp fills before it starts.
enum class Special : uint8_t {
#define RHO_PTX_SPECIAL(id, name, bits) id,
#include "runtime/emulator/Specials.def"
#undef RHO_PTX_SPECIAL
};
struct SpecialSlot {
  Special special;
  uint32_t offset;
};

// Where an instruction stands in the text, for messages.
struct StatementText {
  uint32_t line, originLine;
  uint32_t begin, end;
};

struct Entry : EntryLimits {
  std::string name;
  std::vector<Inst> code; // ends in an exit
  std::vector<uint32_t> lists;
  std::vector<StatementText> statements;
  std::vector<SpecialSlot> specials;
  std::vector<uint8_t> registers; // initial image of a warp's register file
  bool usesWgmma = false, usesAtomics = false;
  // What stands behind an instruction that touches a register of a wgmma: see checkUses.
  std::vector<CheckedInst> checked;
  uint64_t staticShared = 0; // dynamic shared memory begins here
  uint64_t localBytes = 0;   // per thread
  uint32_t sharedGranule = 16;
};

// A .global or .const variable, with fresh contents in every launch.
struct ModuleVariable {
  uint64_t address = 0, size = 0;
  bool constant = false;
  std::vector<uint8_t> initial;
};

struct Program::Impl {
  std::string text; // outlives all views into it
  std::string target;
  std::vector<ModuleVariable> variables;
  std::vector<Entry> entries;
};

} // namespace rho::emulator
