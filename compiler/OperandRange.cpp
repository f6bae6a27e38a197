#include "compiler/OperandRange.h"

#include "compiler/Parallel.h"
#include "dsl/Evaluate.h"
#include "dsl/Expressions.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

namespace rho::compiler {

using dsl::Expr;

namespace {

// "1*#1;-8,2*#2": numbers with commas between them, whose terms a semicolon divides; "-" for none.
std::string printRowNumbers(const std::vector<RowNumber> &numbers) {
  std::string text;
  for (const RowNumber &number : numbers) {
    text += text.empty() ? "" : ",";
    const std::vector<std::string> terms = number.printTerms();
    for (size_t i = 0; i < terms.size(); ++i)
      text += (i > 0 ? ";" : "") + terms[i];
  }
  return text.empty() ? "-" : text;
}

std::optional<std::vector<RowNumber>> parseRowNumbers(std::string_view text) {
  std::vector<RowNumber> numbers;
  if (text == "-")
    return numbers;
  for (std::string_view item : dsl::split(text, ',')) {
    std::string printed;
    for (char letter : item)
      printed += letter == ';' ? std::string(" + ") : std::string(1, letter);
    std::optional<RowNumber> number = RowNumber::parse(printed);
    if (!number)
      return std::nullopt;
    numbers.push_back(*std::move(number));
  }
  return numbers;
}

// Magnitudes of numbers that are not 0: the least and the largest, infinite and 0 where there is
// none.
struct Magnitudes {
  double least = std::numeric_limits<double>::infinity(), largest = 0;

  void take(double number) {
    const double value = std::abs(number);
    largest = value > largest ? value : largest;
    least = value > 0 && value < least ? value : least;
  }
  void take(const Magnitudes &others) {
    largest = std::max(largest, others.largest);
    least = std::min(least, others.least);
  }
};

Magnitudes magnitudesOf(const dsl::CodeArray &codes, dsl::ElementType type) {
  Magnitudes result;
  if (type.bits() > 16) {
    for (int64_t i = 0; i < codes.size(); ++i)
      result.take(type.decode(codes.get(i)));
    return result;
  }
  std::vector<uint8_t> seen(size_t{1} << type.bits());
  for (int64_t i = 0; i < codes.size(); ++i)
    seen[codes.get(i)] = 1;
  for (uint32_t code = 0; code < seen.size(); ++code)
    if (seen[code] != 0)
      result.take(type.decode(code));
  return result;
}

Magnitudes magnitudesOf(dsl::ElementType type) {
  Magnitudes result;
  if (type.bits() > 16)
    return {0, type.maxMagnitude()};
  for (uint32_t code = 0; code < 1U << type.bits(); ++code)
    if (std::isfinite(type.decode(code)))
      result.take(type.decode(code));
  return result;
}

// An upper bound of an expression's magnitude, by those of components.
double mostOf(const Expr &expr, const dsl::Format &format, const std::vector<Magnitudes> &parts) {
  auto operand = [&](size_t i) { return mostOf(*expr.operands[i], format, parts); };
  switch (expr.kind) {
  case Expr::Kind::Integer:
  case Expr::Kind::Real:
    return std::abs(dsl::numberOf(expr));
  case Expr::Kind::Component:
    return parts[static_cast<size_t>(expr.component)].largest;
  case Expr::Kind::Negate:
    return operand(0);
  case Expr::Kind::Binary:
    if (expr.op == Expr::Op::Add || expr.op == Expr::Op::Sub)
      return operand(0) + operand(1);
    if (expr.op == Expr::Op::Mul)
      return operand(0) * operand(1);
    break;
  default:
    break;
  }
  const dsl::Range range = dsl::rangeOf(expr, format);
  return std::max(std::abs(range.min), std::abs(range.max));
}

// A lower bound of an expression's magnitude where it is not 0: of products of components; 0 of
// others.
double leastOf(const Expr &expr, const std::vector<Magnitudes> &parts) {
  if (expr.kind == Expr::Kind::Component)
    return parts[static_cast<size_t>(expr.component)].least;
  if (expr.kind == Expr::Kind::Binary && expr.op == Expr::Op::Mul)
    return leastOf(*expr.operands[0], parts) * leastOf(*expr.operands[1], parts);
  return 0;
}

// What operands hold of a number: the weight's format with fewer factors.
std::shared_ptr<const dsl::Format> insideOf(const OperandRange &range, const dsl::Format &format) {
  dsl::Format inside = format;
  inside.requirements.clear();
  inside.residual.reset();
  std::vector<dsl::ExprPtr> factors;
  for (const dsl::ExprPtr &factor : dsl::factorsOf(format.value)) {
    const bool isOutside = factor->kind == Expr::Kind::Component &&
                           std::find(range.outside.begin(), range.outside.end(),
                                     factor->component) != range.outside.end();
    if (!isOutside && !dsl::isLiteral(*factor))
      factors.push_back(factor);
  }
  inside.value = dsl::productOf(factors);
  return std::make_shared<const dsl::Format>(std::move(inside));
}

// Of a row's numbers, each where its codes begin.
class RowNumbers {
public:
  RowNumbers(const dsl::QuantizedMatrix &codes, const RowNumber &number)
      : codes(codes), number(number), step(codes.k) {
    for (int component : number.uses())
      if (const dsl::Component &used = componentAt(component); used.extent == dsl::Extent::Group)
        step = std::gcd(step, used.group);
  }

