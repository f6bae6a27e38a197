#include "dsl/Evaluate.h"

#include "dsl/Expressions.h"
#include "dsl/Operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace rho::dsl {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Largest integer up to which a float type holds every integer.
double exactIntegers(ElementType type) { return std::ldexp(1.0, type.mantissaBits() + 1); }

// An integer or a real number; integers stay exact.
struct Number {
  bool isInteger;
  int64_t integer;
  double real;
  double asReal() const { return isInteger ? static_cast<double>(integer) : real; }
};

Number integerNumber(int64_t value) { return {true, value, 0}; }
Number realNumber(double value) { return {false, 0, value}; }

// The low bits of an integer read as an integer type.
int64_t lowBits(int64_t value, ElementType type) {
  return static_cast<int64_t>(type.decode(static_cast<uint32_t>(value)));
}

// Sema keeps integers within 2^53 and shifts within 0..52. The unsigned arithmetic and the masks
// keep formats that were built by hand free of undefined behaviour.
int64_t integerBinary(Expr::Op op, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
  case Expr::Op::Add:
    return static_cast<int64_t>(ua + ub);
  case Expr::Op::Sub:
    return static_cast<int64_t>(ua - ub);
  case Expr::Op::Mul:
    return static_cast<int64_t>(ua * ub);
  case Expr::Op::And:
    return a & b;
  case Expr::Op::Or:
    return a | b;
  case Expr::Op::Xor:
    return a ^ b;
  case Expr::Op::Shl:
    return static_cast<int64_t>(ua << (ub & 63));
  case Expr::Op::Shr:
    return a >> (ub & 63);
  case Expr::Op::Div:
    break;
  }
  return 0;
}

bool isRemapped(const Component &component, uint32_t code) {
  return (code & ((1u << component.type.bits()) - 1)) == component.remap->code;
}

double remappedValue(const Remap &remap, const Format &format, const uint32_t *codes) {
  const Remap::Entry &entry =
      remap.entries[codes[remap.selector] & (static_cast<uint32_t>(remap.entries.size()) - 1)];
  if (entry.component < 0)
    return entry.value;
  double value = format.component(entry.component).type.decode(codes[entry.component]);
  return entry.negated ? -value : value;
}

// codes[0] is replaced by `element`, so that a table over all elements needs no copy of the codes.
Number evaluateNumber(const Expr &expr, const Format &format, const uint32_t *codes,
                      uint32_t element) {
  auto operand = [&](size_t i) {
    return evaluateNumber(*expr.operands[i], format, codes, element);
  };
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return integerNumber(expr.integer);
  case Expr::Kind::Real:
    return realNumber(expr.real);
  case Expr::Kind::Component: {
    const Component &component = format.component(expr.component);
    uint32_t code = expr.component == 0 ? element : codes[expr.component];
    if (component.remap && isRemapped(component, code))
      return realNumber(remappedValue(*component.remap, format, codes));
    double value = component.type.decode(code);
    return component.type.isInteger() && !component.remap
               ? integerNumber(static_cast<int64_t>(value))
               : realNumber(value);
  }
  case Expr::Kind::Negate: {
    Number a = operand(0);
    return a.isInteger ? integerNumber(integerBinary(Expr::Op::Sub, 0, a.integer))
                       : realNumber(-a.real);
  }
  case Expr::Kind::Binary: {
    Number a = operand(0), b = operand(1);
    if (a.isInteger && b.isInteger && expr.op != Expr::Op::Div)
      return integerNumber(integerBinary(expr.op, a.integer, b.integer));
    return realNumber(realBinary(expr.op, a.asReal(), b.asReal()));
  }
  case Expr::Kind::Cast: {
    Number a = operand(0);
    ElementType type = castTypeOf(expr);
    if (type.isInteger())
      return integerNumber(lowBits(a.integer, type));
    return realNumber(type.decode(type.encode(a.asReal())));
  }
  case Expr::Kind::Input:
  case Expr::Kind::Reduce:
  case Expr::Kind::Call:
    break; // encode rules only: see EncodeRule.h
  }
  return realNumber(std::nan(""));
}

// --- tables: an expression for many codes of the element at once

constexpr uint32_t columnCodes = 256;

// The numbers of an expression for consecutive codes, by the arithmetic of evaluateNumber; of an
// expression without the element one number for all.
struct Column {
  bool isInteger;
  bool uniform;
  union {
    int64_t integers[columnCodes];
    double reals[columnCodes];
  };
  int64_t integerAt(uint32_t i) const { return integers[uniform ? 0 : i]; }
  double realAt(uint32_t i) const {
    return isInteger ? static_cast<double>(integerAt(i)) : reals[uniform ? 0 : i];
  }
};

