#include "compiler/decode/RowNumber.h"

#include "dsl/Numbers.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace rho::compiler {

RowNumber RowNumber::of(double constant) {
  return constant == 0 ? RowNumber{} : RowNumber{{{.factor = constant, .components = {}}}};
}

bool RowNumber::isConstant() const {
  return std::all_of(terms.begin(), terms.end(),
                     [](const Term &t) { return t.components.empty() && t.selector == 0; });
}

double RowNumber::constant() const {
  double sum = 0;
  for (const Term &term : terms)
    if (term.components.empty() && term.selector == 0)
      sum += term.factor;
  return sum;
}

std::vector<int> RowNumber::uses() const {
  std::set<int> all;
  for (const Term &term : terms) {
    all.insert(term.components.begin(), term.components.end());
    if (term.selector != 0)
      all.insert(term.selector);
  }
  return {all.begin(), all.end()};
}

int RowNumber::fewChoices(const dsl::Format &weight) const {
  constexpr int mostBits = 2;
  auto componentAt = [&](int component) -> const dsl::Component & {
    return weight.components[static_cast<size_t>(component)];
  };
  int selector = 0;
  for (const Term &term : terms) {
    if (term.selector != 0 && selector != 0 && term.selector != selector)
      return 0;
    if (std::any_of(term.components.begin(), term.components.end(), [&](int component) {
          return componentAt(component).extent == dsl::Extent::Group;
        }))
      return 0;
    selector = term.selector != 0 ? term.selector : selector;
  }
  return selector != 0 && componentAt(selector).type.bits() <= mostBits ? selector : 0;
}

bool RowNumber::isOfTensor(const dsl::Format &weight) const {
  const std::vector<int> all = uses();
  return std::all_of(all.begin(), all.end(), [&, selector = fewChoices(weight)](int component) {
    return component == selector ||
           weight.components[static_cast<size_t>(component)].extent == dsl::Extent::Tensor;
  });
}

RowNumber RowNumber::chosen(int selector, int code) const {
  RowNumber result;
  for (Term term : terms) {
    if (term.selector == selector && term.code != code)
      continue;
    if (term.selector == selector)
      term.selector = term.code = 0;
    result.terms.push_back(std::move(term));
  }
  return result;
}

RowNumber RowNumber::negatedWhere(int selector, int bit) const {
  RowNumber result = *this;
  for (Term &term : result.terms)
    if (term.selector == selector && (term.code >> bit & 1) != 0)
      term.factor = -term.factor;
  return result;
}

RowNumber RowNumber::times(double factor) const {
  RowNumber result = *this;
  for (Term &term : result.terms)
    term.factor *= factor;
  return result;
}

RowNumber RowNumber::plus(const RowNumber &other) const {
  RowNumber result = *this;
  for (const Term &term : other.terms) {
    auto same = std::find_if(result.terms.begin(), result.terms.end(), [&](const Term &t) {
      return t.components == term.components && t.selector == term.selector && t.code == term.code;
    });
    if (same == result.terms.end())
      result.terms.push_back(term);
    else
      same->factor += term.factor;
  }
  std::erase_if(result.terms, [](const Term &t) { return t.factor == 0; });
  return result;
}

RowNumber RowNumber::times(const RowNumber &other) const {
  RowNumber result;
  for (const Term &a : terms)
    for (const Term &b : other.terms) {
      Term product{a.factor * b.factor, a.components, a.selector, a.code};
      product.components.insert(product.components.end(), b.components.begin(), b.components.end());
      std::sort(product.components.begin(), product.components.end());
      result = result.plus({{product}});
    }
  return result;
}

RowNumber RowNumber::renumbered(const std::function<int(int)> &index) const {
  RowNumber result = *this;
  for (Term &term : result.terms) {
    for (int &component : term.components)
      component = index(component);
    if (term.selector != 0)
      term.selector = index(term.selector);
  }
  return result;
}

std::vector<std::string> RowNumber::printTerms() const {
  std::vector<std::string> texts;
  for (const Term &term : terms) {
    std::string text = dsl::printNumber(term.factor);
    for (int component : term.components)
      text += "*#" + std::to_string(component);
    if (term.selector != 0)
      text += "*[#" + std::to_string(term.selector) + "=" + std::to_string(term.code) + "]";
    texts.push_back(std::move(text));
  }
  if (texts.empty())
    texts.emplace_back("0");
  return texts;
}

std::string RowNumber::print() const {
  std::string text;
  for (const std::string &term : printTerms())
    text += (text.empty() ? "" : " + ") + term;
  return text;
}

std::optional<RowNumber> RowNumber::parse(std::string_view text) {
  RowNumber result;
  if (text == "0")
    return result;
  while (true) {
    size_t end = text.find(" + ");
    std::string_view item = text.substr(0, end);
    Term term;
    auto [next, error] = std::from_chars(item.data(), item.data() + item.size(), term.factor);
    if (error != std::errc())
      return std::nullopt;
    item.remove_prefix(static_cast<size_t>(next - item.data()));
    auto number = [&](std::string_view before, int &value) {
      if (!item.starts_with(before))
        return false;
      item.remove_prefix(before.size());
      auto [after, bad] = std::from_chars(item.data(), item.data() + item.size(), value);
      item.remove_prefix(static_cast<size_t>(after - item.data()));
      return bad == std::errc() && value >= 0;
    };
    while (!item.empty()) {
      int component = 0;
      if (number("*[#", component)) {
        term.selector = component;
        if (component < 1 || !number("=", term.code) || item != "]")
          return std::nullopt;
        break;
      }
      if (!number("*#", component) || component < 1)
        return std::nullopt;
      term.components.push_back(component);
    }
    result.terms.push_back(std::move(term));
    if (end == std::string_view::npos)
      return result;
    text.remove_prefix(end + 3);
  }
}

} // namespace rho::compiler
