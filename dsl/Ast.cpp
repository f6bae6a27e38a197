#include "dsl/Ast.h"

#include "dsl/Numbers.h"
#include "dsl/Operators.h"

namespace rho::dsl::ast {

namespace {

std::string print(const Argument &argument) {
  std::string text = argument.parameter ? argument.parameter->text + " = " : "";
  if (argument.use.parentheses)
    return text + print(argument.use);
  for (const Token &token : argument.tokens)
    text += token.text;
  return text;
}

std::string header(const Declared &declared) {
  std::string text;
  for (const Parameter &parameter : declared.parameters)
    text += (text.empty() ? "" : ", ") + parameter.name.text + ": " + parameter.kind.text +
            (parameter.fallback ? " = " + print(*parameter.fallback) : "");
  return declared.name.text + (text.empty() ? "" : "(" + text + ")") +
         (declared.alias ? " = " + print(*declared.alias) : "");
}

class Printer {
public:
  void print(const Import &import) { line("import \"" + import.path + "\""); }

  void print(const Format &format) {
    line("format " + header(format));
    ++depth;
    for (const Component &component : format.components)
      print(component);
    for (const Rule &value : format.values)
      print("value", value);
    for (const Require &requirement : format.requirements) {
      line(std::string("require ") + (requirement.atMost ? "<= " : ">= ") +
           std::to_string(requirement.bound));
      nested(*requirement.expr);
    }
    for (const Rule &rule : format.encode)
      print("encode " + rule.name.text, rule);
    for (const Partition &partition : format.partitions) {
      line("partition per " + text(partition.blocks));
      ++depth;
      for (const Part &part : partition.parts)
        print("part ", part);
      --depth;
    }
    for (const Residual &residual : format.residuals)
      print("residual per " + text(residual.blocks) +
                (residual.divisor ? " / " + std::to_string(residual.divisor->value) : "") + " ",
            residual.part);
    --depth;
  }

  void print(const Gemm &gemm) {
    line("gemm " + header(gemm));
    ++depth;
    for (const GemmEntry &entry : gemm.entries)
      line(entry.key.text + ": " + ast::print(entry.value));
    for (const Schedule &schedule : gemm.schedules) {
      line("schedule");
      ++depth;
      for (const ScheduleEntry &entry : schedule.entries)
        print(entry);
      --depth;
    }
    --depth;
  }

  void print(const Device &device) {
    line("device " + device.name.text);
    ++depth;
    for (const DeviceEntry &entry : device.entries)
      print(entry);
    for (const DeviceBlock &block : device.blocks) {
      line(block.key.text);
      ++depth;
      for (const DeviceEntry &entry : block.entries)
        print(entry);
      --depth;
    }
    --depth;
  }

  std::string take() { return std::move(out); }

private:
  void line(const std::string &text) { out += std::string(2 * depth, ' ') + text + "\n"; }

  static std::string text(const Blocks &blocks) {
    std::string text = blocks.extent ? blocks.extent->text : "";
    if (blocks.rows)
      text += "[" + std::to_string(blocks.rows->value) + "]";
    return text + (blocks.extent ? " " : "") + blocks.along.text + "[" +
           std::to_string(blocks.k.value) + "]";
  }

  void print(const std::string &title, const Part &part) {
    line(title + part.name.text + ": " + ast::print(part.format) +
         (part.budget ? " budget " + printNumber(*part.budget) + "%" : ""));
    if (!part.left)
      return;
    ++depth;
    line(part.atLeast ? "where >=" : "where <=");
    nested(*part.left);
    nested(*part.right);
    --depth;
  }

  void print(const Component &component) {
    std::string text = "component " + component.name.text + ": " + component.type.text;
    if (component.remap)
      text += remap(*component.remap);
    if (component.host)
      text += " in " + component.host->text;
    if (component.extent)
      text += " per ";
    if (component.rowAxis && component.rows)
      text += component.rowAxis->text + "[" + std::to_string(component.rows->value) + "] ";
    if (component.extent)
      text += component.extent->text;
    if (component.group)
      text += "[" + std::to_string(component.group->value) + "]";
    line(text);
  }

  static std::string remap(const Remap &remap) {
    std::string text = " remap " + std::to_string(remap.code.value) + " to [";
    for (size_t i = 0; i < remap.entries.size(); ++i) {
      const Remap::Entry &entry = remap.entries[i];
      text += i ? ", " : "";
      text += entry.name ? (entry.negated ? "-" : "") + entry.name->text : printNumber(entry.value);
    }
    return text + "] by " + remap.selector.text;
  }

  void print(const std::string &title, const Rule &rule) {
    line(title);
    nested(*rule.expr);
  }

  void print(const ScheduleEntry &entry) {
    std::string text = entry.key.text + ":";
    for (size_t i = 0; i < entry.numbers.size(); ++i)
      text += (i ? " x " : " ") + std::to_string(entry.numbers[i].value);
    if (entry.word)
      text += " " + entry.word->text;
    line(text);
  }

  void print(const DeviceEntry &entry) {
    std::string value = entry.word     ? entry.word->text
                        : entry.string ? "\"" + entry.string->text + "\""
                                       : printNumber(*entry.number);
    line(entry.key.text + ": " + value + (entry.unit.empty() ? "" : " " + entry.unit));
  }

  void nested(const Expr &expr) {
    ++depth;
    print(expr);
    --depth;
  }

  void print(const Expr &expr) {
    switch (expr.kind) {
    case Expr::Kind::Integer:
      line(std::to_string(expr.integer));
      break;
    case Expr::Kind::Real:
      line(printNumber(expr.real));
      break;
    case Expr::Kind::Name:
      line(expr.name);
      break;
    case Expr::Kind::Negate:
      line("negate");
      break;
    case Expr::Kind::Binary:
      line(std::string(operatorOf(expr.op).spelling));
      break;
    case Expr::Kind::Call:
      line(expr.name + "()");
      break;
    }
    for (const ExprPtr &operand : expr.operands)
      nested(*operand);
  }

  std::string out;
  size_t depth = 0;
};

} // namespace

std::string print(const Use &use) {
  std::string text;
  for (const Argument &argument : use.arguments)
    text += (text.empty() ? "" : ", ") + print(argument);
  return use.name.text + (use.parentheses ? "(" + text + ")" : "");
}

std::string print(const File &file) {
  Printer printer;
  for (const Declaration &declaration : file.declarations)
    std::visit([&](const auto &alternative) { printer.print(alternative); }, declaration);
  return printer.take();
}

} // namespace rho::dsl::ast
