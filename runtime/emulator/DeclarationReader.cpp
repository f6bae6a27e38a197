#include "runtime/emulator/DeclarationReader.h"

#include <bit>

namespace rho::emulator {

namespace {
// A text that declares more is refused rather than served: far above what ptxas accepts.
constexpr uint64_t maxVariableBytes = uint64_t(1) << 30;
} // namespace

bool DeclarationReader::spaceOf(std::string_view directive, Space &space) {
  if (directive == ".global")
    space = Space::Global;
  else if (directive == ".const")
    space = Space::Const;
  else if (directive == ".shared")
    space = Space::Shared;
  else if (directive == ".local")
    space = Space::Local;
  else
    return false;
  return true;
}

void DeclarationReader::typeAndAlign(Type &type, uint64_t &align, uint64_t &elements) {
  align = 0;
  elements = 1;
  while (peek().kind == Kind::DotWord) {
    if (accept(".align")) {
      align = count("an alignment", 1 << 16);
      if (!std::has_single_bit(align))
        return fail(peek().line, std::to_string(align), "an alignment that is a power of two");
    } else if (accept(".v2")) {
      elements = 2;
    } else if (accept(".v4")) {
      elements = 4;
    } else {
      type = typeNamed(peek().text.substr(1));
      if (type == Type::None || bits(type) < 8)
        return fail("a type");
      next();
      return;
    }
  }
  fail("a type");
}

Variable DeclarationReader::variableDeclarator(Space space) {
  Variable variable;
  variable.space = space;
  variable.line = peek().line;
  if (peek().kind == Kind::DotWord) {
    declType = Type::None;
    typeAndAlign(declType, declAlign, declElements);
  }
  if (failed)
    return variable;
  uint64_t elementBytes = uint64_t(bits(declType)) / 8;
  variable.align = declAlign ? declAlign : elementBytes * declElements;
  variable.name = word("a name");
  variable.size = elementBytes * declElements;
  while (!failed && accept('[')) {
    uint64_t dimension = 0;
    if (!peek().is(']'))
      dimension = count("an array size", maxVariableBytes);
    expect(']');
    variable.size = dimension && variable.size > maxVariableBytes / dimension
                        ? maxVariableBytes + 1
                        : variable.size * dimension;
  }
  if (variable.size > maxVariableBytes)
    fail(variable.line, "`" + std::string(variable.name) + "`",
         "a variable of at most " + std::to_string(maxVariableBytes) + " bytes");
  if (!failed && accept('='))
    initializer(variable, elementBytes);
  return variable;
}

void DeclarationReader::initializer(Variable &variable, uint64_t elementBytes) {
  int depth = 0;
  do {
    while (accept('{'))
      ++depth;
    Operand value;
    uint32_t line = peek().line;
    if (!signedNumber(value))
      return;
    if (value.kind == Operand::Kind::Double && elementBytes == 4)
      value.value = std::bit_cast<uint32_t>(float(std::bit_cast<double>(value.value)));
    for (uint64_t i = 0; i < elementBytes; ++i)
      variable.initial.push_back(uint8_t(value.value >> 8 * i));
    while (depth > 0 && accept('}'))
      --depth;
    if (variable.size == 0 || variable.initial.size() > variable.size)
      return fail(line, "more initial values", "at most the variable's size");
  } while (!failed && depth > 0 && accept(','));
  if (depth > 0)
    expect('}');
}

void DeclarationReader::threeCounts(uint32_t (&out)[3]) {
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && !accept(',')) {
      out[i] = 1;
      continue;
    }
    out[i] = uint32_t(count("a number of threads", 1 << 20));
  }
}

void DeclarationReader::parameter(Function &function) {
  if (!accept(".param"))
    return fail("`.param`");
  Variable parameter;
  parameter.space = Space::Param;
  parameter.line = peek().line;
  Type type = Type::None;
  uint64_t align = 0, elements = 1;
  typeAndAlign(type, align, elements);
  if (failed)
    return;
  if (accept(".ptr")) { // facts about what the pointer points to
    Space space;
    if (peek().kind == Kind::DotWord && spaceOf(peek().text, space))
      next();
    if (accept(".align"))
      count("an alignment", 1 << 20);
  }
  uint64_t elementBytes = uint64_t(bits(type)) / 8;
  parameter.align = align ? align : elementBytes;
  parameter.size = elementBytes;
  parameter.name = word("a parameter's name");
  if (!failed && accept('[')) {
    parameter.size *= count("an array size", 1 << 16);
    expect(']');
  }
  parameter.address = (function.parameterBytes + parameter.align - 1) & ~(parameter.align - 1);
  function.parameterBytes = parameter.address + parameter.size;
  function.parameters.push_back(parameter);
}

} // namespace rho::emulator
