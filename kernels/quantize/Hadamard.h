// Hadamard matrices: entries +1 and -1, H H^T = n I.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rho::kernels {

// Of order n = 2^p * m: the Kronecker product of Sylvester's matrix of order 2^p and a core of
// order m, 1 or the least that Paley's constructions give (J. Math. Phys. 12, 1933): q + 1 for a
// power q of a prime, q = 3 mod 4, and 2 * (q + 1) for q = 1 mod 4. So 12, 20, 28, 108, 148, 344,
// ...
class Hadamard {
public:
  // Error no_hadamard_order for an n of no such form, with cores of at most `maxCore`.
  static Result<Hadamard> ofOrder(int64_t n);
  static constexpr int64_t maxCore = 1024;

  int64_t order() const { return n; }
  int64_t coreOrder() const { return core->m; }
  int entry(int64_t row, int64_t column) const;

  // Those of the core, [m][m].
  std::vector<int8_t> coreEntries() const;

  // x <- H x for a column of n numbers, n * (log2(n / m) + m) additions.
  void apply(std::span<double> x) const;
  void apply(std::span<float> x) const;

private:
  struct Core {
    Core(int64_t m, std::vector<int8_t> entries);
    int64_t m;
    std::vector<int8_t> entries, transposed; // [m][m]
  };
  // Made once in a process, shared by all matrices; null where there is none.
  static std::shared_ptr<const Core> coreOf(int64_t m);

  Hadamard(int64_t n, std::shared_ptr<const Core> core) : n(n), core(std::move(core)) {}
  template <class Number> void multiply(std::span<Number> x) const;
  template <class Number> void doublings(std::span<Number> x) const;
  template <class Number> void cores(std::span<Number> x) const;

  int64_t n;
  std::shared_ptr<const Core> core;
};

} // namespace rho::kernels
