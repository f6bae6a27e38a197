// NVIDIA's matrix multiplication, opened at run time: what benchmarks compare with. Declared here
// so that the build needs no CUDA toolkit. Values: cuBLAS reference, "Using the cuBLASLt API".
#pragma once

#include "dsl/Error.h"
#include "runtime/Rho.h"

#include <memory>
#include <string>
#include <vector>

namespace rho::cuda {

struct LtAlgorithm {
  uint64_t data[8];
};

struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};

// A function table, as Driver. Functions without a comment give a cublasStatus_t. They work in the
// thread's current context.
struct CublasLt {
  using Handle = struct LtHandle *;
  using Operation = struct LtOperation *;
  using Layout = struct LtLayout *;
  using Preference = struct LtPreference *;

  size_t (*version)() = nullptr; // 10000 * major + 100 * minor + patch
  const char *(*statusString)(int status) = nullptr;
  int (*create)(Handle *handle) = nullptr;
  int (*destroy)(Handle handle) = nullptr;
  int (*operationCreate)(Operation *operation, int computeType, int scaleType) = nullptr;
  int (*operationSet)(Operation operation, int attribute, const void *value, size_t size) = nullptr;
  int (*operationDestroy)(Operation operation) = nullptr;
  int (*layoutCreate)(Layout *layout, int type, uint64_t rows, uint64_t columns,
                      int64_t leadingDimension) = nullptr;
  int (*layoutDestroy)(Layout layout) = nullptr;
  int (*preferenceCreate)(Preference *preference) = nullptr;
  int (*preferenceSet)(Preference preference, int attribute, const void *value,
                       size_t size) = nullptr;
  int (*preferenceDestroy)(Preference preference) = nullptr;
  int (*heuristic)(Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d,
                   Preference preference, int most, LtHeuristicResult *results,
                   int *count) = nullptr;
  int (*matmul)(Handle handle, Operation operation, const void *alpha, const void *a,
                Layout aLayout, const void *b, Layout bLayout, const void *beta, const void *c,
                Layout cLayout, void *d, Layout dLayout, const LtAlgorithm *algorithm,
                void *workspace, size_t workspaceBytes, Stream stream) = nullptr;

  std::string versionText; // "13.1.0"

  // The process's cuBLASLt. Error cublaslt_not_available says what is missing.
  static Result<const CublasLt *> open();
  static Result<CublasLt> openFrom(const std::vector<std::string> &libraryNames);
  // The same in the current context. Error cublaslt_failed.
  Result<std::shared_ptr<LtHandle>> makeHandle() const;
};

// What both operands are made of, and the output: bf16, bf16 and s32.
enum class LtType : uint8_t { Bf16, E4m3, S8 };
std::string_view name(LtType type);    // "bf16", "fp8", "int8"
std::string_view element(LtType type); // as dsl::ElementType names it
int64_t operandBytes(LtType type);     // of one number of an operand
int64_t outputBytes(LtType type);      // of one number of the output

struct LtProblem {
  LtType type = LtType::Bf16;
  int64_t m = 0, n = 0, k = 0;
};

// Device memory that a multiplication works with besides its operands.
struct LtResources {
  DevicePointer workspace = 0;
  int64_t workspaceBytes = 0;
  DevicePointer one = 0; // the f32 number 1: the scale of both e4m3 operands
};

// y [m][n] = x [m][k] * weight [n][k]^T, row-major, by one of several algorithms. Of e4m3 with the
// fast accumulation of the tensor cores, as those who want speed use it. Move-only.
class LtMatmul {
public:
  // With the library's first `most` choices. Where it has none for m rows: for m rounded up to 16.
  // Errors: cublaslt_failed, cublaslt_no_algorithm.
  static Result<LtMatmul> create(const CublasLt &library, std::shared_ptr<LtHandle> handle,
                                 const LtProblem &problem, const LtResources &resources, int most);
  int64_t rows() const { return m; } // of x and y: m, or m rounded up
  int algorithms() const { return static_cast<int>(choices.size()); }
  // Error cublaslt_failed.
  Status launch(int algorithm, DevicePointer weight, DevicePointer x, DevicePointer y,
                Stream stream) const;

private:
  LtMatmul(const CublasLt &library, LtType type) : library(&library), type(type) {}
  Status describe(const LtProblem &problem);
  Status choose(int64_t workspaceBytes, int most);

  const CublasLt *library;
  LtType type;
  LtResources resources;
  int64_t m = 0;
  std::shared_ptr<LtHandle> handle;
  std::shared_ptr<LtOperation> operation;
  std::shared_ptr<LtLayout> weightLayout, xLayout, yLayout;
  std::vector<LtAlgorithm> choices;
};

} // namespace rho::cuda