// Columns of operands: those that most expressions need, and more of them on the heap, since an
// expression may be nested.
class SpareColumns {
public:
  Column &at(size_t index) {
    if (index < first.size())
      return first[index];
    index -= first.size();
    while (others.size() <= index)
      others.push_back(std::make_unique_for_overwrite<Column>());
    return *others[index];
  }

private:
  std::array<Column, 3> first;
  std::vector<std::unique_ptr<Column>> others;
};

class ColumnEvaluator {
public:
  // For the element's codes [first, first + count).
  ColumnEvaluator(const Format &format, const uint32_t *codes, uint32_t first, uint32_t count,
                  SpareColumns &spares)
      : format(format), codes(codes), first(first), count(count), spares(spares) {}

  // Of the spare columns it takes those from `spare` on.
  void evaluate(const Expr &expr, Column &out, size_t spare = 0) const {
    switch (expr.kind) {
    case Expr::Kind::Component:
      if (expr.component == 0)
        return elements(out);
      break;
    case Expr::Kind::Negate:
    case Expr::Kind::Cast:
      return unary(expr, out, spare);
    case Expr::Kind::Binary:
      return binary(expr, out, spare);
    default:
      break;
    }
    Number number = evaluateNumber(expr, format, codes, 0);
    out.isInteger = number.isInteger;
    out.uniform = true;
    if (number.isInteger)
      out.integers[0] = number.integer;
    else
      out.reals[0] = number.real;
  }

private:
  uint32_t size(const Column &out) const { return out.uniform ? 1 : count; }

  void elements(Column &out) const {
    const Component &element = format.element();
    out.uniform = false;
    out.isInteger = element.type.isInteger() && !element.remap;
    for (uint32_t i = 0; i < count; ++i) {
      double value = element.remap && isRemapped(element, first + i)
                         ? remappedValue(*element.remap, format, codes)
                         : element.type.decode(first + i);
      if (out.isInteger)
        out.integers[i] = static_cast<int64_t>(value);
      else
        out.reals[i] = value;
    }
  }

  void unary(const Expr &expr, Column &out, size_t spare) const {
    Column &a = spares.at(spare);
    evaluate(*expr.operands[0], a, spare + 1);
    out.uniform = a.uniform;
    bool negates = expr.kind == Expr::Kind::Negate;
    out.isInteger = negates ? a.isInteger : castTypeOf(expr).isInteger();
    for (uint32_t i = 0; i < size(out); ++i)
      if (negates && a.isInteger)
        out.integers[i] = integerBinary(Expr::Op::Sub, 0, a.integers[i]);
      else if (negates)
        out.reals[i] = -a.reals[i];
      else if (ElementType type = castTypeOf(expr); out.isInteger)
        out.integers[i] = lowBits(a.integers[i], type);
      else
        out.reals[i] = type.decode(type.encode(a.realAt(i)));
  }

  void binary(const Expr &expr, Column &out, size_t spare) const {
    Column &a = spares.at(spare), &b = spares.at(spare + 1);
    evaluate(*expr.operands[0], a, spare + 1); // before b is
    evaluate(*expr.operands[1], b, spare + 2);
    out.uniform = a.uniform && b.uniform;
    out.isInteger = a.isInteger && b.isInteger && expr.op != Expr::Op::Div;
    if (out.isInteger)
      for (uint32_t i = 0; i < size(out); ++i)
        out.integers[i] = integerBinary(expr.op, a.integerAt(i), b.integerAt(i));
    else
      for (uint32_t i = 0; i < size(out); ++i)
        out.reals[i] = realBinary(expr.op, a.realAt(i), b.realAt(i));
  }

  const Format &format;
  const uint32_t *codes;
  const uint32_t first, count;
  SpareColumns &spares;
};

// --- ranges

Range hull(std::initializer_list<double> corners, bool integer) {
  Range range{infinity, -infinity, integer};
  for (double corner : corners) {
    if (std::isnan(corner)) // 0 * inf, inf - inf: nothing is known
      return {-infinity, infinity, integer};
    range.min = std::min(range.min, corner);
    range.max = std::max(range.max, corner);
  }
  return range;
}

// Range of a bitwise operator's result: as wide as two's complement numbers of as many bits as the
// wider operand has.
Range bitwiseRange(Expr::Op op, Range a, Range b) {
  if (a.min >= 0 && b.min >= 0) {
    if (op == Expr::Op::And)
      return {0, std::min(a.max, b.max), true};
    double limit = 1;
    while (limit <= std::max(a.max, b.max))
      limit *= 2;
    return {0, limit - 1, true};
  }
  double limit = 1;
  while (limit <= std::max(a.max, b.max) || -limit > std::min(a.min, b.min))
    limit *= 2;
  if (op == Expr::Op::And && (a.min >= 0 || b.min >= 0)) // the sign bit of one side is clear
    return {0, a.min >= 0 ? a.max : b.max, true};
  return {-limit, limit - 1, true};
}

