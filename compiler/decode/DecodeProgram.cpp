#include "compiler/decode/DecodeProgram.h"

#include "dsl/ElementType.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Kind = DecodeInstr::Operand::Kind;

struct OpInfo {
  std::string_view name;
  int operands;
};

constexpr OpInfo opTable[] = {
    {"and", 2},     {"or", 2},      {"xor", 2},      {"andor", 3},   {"andxor", 3}, {"select", 3},
    {"shl", 2},     {"shr", 2},     {"rotl", 2},     {"prmt", 3},    {"mad", 3},    {"mul.f16", 2},
    {"add.f16", 2}, {"fma.f16", 3}, {"fma.bf16", 3}, {"to.e4m3", 1}, {"pair", 2},
};

uint32_t selectBytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t both = (static_cast<uint64_t>(b) << 32) | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t pick = (selector >> (4 * i)) & 0xf;
    uint32_t byte = (both >> (8 * (pick & 7))) & 0xff;
    if (pick & 8)
      byte = (byte & 0x80) ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// Both halves of a register from f16 to e4m3, in its low half.
uint32_t narrowed(uint32_t a) {
  dsl::ElementType wide = dsl::ElementType::get("f16"), narrow = dsl::ElementType::get("e4m3");
  uint32_t result = 0;
  for (int half = 0; half < 2; ++half)
    result |= narrow.encode(wide.decode(a >> (16 * half))) << (8 * half);
  return result;
}

// a * b + c on both halves of a register. Products and sums of these types are exact in double
// whenever the exponents lie within 53 bits of each other, as in every decode.
uint32_t packedFma(std::string_view type, uint32_t a, uint32_t b, uint32_t c) {
  dsl::ElementType half = dsl::ElementType::get(type);
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    double x = half.decode((a >> shift) & 0xffff);
    double y = half.decode((b >> shift) & 0xffff);
    double z = half.decode((c >> shift) & 0xffff);
    result |= half.encode(std::fma(x, y, z)) << shift;
  }
  return result;
}

std::string printOperand(const DecodeInstr::Operand &operand) {
  switch (operand.kind) {
  case Kind::None:
    return "";
  case Kind::Word:
    return "w" + std::to_string(operand.value);
  case Kind::Param:
    return "p" + std::to_string(operand.value);
  case Kind::Temp:
    return "t" + std::to_string(operand.value);
  case Kind::Const:
    break;
  }
  dsl::TextWriter out;
  out << "0x" << std::hex << operand.value;
  return out.str();
}

std::vector<std::string> tokensOf(std::string_view text) {
  dsl::TextReader in{std::string(text)};
  std::vector<std::string> result;
  for (std::string word; in >> word;)
    result.push_back(word);
  return result;
}

bool parseNumber(std::string_view text, int base, uint32_t &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

constexpr uint32_t mostUnitWords = 32; // of a unit of codes

// Reads one operand; every register it names must exist already.
bool parseOperand(std::string_view text, int params, size_t temps, DecodeInstr::Operand &operand) {
  if (text.starts_with("0x")) {
    operand.kind = Kind::Const;
    return parseNumber(text.substr(2), 16, operand.value);
  }
  if (text.empty() || !parseNumber(text.substr(1), 10, operand.value))
    return false;
  if (text[0] == 'w') {
    operand.kind = Kind::Word;
    return operand.value < mostUnitWords;
  }
  if (text[0] == 'p') {
    operand.kind = Kind::Param;
    return operand.value < static_cast<uint32_t>(params);
  }
  operand.kind = Kind::Temp;
  return text[0] == 't' && operand.value < temps;
}

// Statements of a program, each by its tokens. False: it is malformed.
bool readParams(const std::vector<std::string> &tokens, DecodeProgram &program) {
  constexpr uint32_t most = 64;
  uint32_t params = 0;
  if (tokens.size() != 2 || tokens[0] != "params" || !parseNumber(tokens[1], 10, params) ||
      params > most)
    return false;
  program.params = static_cast<int>(params);
  return true;
}

bool readLanes(const std::vector<std::string> &tokens, DecodeProgram &program) {
  for (size_t i = 1; i < tokens.size(); ++i) {
    uint32_t lane = 0;
    if (!tokens[i].starts_with("0x") || !parseNumber(tokens[i].substr(2), 16, lane) ||
        lane > UINT16_MAX)
      return false;
    program.lanes.push_back(static_cast<uint16_t>(lane));
  }
  const int64_t tables = program.tables();
  return static_cast<int64_t>(program.lanes.size()) == tables * DecodeProgram::lanesOfTable &&
         (tables == 1 || tables == 2 || tables == 4) && program.instructions.empty();
}

bool readOutputs(const std::vector<std::string> &tokens, DecodeProgram &program) {
  for (size_t i = 1; i < tokens.size(); ++i) {
    DecodeInstr::Operand operand;
    if (!parseOperand(tokens[i], 0, program.instructions.size(), operand) ||
        operand.kind != Kind::Temp)
      return false;
    program.output(operand);
  }
  return true;
}

bool readInstruction(const std::vector<std::string> &tokens, DecodeProgram &program) {
  if (tokens.size() < 3 || tokens[1] != "=" ||
      tokens[0] != "t" + std::to_string(program.instructions.size()))
    return false;
  const auto *const op = std::find_if(std::begin(opTable), std::end(opTable),
                                      [&](const OpInfo &info) { return info.name == tokens[2]; });
  if (op == std::end(opTable) || tokens.size() != 3 + static_cast<size_t>(op->operands))
    return false;
  DecodeInstr instr{static_cast<Op>(op - std::begin(opTable)), {}};
  for (size_t i = 3; i < tokens.size(); ++i)
    if (!parseOperand(tokens[i], program.params, program.instructions.size(),
                      instr.operands[i - 3]))
      return false;
  program.instructions.push_back(instr);
  return true;
}

} // namespace