  // An upper bound of all, by those of components.
  double most(const std::vector<Magnitudes> &parts) const {
    double sum = 0;
    for (const RowNumber::Term &term : number.terms) {
      double product = std::abs(term.factor);
      for (int component : term.components)
        product *= parts[static_cast<size_t>(component)].largest;
      sum += product;
    }
    return sum;
  }

  // The first that is not less than a limit in magnitude, by its column.
  std::optional<std::pair<int64_t, double>> firstBeyond(int64_t row, double limit) const {
    for (int64_t column = 0; column < codes.k; column += step)
      if (const double value = at(row, column); !(std::abs(value) < limit))
        return std::pair(column, value);
    return std::nullopt;
  }

private:
  const dsl::QuantizedMatrix &codes;
  const RowNumber &number;
  int64_t step;

  const dsl::Component &componentAt(int index) const {
    return codes.format->components[static_cast<size_t>(index)];
  }
  uint32_t codeAt(int index, int64_t row, int64_t column) const {
    return codes.components[static_cast<size_t>(index)].get(
        dsl::codeIndex(componentAt(index), codes.k, row, column));
  }
  double at(int64_t row, int64_t column) const {
    double sum = 0;
    for (const RowNumber::Term &term : number.terms) {
      if (term.selector != 0 &&
          codeAt(term.selector, row, column) != static_cast<uint32_t>(term.code))
        continue;
      double product = term.factor;
      for (int component : term.components)
        product *= componentAt(component).type.decode(codeAt(component, row, column));
      sum += product;
    }
    return sum;
  }
};

// What a message ends in: what has the range, where something has.
std::string whereHeld(const OperandRange &range) {
  return range.type == "f16" ? ": bf16 has the range"
         : range.small       ? ": 'scales: accumulator' has the range"
                             : "";
}

std::optional<Error> beyondNumbers(const OperandRange &range, const dsl::QuantizedMatrix &codes,
                                   const std::vector<Magnitudes> &parts, double limit,
                                   double most) {
  for (const RowNumber &each : range.numbers) {
    const RowNumbers numbers(codes, each);
    if (numbers.most(parts) < limit)
      continue;
    for (int64_t row = 0; row < codes.rows; ++row)
      if (auto found = numbers.firstBeyond(row, limit))
        return makeError(DiagId::pack_beyond_number,
                         {std::to_string(row), std::to_string(found->first),
                          dsl::printNumber(found->second), range.type, dsl::printNumber(most),
                          whereHeld(range)});
  }
  return std::nullopt;
}

} // namespace

std::optional<Error> beyondOperands(const OperandRange &range, const dsl::QuantizedMatrix &weight) {
  const dsl::QuantizedMatrix &codes =
      weight.parts.empty() ? weight : weight.parts[range.of == OperandRange::Of::Residual ? 1 : 0];
  const auto inside = insideOf(range, *codes.format);
  // What is rounded to the largest number is in range.
  const dsl::ElementType operand = dsl::ElementType::get(range.type);
  const double most = operand.maxFinite(),
               halfStep = std::ldexp(0.5, std::ilogb(most) - operand.mantissaBits());
  const double element = inside->element().type.maxFinite();
  const double share = range.of == OperandRange::Of::Both ? element / (element + 0.5) : 1;
  const double limit = std::ldexp((most + halfStep) * share, -range.log2);
  const double least = range.small ? std::ldexp(1.0, operand.leastExponent() - range.log2) : 0;
  std::vector<Magnitudes> parts; // of each component
  for (size_t i = 0; i < codes.components.size(); ++i) {
    const dsl::ElementType type = inside->components[i].type;
    parts.push_back(i == 0 ? magnitudesOf(type) : magnitudesOf(codes.components[i], type));
  }
  if (auto beyond = beyondNumbers(range, codes, parts, most + halfStep, most))
    return beyond;
  if (const std::optional<dsl::Remap> &remap = inside->element().remap)
    for (const dsl::Remap::Entry &entry : remap->entries) {
      if (entry.component < 0)
        parts[0].take(entry.value);
      else
        parts[0].take(parts[static_cast<size_t>(entry.component)]);
    }
  if (mostOf(*inside->value, *inside, parts) < limit && leastOf(*inside->value, parts) >= least)
    return std::nullopt;
  auto isHeld = [&](double value) {
    return std::abs(value) < limit && (value == 0 || std::abs(value) >= least);
  };
  dsl::QuantizedMatrix numbers = codes;
  numbers.format = inside;
  Least firstRow(numbers.rows);
  parallelFor(numbers.rows, [&](int64_t row) {
    if (firstRow.isBelow(row))
      return;
    const std::vector<double> values = numbers.rowValues(row);
    if (!std::all_of(values.begin(), values.end(), isHeld))
      firstRow.offer(row);
  });
  const std::optional<int64_t> first = firstRow.get();
  if (!first)
    return std::nullopt;
  const std::vector<double> values = numbers.rowValues(*first);
  const auto found = std::find_if_not(values.begin(), values.end(), isHeld);
  const bool tooSmall = std::abs(*found) < least;
  std::ostringstream number, held;
  const auto column = static_cast<size_t>(found - values.begin());
  const double own = codes.rowValues(*first)[column];
  number << own;
  if (own != *found)
    number << " (" << *found << " before later factors)";
  held << (tooSmall ? least : std::ldexp(most * share, -range.log2));
  return makeError(tooSmall ? DiagId::pack_below_operand : DiagId::pack_beyond_operand,
                   {std::to_string(*first), std::to_string(column), number.str(), range.type,
                    held.str(), whereHeld(range)});
}

std::string OperandRange::print() const {
  return "type=" + type + " log2=" + std::to_string(log2) + " outside=" + printNumbers(outside) +
         " of=" + std::to_string(static_cast<int>(of)) + " small=" + std::to_string(int(small)) +
         " numbers=" + printRowNumbers(numbers);
}

std::string OperandRange::read(FieldReader &fields) {
  type = fields.text("type");
  log2 = static_cast<int>(fields.number("log2", -1100, 1100));
  std::optional<std::vector<uint8_t>> components = parseNumbers(fields.text("outside"));
  of = static_cast<Of>(fields.number("of", 0, 2));
  small = fields.number("small", 0, 1) != 0;
  std::optional<std::vector<RowNumber>> ofRow = parseRowNumbers(fields.text("numbers"));
  if (!components || !dsl::ElementType::fromName(type))
    return "there are no such operands";
  if (!ofRow)
    return "there are no such numbers of a row";
  outside = *std::move(components);
  numbers = *std::move(ofRow);
  return "";
}

} // namespace rho::compiler