double shifted(double value, double by) { return std::ldexp(value, static_cast<int>(by)); }

Range binaryRange(const Expr &expr, Range a, Range b) {
  bool integer = a.integer && b.integer;
  switch (expr.op) {
  case Expr::Op::Add:
    return hull({a.min + b.min, a.max + b.max}, integer);
  case Expr::Op::Sub:
    return hull({a.min - b.max, a.max - b.min}, integer);
  case Expr::Op::Mul:
    return hull({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max}, integer);
  case Expr::Op::Div:
    if (b.min <= 0 && b.max >= 0)
      return {-infinity, infinity, false};
    return hull({a.min / b.min, a.min / b.max, a.max / b.min, a.max / b.max}, false);
  case Expr::Op::And:
  case Expr::Op::Or:
  case Expr::Op::Xor:
    if (!std::isfinite(a.min + b.min) || !std::isfinite(a.max + b.max))
      return {-infinity, infinity, true};
    return bitwiseRange(expr.op, a, b);
  case Expr::Op::Shl:
  case Expr::Op::Shr: {
    // Out-of-range shifts do not pass sema.
    double low = std::clamp(b.min, 0.0, 52.0), high = std::clamp(b.max, 0.0, 52.0);
    if (expr.op == Expr::Op::Shl)
      return hull(
          {shifted(a.min, low), shifted(a.min, high), shifted(a.max, low), shifted(a.max, high)},
          true);
    return hull({std::floor(shifted(a.min, -low)), std::floor(shifted(a.min, -high)),
                 std::floor(shifted(a.max, -low)), std::floor(shifted(a.max, -high))},
                true);
  }
  }
  return {-infinity, infinity, false};
}

Range withEntries(Range range, const Remap &remap, const Format &format) {
  range.integer = false;
  for (const Remap::Entry &entry : remap.entries) {
    double low = entry.value, high = entry.value;
    if (entry.component >= 0) {
      ElementType type = format.component(entry.component).type;
      low = entry.negated ? -type.maxFinite() : type.minFinite();
      high = entry.negated ? -type.minFinite() : type.maxFinite();
    }
    range.min = std::min(range.min, low);
    range.max = std::max(range.max, high);
  }
  return range;
}

Range castRange(ElementType type, Range a) {
  if (type.isInteger()) {
    if (a.min >= type.minFinite() && a.max <= type.maxFinite())
      return a; // no bit is lost
    return {type.minFinite(), type.maxFinite(), true};
  }
  bool exact = a.integer && std::max(-a.min, a.max) <= exactIntegers(type);
  return {type.decode(type.encode(a.min)), type.decode(type.encode(a.max)), exact};
}

} // namespace

double realBinary(Expr::Op op, double a, double b) {
  switch (op) {
  case Expr::Op::Add:
    return a + b;
  case Expr::Op::Sub:
    return a - b;
  case Expr::Op::Mul:
    return a * b;
  case Expr::Op::Div:
    return quotient(a, b);
  default:
    return std::nan("");
  }
}

// `of` tells it of an operand.
template <class Of>
static bool integerTypedFrom(const Expr &expr, const Format &format, const Of &of) {
  switch (expr.kind) {
  case Expr::Kind::Integer:
    return true;
  case Expr::Kind::Component:
    return format.component(expr.component).type.isInteger() &&
           !format.component(expr.component).remap;
  case Expr::Kind::Negate:
    return of(*expr.operands[0]);
  case Expr::Kind::Binary:
    return expr.op != Expr::Op::Div && of(*expr.operands[0]) && of(*expr.operands[1]);
  case Expr::Kind::Cast:
    return castTypeOf(expr).isInteger();
  case Expr::Kind::Real:
  case Expr::Kind::Input:
  case Expr::Kind::Reduce:
  case Expr::Kind::Call:
    break;
  }
  return false;
}

bool isIntegerTyped(const Expr &expr, const Format &format) {
  return integerTypedFrom(expr, format,
                          [&](const Expr &operand) { return isIntegerTyped(operand, format); });
}

double evaluate(const Expr &expr, const Format &format, const uint32_t *codes) {
  return evaluateNumber(expr, format, codes, codes[0]).asReal();
}

double evaluate(const Format &format, const uint32_t *codes) {
  return evaluate(*format.value, format, codes);
}

int64_t evaluateInteger(const Expr &expr, const Format &format, const uint32_t *codes) {
  return evaluateNumber(expr, format, codes, codes[0]).integer;
}

