// Numbers that are the same for all of a group's codes of one weight row.
#pragma once

#include "dsl/Format.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::compiler {

// A sum of products of components of the weight, computed in f32. A term may count only where the
// code of a component of an unsigned type, its selector, has one value.
struct RowNumber {
  struct Term {
    double factor = 1;
    std::vector<int> components; // of the weight's format
    int selector = 0;            // component, or 0
    int code = 0;                // of the selector
    friend bool operator==(const Term &, const Term &) = default;
  };
  std::vector<Term> terms;

  static RowNumber of(double constant);
  bool isConstant() const;       // no component
  double constant() const;       // of the term without components, 0 where there is none
  std::vector<int> uses() const; // components, each once
  // Where nothing but the code of one selector of at most 2 bits changes it along k, so that it is
  // one of four numbers: that selector, else 0.
  int fewChoices(const dsl::Format &weight) const;
  // Whether all components but that selector are of the tensor: numbers, and the four to choose
  // from, are then those of every row.
  bool isOfTensor(const dsl::Format &weight) const;
  RowNumber chosen(int selector, int code) const; // where that has this code, without it
  // The negative number where that code has this bit.
  RowNumber negatedWhere(int selector, int bit) const;
  RowNumber times(double factor) const;
  RowNumber plus(const RowNumber &other) const;
  RowNumber times(const RowNumber &other) const;

  // Every component by what `index` makes of it.
  RowNumber renumbered(const std::function<int(int)> &index) const;

  // "1*#1*#2 + -8 + 5*[#3=2]"; "0" without terms.
  std::string print() const;
  std::vector<std::string> printTerms() const; // at least one
  static std::optional<RowNumber> parse(std::string_view text);
  friend bool operator==(const RowNumber &, const RowNumber &) = default;
};

} // namespace rho::compiler
