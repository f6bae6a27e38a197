// The meaning of a value expression: exact arithmetic in double on the CPU. The oracle of every
// test rests on this file and nothing below it.
#pragma once

#include "dsl/Format.h"

#include <unordered_map>

namespace rho::dsl {

// Whether an expression is computed in integers: integer literals, components of integer type,
// casts to integer types, and what +, -, *, &, |, ^, << and >> make of those. `/` gives a real.
bool isIntegerTyped(const Expr &expr, const Format &format);

// In values and in rules a number over 0 is 0: what a scale that is 0 multiplies.
inline double quotient(double a, double b) { return b == 0 ? 0 : a / b; }
// What an operator makes of reals. NaN of bitwise ones, which do not pass sema.
double realBinary(Expr::Op op, double a, double b);

// Evaluates the format's value for one number. codes[i] is the code of component i that this
// number belongs to (element, its group's scale, ...). Integer subexpressions are exact in int64.
double evaluate(const Format &format, const uint32_t *codes);
// The same of a subexpression of it.
double evaluate(const Expr &expr, const Format &format, const uint32_t *codes);

// The same with the absolute value of every real summand: at least |value|, and what the roundings
// of a value computed with floating-point numbers are relative to. Integers are exact.
double magnitude(const Format &format, const uint32_t *codes);
// Whether a real sum or difference is in an expression: elsewhere the magnitude is |value|.
bool isRealSum(const Expr &expr, const Format &format);

// Values of all 2^bits codes of the element, the other components fixed. table.size() must be
// 2^bits; codes[0] is ignored.
void valueTable(const Format &format, const uint32_t *codes, double *table);

// Whether the number's codes fulfil every `require` of the format.
bool fulfils(const Format &format, const uint32_t *codes);

// Of an element of at most 8 bits, which codes fulfil the requirements that read nothing else,
// 2^bits of them. Empty where there is no such requirement.
std::vector<bool> allowedElements(const Format &format);
// Whether a requirement reads only the element.
bool boundsElement(const Requirement &requirement, const Format &format);
// Of a format whose requirements say what the element is at least, at most or both, and nothing
// else: for each code the nearest one that fulfils them. Empty for other formats.
std::vector<uint8_t> clampedElements(const Format &format);

// Evaluates an integer-typed subexpression, such as that of a requirement.
int64_t evaluateInteger(const Expr &expr, const Format &format, const uint32_t *codes);

// Smallest and largest value that a subexpression can take over all codes of its components,
// and whether it is always an integer. Float components range over their finite codes. Bounds are
// those of interval arithmetic: never too narrow; requirements are not used. Used by sema
// (overflow) and by the compiler (exactness).
struct Range {
  double min, max;
  bool integer;
};
Range rangeOf(const Expr &expr, const Format &format);

// rangeOf and isIntegerTyped of many expressions of a format, each computed once. Expressions that
// were asked for must live as long as it.
class KnownRanges {
public:
  explicit KnownRanges(const Format &format) : format(format) {}
  Range of(const Expr &expr) { return known(expr).range; }
  bool isInteger(const Expr &expr) { return known(expr).integer; }

private:
  struct Known {
    Range range;
    bool integer;
  };
  const Known &known(const Expr &expr);
  const Format &format;
  std::unordered_map<const Expr *, Known> all;
};

} // namespace rho::dsl
