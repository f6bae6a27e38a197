// Declarations by name, and the instances of those with parameters.
#pragma once

#include "dsl/Findings.h"
#include "dsl/Parser.h"
#include "dsl/Sema.h"
#include "dsl/StandardLibrary.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rho::dsl {

inline constexpr size_t maxParameters = 16;
// Declarations that are made of declarations, on the longest way down.
inline constexpr size_t maxDeclarationDepth = 32;
// Tokens in all instances of a module.
inline constexpr size_t maxInstanceTokens = size_t(1) << 18;

// A use of a declaration, with what stands for each parameter.
struct Binding {
  std::string text; // "int4(64, f16)", equal for equal instances; "int4" without parameters
  std::string name; // of the instance: that of the declaration where all values are defaults
  bool isDefault = true;
  Bindings tokens;
};

// Checks parameters and their default values. False after it reported errors.
bool checkParameters(const ast::Declared &declared, const std::vector<Token> &tokens,
                     Findings &findings);

// None after it reported errors. `use` null: all default values, none where one is missing.
// `defaults` looks up formats that are default values.
std::optional<Binding> bindArguments(const ast::Declared &declared, const ast::Use *use,
                                     const FormatLookup &lookup, const FormatLookup &defaults,
                                     Findings &findings);

// All formats of a module, or all gemms of a file. Each is checked once, when it is first asked
// for: the order of declarations does not matter.
template <class Syntax, class Checked> class Library {
public:
  using Ptr = std::shared_ptr<const Checked>;
  // Checks a declaration without parameters. None after it reported errors.
  using Check = std::function<std::optional<Checked>(const Syntax &)>;

  // `what` messages call one: "format". `instanceTokens` counts over all libraries of a module.
  Library(std::string what, Check check, FormatLookup lookup, size_t &instanceTokens,
          Findings &findings)
      : what(std::move(what)), check(std::move(check)), lookup(std::move(lookup)),
        instanceTokens(instanceTokens), findings(findings) {}

  // The first of a name counts; false for another one.
  bool declare(const Syntax &syntax, const std::vector<Token> &tokens) {
    auto [place, isNew] = declared.try_emplace(syntax.name.text, &syntax, &tokens);
    if (!isNew)
      findings.add(DiagId::duplicate_name,
                   {what, syntax.name.text, findings.place(place->second.syntax->name.span)},
                   syntax.name.span);
    if (!checkParameters(syntax, tokens, findings) && isNew)
      place->second.usable = false;
    return isNew;
  }

  bool declares(const std::string &name) const { return declared.count(name) != 0; }

  // But those that are being checked, which are not made of themselves.
  std::vector<std::string> usableNames() const {
    std::vector<std::string> names;
    auto isActive = [&](std::string_view name) {
      return std::any_of(active.begin(), active.end(), [&](typename Entries::iterator entry) {
        return name == std::string_view(entry->first).substr(0, entry->first.find('('));
      });
    };
    for (const auto &[name, unused] : declared)
      if (!isActive(name))
        names.push_back(name);
    return names;
  }

  // The declaration itself, with its default values. Null where it has errors, which are reported,
  // or a parameter without default value.
  Ptr defaults(const std::string &name) {
    const Declaration &declaration = declared.find(name)->second;
    if (!declaration.usable)
      return nullptr;
    std::optional<Binding> binding =
        bindArguments(*declaration.syntax, nullptr, lookup, ofDefault, findings);
    return binding ? instance(declaration, *binding, declaration.syntax->name.span) : nullptr;
  }

  // What `use` names. Null where that has errors, which are reported.
  Ptr resolve(const ast::Use &use, const std::vector<std::string> &otherNames) {
    auto found = declared.find(use.name.text);
    if (found == declared.end()) {
      if (!findings.full()) {
        std::vector<std::string> known = usableNames();
        known.insert(known.begin(), otherNames.begin(), otherNames.end());
        std::string advice = hint(use.name.text, known);
        if (what == "format" && libraryText(use.name.text))
          advice = "import \"" + std::string(libraryPrefix) + use.name.text + "\" declares it";
        findings.add(DiagId::unknown_name, {what, shown(use.name.text), advice}, use.name.span);
      }
      return nullptr;
    }
    const Declaration &declaration = found->second;
    if (!declaration.usable)
      return nullptr;
    // A default that asks for its own declaration would be asked for again and again.
    if (std::find(pending.begin(), pending.end(), &use) != pending.end()) {
      const std::string name = use.name.text;
      findings.add(DiagId::declaration_cycle, {what, shown(name), shown(name + " -> " + name)},
                   use.span);
      return nullptr;
    }
    if (pending.size() >= maxDeclarationDepth) {
      findings.add(DiagId::declarations_too_deep,
                   {what, shown(use.name.text), std::to_string(maxDeclarationDepth)}, use.span);
      return nullptr;
    }
    pending.push_back(&use);
    std::optional<Binding> bound =
        bindArguments(*declaration.syntax, &use, lookup, ofDefault, findings);
    pending.pop_back();
    return bound ? instance(declaration, *bound, use.span) : nullptr;
  }

  // Instances other than those of all default values, in order of first use.
  const std::vector<Ptr> &instances() const { return made; }

private:
  struct Declaration {
    Declaration(const Syntax *syntax, const std::vector<Token> *tokens)
        : syntax(syntax), tokens(tokens) {}
    const Syntax *syntax;
    const std::vector<Token> *tokens;
    bool usable = true;
  };
  struct Entry {
    Ptr checked;
    bool active = true;
    size_t depth = 1; // of the declarations that it is made of, itself included
  };
  using Entries = std::map<std::string, Entry, std::less<>>; // by Binding::text

  Ptr instance(const Declaration &declaration, const Binding &binding, Span use) {
    auto [place, isNew] = entries.try_emplace(binding.text);
    Entry &entry = place->second;
    if (!isNew && entry.active) {
      std::string chain;
      for (auto from = std::find(active.begin(), active.end(), place); from != active.end(); ++from)
        chain += (*from)->first + " -> ";
      findings.add(DiagId::declaration_cycle,
                   {what, shown(binding.text), shown(chain + binding.text)}, use);
      return nullptr;
    }
    if (isNew)
      make(declaration, binding, use, place);
    if (!active.empty()) {
      size_t &depth = active.back()->second.depth;
      depth = std::max(depth, entry.depth + 1);
    }
    return entry.checked;
  }

  void make(const Declaration &declaration, const Binding &binding, Span use,
            typename Entries::iterator place) {
    Entry &entry = place->second;
    active.push_back(place);
    if (active.size() <= maxDeclarationDepth)
      entry.checked = checkedOf(declaration, binding, use);
    if (active.size() > maxDeclarationDepth || entry.depth > maxDeclarationDepth) {
      if (entry.depth <= maxDeclarationDepth + 1)
        findings.add(DiagId::declarations_too_deep,
                     {what, shown(binding.text), std::to_string(maxDeclarationDepth)}, use);
      entry.checked = nullptr;
    }
    active.pop_back();
    entry.active = false;
    if (!binding.isDefault && entry.checked)
      made.push_back(entry.checked);
  }

  Ptr checkedOf(const Declaration &declaration, const Binding &binding, Span use) {
    const Syntax &syntax = *declaration.syntax;
    if (syntax.broken && (syntax.alias || !syntax.parameters.empty()))
      return nullptr;
    if (binding.isDefault)
      return checkedAs(syntax, binding.name);
    instanceTokens += instanceSize(syntax, *declaration.tokens, binding.tokens);
    if (instanceTokens > maxInstanceTokens) {
      findings.add(DiagId::too_many_instances, {std::to_string(maxInstanceTokens)}, use);
      return nullptr;
    }
    if (auto other = declared.find(binding.name); other != declared.end()) {
      findings.add(DiagId::duplicate_name,
                   {what, binding.name, findings.place(other->second.syntax->name.span)}, use);
      return nullptr;
    }
    Findings::Context context(findings, "in '" + shown(binding.text) + "', used here", use);
    Syntax expanded = instantiate(syntax, *declaration.tokens, binding.tokens, findings);
    expanded.name.text = binding.name;
    return expanded.broken ? nullptr : checkedAs(expanded, binding.name);
  }

  Ptr checkedAs(const Syntax &syntax, const std::string &name) {
    if (!syntax.alias) {
      std::optional<Checked> checked = check(syntax);
      return checked ? std::make_shared<const Checked>(std::move(*checked)) : nullptr;
    }
    if (isReserved(name, false)) {
      findings.add(DiagId::reserved_name, {name, what}, syntax.name.span);
      return nullptr;
    }
    Ptr same = named(*syntax.alias);
    if (!same)
      return nullptr;
    Checked renamed = *same;
    renamed.name = name;
    renamed.span = syntax.name.span;
    return std::make_shared<const Checked>(std::move(renamed));
  }

  // What an alias names. Plain types are formats too.
  Ptr named(const ast::Use &use) {
    if constexpr (std::is_same_v<Checked, Format>)
      return lookup(use);
    else
      return resolve(use, {});
  }

  // A format that is a parameter's default value, which is the same wherever it is asked for.
  std::shared_ptr<const Format> defaultFormat(const ast::Use &use) {
    if (auto known = defaultFormats.find(&use); known != defaultFormats.end())
      return known->second;
    std::shared_ptr<const Format> found = lookup(use);
    defaultFormats.emplace(&use, found);
    return found;
  }

  std::string what;
  Check check;
  FormatLookup lookup;
  FormatLookup ofDefault = [this](const ast::Use &use) { return defaultFormat(use); };
  size_t &instanceTokens;
  Findings &findings;
  std::map<std::string, Declaration, std::less<>> declared;
  Entries entries;
  std::vector<const ast::Use *> pending; // uses whose arguments are being found
  std::map<const ast::Use *, std::shared_ptr<const Format>> defaultFormats; // of parameters
  std::vector<typename Entries::iterator> active; // what is being checked, from the outside in
  std::vector<Ptr> made;
};

} // namespace rho::dsl