void valueTable(const Format &format, const uint32_t *codes, double *table) {
  uint64_t size = uint64_t(1) << format.element().type.bits();
  SpareColumns spares;
  for (uint64_t first = 0; first < size; first += columnCodes) {
    auto count = static_cast<uint32_t>(std::min<uint64_t>(columnCodes, size - first));
    Column column;
    ColumnEvaluator(format, codes, static_cast<uint32_t>(first), count, spares)
        .evaluate(*format.value, column);
    for (uint32_t i = 0; i < count; ++i)
      table[first + i] = column.realAt(i);
  }
}

bool fulfils(const Format &format, const uint32_t *codes) {
  return std::all_of(
      format.requirements.begin(), format.requirements.end(), [&](const Requirement &requirement) {
        int64_t value = evaluateInteger(*requirement.expr, format, codes);
        return requirement.atMost ? value <= requirement.bound : value >= requirement.bound;
      });
}

bool boundsElement(const Requirement &requirement, const Format &format) {
  for (size_t i = 1; i < format.components.size(); ++i)
    if (mentions(*requirement.expr, static_cast<int>(i)))
      return false;
  return mentions(*requirement.expr, 0);
}

std::vector<bool> allowedElements(const Format &format) {
  auto bounds = [&](const Requirement &each) { return boundsElement(each, format); };
  if (format.element().type.bits() > 8 ||
      std::none_of(format.requirements.begin(), format.requirements.end(), bounds))
    return {};
  Format alone = format;
  std::erase_if(alone.requirements, std::not_fn(bounds));
  std::vector<bool> allowed;
  std::vector<uint32_t> codes(format.components.size());
  for (; codes[0] < 1U << format.element().type.bits(); ++codes[0])
    allowed.push_back(fulfils(alone, codes.data()));
  return allowed;
}

std::vector<uint8_t> clampedElements(const Format &format) {
  const std::vector<bool> allowed = allowedElements(format);
  const ElementType type = format.element().type;
  std::vector<uint8_t> order, clamped(allowed.size());
  for (size_t code = 0; code < allowed.size(); ++code)
    if (std::isfinite(type.decode(static_cast<uint32_t>(code))))
      order.push_back(static_cast<uint8_t>(code));
    else if (allowed[code])
      return {};
  std::sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) {
    return std::pair(type.decode(a), a) < std::pair(type.decode(b), b);
  });
  auto isAllowed = [&](uint8_t code) { return allowed[code]; };
  auto first = std::find_if(order.begin(), order.end(), isAllowed);
  auto end = std::find_if_not(first, order.end(), isAllowed);
  if (first == end || std::any_of(end, order.end(), isAllowed) ||
      !std::all_of(format.requirements.begin(), format.requirements.end(),
                   [&](const Requirement &each) { return boundsElement(each, format); }))
    return {};
  for (auto code = order.begin(); code != order.end(); ++code)
    clamped[*code] = code < first ? *first : code < end ? *code : end[-1];
  return clamped;
}

template <class Of> static Range rangeFrom(const Expr &expr, const Format &format, const Of &of) {
  switch (expr.kind) {
  case Expr::Kind::Integer: {
    auto value = static_cast<double>(expr.integer);
    return {value, value, true};
  }
  case Expr::Kind::Real:
    return {expr.real, expr.real, std::floor(expr.real) == expr.real};
  case Expr::Kind::Component: {
    const Component &component = format.component(expr.component);
    Range range{component.type.minFinite(), component.type.maxFinite(), component.type.isInteger()};
    return component.remap ? withEntries(range, *component.remap, format) : range;
  }
  case Expr::Kind::Negate: {
    Range a = of(*expr.operands[0]);
    return {0 - a.max, 0 - a.min, a.integer};
  }
  case Expr::Kind::Binary:
    return binaryRange(expr, of(*expr.operands[0]), of(*expr.operands[1]));
  case Expr::Kind::Cast:
    return castRange(castTypeOf(expr), of(*expr.operands[0]));
  case Expr::Kind::Input:
  case Expr::Kind::Reduce:
  case Expr::Kind::Call:
    break;
  }
  return {-infinity, infinity, false};
}

Range rangeOf(const Expr &expr, const Format &format) {
  return rangeFrom(expr, format, [&](const Expr &operand) { return rangeOf(operand, format); });
}

const KnownRanges::Known &KnownRanges::known(const Expr &expr) {
  if (auto found = all.find(&expr); found != all.end())
    return found->second;
  Known known{
      rangeFrom(expr, format, [&](const Expr &operand) { return of(operand); }),
      integerTypedFrom(expr, format, [&](const Expr &operand) { return isInteger(operand); })};
  return all.emplace(&expr, known).first->second;
}

} // namespace rho::dsl
