#include "runtime/tool/lsp/Describe.h"

#include "runtime/tool/Report.h"

namespace rho::tool::lsp {

namespace {

std::string number(double value) { return significantNumber(value, 9); }

std::string kindOf(dsl::ElementType type) {
  switch (type.kind()) {
  case dsl::ElementType::Kind::Signed:
    return "signed integer";
  case dsl::ElementType::Kind::Unsigned:
    return "unsigned integer";
  case dsl::ElementType::Kind::Codebook:
    return "codebook";
  case dsl::ElementType::Kind::Float:
    break;
  }
  return std::string(type.hasSign() ? "floating point" : "floating point without sign") + ", " +
         std::to_string(type.exponentBits()) + " bits of exponent, " +
         std::to_string(type.mantissaBits()) + " of mantissa";
}

std::string percent(double share) { return number(share) + "%"; }

// Of its blocks, and how many these are.
std::string lineOf(const dsl::Part &part) {
  return code(part.name + ": " + part.format->name) + ", " +
         bitCount(part.format->bitsPerElement()) + " of its blocks" +
         (part.budget ? ", at most " + percent(*part.budget) + " of all" : "");
}

// What it adds to the format, with the bits that say which blocks it has.
std::string lineOf(const dsl::Residual &residual, const dsl::Format &of) {
  return code("residual " + residual.part.name + ": " + residual.part.format->name + " per " +
              dsl::print(residual.blocks)) +
         ", " + bitCount(of.bitsPerElement() - dsl::withoutResidual(of).bitsPerElement()) +
         (residual.part.budget ? ", of at most " + percent(*residual.part.budget) + " of all blocks"
                               : "");
}

} // namespace

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }
std::string fenced(const std::string &text) { return "```rho\n" + text + "```\n"; }

std::string describe(dsl::ElementType type) {
  return code(type.name()) + ": " + kindOf(type) + ", " + std::to_string(type.bits()) + " bits, " +
         number(type.minFinite()) + " to " + number(type.maxFinite());
}

std::string describe(const dsl::Format &format, size_t index) {
  const dsl::Component &component = format.components[index];
  int number = static_cast<int>(index);
  std::string text =
      code(dsl::printComponent(format, number)) + ", " + bitCount(format.bitsPerElement(number));
  if (component.encode)
    text += std::string(component.encodeDeclared ? "; encoded as " : "; encoded, derived, as ") +
            code(dsl::print(*component.encode, format));
  return text;
}

std::string describePart(const dsl::Format &format, std::string_view name) {
  if (format.partition)
    for (const dsl::Part &part : format.partition->parts)
      if (part.name == name)
        return lineOf(part);
  if (format.residual && format.residual->part.name == name)
    return lineOf(*format.residual, format);
  return {};
}

std::string describe(const dsl::Format &format) {
  std::string text = fenced(dsl::print(format)) + "\n" + bitCount(format.bitsPerElement()) + "\n\n";
  for (size_t i = 0; i < format.components.size(); ++i)
    text += "- " + describe(format, i) + "\n";
  dsl::forEachPart(format, [&](const dsl::Part &part, const dsl::Blocks &) {
    text += "- " + describePart(format, part.name) + "\n";
  });
  return text;
}

std::string describe(const dsl::Gemm &gemm) {
  std::string text = fenced(dsl::print(gemm)) + "\n";
  for (auto [role, format] : {std::pair{"weight", &gemm.weight}, {"activation", &gemm.activation}})
    text += std::string("- ") + role + " " + code(format->name) + ": " +
            bitCount(format->bitsPerElement()) + "\n";
  return text;
}

} // namespace rho::tool::lsp