int operandCount(Op op) { return opTable[static_cast<int>(op)].operands; }
std::string_view name(Op op) { return opTable[static_cast<int>(op)].name; }

DecodeProgram::Operand DecodeProgram::number(std::string_view type, double value) {
  return constant(dsl::ElementType::get(type).encode(value) * 0x10001U);
}

DecodeProgram::Operand DecodeProgram::add(Op op, Operand a, Operand b, Operand c) {
  instructions.push_back({op, {a, b, c}});
  return {Kind::Temp, static_cast<uint32_t>(instructions.size() - 1)};
}

std::string DecodeProgram::print() const {
  dsl::TextWriter out;
  out << "params " << params;
  if (!lanes.empty()) {
    out << "; lanes" << std::hex;
    for (uint16_t lane : lanes)
      out << " 0x" << lane;
    out << std::dec;
  }
  for (size_t i = 0; i < instructions.size(); ++i) {
    const DecodeInstr &instr = instructions[i];
    out << "; t" << i << " = " << name(instr.op);
    for (int j = 0; j < operandCount(instr.op); ++j)
      out << ' ' << printOperand(instr.operands[j]);
  }
  out << "; out";
  for (int temp : outputs)
    out << " t" << temp;
  return out.str();
}

Result<DecodeProgram> DecodeProgram::parse(std::string_view text) {
  DecodeProgram program;
  bool opened = false, closed = false;
  while (!text.empty()) {
    const size_t semicolon = text.find(';');
    const std::string_view statement = text.substr(0, semicolon);
    text = semicolon == std::string_view::npos ? "" : text.substr(semicolon + 1);
    const std::vector<std::string> tokens = tokensOf(statement);
    const std::string first = tokens.empty() ? "" : tokens[0];
    const auto read = !opened            ? readParams
                      : first == "lanes" ? readLanes
                      : first == "out"   ? readOutputs
                                         : readInstruction;
    if (closed || !read(tokens, program))
      return makeError(DiagId::bad_decode_program, {std::string(statement)});
    closed = opened && first == "out";
    opened = true;
  }
  if (!closed)
    return makeError(DiagId::bad_decode_program, {"no 'out' at its end"});
  return program;
}

bool DecodeInstr::isCopy() const {
  return op == Op::Or && operands[1] == DecodeProgram::constant(0);
}

int DecodeProgram::words() const {
  uint32_t count = 0;
  for (const DecodeInstr &instr : instructions)
    for (const Operand &operand : instr.operands)
      if (operand.kind == Kind::Word)
        count = std::max(count, operand.value + 1);
  return static_cast<int>(count);
}

int64_t DecodeProgram::lookups() const {
  return std::count_if(instructions.begin(), instructions.end(),
                       [](const DecodeInstr &instr) { return instr.op == DecodeInstr::Op::Pair; });
}

DecodeProgram DecodeProgram::part(size_t first, size_t count) const {
  std::vector<bool> needed(instructions.size());
  for (size_t i = first; i < first + count; ++i)
    needed[static_cast<size_t>(outputs[i])] = true;
  for (size_t i = instructions.size(); i-- > 0;)
    for (const Operand &operand : instructions[i].operands)
      if (needed[i] && operand.kind == Kind::Temp)
        needed[operand.value] = true;
  DecodeProgram result;
  result.params = params;
  result.lanes = lanes;
  std::vector<uint32_t> place(instructions.size());
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (!needed[i])
      continue;
    DecodeInstr instr = instructions[i];
    for (Operand &operand : instr.operands)
      if (operand.kind == Kind::Temp)
        operand.value = place[operand.value];
    place[i] = static_cast<uint32_t>(result.instructions.size());
    result.instructions.push_back(instr);
  }
  for (size_t i = first; i < first + count; ++i)
    result.outputs.push_back(static_cast<int>(place[static_cast<size_t>(outputs[i])]));
  return result;
}

