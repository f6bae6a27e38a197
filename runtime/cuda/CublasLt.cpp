#include "runtime/cuda/CublasLt.h"

#include "dsl/Division.h"
#include "dsl/Lasting.h"
#include "runtime/cuda/SharedLibrary.h"

namespace rho::cuda {
namespace {

// cudaDataType
enum : int { R_32F = 0, R_8I = 3, R_32I = 10, R_16BF = 14, R_8F_E4M3 = 28 };
// cublasComputeType_t
enum : int { COMPUTE_32F = 68, COMPUTE_32I = 72 };
// cublasLtMatmulDescAttributes_t
enum : int { DESC_TRANSA = 3, DESC_A_SCALE = 17, DESC_B_SCALE = 18, DESC_FAST_ACCUM = 25 };
// cublasLtMatmulPreferenceAttributes_t
enum : int { PREF_MAX_WORKSPACE_BYTES = 1 };
// cublasOperation_t
enum : int { OP_T = 1 };

constexpr int64_t rowPadding = 16;

struct TypeFacts {
  std::string_view name, element;
  int operand, output, compute, scale;
  int64_t operandBytes, outputBytes;
};

const TypeFacts &factsOf(LtType type) {
  static constexpr TypeFacts facts[] = {
      {"bf16", "bf16", R_16BF, R_16BF, COMPUTE_32F, R_32F, 2, 2},
      {"fp8", "e4m3", R_8F_E4M3, R_16BF, COMPUTE_32F, R_32F, 1, 2},
      {"int8", "s8", R_8I, R_32I, COMPUTE_32I, R_32I, 1, 4},
  };
  return facts[static_cast<size_t>(type)];
}

Status check(const CublasLt &library, int status, const char *call) {
  if (status == 0)
    return Done{};
  return makeError(DiagId::cublaslt_failed, {call, library.statusString(status)});
}

// Host numbers alpha or beta in the scale type.
template <int value> const void *scalar(int scaleType) {
  static constexpr float asFloat = value;
  static constexpr int32_t asInteger = value;
  return scaleType == R_32I ? static_cast<const void *>(&asInteger) : &asFloat;
}

Result<std::shared_ptr<LtLayout>> makeLayout(const CublasLt &library, int type, int64_t rows,
                                             int64_t columns) {
  CublasLt::Layout layout = nullptr;
  if (Status made = check(library,
                          library.layoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                               static_cast<uint64_t>(columns), rows),
                          "cublasLtMatrixLayoutCreate");
      !made)
    return made.error();
  return std::shared_ptr<LtLayout>(layout, library.layoutDestroy);
}

} // namespace

std::string_view name(LtType type) { return factsOf(type).name; }
std::string_view element(LtType type) { return factsOf(type).element; }
int64_t operandBytes(LtType type) { return factsOf(type).operandBytes; }
int64_t outputBytes(LtType type) { return factsOf(type).outputBytes; }

