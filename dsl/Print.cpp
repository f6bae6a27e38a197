// Canonical text of checked declarations: what specs, cache keys and messages are made of.
#include "dsl/Module.h"
#include "dsl/Numbers.h"
#include "dsl/Operators.h"

#include <algorithm>
#include <map>

namespace rho::dsl {

namespace {

// Masks and sign flips read better in hexadecimal: 0x80, not 128.
std::string printInteger(int64_t value, bool bitwise) {
  return bitwise && value >= 10 ? "0x" + hexadecimal(static_cast<uint64_t>(value))
                                : std::to_string(value);
}

bool isMasking(Expr::Op op) {
  return op == Expr::Op::And || op == Expr::Op::Or || op == Expr::Op::Xor;
}

int precedenceOf(const Expr &expr) {
  if (expr.kind == Expr::Kind::Binary)
    return operatorOf(expr.op).precedence;
  return expr.kind == Expr::Kind::Negate ? unaryPrecedence : primaryPrecedence;
}

class ExprPrinter {
public:
  explicit ExprPrinter(const Format &format) : format(format) {}

  // Parenthesised when it binds looser than `atLeast`.
  void print(const Expr &expr, int atLeast, bool bitwise) {
    bool parentheses = precedenceOf(expr) < atLeast;
    if (parentheses)
      out += '(';
    printBare(expr, bitwise);
    if (parentheses)
      out += ')';
  }
  std::string take() { return std::move(out); }

private:
  void printBare(const Expr &expr, bool bitwise) {
    switch (expr.kind) {
    case Expr::Kind::Integer:
      out += printInteger(expr.integer, bitwise);
      return;
    case Expr::Kind::Real:
      out += printReal(expr.real);
      return;
    case Expr::Kind::Component:
      out += format.component(expr.component).name;
      return;
    case Expr::Kind::Input:
      out += 'x';
      return;
    case Expr::Kind::Negate:
      out += '-';
      print(*expr.operands[0], unaryPrecedence, false);
      return;
    case Expr::Kind::Binary: {
      const Operator &op = operatorOf(expr.op);
      print(*expr.operands[0], op.precedence, isMasking(expr.op));
      out += ' ';
      out += op.spelling;
      out += ' ';
      print(*expr.operands[1], op.precedence + 1, isMasking(expr.op));
      return;
    }
    case Expr::Kind::Cast:
      printCall(castTypeOf(expr).name(), expr);
      return;
    case Expr::Kind::Reduce:
      printCall(nameOf(expr.reduction), expr);
      return;
    case Expr::Kind::Call:
      printCall(nameOf(expr.function), expr);
      return;
    }
  }

  void printCall(std::string_view callee, const Expr &expr) {
    out += callee;
    out += '(';
    for (size_t i = 0; i < expr.operands.size(); ++i) {
      out += i ? ", " : "";
      print(*expr.operands[i], 0, false);
    }
    out += ')';
  }

