#include "dsl/Sema.h"

#include "dsl/Codebook.h"
#include "dsl/DeriveEncode.h"
#include "dsl/Evaluate.h"
#include "dsl/Expressions.h"
#include "dsl/Numbers.h"
#include "dsl/Operators.h"
#include "dsl/ValueSearch.h"

#include <algorithm>
#include <array>

namespace rho::dsl {

namespace {

// Whether a name is spelled as a float's, such as ue4m3 or e3m2i.
bool isFloatName(std::string_view name) {
  auto take = [&](std::string_view characters) {
    const size_t end = std::min(name.find_first_not_of(characters), name.size());
    name.remove_prefix(end);
    return end > 0;
  };
  if (name.starts_with('u'))
    name.remove_prefix(1);
  constexpr std::string_view digits = "0123456789";
  const bool isFloat = take("e") && take(digits) && take("m") && take(digits);
  take("i");
  return isFloat && name.empty();
}

// How coarse a component's extent is; larger is coarser.
std::pair<int, int64_t> coarseness(const Component &component) {
  return {static_cast<int>(component.extent), component.rows * component.group};
}

void collectComponents(const Expr &expr, std::vector<bool> &read) {
  if (expr.kind == Expr::Kind::Component)
    read[static_cast<size_t>(expr.component)] = true;
  for (const ExprPtr &operand : expr.operands)
    collectComponents(*operand, read);
}

class FormatChecker {
public:
  FormatChecker(const ast::Format &syntax, const FormatLookup &lookup, Findings &findings)
      : syntax(syntax), lookup(lookup), findings(findings) {}

  std::optional<Format> run() {
    format.name = syntax.name.text;
    format.span = syntax.name.span;
    good = !syntax.broken;
    if (syntax.components.size() > maxComponents) {
      findings.add(
          DiagId::too_many_components,
          {format.name, std::to_string(syntax.components.size()), std::to_string(maxComponents)},
          format.span);
      return std::nullopt;
    }
    good = checkParts(syntax, lookup, findings, format) && good;
    if (!syntax.partitions.empty())
      return good ? std::optional(std::move(format)) : std::nullopt;
    components();
    extents();
    value();
    requirements();
    encodeRules();
    if (good)
      deriveRules();
    if (good)
      candidates();
    if (good)
      elementWidth();
    good = good && shareComponents(syntax, findings, format);
    if (!good)
      return std::nullopt;
    return std::move(format);
  }

private:
  void error(DiagId id, const std::vector<std::string> &args, Span span) {
    findings.add(id, args, span);
    good = false;
  }

  // --- components

  void components() {
    for (const ast::Component &declared : syntax.components)
      component(declared);
    for (const ast::Component &declared : syntax.components)
      if (declared.remap)
        remap(declared.name, *declared.remap);
    checkElement();
  }

  void component(const ast::Component &declared) {
    bool bad = declared.broken;
    auto report = [&](DiagId id, const std::vector<std::string> &args, Span span) {
      error(id, args, span);
      bad = true;
    };
    Component component{.name = declared.name.text,
                        .type = ElementType::get("f32"),
                        .encode = nullptr,
                        .span = declared.name.span};
    if (isReserved(component.name, true))
      report(DiagId::reserved_name, {component.name, "component"}, component.span);
    for (const Component &other : format.components)
      if (other.name == component.name)
        return error(DiagId::duplicate_name,
                     {"component", shown(component.name), findings.place(other.span)},
                     component.span);
    std::optional<ElementType> found;
    if (!declared.type.text.empty()) // else that it is missing is reported
      found = type(declared.type);
    if (found)
      component.type = *found;
    else
      bad = true;
    if (declared.extent && !extent(*declared.extent, declared.group, component))
      bad = true;
    if (declared.rowAxis && declared.rows && !rows(*declared.rowAxis, *declared.rows, component))
      bad = true;
    if (declared.host && !spare(*declared.host, component))
      bad = true;
    format.components.push_back(std::move(component));
    poisoned.push_back(bad);
  }

  int indexOf(const std::string &name) const {
    for (size_t i = 0; i < format.components.size(); ++i)
      if (format.components[i].name == name)
        return static_cast<int>(i);
    return -1;
  }
  bool unknownComponent(const ast::Name &name) {
    std::vector<std::string> known;
    for (const Component &component : format.components)
      known.push_back(component.name);
    error(DiagId::unknown_name, {"component", shown(name.text), hint(name.text, known)}, name.span);
    return false;
  }

