#include "compiler/decode/CodeSplit.h"

#include <algorithm>
#include <sstream>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

constexpr int codeBits = 4;
constexpr uint32_t signBit = 8, codeMask = 15;
constexpr size_t entriesPerWord = 4, mostEntries = 8;

std::string text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// One byte of a table: a constant, or a nibble of a stored pair.
struct Byte {
  uint32_t constant = 0; // exclusive or with the nibble, where there is one
  int word = -1;         // of `stored`
  int shift = 0;
};

Operand tableWord(DecodeProgram &program, const Byte *bytes, size_t count) {
  uint32_t known = 0;
  for (size_t i = 0; i < count; ++i)
    known |= (bytes[i].word < 0 ? bytes[i].constant : 0) << (8 * i);
  Operand word = program.add(Op::Or, constant(known), constant(0));
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i].word < 0)
      continue;
    Operand nibble = DecodeProgram::word(bytes[i].word);
    if (bytes[i].shift > 0)
      nibble = program.add(Op::Shr, nibble, constant(static_cast<uint32_t>(bytes[i].shift)));
    nibble = program.add(Op::And, nibble, constant(codeMask));
    nibble = program.add(Op::Xor, nibble, constant(bytes[i].constant));
    uint32_t selector = (0x3210U & ~(0xfU << (4 * i))) | 4U << (4 * i);
    word = program.add(Op::Prmt, word, nibble, constant(selector));
  }
  return word;
}

// Nibbles of `word` that are `code` as ones.
Operand matches(DecodeProgram &program, Operand word, uint32_t code) {
  constexpr uint32_t ones = 0x11111111, low = 0x77777777, top = 0x88888888;
  bool onlySign = code == signBit;
  Operand zeros = code == 0 || onlySign ? word : program.add(Op::Xor, word, constant(code * ones));
  // The top bit of each nibble: of the sum whether a bit below it is set.
  Operand below = program.add(Op::And, zeros, constant(low));
  Operand any = program.add(Op::Mad, below, constant(1), constant(low));
  Operand wanted = constant(top);
  if (onlySign)
    wanted = program.add(Op::And, word, wanted);
  else
    any = program.add(Op::Or, any, zeros);
  Operand match = program.add(Op::Select, any, constant(0), wanted);
  return program.add(Op::Shr, match, constant(codeBits - 1));
}

} // namespace

CodeSplit splitCodes(const dsl::Format &format, std::string &problem) {
  const dsl::Component &element = format.element();
  const dsl::Remap &remap = *element.remap;
  CodeSplit result;
  result.selector = remap.selector;
  auto refuse = [&](const std::string &why) {
    problem = "'" + element.name + "' of '" + format.name + "' " + why;
    return result;
  };
  if (element.type.bits() != codeBits || !element.type.isFloat() || !element.type.hasSign())
    return refuse("has a remapped code, of " + std::string(element.type.name()) +
                  " there are no sums of two operands");
  if (remap.code == 0)
    return refuse("has code 0 remapped, which also stands past the end of k");
  if (remap.entries.size() > mostEntries)
    return refuse("has " + std::to_string(remap.entries.size()) + " special values, at most " +
                  std::to_string(mostEntries) + " are looked up");
  result.hasRest = false;
  std::vector<Byte> main, rest;
  for (const dsl::Remap::Entry &entry : remap.entries) {
    if (entry.component < 0) {
      std::optional<CodePair> pair = codePair(element.type, entry.value);
      if (!pair)
        return refuse("stands for " + text(entry.value) + ", which is no sum of two numbers of " +
                      std::string(element.type.name()) + " with one sign");
      main.push_back({remap.code ^ pair->main});
      rest.push_back({pair->rest});
      result.hasRest = result.hasRest || pair->rest != 0;
      result.pairs.push_back(*pair);
      continue;
    }
    auto known = std::find(result.stored.begin(), result.stored.end(), entry.component);
    auto word = static_cast<int>(known - result.stored.begin());
    if (known == result.stored.end())
      result.stored.push_back(entry.component);
    uint32_t sign = entry.negated ? signBit : 0;
    main.push_back({remap.code ^ sign, word, 0});
    rest.push_back({sign, word, codeBits});
    result.hasRest = true;
    result.pairs.push_back({});
  }
  DecodeProgram &split = result.split;
  Operand picked = DecodeProgram::param(0);
  int next = 1;
  auto lookUp = [&](const std::vector<Byte> &bytes) {
    Operand words[2] = {constant(0), constant(0)};
    for (size_t first = 0, i = 0; first < bytes.size(); first += entriesPerWord, ++i) {
      size_t count = std::min(entriesPerWord, bytes.size() - first);
      result.tables.output(tableWord(result.tables, bytes.data() + first, count));
      words[i] = DecodeProgram::param(next++);
    }
    return split.add(Op::Prmt, words[0], words[1], picked);
  };
  Operand codes = DecodeProgram::word();
  Operand change = lookUp(main), missing = lookUp(rest);
  Operand ones = matches(split, codes, remap.code);
  split.output(split.add(Op::Xor, codes, split.add(Op::Mad, ones, change, constant(0))));
  split.output(split.add(Op::Mad, ones, missing, constant(0)));
  split.params = next;
  return result;
}

} // namespace rho::compiler