  const Format &format;
  std::string out;
};

} // namespace

std::string printExtent(const Component &component) {
  switch (component.extent) {
  case Extent::Element:
    return {};
  case Extent::Group: {
    std::string rows = component.rows > 1 ? (component.perToken ? "m[" : "n[") +
                                                std::to_string(component.rows) + "] "
                                          : "";
    return rows + "k[" + std::to_string(component.group) + "]";
  }
  case Extent::Row:
    return component.perToken ? "token" : "channel";
  case Extent::Tensor:
    return "tensor";
  }
  return {};
}

std::string print(const Expr &expr, const Format &format) {
  ExprPrinter printer(format);
  printer.print(expr, 0, false);
  return printer.take();
}

std::string print(const Blocks &blocks) {
  std::string rows = blocks.rows == 0   ? "tensor "
                     : blocks.rows == 1 ? ""
                                        : std::string(blocks.perToken ? "m" : "n") + "[" +
                                              std::to_string(blocks.rows) + "] ";
  return rows + "k[" + std::to_string(blocks.k) + "]";
}

// `name: format`, and behind what comes between, which blocks it stores.
static std::string print(const Part &part, const std::string &between) {
  static const Format none; // rules read no components
  std::string out = part.name + ": " + part.format->name + between;
  if (part.left)
    out += " where " + print(*part.left, none) + (part.atLeast ? " >= " : " <= ") +
           print(*part.right, none);
  if (part.budget)
    out += " budget " + printNumber(*part.budget) + "%";
  return out + "\n";
}

static std::string printRemap(const Remap &remap, const Format &format) {
  std::string text = " remap " + std::to_string(remap.code) + " to [";
  for (size_t i = 0; i < remap.entries.size(); ++i) {
    const Remap::Entry &entry = remap.entries[i];
    text += i ? ", " : "";
    text += entry.component < 0
                ? printNumber(entry.value)
                : (entry.negated ? "-" : "") + format.component(entry.component).name;
  }
  return text + "] by " + format.component(remap.selector).name;
}

std::string printComponent(const Format &format, int index) {
  const Component &component = format.component(index);
  std::string out = component.name + ": " + std::string(component.type.name());
  if (component.remap)
    out += printRemap(*component.remap, format);
  if (component.host >= 0)
    out += " in " + format.component(component.host).name;
  else if (component.extent != Extent::Element)
    out += " per " + printExtent(component);
  return out;
}

std::string print(const Requirement &requirement, const Format &format) {
  return print(*requirement.expr, format) + (requirement.atMost ? " <= " : " >= ") +
         std::to_string(requirement.bound);
}

std::string print(const Format &format) {
  std::string out = "format " + format.name + " {\n";
  if (format.partition) {
    out += "  partition per " + print(format.partition->blocks) + " {\n";
    for (const Part &part : format.partition->parts)
      out += "    " + print(part, "");
    out += "  }\n";
  }
  for (size_t i = 0; i < format.components.size(); ++i)
    out += "  " + printComponent(format, static_cast<int>(i)) + "\n";
  if (format.value)
    out += "  value = " + print(*format.value, format) + "\n";
  for (const Requirement &requirement : format.requirements)
    out += "  require " + print(requirement, format) + "\n";
  // Derived rules follow from the value and are not printed.
  std::string rules;
  for (int index : format.encodeOrder) {
    const Component &component = format.component(index);
    if (component.encodeDeclared && component.encode)
      rules += "    " + component.name + " = " + print(*component.encode, format) + "\n";
  }
  if (!rules.empty())
    out += "  encode {\n" + rules + "  }\n";
  if (format.residual)
    out += "  residual " + print(format.residual->part, " per " + print(format.residual->blocks));
  return out + "}\n";
}

namespace {
struct Declared {
  const Format *format;
  std::string text;
};
} // namespace

// The declarations of a format, those of its parts before it; none of a bare type.
static void appendDeclared(const Format &format, std::vector<Declared> &all) {
  forEachPart(format, [&](const Part &part, const Blocks &) {
    if (part.divisor == 0) // else it is part of the declaration
      appendDeclared(*part.format, all);
  });
  std::string text = print(format);
  if (!isPlain(format) && std::none_of(all.begin(), all.end(),
                                       [&](const Declared &known) { return known.text == text; }))
    all.push_back({&format, std::move(text)});
}

static std::string joined(const std::vector<Declared> &all) {
  std::string whole;
  for (const Declared &each : all)
    whole += (whole.empty() ? "" : "\n") + each.text;
  return whole;
}

std::string printWithParts(const Format &format) {
  if (isPlain(format))
    return format.name;
  std::vector<Declared> all;
  appendDeclared(format, all);
  return joined(all);
}

Result<std::string> printModule(const std::vector<std::shared_ptr<const Format>> &formats) {
  std::vector<Declared> all;
  for (const auto &format : formats)
    appendDeclared(*format, all);
  std::map<std::string_view, const Format *> named;
  for (const Declared &each : all) {
    auto [known, isNew] = named.emplace(each.format->name, each.format);
    if (isNew)
      continue;
    const auto [one, other] = differingLines(*known->second, *each.format);
    return makeError(DiagId::formats_share_name, {each.format->name, one, other});
  }
  return joined(all);
}

std::pair<std::string, std::string> differingLines(const Format &one, const Format &other) {
  std::string lineA, lineB;
  auto differ = [&](const std::string &textA, const std::string &textB) {
    TextReader linesA(textA), linesB(textB);
    while (lineA == lineB && linesA && linesB) {
      std::getline(linesA, lineA);
      std::getline(linesB, lineB);
    }
    return lineA != lineB;
  };
  if (!differ(print(one), print(other))) // their own are the same
    differ(printWithParts(one), printWithParts(other));
  auto shown = [](const std::string &line) {
    const size_t begin = line.find_first_not_of(' ');
    return begin == std::string::npos || line == "}" ? "" : " with '" + line.substr(begin) + "'";
  };
  return {shown(lineA), shown(lineB)};
}

std::string print(const Gemm &gemm) {
  std::string out = "gemm " + gemm.name + " {\n";
  out += "  weight: " + gemm.weight.name + "\n";
  out += "  activation: " + gemm.activation.name + "\n";
  out += "  output: " + std::string(gemm.output.name()) + "\n";
  const ScheduleDecl &schedule = gemm.schedule;
  std::string entries;
  auto entry = [&](const std::string &text) { entries += "    " + text + "\n"; };
  auto choice = [&](const std::string &key, const auto &chosen) {
    if (chosen)
      entry(key + ": " + std::string(name(*chosen)));
  };
  if (schedule.pipeline)
    entry("pipeline: " + std::to_string(*schedule.pipeline));
  if (schedule.tile)
    entry("tile: " + std::to_string(schedule.tile->m) + " x " + std::to_string(schedule.tile->n) +
          " x " + std::to_string(schedule.tile->k));
  if (schedule.warps)
    entry("warps: " + std::to_string(schedule.warps->m) + " x " +
          std::to_string(schedule.warps->n) +
          (schedule.warps->k > 1 ? " x " + std::to_string(schedule.warps->k) : ""));
  if (schedule.splitK)
    entry("split_k: " + (*schedule.splitK == ScheduleDecl::streamK
                             ? "stream"
                             : std::to_string(*schedule.splitK)));
  if (schedule.ctas)
    entry("ctas: " + std::to_string(*schedule.ctas));
  choice("scales", schedule.scales);
  choice("sums", schedule.sums);
  choice("roles", schedule.roles);
  choice("balance", schedule.balance);
  choice("packing", schedule.packing);
  choice("tables", schedule.tables);
  if (schedule.cluster)
    entry("cluster: " + std::to_string(schedule.cluster->n) + " x " +
          std::to_string(schedule.cluster->k));
  if (schedule.dependent)
    entry(*schedule.dependent ? "launch: dependent" : "launch: serial");
  if (!entries.empty())
    out += "  schedule {\n" + entries + "  }\n";
  return out + "}\n";
}

std::string print(const Module &module) {
  std::string out;
  auto section = [&](const std::string &text) { out += (out.empty() ? "" : "\n") + text; };
  for (const Format &format : module.formats)
    section(print(format));
  for (const Gemm &gemm : module.gemms)
    section(print(gemm));
  for (const Device &device : module.devices)
    section(print(device));
  return out;
}

} // namespace rho::dsl
