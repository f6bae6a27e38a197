// Computes encode rules: double arithmetic over the numbers of one extent (see Quantize.h).
#pragma once

#include "dsl/Format.h"

#include <vector>

namespace rho::dsl {

// A rule taken apart, so that its reductions may be computed in parts and combined.
class EncodeRule {
public:
  explicit EncodeRule(const Expr &rule);

  // One partial result for each reduction of the rule.
  using Partial = std::vector<double>;
  Partial begin() const;
  void begin(Partial &partial) const; // in memory that is there
  // Takes `count` more numbers of the extent into `partial`. components[i] is the decoded value of
  // component i, one value over the whole extent.
  void reduce(Partial &partial, const double *x, int64_t count, const double *components) const;
  void combine(Partial &partial, const Partial &other) const;
  // The rule's value.
  double finish(const Partial &partial, const double *components) const;

private:
  const Expr &rule;
  std::vector<const Expr *> reductions; // in the order in which finish() meets them
};

} // namespace rho::dsl
