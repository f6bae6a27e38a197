#include "runtime/emulator/Decode.h"

#include "dsl/Lasting.h"
#include "runtime/emulator/Numbers.h"
#include "runtime/emulator/Targets.h"

#include <algorithm>
#include <cstring>

namespace rho::emulator {

namespace {
using OpcodeTable = std::unordered_map<std::string_view, void (*)(Decoder &)>;

const OpcodeTable &opcodeTable() {
  static const auto &table = dsl::lasting([] {
    OpcodeTable all;
    for (std::span<const Opcode> family :
         {integerOpcodes(), bitOpcodes(), floatOpcodes(), compareOpcodes(), convertOpcodes(),
          moveOpcodes(), memoryOpcodes(), atomicOpcodes(), asyncOpcodes(), matrixOpcodes(),
          mmaOpcodes(), controlOpcodes(), barrierOpcodes(), warpOpcodes(), mbarrierOpcodes(),
          wgmmaOpcodes(), clusterOpcodes()})
      for (const Opcode &opcode : family)
        all.emplace(opcode.name, opcode.decode);
    return all;
  }());
  return table;
}

struct SpecialRow {
  std::string_view name;
  Special special;
  int bits;
};
constexpr SpecialRow specialRows[] = {
#define RHO_PTX_SPECIAL(id, name, bits) {name, Special::id, bits},
#include "runtime/emulator/Specials.def"
#undef RHO_PTX_SPECIAL
};

// Bytes of a register with its 32 lanes; a predicate is one mask.
uint32_t slotBytes(int bits) { return bits == 1 ? 64 : uint32_t(bits) / 8 * 32; }

uint32_t allocateSlot(Entry &entry, int bits) {
  // 64-byte aligned: a lane loop never splits a cache line more than it has to.
  auto offset = uint32_t(entry.registers.size());
  entry.registers.resize((offset + slotBytes(bits) + 63) & ~size_t(63), 0);
  return offset;
}

// Whether what a kernel leaves in global memory may be for others that run.
bool meetsOthers(const Statement &statement) {
  std::string_view name = statement.opcode[0];
  return name == "atom" || name == "red" ||
         ((name == "ld" || name == "st") &&
          std::any_of(statement.opcode.begin(), statement.opcode.end(), [](std::string_view word) {
            return word == "acquire" || word == "release";
          }));
}
} // namespace

std::string statementText(const std::string &ptx, uint32_t begin, uint32_t end) {
  std::string out;
  for (uint32_t i = begin; i < end; ++i) {
    char c = ptx[i];
    bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!blank)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  while (!out.empty() && out.back() == ' ')
    out.pop_back();
  return out;
}

void decodeAs(Decoder &decoder, std::span<const Opcode> rows) {
  for (const Opcode &row : rows)
    if (row.name == decoder.opcode())
      return row.decode(decoder);
  decoder.unknown();
}

Decoder::Decoder(const Module &module, const Function &function, Entry &entry,
                 std::vector<uint64_t> &variableAddresses)
    : module(module), function(function), entry(entry), addresses(variableAddresses),
      slots(function.registers.size(), 0) {
  // Offset 0 means "no register".
  entry.registers.assign(64, 0);
  for (const Statement &statement : function.statements) {
    entry.usesWgmma |= statement.opcode[0] == "wgmma";
    entry.usesAtomics |= meetsOthers(statement);
  }
}

std::optional<Error> Decoder::decodeAll(const std::string &ptx) {
  text = &ptx;
  layOutShared();
  std::vector<uint32_t> codeStart;
  for (uint32_t i = 0; i < function.statements.size() && !error; ++i) {
    codeStart.push_back(uint32_t(entry.code.size()));
    decodeOne(i);
  }
  if (error)
    return error;
  // The body's end exits.
  codeStart.push_back(uint32_t(entry.code.size()));
  Statement last;
  last.opcode = {"exit"};
  last.line = function.statements.empty() ? 1 : function.statements.back().line;
  current = &last;
  nextModifier = 1;
  entry.statements.push_back({last.line, 0, 0, 0});
  inst = Inst{};
  inst.statement = uint32_t(function.statements.size());
  opcodeTable().at("exit")(*this);
  for (auto [instruction, statement] : branches)
    entry.code[instruction].imm = codeStart[statement];
  for (auto [place, statement] : listedBranches)
    entry.lists[place] = codeStart[statement];
  checkWgmmaRegisters();
  return error;
}

void Decoder::noteWgmma(uint32_t firstOfList, size_t count) {
  if (error)
    return;
  wgmmaCode.insert(uint32_t(entry.code.size()));
  wgmmaSlots.insert(entry.lists.begin() + firstOfList,
                    entry.lists.begin() + firstOfList + ptrdiff_t(count));
}

// Other instructions that touch these registers are put behind a check.
void Decoder::checkWgmmaRegisters() {
  std::unordered_map<uint32_t, uint32_t> checkedCode;
  for (const RegisterAccess &access : accesses) {
    if (access.code >= entry.code.size() || !wgmmaSlots.contains(access.slot) ||
        wgmmaCode.contains(access.code))
      continue;
    auto [known, fresh] = checkedCode.emplace(access.code, uint32_t(entry.checked.size()));
    Inst &accessing = entry.code[access.code];
    if (fresh) {
      entry.checked.push_back({accessing, {}, {}});
      accessing.run = runChecked;
      accessing.aux = known->second;
    }
    CheckedInst &checked = entry.checked[known->second];
    (access.written ? checked.writes : checked.reads).push_back(access.slot);
  }
}

// Only variables that the entry names take part. Static arrays first, then the extern array.
void Decoder::layOutShared() {
  std::vector<uint32_t> used;
  for (const Statement &statement : function.statements)
    for (const Operand &operand : statement.operands) {
      const Operand &symbol = operand.kind == Operand::Kind::Address ? operand.parts[0] : operand;
      if (symbol.kind == Operand::Kind::Symbol &&
          std::find(used.begin(), used.end(), symbol.index) == used.end())
        used.push_back(symbol.index);
    }
  auto place = [&](Space space, bool external, uint64_t &end) {
    for (uint32_t index : used) {
      const Variable &variable = module.variables[index];
      if (variable.space != space || (variable.size == 0) != external)
        continue;
      end = (end + variable.align - 1) & ~(variable.align - 1);
      addresses[index] = end;
      end += variable.size;
    }
  };
  place(Space::Shared, false, entry.staticShared);
  place(Space::Shared, true, entry.staticShared);
  place(Space::Local, false, entry.localBytes);
  entry.localBytes = (entry.localBytes + 15) & ~uint64_t(15);
}

void Decoder::decodeOne(uint32_t index) {
  current = &function.statements[index];
  nextModifier = 1;
  entry.statements.push_back({current->line, current->originLine, current->begin, current->end});
  inst = Inst{};
  inst.statement = index;
  auto found = opcodeTable().find(current->opcode[0]);
  if (found == opcodeTable().end())
    return unknown();
  if (std::optional<std::string> needed = missingTarget(*current, module.target)) {
    error = makeError(DiagId::emulator_target, {std::to_string(current->line), statementText(),
                                                *needed, std::string(module.target)});
    return;
  }
  found->second(*this);
}

std::string Decoder::statementText() const {
  return emulator::statementText(*text, current->begin, current->end);
}

void Decoder::unknown() {
  if (!error)
    error = makeError(DiagId::emulator_unknown_instruction,
                      {std::to_string(current->line), statementText()});
}

void Decoder::bad(const std::string &explanation) {
  if (!error)
    error = makeError(DiagId::emulator_operand,
                      {std::to_string(current->line), statementText(), explanation});
}

void Decoder::emit(Handler handler) {
  if (nextModifier != current->opcode.size() || !handler)
    unknown();
  if (error)
    return;
  inst.run = handler;
  if (current->guarded) {
    inst.guard = registerSlot(current->guard);
    inst.guardFlip = current->guardNegated ? ~0u : 0;
  }
  entry.code.push_back(inst);
}

void Decoder::emitBranch(Handler handler, uint32_t statement) {
  branches.emplace_back(uint32_t(entry.code.size()), statement);
  emit(handler);
}

void Decoder::emitBranches(Handler handler, const std::vector<uint32_t> &statements) {
  inst.list = addList(statements);
  inst.aux = uint32_t(statements.size());
  for (uint32_t i = 0; i < statements.size(); ++i)
    listedBranches.emplace_back(inst.list + i, statements[i]);
  emit(handler);
}

void Decoder::noteSharedAccess(Space space, uint32_t bytes) {
  if (space == Space::Shared || space == Space::SharedCluster || space == Space::Generic)
    entry.sharedGranule = std::min(entry.sharedGranule, bytes);
}

// Modifiers -------------------------------------------------------------------------------------

std::string_view Decoder::peekModifier(size_t ahead) const {
  size_t i = nextModifier + ahead;
  return i < current->opcode.size() ? current->opcode[i] : std::string_view();
}

Type Decoder::lastType() const { return typeNamed(current->opcode.back()); }

bool Decoder::take(std::string_view modifier) {
  if (peekModifier() != modifier || modifier.empty())
    return false;
  ++nextModifier;
  return true;
}

int Decoder::takeOne(std::initializer_list<std::string_view> modifiers) {
  int index = 0;
  for (std::string_view modifier : modifiers) {
    if (take(modifier))
      return index;
    ++index;
  }
  return -1;
}

bool Decoder::takePrefix(std::string_view prefix) {
  if (!peekModifier().starts_with(prefix))
    return false;
  ++nextModifier;
  return true;
}

Type Decoder::takeType() {
  Type type = typeNamed(peekModifier());
  if (type == Type::None) {
    unknown();
    return Type::B32;
  }
  ++nextModifier;
  return type;
}

// Operands --------------------------------------------------------------------------------------

const Operand &Decoder::operand(size_t i) {
  static const Operand nothing;
  if (i < current->operands.size())
    return current->operands[i];
  bad("operand " + std::to_string(i + 1) + " is missing");
  return nothing;
}

void Decoder::expectOperands(size_t least, size_t most) {
  size_t have = operandCount();
  if (have < least || have > most)
    bad(std::to_string(have) + " operands where " + std::to_string(least) +
        (least == most ? "" : " to " + std::to_string(most)) + " belong");
}

uint32_t Decoder::registerSlot(uint32_t reg, bool written) {
  if (!slots[reg])
    slots[reg] = allocateSlot(entry, bits(function.registers[reg]));
  if (entry.usesWgmma)
    accesses.push_back({uint32_t(entry.code.size()), slots[reg], written});
  return slots[reg];
}

uint32_t Decoder::specialSlot(const Operand &operand, int &bits) {
  for (const SpecialRow &row : specialRows) {
    if (row.name != operand.name)
      continue;
    bits = row.bits;
    if (row.special >= Special::Clock) {
      uint32_t slot = scratch(row.bits);
      // Clocks are read where they are named: an instruction of its own fills the slot.
      Inst read = inst;
      read.run = readClock;
      read.d = slot;
      read.mode = uint8_t(row.special);
      entry.code.push_back(read);
      return slot;
    }
    auto [known, fresh] = specialSlots.emplace(uint8_t(row.special), 0);
    if (fresh) {
      known->second = scratch(row.bits);
      entry.specials.push_back({row.special, known->second});
    }
    return known->second;
  }
  bits = 32;
  bad("`" + std::string(operand.name) + "` is not declared");
  return 0;
}

uint32_t Decoder::scratch(int bits) { return allocateSlot(entry, bits); }

uint32_t Decoder::constant(uint64_t value, int bits) {
  int table = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
  if (bits < 64)
    value &= (uint64_t(1) << bits) - 1;
  auto [known, fresh] = constants[table].emplace(value, 0);
  if (fresh) {
    known->second = allocateSlot(entry, bits);
    uint8_t *lane = entry.registers.data() + known->second;
    for (int i = 0; i < 32; ++i, lane += bits / 8)
      std::memcpy(lane, &value, size_t(bits) / 8); // little endian, as PTX is
  }
  return known->second;
}

uint64_t Decoder::symbolAddress(const Operand &operand) {
  return addresses[operand.index] + operand.value;
}

uint64_t Decoder::immediateBits(const Operand &operand, Type type) {
  switch (operand.kind) {
  case Operand::Kind::Integer:
    if (isFloat(type))
      bad("an integer where " + std::string(name(type)) + " belongs");
    return operand.value;
  case Operand::Kind::Symbol:
    return symbolAddress(operand);
  case Operand::Kind::Single:
  case Operand::Kind::Double: {
    double value = operand.kind == Operand::Kind::Single
                       ? double(std::bit_cast<float>(uint32_t(operand.value)))
                       : std::bit_cast<double>(operand.value);
    if (bits(type) == 64)
      return std::bit_cast<uint64_t>(value);
    if (bits(type) == 32)
      return operand.kind == Operand::Kind::Single ? operand.value
                                                   : std::bit_cast<uint32_t>(float(value));
    if (type == Type::F16)
      return f64ToF16(value);
    if (type == Type::BF16)
      return f64ToBf16(value);
    bad("a floating point number where " + std::string(name(type)) + " belongs");
    return 0;
  }
  default:
    bad(operand.name.empty() ? "a register or number is missing"
                             : "`" + std::string(operand.name) + "` is no register or number here");
    return 0;
  }
}

void Decoder::wrongWidth(const Operand &operand, int registerBits, Type type) {
  bad("`" + std::string(operand.name) + "` has " + std::to_string(registerBits) + " bits where " +
      std::to_string(bits(type)) + " belong");
}

void Decoder::operands(Type result, const std::vector<Type> &sources) {
  constexpr uint32_t Inst::*places[] = {&Inst::a, &Inst::b, &Inst::c, &Inst::e};
  expectOperands(sources.size() + 1);
  inst.d = destination(0, result);
  for (size_t i = 0; i < sources.size(); ++i)
    inst.*places[i] = source(i + 1, sources[i]);
}

uint32_t Decoder::source(const Operand &operand, Type type) {
  int registerBits = 0;
  uint32_t slot = wideSource(operand, type, registerBits);
  if (registerBits != bits(type))
    wrongWidth(operand, registerBits, type);
  return slot;
}

uint32_t Decoder::wideSource(const Operand &operand, Type type, int &registerBits) {
  registerBits = std::max(bits(type), 8);
  if (operand.negated)
    bad("only predicates are negated");
  if (operand.kind == Operand::Kind::Register) {
    Type declared = function.registers[operand.index];
    registerBits = bits(declared);
    if (declared == Type::Pred || registerBits < bits(type))
      wrongWidth(operand, registerBits, type);
    return registerSlot(operand.index);
  }
  if (operand.kind == Operand::Kind::Special)
    return specialSlot(operand, registerBits);
  return constant(immediateBits(operand, type), registerBits);
}

uint32_t Decoder::destination(const Operand &operand, Type type) {
  int registerBits = 0;
  uint32_t slot = wideDestination(operand, type, registerBits);
  if (registerBits != bits(type))
    wrongWidth(operand, registerBits, type);
  return slot;
}

uint32_t Decoder::wideDestination(const Operand &operand, Type type, int &registerBits) {
  registerBits = bits(type);
  if (operand.kind == Operand::Kind::Sink) {
    registerBits = std::max(registerBits, 8);
    return scratch(registerBits);
  }
  if (operand.kind != Operand::Kind::Register || function.registers[operand.index] == Type::Pred) {
    bad("the result goes to no register of " + std::to_string(bits(type)) + " bits");
    return 0;
  }
  registerBits = bits(function.registers[operand.index]);
  if (registerBits < bits(type))
    wrongWidth(operand, registerBits, type);
  return registerSlot(operand.index, true);
}

uint32_t Decoder::predicate(size_t i, uint8_t &negated) {
  const Operand &source = operand(i);
  negated = source.negated;
  if (isPredicate(source))
    return registerSlot(source.index);
  if (source.kind == Operand::Kind::Integer)
    return constant(source.value ? ~0u : 0u, 32);
  bad("`" + std::string(source.name) + "` is no predicate");
  return 0;
}

bool Decoder::isPredicate(const Operand &operand) const {
  return operand.kind == Operand::Kind::Register && function.registers[operand.index] == Type::Pred;
}

uint32_t Decoder::predicateDestination(const Operand &operand) {
  if (operand.kind == Operand::Kind::Sink)
    return scratch(1);
  if (isPredicate(operand))
    return registerSlot(operand.index);
  bad("the result goes to no predicate");
  return 0;
}

uint32_t Decoder::addList(const std::vector<uint32_t> &offsets) {
  auto index = uint32_t(entry.lists.size());
  entry.lists.insert(entry.lists.end(), offsets.begin(), offsets.end());
  return index;
}

const Operand *Decoder::partsOf(const Operand &vector, size_t count) {
  bool isVector = vector.kind == Operand::Kind::Vector;
  if (count != (isVector ? vector.parts.size() : 1)) {
    bad(std::to_string(isVector ? vector.parts.size() : 1) + " registers where " +
        std::to_string(count) + " belong");
    return nullptr;
  }
  return isVector ? vector.parts.data() : &vector;
}

uint32_t Decoder::sources(const Operand &vector, size_t count, Type type) {
  std::vector<uint32_t> offsets;
  if (const Operand *parts = partsOf(vector, count))
    for (size_t p = 0; p < count; ++p)
      offsets.push_back(source(parts[p], type));
  return addList(offsets);
}

uint32_t Decoder::destinations(size_t i, size_t count, Type type) {
  std::vector<uint32_t> offsets;
  if (const Operand *parts = partsOf(operand(i), count))
    for (size_t p = 0; p < count; ++p)
      offsets.push_back(destination(parts[p], type));
  return addList(offsets);
}

int64_t Decoder::immediate(size_t i) {
  const Operand &number = operand(i);
  if (number.kind != Operand::Kind::Integer)
    bad("operand " + std::to_string(i + 1) + " must be an integer constant");
  return int64_t(number.value);
}

uint32_t Decoder::tensor(size_t i, size_t rank, uint32_t &coordinates) {
  const Operand &whole = operand(i);
  if (whole.kind != Operand::Kind::Address || whole.parts.size() != 2) {
    bad("operand " + std::to_string(i + 1) + " must be a tensor map with coordinates");
    return 0;
  }
  coordinates = sources(whole.parts[1], rank, Type::B32);
  int baseBits = 64;
  uint32_t slot = baseOf(whole, baseBits);
  if (baseBits != 64)
    bad("the address of a tensor map has 64 bits");
  return slot;
}

uint32_t Decoder::address(size_t i, int &baseBits) {
  const Operand &whole = operand(i);
  baseBits = 64;
  if (whole.kind != Operand::Kind::Address || whole.parts.size() != 1) {
    bad("operand " + std::to_string(i + 1) + " must be an address");
    return 0;
  }
  return baseOf(whole, baseBits);
}

uint32_t Decoder::baseOf(const Operand &whole, int &baseBits) {
  const Operand &base = whole.parts[0];
  inst.imm = int64_t(whole.value);
  if (base.kind == Operand::Kind::Register) {
    baseBits = bits(function.registers[base.index]);
    if (baseBits < 32)
      bad("`" + std::string(base.name) + "` is too narrow for an address");
    return registerSlot(base.index);
  }
  return constant(immediateBits(base, Type::B64), 64);
}

uint32_t Decoder::narrowOffset() {
  if (inst.imm != int64_t(int32_t(inst.imm)))
    bad("an offset has 32 bits");
  return uint32_t(inst.imm);
}

namespace {
// What a label names in the scope where it stands or the nearest around it; null: nothing.
template <class Map>
auto findLabel(const Map &map, const Function &function, const Operand &target) {
  for (uint32_t scope = target.scope;; scope = function.scopeParents[scope]) {
    auto found = map.find({scope, target.name});
    if (found != map.end() || scope == 0)
      return found;
  }
}
} // namespace

uint32_t Decoder::label(const Operand &target) {
  if (target.kind == Operand::Kind::Label) {
    auto found = findLabel(function.labels, function, target);
    if (found != function.labels.end())
      return found->second;
  }
  bad("`" + std::string(target.name) + "` is no label");
  return 0;
}

const std::vector<Operand> &Decoder::branchTargets(size_t i) {
  static const std::vector<Operand> none;
  const Operand &name = operand(i);
  if (name.kind == Operand::Kind::Label) {
    auto found = findLabel(function.targetLists, function, name);
    if (found != function.targetLists.end())
      return found->second;
  }
  bad("`" + std::string(name.name) + "` is no list of branch targets");
  return none;
}

} // namespace rho::emulator