  // Puts a component above the bits of its host and of others in there.
  bool spare(const ast::Name &name, Component &component) {
    component.host = indexOf(name.text);
    if (component.host < 0)
      return unknownComponent(name);
    const Component &host = format.component(component.host);
    component.extent = host.extent;
    component.group = host.group;
    component.rows = host.rows;
    component.perToken = host.perToken;
    if (poisoned[static_cast<size_t>(component.host)])
      return false;
    if (host.extent == Extent::Element || host.host >= 0) {
      component.extent = Extent::Tensor; // so that it is taken for no second element
      error(DiagId::spare_host, {component.name, name.text}, name.span);
      return false;
    }
    component.shift = host.type.bits();
    for (const Component &other : format.components)
      if (other.host == component.host)
        component.shift += other.type.bits();
    int unit = unitBits(host.type);
    if (component.shift + component.type.bits() <= unit)
      return true;
    error(DiagId::spare_bits,
          {component.name, std::to_string(component.type.bits()), std::to_string(component.shift),
           host.name, std::to_string(unit)},
          component.span);
    return false;
  }

  void remap(const ast::Name &name, const ast::Remap &declared) {
    int index = indexOf(name.text);
    if (index < 0)
      return; // reported
    auto self = static_cast<size_t>(index);
    if (std::optional<Remap> checked = checkRemap(format.components[self], declared))
      format.components[self].remap = std::move(checked);
    else
      poisoned[self] = true;
  }

  std::optional<Remap> checkRemap(const Component &component, const ast::Remap &declared) {
    auto refuse = [&](DiagId id, const std::vector<std::string> &args, Span span) {
      error(id, args, span);
      return std::nullopt;
    };
    if (component.extent != Extent::Element)
      return refuse(DiagId::remap_not_element, {component.name}, component.span);
    int64_t codes = int64_t(1) << component.type.bits();
    if (declared.code.value >= codes)
      return refuse(DiagId::remap_code,
                    {std::to_string(declared.code.value), std::string(component.type.name()),
                     std::to_string(codes - 1)},
                    declared.code.span);
    Remap remap{static_cast<uint32_t>(declared.code.value), indexOf(declared.selector.text), {}};
    if (remap.selector < 0) {
      unknownComponent(declared.selector);
      return std::nullopt;
    }
    const Component &selector = format.component(remap.selector);
    if (poisoned[static_cast<size_t>(remap.selector)])
      return std::nullopt;
    if (selector.type.kind() != ElementType::Kind::Unsigned || selector.extent == Extent::Element ||
        size_t(1) << selector.type.bits() != declared.entries.size())
      return refuse(DiagId::remap_selector,
                    {std::to_string(declared.entries.size()), selector.name,
                     std::string(selector.type.name())},
                    declared.selector.span);
    for (const ast::Remap::Entry &entry : declared.entries) {
      Remap::Entry checked{entry.value, -1, entry.negated};
      if (entry.name) {
        checked.component = indexOf(entry.name->text);
        if (checked.component < 0) {
          unknownComponent(*entry.name);
          return std::nullopt;
        }
        if (format.component(checked.component).extent != Extent::Tensor)
          return refuse(DiagId::remap_entry, {entry.name->text}, entry.name->span);
      }
      remap.entries.push_back(checked);
    }
    return remap;
  }

  std::optional<ElementType> type(const ast::Name &written) {
    std::optional<ElementType> found = ElementType::fromName(written.text);
    if (found)
      return found;
    if (std::optional<std::vector<double>> values = parseCodebook(written.text)) {
      if (ElementType::isCodebookSize(values->size()))
        error(DiagId::too_many_codebooks, {std::to_string(ElementType::maxCodebooks)},
              written.span);
      else
        error(DiagId::codebook_size, {std::to_string(values->size())}, written.span);
      return std::nullopt;
    }
    const std::string advice =
        isFloatName(written.text)
            ? "eXmY has 1 to 8 bits of exponent and 3 to 16 bits together, with an i at its end at "
              "least 2 of exponent and 1 of mantissa"
            : hint(written.text, ElementType::allNames());
    error(DiagId::unknown_name, {"type", shown(written.text), advice}, written.span);
    return std::nullopt;
  }

  bool extent(const ast::Name &written, const std::optional<ast::Number> &group,
              Component &component) {
    struct Word {
      std::string_view name;
      Extent extent;
      bool grouped;
    };
    constexpr std::array<Word, 4> words = {{{"k", Extent::Group, true},
                                            {"channel", Extent::Row, false},
                                            {"token", Extent::Row, false},
                                            {"tensor", Extent::Tensor, false}}};
    for (const Word &word : words) {
      if (written.text != word.name || group.has_value() != word.grouped)
        continue;
      component.extent = word.extent;
      component.perToken = word.name == "token";
      if (!group)
        return true;
      if (group->value >= minGroup && group->value <= maxGroup) {
        component.group = group->value;
        return true;
      }
      error(DiagId::group_out_of_range,
            {std::to_string(group->value), std::to_string(minGroup), std::to_string(maxGroup)},
            group->span);
      return false;
    }
    std::string found = written.text;
    if (group)
      found += "[" + std::to_string(group->value) + "]";
    error(
        DiagId::unknown_name,
        {"extent", shown(found), hint(found, {"k[G]", "n[R] k[G]", "channel", "token", "tensor"})},
        written.span);
    return false;
  }

