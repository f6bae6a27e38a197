// Expressions of a format and types of its codes as CUDA C++, for the activation quantizer: what
// kernels/support/quantize_activations.cu is compiled with. Internal to runtime/.
#pragma once

#include "dsl/Format.h"

#include <string>
#include <utility>
#include <vector>

namespace rho::quantizer {

// As the program calls a type, or spells it out.
std::string nameOf(dsl::ElementType type);
std::string componentName(int index);
// The same double.
std::string literal(double value);
// The tables of the codebooks of formats.
std::string tablesText(const std::vector<const dsl::Format *> &formats);

// Whether a value is element * a + b, with b one number: the sum of several may cancel, and then
// their rounding is no small part of a step between codes.
bool isLineOfElement(const dsl::Expr &value);
// Whether a value is computed of integers' bits, which the program does not do.
bool readsBits(const dsl::Expr &value);
// Whether what a rule reduces are numbers with other components, and not over them.
bool reducesComponents(const dsl::Expr &rule);

// Translates expressions: double arithmetic in the order in which it is written.
class ExpressionWriter {
public:
  // What the returned expressions of rules need: variables, and statements that set them.
  std::vector<std::string> variables;
  std::string statements;
  std::vector<std::pair<std::string, std::string>>
      reductions; // their operation, and how to call it

  // A rule: components, read where the team begins, and reductions are variables.
  std::string rule(const dsl::Expr &expr) { return write(expr, Reads::Once); }
  // What the same, or a side of a partition's rule, makes of reduced(0), reduced(1), ... and of the
  // components per tensor before it, in `values`.
  std::string ofReduced(const dsl::Expr &expr) { return write(expr, Reads::Reduced); }
  // A value: the element and components of `scales`.
  std::string value(const dsl::Expr &expr) { return write(expr, Reads::Scales); }

private:
  enum class Reads : uint8_t { Once, Inside, Reduced, Scales };

  std::string write(const dsl::Expr &expr, Reads reads);
  std::string call(const dsl::Expr &expr, Reads reads);
  std::string variable(const std::string &name, const std::string &value);
  std::string number(const std::string &operation, const std::string &call);
  std::string quotientOfReduced(const std::string &operation, const dsl::Expr &operand);
  std::string reduction(const dsl::Expr &expr, bool reduced);
};

} // namespace rho::quantizer
