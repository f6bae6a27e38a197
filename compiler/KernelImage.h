// What the compiler hands to the runtime: PTX and every fact that launching needs. The runtime
// never reads these facts from the PTX.
#pragma once

#include "compiler/Layout.h"

#include <cstdint>
#include <string>
#include <vector>

namespace rho::compiler {

// y = x * w^T with x [m][k], w [n][k], y [m][n].
struct Problem {
  int64_t m = 0, n = 0, k = 0;
  friend bool operator==(const Problem &, const Problem &) = default;
};

// One kernel parameter. Pointers are 8 bytes, m is a 4-byte integer.
struct KernelParameter {
  enum class Kind : uint8_t {
    Weight,              // packed weight, 256-byte aligned
    Activation,          // element codes, 16-byte aligned
    ActivationComponent, // component `index` of the activation format, 16-byte aligned
    Output,              // y, row-major, 16-byte aligned
    Workspace,           // workspaceBytes(m) bytes, zeroed once; every launch leaves it reusable
    M,                   // rows of x and y
  } kind;
  int index = 0;
  friend bool operator==(const KernelParameter &, const KernelParameter &) = default;
};

struct KernelImage {
  std::string entry; // symbol in the PTX
  std::string ptx;
  std::string target; // "sm_80"

  // Launch facts.
  int threads = 0;         // per CTA
  int64_t sharedBytes = 0; // dynamic shared memory per CTA
  int64_t n = 0, k = 0;    // the kernel is specialised on both, not on m
  int64_t tileM = 0, tileN = 0, tileK = 0;
  int pipeline = 0;
  int64_t splitK = 1;
  std::vector<KernelParameter> parameters;
  WeightLayout weight;
  ActivationLayout activation;

  // PTX `.loc` line i (1-based, file "rho") belongs to origins[i-1], a dotted path into the
  // declaration such as "weight.scale" or "schedule.pipeline". Stable under moves of the text.
  std::vector<std::string> origins;

  int64_t tilesM(int64_t m) const { return (m + tileM - 1) / tileM; }
  int64_t tilesN() const { return (n + tileN - 1) / tileN; }
  // Grid: x = tilesN, y = tilesM(m), z = splitK.
  int64_t workspaceBytes(int64_t m) const;

  // Text form for the disk cache: everything but the PTX.
  std::string printFacts() const;
  static Result<KernelImage> parse(std::string_view facts, std::string ptx);
};

} // namespace rho::compiler