  bool rows(const ast::Name &axis, const ast::Number &count, Component &component) {
    if (count.value < 1 || count.value > maxGroup) {
      error(DiagId::rows_out_of_range,
            {std::to_string(count.value), axis.text, std::to_string(maxGroup)}, count.span);
      return false;
    }
    component.rows = count.value;
    component.perToken = axis.text == "m" && component.rows > 1;
    return true;
  }

  // Exactly one component without `per`, and it is the first.
  void checkElement() {
    const Component *element = nullptr;
    for (size_t i = 0; i < format.components.size(); ++i) {
      const Component &component = format.components[i];
      if (component.extent != Extent::Element || poisoned[i])
        continue;
      if (element)
        error(DiagId::second_element, {component.name, element->name}, component.span);
      else if (i > 0 && !poisoned[0])
        error(DiagId::element_not_first, {component.name}, component.span);
      if (!element)
        element = &component;
    }
    bool anyPoisoned = std::find(poisoned.begin(), poisoned.end(), true) != poisoned.end();
    if (!element && !anyPoisoned && !syntax.broken)
      error(DiagId::missing_element, {format.name}, format.span);
  }

  // Groups that nest make every coarser component one value over a finer extent.
  void extents() {
    std::vector<int> &order = format.encodeOrder;
    for (size_t i = 0; i < format.components.size(); ++i)
      if (format.components[i].extent != Extent::Element)
        order.push_back(static_cast<int>(i));
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      auto ca = coarseness(format.component(a)), cb = coarseness(format.component(b));
      return ca != cb ? ca > cb : a < b;
    });
    const Component *coarser = nullptr;
    for (int index : order) {
      const Component &component = format.component(index);
      bool inRows = component.extent == Extent::Group || component.extent == Extent::Row;
      if (!inRows || poisoned[static_cast<size_t>(index)])
        continue;
      if (coarser && !nests(*coarser, component))
        error(DiagId::groups_do_not_nest,
              {shownGroup(*coarser), coarser->name, shownGroup(component), component.name,
               coarser->extent == Extent::Row ? "blocks of several rows stand beside none per row"
                                              : "the larger is a multiple of the smaller"},
              component.span);
      coarser = &component;
    }
  }

  static bool nests(const Component &coarse, const Component &fine) {
    if (coarse.extent == Extent::Row)
      return fine.rows == 1;
    return coarse.group % fine.group == 0 && coarse.rows % fine.rows == 0 &&
           (fine.rows == 1 || coarse.perToken == fine.perToken);
  }
  static std::string shownGroup(const Component &component) {
    bool plain = component.extent == Extent::Group && component.rows == 1;
    return plain ? std::to_string(component.group) : printExtent(component);
  }

  // --- value and requirements

  std::string here() const { return "format '" + format.name + "'"; }

  void value() {
    for (size_t i = 1; i < syntax.values.size(); ++i)
      error(DiagId::duplicate_entry, {"value", here()}, syntax.values[i].name.span);
    if (syntax.values.empty()) {
      if (!syntax.broken)
        error(DiagId::missing_value, {format.name}, format.span);
      return;
    }
    format.value = lower(*syntax.values[0].expr, {format, poisoned, findings});
    if (!format.value) {
      good = false;
      return;
    }
    std::vector<bool> read(format.components.size(), false);
    collectComponents(*format.value, read);
    if (!read.empty() && read[0] && format.element().remap)
      for (int component : componentsOf(*format.element().remap))
        read[static_cast<size_t>(component)] = true;
    for (size_t i = 0; i < read.size(); ++i)
      if (!read[i] && !poisoned[i])
        error(DiagId::unused_component, {format.components[i].name}, format.components[i].span);
  }

  void requirements() {
    for (const ast::Require &declared : syntax.requirements) {
      ExprPtr expr = lower(*declared.expr, {format, poisoned, findings});
      if (!expr) {
        good = false;
        continue;
      }
      std::string text = shown(print(*expr, format));
      if (!isIntegerTyped(*expr, format)) {
        error(DiagId::requirement_not_integer, {text}, declared.span);
        continue;
      }
      Range range = rangeOf(*expr, format);
      auto bound = static_cast<double>(declared.bound);
      if (declared.atMost ? range.min > bound : range.max < bound)
        error(DiagId::requirement_impossible,
              {text, declared.atMost ? "least" : "most",
               printNumber(declared.atMost ? range.min : range.max),
               declared.atMost ? "<=" : ">=", std::to_string(declared.bound)},
              declared.span);
      format.requirements.push_back({expr, declared.atMost, declared.bound, declared.span});
    }
    if (good)
      requirementsTogether();
  }