Result<CublasLt> CublasLt::openFrom(const std::vector<std::string> &libraryNames) {
  SharedLibrary library(libraryNames);
  if (!library.opened())
    return makeError(DiagId::cublaslt_not_available, {library.reason()});
  CublasLt table;
  library.bind(table.version, "cublasLtGetVersion");
  library.bind(table.statusString, "cublasLtGetStatusString");
  library.bind(table.create, "cublasLtCreate");
  library.bind(table.destroy, "cublasLtDestroy");
  library.bind(table.operationCreate, "cublasLtMatmulDescCreate");
  library.bind(table.operationSet, "cublasLtMatmulDescSetAttribute");
  library.bind(table.operationDestroy, "cublasLtMatmulDescDestroy");
  library.bind(table.layoutCreate, "cublasLtMatrixLayoutCreate");
  library.bind(table.layoutDestroy, "cublasLtMatrixLayoutDestroy");
  library.bind(table.preferenceCreate, "cublasLtMatmulPreferenceCreate");
  library.bind(table.preferenceSet, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(table.preferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(table.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(table.matmul, "cublasLtMatmul");
  if (!library.firstMissing().empty())
    return makeError(DiagId::cublaslt_not_available,
                     {library.name() + " has no " + library.firstMissing() +
                      ", it must be of CUDA 12 or later"});
  size_t version = table.version();
  table.versionText = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                      "." + std::to_string(version % 100);
  return table;
}

Result<const CublasLt *> CublasLt::open() {
  // As those of NVRTC.
  static const auto &library =
      dsl::lasting(openFrom({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                             "/usr/local/cuda/lib64/libcublasLt.so"}));
  if (!library)
    return library.error();
  return &*library;
}

Result<std::shared_ptr<LtHandle>> CublasLt::makeHandle() const {
  Handle handle = nullptr;
  if (Status made = check(*this, create(&handle), "cublasLtCreate"); !made)
    return made.error();
  return std::shared_ptr<LtHandle>(handle, destroy);
}

// Column-major, as the library sees memory: y^T [n][m] = weight^T [k][n], transposed, * x^T [k][m].
Status LtMatmul::describe(const LtProblem &problem) {
  const TypeFacts &facts = factsOf(type);
  m = problem.m;
  CublasLt::Operation made = nullptr;
  Status done = check(*library, library->operationCreate(&made, facts.compute, facts.scale),
                      "cublasLtMatmulDescCreate");
  if (!done)
    return done;
  operation.reset(made, library->operationDestroy);
  auto set = [&](int attribute, const auto &value) {
    if (done)
      done = check(*library, library->operationSet(made, attribute, &value, sizeof value),
                   "cublasLtMatmulDescSetAttribute");
  };
  set(DESC_TRANSA, int32_t(OP_T));
  if (type == LtType::E4m3) {
    set(DESC_A_SCALE, resources.one);
    set(DESC_B_SCALE, resources.one);
    set(DESC_FAST_ACCUM, int8_t(1));
  }
  auto layout = [&](std::shared_ptr<LtLayout> &to, int element, int64_t rows, int64_t columns) {
    if (!done)
      return;
    Result<std::shared_ptr<LtLayout>> layout = makeLayout(*library, element, rows, columns);
    if (layout)
      to = std::move(*layout);
    else
      done = layout.error();
  };
  layout(weightLayout, facts.operand, problem.k, problem.n);
  layout(xLayout, facts.operand, problem.k, problem.m);
  layout(yLayout, facts.output, problem.n, problem.m);
  return done;
}

// Leaves no choices where the library says that it supports none.
Status LtMatmul::choose(int64_t workspaceBytes, int most) {
  CublasLt::Preference made = nullptr;
  if (Status created =
          check(*library, library->preferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
      !created)
    return created;
  std::shared_ptr<LtPreference> preference(made, library->preferenceDestroy);
  auto bytes = static_cast<uint64_t>(workspaceBytes);
  if (Status set = check(
          *library, library->preferenceSet(made, PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
          "cublasLtMatmulPreferenceSetAttribute");
      !set)
    return set;
  std::vector<LtHeuristicResult> results(static_cast<size_t>(most));
  int count = 0;
  int status = library->heuristic(handle.get(), operation.get(), weightLayout.get(), xLayout.get(),
                                  yLayout.get(), yLayout.get(), made, most, results.data(), &count);
  choices.clear();
  for (int i = 0; status == 0 && i < count; ++i)
    if (results[static_cast<size_t>(i)].status == 0)
      choices.push_back(results[static_cast<size_t>(i)].algorithm);
  return Done{};
}

Result<LtMatmul> LtMatmul::create(const CublasLt &library, std::shared_ptr<LtHandle> handle,
                                  const LtProblem &problem, const LtResources &resources,
                                  int most) {
  LtMatmul matmul(library, problem.type);
  matmul.handle = std::move(handle);
  matmul.resources = resources;
  int64_t padded = roundUp(problem.m, rowPadding);
  for (int64_t rows : {problem.m, padded}) {
    if (Status described = matmul.describe({problem.type, rows, problem.n, problem.k}); !described)
      return described.error();
    if (Status chosen = matmul.choose(resources.workspaceBytes, most); !chosen)
      return chosen.error();
    if (!matmul.choices.empty())
      return matmul;
  }
  return makeError(DiagId::cublaslt_no_algorithm,
                   {std::string(cuda::name(problem.type)), std::to_string(problem.m),
                    std::to_string(problem.n), std::to_string(problem.k)});
}

Status LtMatmul::launch(int algorithm, DevicePointer weight, DevicePointer x, DevicePointer y,
                        Stream stream) const {
  int scale = factsOf(type).scale;
  auto *output = reinterpret_cast<void *>(y);
  return check(*library,
               library->matmul(handle.get(), operation.get(), scalar<1>(scale),
                               reinterpret_cast<const void *>(weight), weightLayout.get(),
                               reinterpret_cast<const void *>(x), xLayout.get(), scalar<0>(scale),
                               output, yLayout.get(), output, yLayout.get(),
                               &choices[static_cast<size_t>(algorithm)],
                               reinterpret_cast<void *>(resources.workspace),
                               static_cast<size_t>(resources.workspaceBytes), stream),
               "cublasLtMatmul");
}

} // namespace rho::cuda
