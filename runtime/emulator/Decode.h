// Statements to instructions. One table row per opcode; each family of opcodes has its own file,
// which decodes and executes them. A new family is a new file and a line in Decode.cpp.
#pragma once

#include "runtime/emulator/Program.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

namespace rho::emulator {

class Decoder;

struct Opcode {
  std::string_view name; // before the first dot
  void (*decode)(Decoder &decoder);
};

std::span<const Opcode> integerOpcodes();
std::span<const Opcode> bitOpcodes();
std::span<const Opcode> floatOpcodes();
std::span<const Opcode> compareOpcodes();
std::span<const Opcode> convertOpcodes();
std::span<const Opcode> moveOpcodes();
std::span<const Opcode> memoryOpcodes();
std::span<const Opcode> atomicOpcodes();
std::span<const Opcode> asyncOpcodes();
std::span<const Opcode> matrixOpcodes();
std::span<const Opcode> mmaOpcodes();
std::span<const Opcode> controlOpcodes();
std::span<const Opcode> barrierOpcodes();
std::span<const Opcode> warpOpcodes();
std::span<const Opcode> mbarrierOpcodes();
std::span<const Opcode> wgmmaOpcodes();
std::span<const Opcode> clusterOpcodes();

// What decode functions see of one statement. The first problem is kept; after it every request
// answers something harmless, so that decode functions need no checks of their own.
class Decoder {
public:
  Decoder(const Module &module, const Function &function, Entry &entry,
          std::vector<uint64_t> &variableAddresses);

  // All statements of the function.
  std::optional<Error> decodeAll(const std::string &text);

  // Modifiers, taken in order ---------------------------------------------------------------
  bool take(std::string_view modifier);
  // Takes any of them; which one, or -1.
  int takeOne(std::initializer_list<std::string_view> modifiers);
  // Takes the next modifier if it starts with `prefix`.
  bool takePrefix(std::string_view prefix);
  Type takeType();
  std::string_view peekModifier(size_t ahead = 0) const;
  // The type that the last modifier names; Type::None if it names none.
  Type lastType() const;

  // Operands ----------------------------------------------------------------------------------
  std::string_view opcode() const { return current->opcode[0]; }
  size_t operandCount() const { return current->operands.size(); }
  const Operand &operand(size_t i);
  // Refuses other counts.
  void expectOperands(size_t least, size_t most);
  void expectOperands(size_t count) { expectOperands(count, count); }

  // A register of exactly the type's width, or an immediate converted to the type.
  uint32_t source(size_t i, Type type) { return source(operand(i), type); }
  uint32_t source(const Operand &operand, Type type);
  uint32_t destination(size_t i, Type type) { return destination(operand(i), type); }
  uint32_t destination(const Operand &operand, Type type);
  // Registers that may be wider than the type (ld, st, cvt); `registerBits` tells.
  uint32_t wideSource(const Operand &operand, Type type, int &registerBits);
  uint32_t wideDestination(const Operand &operand, Type type, int &registerBits);
  // The result, to inst.d, and as many sources, to a, b, c and e; refuses other counts.
  void operands(Type result, const std::vector<Type> &sources);
  // Predicates; `negated`: whether `!` stands before the source.
  uint32_t predicate(size_t i, uint8_t &negated);
  bool isPredicate(const Operand &operand) const;
  uint32_t predicateDestination(const Operand &operand);
  // The registers of {a, b, ...} (or of a single operand), each of the type; returns Inst::list.
  uint32_t sources(size_t i, size_t count, Type type) { return sources(operand(i), count, type); }
  uint32_t sources(const Operand &vector, size_t count, Type type);
  uint32_t destinations(size_t i, size_t count, Type type);
  // An immediate integer.
  int64_t immediate(size_t i);
  // [base + offset]: the base's register and width; the offset goes to inst.imm.
  uint32_t address(size_t i, int &baseBits);
  // That offset, where the instruction has 32 bits for it.
  uint32_t narrowOffset();
  // [tensor map, {coordinates}]: the map's register; the coordinates are a list.
  uint32_t tensor(size_t i, size_t rank, uint32_t &coordinates);
  uint32_t label(size_t i) { return label(operand(i)); } // statement index
  uint32_t label(const Operand &target);
  // The labels of a .branchtargets list.
  const std::vector<Operand> &branchTargets(size_t i);