  void requirementsTogether() {
    const std::vector<bool> allowed = allowedElements(format);
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), true) != allowed.end())
      return;
    std::vector<std::string> texts;
    Span last;
    for (const Requirement &requirement : format.requirements)
      if (boundsElement(requirement, format)) {
        texts.push_back("'" + shown(print(requirement, format)) + "'");
        last = requirement.span;
      }
    error(DiagId::requirements_exclusive, {format.name, join(texts)}, last);
  }

  // --- encode rules

  void encodeRules() {
    for (const ast::Rule &declared : syntax.encode)
      encodeRule(declared);
  }

  void encodeRule(const ast::Rule &declared) {
    std::vector<std::string> known;
    for (size_t i = 0; i < format.components.size(); ++i) {
      Component &component = format.components[i];
      if (component.name != declared.name.text) {
        if (component.extent != Extent::Element)
          known.push_back(component.name);
        continue;
      }
      if (poisoned[i])
        return;
      if (component.extent == Extent::Element)
        return error(DiagId::rule_of_element, {component.name}, declared.name.span);
      if (component.encodeDeclared)
        return error(DiagId::duplicate_entry, {component.name, "the encode block of " + here()},
                     declared.name.span);
      component.encodeDeclared = true;
      component.encode = lower(*declared.expr, {format, poisoned, findings, static_cast<int>(i)});
      good = good && component.encode;
      return;
    }
    error(DiagId::unknown_name,
          {"component", shown(declared.name.text), hint(declared.name.text, known)},
          declared.name.span);
  }

  void candidates() {
    double combinations = 1; // may be more than integers can say
    for (const Component &component : format.components)
      if (isBest(component.encode))
        combinations *= static_cast<double>(component.encode->operands.size());
    if (combinations > maxCandidates)
      error(DiagId::too_many_candidates,
            {format.name, printNumber(combinations), std::to_string(maxCandidates)}, format.span);
  }

  // A zero point is found by the scales, also where it is declared before one that is as fine.
  void orderZeroPoint() {
    std::vector<int> &order = format.encodeOrder;
    const int zero = zeroPointOf(format);
    if (zero < 0 || format.component(zero).encode)
      return;
    const auto &last = format.component(order.back());
    if (coarseness(last) != coarseness(format.component(zero)))
      return;
    for (const Component &component : format.components)
      if (component.encode && mentions(*component.encode, zero))
        return;
    order.erase(std::find(order.begin(), order.end(), zero));
    order.push_back(zero);
  }

  void deriveRules() {
    orderZeroPoint();
    for (int index : format.encodeOrder) {
      Component &component = format.component(index);
      if (component.encode)
        continue;
      component.encode = deriveEncode(format, index);
      if (!component.encode)
        error(DiagId::rule_not_derivable, {component.name, whyNotDerivable(format, index)},
              component.span);
    }
  }

  void elementWidth() {
    const Component &element = format.element();
    if (element.type.bits() < minElementBits)
      error(DiagId::element_too_narrow, {std::to_string(element.type.bits())}, element.span);
    bool searched = !literalFactor(format) || !format.requirements.empty();
    if (searched && element.type.bits() > maxSearchedElementBits)
      error(DiagId::element_too_wide,
            {std::string(element.type.name()), std::to_string(element.type.bits()),
             std::to_string(maxSearchedElementBits)},
            element.span);
  }

  const ast::Format &syntax;
  const FormatLookup &lookup;
  Findings &findings;
  Format format;
  std::vector<bool> poisoned; // by component: it has an error of its own
  bool good = true;
};

} // namespace

bool isReserved(const std::string &name, bool component) {
  constexpr std::array<std::string_view, 4> everywhere = {"import", "format", "gemm", "device"};
  constexpr std::array<std::string_view, 5> inFormats = {"x", "per", "value", "require", "encode"};
  auto among = [&](const auto &words) {
    return std::find(words.begin(), words.end(), name) != words.end();
  };
  return among(everywhere) || ElementType::fromName(name) ||
         (component && (among(inFormats) || findReduction(name) || findFunction(name)));
}

std::optional<Format> checkFormat(const ast::Format &format, const FormatLookup &lookup,
                                  Findings &findings) {
  std::optional<Format> checked = FormatChecker(format, lookup, findings).run();
  if (!isReserved(format.name.text, false))
    return checked;
  // The canonical text of a plain format parses back: `format f16` may say what f16 says anyway.
  if (checked && isPlain(*checked))
    return checked;
  findings.add(DiagId::reserved_name, {format.name.text, "format"}, format.name.span);
  return std::nullopt;
}

} // namespace rho::dsl