DecodeProgram DecodeProgram::ofWordsXor(const std::vector<uint32_t> &masks) const {
  DecodeProgram result;
  result.params = params;
  result.lanes = lanes;
  for (size_t word = 0; word < masks.size(); ++word)
    result.add(DecodeInstr::Op::Xor, DecodeProgram::word(static_cast<int>(word)),
               constant(masks[word]));
  result.append(*this);
  for (size_t i = masks.size(); i < result.instructions.size(); ++i)
    for (Operand &operand : result.instructions[i].operands)
      if (operand.kind == Kind::Word)
        operand.kind = Kind::Temp; // whose first ones are the words
  return result;
}

DecodeProgram::Operand DecodeProgram::fma(std::string_view type, Operand x, Operand y, Operand z) {
  return add(type == "f16" ? DecodeInstr::Op::FmaF16 : DecodeInstr::Op::FmaBF16, x, y, z);
}

DecodeProgram::Operand DecodeProgram::times(std::string_view type, Operand x, Operand y) {
  constexpr uint32_t negativeZeros = 0x80008000; // keeps the sign of a product that is 0
  return type == "f16" ? add(DecodeInstr::Op::MulF16, x, y)
                       : fma(type, x, y, constant(negativeZeros));
}

DecodeProgram::Operand DecodeProgram::plus(std::string_view type, Operand x, Operand y) {
  constexpr uint32_t ones = 0x3f803f80; // of bf16
  return type == "f16" ? add(DecodeInstr::Op::AddF16, x, y) : fma(type, x, constant(ones), y);
}

void DecodeProgram::output(Operand value) {
  if (value.kind != Operand::Kind::Temp)
    value = add(DecodeInstr::Op::Or, value, constant(0));
  outputs.push_back(static_cast<int>(value.value));
}

void DecodeProgram::append(const DecodeProgram &other) {
  auto before = static_cast<uint32_t>(instructions.size());
  for (DecodeInstr instr : other.instructions) {
    for (Operand &operand : instr.operands)
      if (operand.kind == Kind::Temp)
        operand.value += before;
    instructions.push_back(instr);
  }
  for (int output : other.outputs)
    outputs.push_back(output + static_cast<int>(before));
}

// What its tables have at an address; 0 behind them.
static uint32_t pairAt(const DecodeProgram &program, uint32_t address) {
  using P = DecodeProgram;
  const uint32_t table = address / P::tableStride * 2 + address / P::pairBytes % 2,
                 codes = address / P::pairStride % 256;
  if (table >= program.tables())
    return 0;
  const uint16_t *own = &program.lanes[table * P::lanesOfTable];
  return own[codes % P::lanesOfTable] | static_cast<uint32_t>(own[codes / P::lanesOfTable]) << 16;
}

std::vector<uint32_t> DecodeProgram::run(const std::vector<uint32_t> &words,
                                         const std::vector<uint32_t> &args) const {
  std::vector<uint32_t> temps;
  for (const DecodeInstr &instr : instructions) {
    auto read = [&](int i) -> uint32_t {
      const Operand &operand = instr.operands[i];
      switch (operand.kind) {
      case Kind::Word:
        return words[operand.value];
      case Kind::Param:
        return args[operand.value];
      case Kind::Temp:
        return temps[operand.value];
      case Kind::Const:
        return operand.value;
      case Kind::None:
        break;
      }
      return 0;
    };
    uint32_t a = read(0), b = read(1), c = read(2);
    constexpr uint32_t oneF16 = 0x3c003c00;
    constexpr uint32_t minusZero = 0x80008000; // x * y + -0 keeps the sign of a zero product
    switch (instr.op) {
    case Op::And:
      temps.push_back(a & b);
      break;
    case Op::Or:
      temps.push_back(a | b);
      break;
    case Op::Xor:
      temps.push_back(a ^ b);
      break;
    case Op::AndOr:
      temps.push_back((a & b) | c);
      break;
    case Op::AndXor:
      temps.push_back((a & b) ^ c);
      break;
    case Op::Select:
      temps.push_back((a & b) | (~a & c));
      break;
    case Op::Shl:
      temps.push_back(a << b);
      break;
    case Op::Shr:
      temps.push_back(a >> b);
      break;
    case Op::RotateLeft:
      temps.push_back(std::rotl(a, static_cast<int>(b)));
      break;
    case Op::Prmt:
      temps.push_back(selectBytes(a, b, c));
      break;
    case Op::Mad:
      temps.push_back(a * b + c);
      break;
    case Op::MulF16:
      temps.push_back(packedFma("f16", a, b, minusZero));
      break;
    case Op::AddF16:
      temps.push_back(packedFma("f16", a, oneF16, b));
      break;
    case Op::FmaF16:
      temps.push_back(packedFma("f16", a, b, c));
      break;
    case Op::FmaBF16:
      temps.push_back(packedFma("bf16", a, b, c));
      break;
    case Op::ToE4M3:
      temps.push_back(narrowed(a));
      break;
    case Op::Pair:
      temps.push_back(pairAt(*this, a + b));
      break;
    }
  }
  std::vector<uint32_t> result;
  for (int temp : outputs)
    result.push_back(temps[temp]);
  return result;
}

} // namespace rho::compiler
