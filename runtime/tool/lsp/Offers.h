// What completions offer, by kinds of places.
#pragma once

#include "dsl/Words.h"
#include "runtime/tool/lsp/Language.h"
#include "runtime/tool/lsp/Resolve.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::tool::lsp {

class Offers {
public:
  explicit Offers(const View &view) : view(view), outline(view.outline(0)) {}
  // The declaration of file 0 that the place is in; null: none.
  void of(const Declaration *around) { declaration = around; }
  std::vector<Completion> take() { return std::move(found); }

  // The words of a place in the language, or of these the ones with such texts.
  void words(dsl::WordPlace place, const std::optional<std::vector<std::string>> &only = {});

  // Components of the declaration but the first `from`, those that are declared before a token.
  void components(size_t from, size_t before = Outline::none);
  // Parameters of the declaration that are of such kinds.
  void parameters(const std::vector<std::string_view> &kinds);
  // One that a callee has.
  void parameterOf(const Target &callee, size_t parameter);
  // What stands for a parameter of a kind; the declaration's own parameters are not known in its
  // head.
  void given(std::string_view kind, bool withParameters);

  // Operands of a value or a requirement, and of a rule; `best` is the whole of one.
  void valueOperands();
  void ruleOperands(std::string_view component, bool isWhole);
  // Functions of numbers that are encoded, and these.
  void reductions(const std::vector<std::string> &functions);

  void types(bool withParameters = true);
  void plainTypes();
  // Those of a residual with the scales of its format: with the element at most 8 bits together.
  void residualTypes();
  void formats(bool withParameters = true);
  // Gemms belong to their own file.
  void gemms();
  void rates(); // of tensor cores
  void targets();
  // What an import may read, in place of what is between its quotes.
  void paths(const dsl::Token &string, size_t offset);

private:
  void add(Completion::Kind kind, std::string_view label, std::string detail);
  void type(std::string_view name);
  // Whether a declaration can be named here: none is made of itself.
  bool isOther(const Outline &of, const Declaration &one, std::string_view wanted) const;

  const View &view;
  const Outline &outline;
  const Declaration *declaration = nullptr;
  std::vector<Completion> found;
};

} // namespace rho::tool::lsp
