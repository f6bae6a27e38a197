// Hadamard matrices: entries +1 and -1, H H^T = n I.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rho::kernels {

// Of order n = 2^p * m: the Kronecker product of Sylvester's matrix of order 2^p and a core of
// order m (kernels/quantize/HadamardCores.h), 1, 12, 20, 28, 92, 108, 344, ...
class Hadamard {
public:
  // Of order 1, 2, a multiple of 4 up to 512, an order up to 1024 of Paley's, and 2^p times these.
  // Error no_hadamard_order for another n.
  static Result<Hadamard> ofOrder(int64_t n);

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
  // Made once in a process, shared by all matrices.
  static std::shared_ptr<const Core> coreOf(int64_t m);

  Hadamard(int64_t n, std::shared_ptr<const Core> core) : n(n), core(std::move(core)) {}
  template <class Number> void multiply(std::span<Number> x) const;
  template <class Number> void doublings(std::span<Number> x) const;
  template <class Number> void cores(std::span<Number> x) const;

  int64_t n;
  std::shared_ptr<const Core> core;
};

} // namespace rho::kernels
