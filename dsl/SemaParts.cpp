// Formats that are made of others: partitions and residuals.
#include "dsl/DeriveEncode.h"
#include "dsl/Numbers.h"
#include "dsl/Sema.h"

#include <algorithm>

namespace rho::dsl {

namespace {

class PartChecker {
public:
  PartChecker(const ast::Format &syntax, const FormatLookup &lookup, Findings &findings)
      : syntax(syntax), lookup(lookup), findings(findings) {}

  bool run(Format &format) {
    for (size_t i = 1; i < syntax.partitions.size(); ++i)
      error(DiagId::duplicate_entry, {"partition", here()}, syntax.partitions[i].span);
    for (size_t i = 1; i < syntax.residuals.size(); ++i)
      error(DiagId::duplicate_entry, {"residual", here()}, syntax.residuals[i].span);
    if (!syntax.partitions.empty())
      format.partition = partition(syntax.partitions[0]);
    if (!syntax.residuals.empty()) {
      const ast::Residual &declared = syntax.residuals[0];
      if (format.partition)
        unlessTaken(declared.part.name, format.partition->parts);
      Residual residual{blocks(declared.blocks), {}};
      residual.part = part(declared.part, residual.blocks, declared.divisor.has_value());
      format.residual = std::move(residual);
    }
    if (good && depthOfParts(format) > maxPartDepth)
      error(DiagId::parts_too_deep, {format.name, std::to_string(maxPartDepth)}, format.span);
    return good;
  }

private:
  void error(DiagId id, const std::vector<std::string> &args, Span span) {
    findings.add(id, args, span);
    good = false;
  }
  std::string here() const { return "format '" + syntax.name.text + "'"; }

  static int depthOfParts(const Format &format) {
    int deepest = 0;
    forEachPart(format, [&](const Part &part, const Blocks &) {
      deepest = std::max(deepest, 1 + (part.format ? depthOfParts(*part.format) : 0));
    });
    return deepest;
  }

  Partition partition(const ast::Partition &declared) {
    // What a format without partition has.
    auto own = [&](const std::string &entry, Span span) {
      error(DiagId::partition_stores_all, {entry, syntax.name.text}, span);
    };
    if (!syntax.components.empty())
      own(syntax.components[0].name.text, syntax.components[0].name.span);
    if (!syntax.values.empty())
      own("value", syntax.values[0].name.span);
    if (!syntax.requirements.empty())
      own("require", syntax.requirements[0].span);
    if (!syntax.encode.empty())
      own("encode", syntax.encode[0].name.span);

    Partition partition{blocks(declared.blocks), {}};
    size_t count = declared.parts.size();
    if (count < 2 || count > maxParts)
      error(DiagId::part_count, {std::to_string(count), std::to_string(maxParts)}, declared.span);
    for (size_t i = 0; i < std::min(count, maxParts); ++i) {
      const ast::Part &written = declared.parts[i];
      unlessTaken(written.name, partition.parts);
      if (i == 0 && (written.left || written.budget))
        error(DiagId::first_part_selects, {written.name.text, written.left ? "where" : "budget"},
              written.left ? written.where : written.budgetSpan);
      partition.parts.push_back(part(written, partition.blocks));
    }
    return partition;
  }

  void unlessTaken(const ast::Name &name, const std::vector<Part> &parts) {
    for (const Part &other : parts)
      if (other.name == name.text)
        error(DiagId::duplicate_name, {"part", shown(other.name), findings.place(other.span)},
              name.span);
  }

  Blocks blocks(const ast::Blocks &declared) {
    Blocks blocks;
    std::string extent = declared.extent ? declared.extent->text : "n";
    blocks.perToken = extent == "m";
    bool known =
        declared.along.text == "k" &&
        (!declared.extent ||
         (extent == "tensor" ? !declared.rows : declared.rows && (extent == "n" || extent == "m")));
    if (!known)
      error(DiagId::unknown_name,
            {"extent", shown(extent), "known are k[G], n[R] k[G], m[R] k[G], tensor k[G]"},
            declared.span);
    if (declared.extent)
      blocks.rows = declared.rows ? declared.rows->value : 0;
    blocks.k = declared.k.value;
    limit(declared.k, minGroup);
    if (declared.rows)
      limit(*declared.rows, 1);
    return blocks;
  }

  void limit(const ast::Number &number, int64_t least) {
    if (number.value < least || number.value > maxGroup)
      error(DiagId::block_out_of_range,
            {std::to_string(number.value), std::to_string(least), std::to_string(maxGroup)},
            number.span);
  }