  uint32_t constant(uint64_t value, int bits);
  uint32_t scratch(int bits);
  uint32_t addList(const std::vector<uint32_t> &offsets);

  // Outcome -----------------------------------------------------------------------------------
  Inst inst;
  void emit(Handler handler);
  void emitBranch(Handler handler, uint32_t statement);
  // inst.list: the targets' places in the code.
  void emitBranches(Handler handler, const std::vector<uint32_t> &statements);
  void noteSharedAccess(Space space, uint32_t bytes);
  // The wgmma that is emitted next has these registers in D or A.
  void noteWgmma(uint32_t firstOfList, size_t count);
  void unknown();                           // this form of the instruction is not known
  void bad(const std::string &explanation); // an operand does not fit
  bool failed() const { return error.has_value(); }

private:
  void layOutShared();
  void decodeOne(uint32_t index);
  std::string statementText() const;
  uint32_t registerSlot(uint32_t reg, bool written = false);
  void checkWgmmaRegisters();
  const Operand *partsOf(const Operand &vector, size_t count);
  uint32_t baseOf(const Operand &whole, int &baseBits);
  uint32_t specialSlot(const Operand &operand, int &bits);
  uint64_t symbolAddress(const Operand &operand);
  uint64_t immediateBits(const Operand &operand, Type type);
  void wrongWidth(const Operand &operand, int registerBits, Type type);

  const Module &module;
  const Function &function;
  Entry &entry;
  std::vector<uint64_t> &addresses; // of module.variables
  const std::string *text = nullptr;
  const Statement *current = nullptr;
  size_t nextModifier = 1;
  std::vector<uint32_t> slots; // per register; 0: not used yet
  std::unordered_map<uint64_t, uint32_t> constants[4];
  std::unordered_map<uint8_t, uint32_t> specialSlots;
  std::vector<std::pair<uint32_t, uint32_t>> branches;       // instruction, statement
  std::vector<std::pair<uint32_t, uint32_t>> listedBranches; // in Entry::lists, statement
  struct RegisterAccess {
    uint32_t code, slot;
    bool written;
  };
  std::vector<RegisterAccess> accesses; // of entries with wgmma
  std::unordered_set<uint32_t> wgmmaCode, wgmmaSlots;
  std::optional<Error> error;
};

// Modifiers of conversions (Inst::flag) and of arithmetic on f16 and bf16 (Inst::mode).
enum Modifier : uint8_t { Ftz = 1, Sat = 2, Relu = 4, Integral = 8, SatFinite = 16 };

// By the row of this name; unknown without one.
void decodeAs(Decoder &decoder, std::span<const Opcode> rows);
// add, sub, mul, ... on floating point types, called by the integer rows of the same names.
void decodeFloatArithmetic(Decoder &decoder);
// The same on f16, bf16 and their pairs.
void decodeHalfArithmetic(Decoder &decoder);

// mma with block scaling, behind its shape and layouts, which k belongs to. BlockScaledMma.cpp
bool isBlockScaled(const Decoder &decoder);
void decodeBlockScaledMma(Decoder &decoder, int k);

// barrier.cluster, behind these words. Clusters.cpp
void decodeClusterBarrier(Decoder &decoder);

// Fills the slot inst.d with the clock inst.mode (a Special). Move.cpp
Flow readClock(Warp &warp, const Inst &inst, uint32_t mask);

// Stands before an instruction that touches registers of wgmma: Inst::aux is into Entry::checked.
// WgmmaRegisters.cpp
Flow runChecked(Warp &warp, const Inst &inst, uint32_t mask);

std::string statementText(const std::string &ptx, uint32_t begin, uint32_t end);

} // namespace rho::emulator