  Part part(const ast::Part &declared, const Blocks &blocks, bool sharesComponents = false) {
    Part part{.name = declared.name.text,
              .format = sharesComponents ? nullptr : lookup(declared.format),
              .left = nullptr,
              .right = nullptr,
              .atLeast = declared.atLeast,
              .budget = declared.budget,
              .span = declared.name.span};
    if (isReserved(part.name, true))
      error(DiagId::reserved_name, {part.name, "part"}, part.span);
    if (part.budget && !(*part.budget > 0 && *part.budget <= 100))
      error(DiagId::budget_out_of_range, {shown(printNumber(*part.budget))}, declared.budgetSpan);
    if (declared.left) {
      part.left = rule(*declared.left, part.name);
      part.right = rule(*declared.right, part.name);
    }
    if (part.format)
      fits(*part.format, blocks, declared.format.span);
    else if (!sharesComponents) // else see shareComponents
      good = false;
    return part;
  }

  // A rule sees the numbers of a block and nothing that is stored.
  ExprPtr rule(const ast::Expr &expr, const std::string &name) {
    Format block;
    block.components.push_back(Component{.name = name,
                                         .type = ElementType::get("f32"),
                                         .extent = Extent::Group,
                                         .encode = nullptr,
                                         .span = {}});
    block.encodeOrder = {0};
    std::vector<bool> poisoned = {false};
    ExprPtr lowered = lower(expr, {block, poisoned, findings, 0, true});
    if (isBest(lowered))
      error(DiagId::best_inside, {"best()"}, expr.span);
    good = good && lowered;
    return lowered;
  }

  // What a block stores belongs to it alone, but for whole rows and the tensor.
  void fits(const Format &format, const Blocks &blocks, Span span) {
    auto whole = [&](int64_t rows, int64_t k, const std::string &what) {
      bool allRows = blocks.rows == 0 || (rows != 0 && blocks.rows % rows == 0);
      if (!allRows || blocks.k % k != 0)
        error(DiagId::part_does_not_fit, {format.name, what, print(blocks)}, span);
    };
    for (const Component &component : format.components)
      if (component.extent == Extent::Group)
        whole(component.rows, component.group,
              "'" + component.name + "' per " + printExtent(component));
    forEachPart(format, [&](const Part &, const Blocks &inner) {
      whole(inner.rows, inner.k, "parts per " + print(inner));
    });
  }

  const ast::Format &syntax;
  const FormatLookup &lookup;
  Findings &findings;
  bool good = true;
};

} // namespace

bool checkParts(const ast::Format &syntax, const FormatLookup &lookup, Findings &findings,
                Format &format) {
  return PartChecker(syntax, lookup, findings).run(format);
}

bool shareComponents(const ast::Format &syntax, Findings &findings, Format &format) {
  if (!format.residual || !syntax.residuals[0].divisor)
    return true;
  const ast::Residual &declared = syntax.residuals[0];
  Part &part = format.residual->part;
  part.divisor = declared.divisor->value;
  ElementType element = format.element().type;
  std::optional<ElementType> type = ElementType::fromName(declared.part.format.name.text);
  auto isSigned = [](ElementType t) { return t.kind() == ElementType::Kind::Signed; };
  auto refuse = [&](const std::string &why, Span span) {
    findings.add(DiagId::residual_shares, {part.name, ast::print(declared.part.format), why}, span);
    return false;
  };
  if (!type || declared.part.format.parentheses || !isSigned(*type))
    return refuse("that is no signed integer type", declared.part.format.span);
  if (!format.requirements.empty())
    return refuse("'" + format.name + "' has a requirement, which its sums would not fulfil",
                  declared.part.format.span);
  if (!isSigned(element) || !isProduct(format))
    return refuse("the value of '" + format.name + "' is no product of a signed integer and scales",
                  declared.part.format.span);
  if (element.bits() + type->bits() > 8)
    return refuse("with the " + std::to_string(element.bits()) +
                      " bits of the element they are more than 8",
                  declared.part.format.span);
  if (part.divisor != int64_t{1} << type->bits())
    return refuse("divided by " + std::to_string(part.divisor) + ", " +
                      std::to_string(int64_t{1} << type->bits()) + " puts their " +
                      std::to_string(type->bits()) + " bits below those of the element",
                  declared.divisor->span);
  part.format = std::make_shared<const Format>(
      withElement(format, *type, 1 / static_cast<double>(part.divisor),
                  std::string(type->name()) + " / " + std::to_string(part.divisor)));
  return true;
}

} // namespace rho::dsl
