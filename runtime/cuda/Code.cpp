#include "runtime/cuda/Code.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace rho::cuda {
namespace {

// Above this a kernel must ask for its dynamic shared memory (CUDA C++ Programming Guide, "Shared
// memory" of compute capability 8.x).
constexpr int64_t sharedWithoutOptIn = int64_t(48) * 1024;
// Larger clusters run on some GPUs only, and a kernel must ask for them (ibid., "Thread block
// clusters").
constexpr int64_t portableCluster = 8;

// Whether a call that loads code failed because of the code. What else there is may be over with
// the next call, and has no end: no memory, a stream that is captured, a GPU that an earlier fault
// has made useless, a server that is gone. Source: cuda.h, CUresult.
bool isOfTheCode(CUresult result) {
  constexpr CUresult invalidValue = 1, invalidImage = 200, noBinaryForGpu = 209, invalidPtx = 218,
                     noCompiler = 221, unsupportedPtxVersion = 222, compilationDisabled = 223,
                     invalidSource = 300, fileNotFound = 301, notFound = 500;
  constexpr CUresult all[] = {invalidValue,       invalidImage, noBinaryForGpu,
                              invalidPtx,         noCompiler,   invalidSource,
                              fileNotFound,       notFound,     unsupportedPtxVersion,
                              compilationDisabled};
  return std::find(std::begin(all), std::end(all), result) != std::end(all);
}

// The log that the driver writes while it compiles or loads, as options of that call.
struct JitLog {
  std::array<char, 8192> text{};
  std::array<int, 2> options = {JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTBEGIN(performance-no-int-to-ptr): the driver takes a size as a pointer
  std::array<void *, 2> values = {text.data(),
                                  reinterpret_cast<void *>(static_cast<uintptr_t>(text.size()))};
  // NOLINTEND(performance-no-int-to-ptr)

  // On one line: the log, else the error's name.
  std::string words(const Driver &driver, CUresult result, const char *call) const {
    std::string line(text.data(), ::strnlen(text.data(), text.size()));
    while (!line.empty() && (line.back() == '\n' || line.back() == ' '))
      line.pop_back();
    for (size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at + 2))
      line.replace(at, 1, "; ");
    std::string failed = check(driver, result, call).error().diagnostics[0].message;
    return line.empty() ? failed : failed + ": " + line;
  }

  Error error(const Driver &driver, CUresult result, const char *call,
              const std::string &entry) const {
    if (!isOfTheCode(result))
      return check(driver, result, call).error();
    return makeError(DiagId::kernel_refused, {entry, words(driver, result, call)});
  }
};

CUlaunchAttribute clusterAttribute(const compiler::Dim3 &cluster) {
  CUlaunchAttribute attribute = {CLUSTER_DIMENSION, {}};
  attribute.value.clusterDim = {cluster.x, cluster.y, cluster.z};
  return attribute;
}

} // namespace

Status checkPtxVersion(const Context &context, const std::string &ptx) {
  const int version = context.driver.version;
  if (int isa = ptxIsaOf(ptx), newest = newestPtxIsa(version); isa > newest)
    return makeError(DiagId::ptx_version_too_new,
                     {printIsa(isa), printCudaVersion(version), printIsa(newest)});
  return Done{};
}

Result<std::string> assemblePtx(const Context &context, const std::string &ptx,
                                const std::string &entry) {
  const Driver &driver = context.driver;
  if (Status known = checkPtxVersion(context, ptx); !known)
    return known.error();
  const ContextScope scope(driver, context.handle, CAPTURE_MODE_THREAD_LOCAL);
  if (!scope.entered())
    return scope.entered().error();
  JitLog log;
  CUlinkState state = nullptr;
  if (Status created = check(
          driver,
          driver.linkCreate(log.options.size(), log.options.data(), log.values.data(), &state),
          "cuLinkCreate");
      !created)
    return created.error();
  void *cubin = nullptr;
  size_t size = 0;
  // Size with the terminating zero, as the driver reads text.
  const char *call = "cuLinkAddData";
  CUresult result = driver.linkAddData(state, JIT_INPUT_PTX, const_cast<char *>(ptx.c_str()),
                                       ptx.size() + 1, entry.c_str(), 0, nullptr, nullptr);
  if (result == CUDA_SUCCESS) {
    call = "cuLinkComplete";
    result = driver.linkComplete(state, &cubin, &size);
  }
  std::string code;
  if (result == CUDA_SUCCESS)
    code.assign(static_cast<const char *>(cubin), size);
  driver.linkDestroy(state); // the cubin was its memory
  if (result != CUDA_SUCCESS)
    return log.error(driver, result, call, entry);
  return code;
}

Result<std::shared_ptr<const CudaKernel>>
CudaKernel::load(const std::shared_ptr<const Context> &context, const std::string &cubin,
                 const std::string &entry, const CtaFacts &facts) {
  const Driver &driver = context->driver;
  const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
  if (!scope.entered())
    return scope.entered().error();
  JitLog log;
  CUmodule module = nullptr;
  CUresult result = driver.moduleLoadDataEx(&module, cubin.c_str(), log.options.size(),
                                            log.options.data(), log.values.data());
  if (result != CUDA_SUCCESS)
    return log.error(driver, result, "cuModuleLoadData", entry);
  auto kernel = std::make_shared<CudaKernel>(context, module, facts);
  result = driver.moduleGetFunction(&kernel->function, module, entry.c_str());
  if (result != CUDA_SUCCESS)
    return log.error(driver, result, "cuModuleGetFunction", entry);
  if (facts.sharedBytes > sharedWithoutOptIn)
    if (Status set = check(driver,
                           driver.funcSetAttribute(kernel->function, MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   static_cast<int>(facts.sharedBytes)),
                           "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
        !set)
      return set.error();
  const compiler::Dim3 &cluster = facts.cluster;
  if (int64_t{cluster.x} * cluster.y * cluster.z > portableCluster)
    if (Status set = check(
            driver, driver.funcSetAttribute(kernel->function, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            "cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)");
        !set)
      return set.error();
  kernel->askForClusters();
  int registers = -1, local = -1;
  if (driver.funcGetAttribute(&registers, NUM_REGS, kernel->function) == CUDA_SUCCESS)
    kernel->registers = registers;
  if (driver.funcGetAttribute(&local, LOCAL_SIZE_BYTES, kernel->function) == CUDA_SUCCESS)
    kernel->localBytes = local;
  return std::shared_ptr<const CudaKernel>(std::move(kernel));
}

CudaKernel::~CudaKernel() {
  const ContextScope scope(context->driver, context->handle, CAPTURE_MODE_RELAXED);
  if (scope.entered())
    context->driver.moduleUnload(module);
}

CUlaunchConfig CudaKernel::config(const compiler::Dim3 &grid, Stream stream,
                                  std::span<CUlaunchAttribute> attributes) const {
  return {grid.x,
          grid.y,
          grid.z,
          static_cast<unsigned>(facts.threads),
          1,
          1,
          static_cast<unsigned>(facts.sharedBytes),
          static_cast<CUstream>(stream),
          attributes.data(),
          static_cast<unsigned>(attributes.size())};
}

// How many clusters find room at a time depends on how many SMs each GPC of this GPU has. One more
// would begin when the work of the others is done.
void CudaKernel::askForClusters() {
  const Driver &driver = context->driver;
  const compiler::Dim3 &cluster = facts.cluster;
  if (!facts.persists || cluster == compiler::Dim3{} || !driver.occupancyMaxActiveClusters)
    return;
  CUlaunchAttribute attribute = clusterAttribute(cluster);
  const CUlaunchConfig one = config(cluster, nullptr, {&attribute, 1});
  int clusters = 0;
  if (driver.occupancyMaxActiveClusters(&clusters, function, &one) == CUDA_SUCCESS && clusters > 0)
    mostClusters = static_cast<uint32_t>(clusters);
}

Status CudaKernel::launch(const LaunchShape &shape, std::span<const LaunchArgument> arguments,
                          Stream stream) const {
  std::vector<void *> parameters;
  parameters.reserve(arguments.size());
  for (const LaunchArgument &argument : arguments)
    parameters.push_back(const_cast<void *>(argument.value));
  const Driver &driver = context->driver;
  const ContextScope scope(driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  const compiler::Dim3 &cluster = shape.cluster;
  compiler::Dim3 grid = shape.grid;
  if (mostClusters > 0)
    grid.x = std::min(grid.x, mostClusters * cluster.x);
  std::array<CUlaunchAttribute, 2> attributes;
  unsigned count = 0;
  if (cluster != compiler::Dim3{})
    attributes[count++] = clusterAttribute(cluster);
  if (shape.dependent) {
    CUlaunchAttribute &attribute = attributes[count++] = {PROGRAMMATIC_STREAM_SERIALIZATION, {}};
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig all = config(grid, stream, {attributes.data(), count});
  if (count == 0)
    return check(driver,
                 driver.launchKernel(function, grid.x, grid.y, grid.z, all.blockDimX, 1, 1,
                                     all.sharedMemBytes, all.hStream, parameters.data(), nullptr),
                 "cuLaunchKernel");
  if (!driver.launchKernelEx)
    return missingCall(driver, "cuLaunchKernelEx");
  return check(driver, driver.launchKernelEx(&all, function, parameters.data(), nullptr),
               "cuLaunchKernelEx");
}

Result<TensorMap> encodeTensorMap(const Driver &driver, const TensorMapShape &shape) {
  if (!driver.tensorMapEncodeTiled)
    return missingCall(driver, "cuTensorMapEncodeTiled");
  const std::array<uint64_t, 2> dims = {static_cast<uint64_t>(shape.rowBytes),
                                        static_cast<uint64_t>(shape.rows)};
  const std::array<uint64_t, 1> strides = {static_cast<uint64_t>(shape.pitch)};
  const std::array<uint32_t, 2> box = {static_cast<uint32_t>(shape.boxBytes),
                                       static_cast<uint32_t>(shape.boxRows)};
  const std::array<uint32_t, 2> elementStrides = {1, 1};
  TensorMap map;
  Status encoded = check(
      driver,
      driver.tensorMapEncodeTiled(map.bytes.data(), TENSOR_MAP_UINT8, dims.size(),
                                  reinterpret_cast<void *>(shape.base), dims.data(), strides.data(),
                                  box.data(), elementStrides.data(), TENSOR_MAP_INTERLEAVE_NONE,
                                  shape.swizzle ? TENSOR_MAP_SWIZZLE_128B : TENSOR_MAP_SWIZZLE_NONE,
                                  TENSOR_MAP_L2_PROMOTION_256B, TENSOR_MAP_FILL_ZEROS),
      "cuTensorMapEncodeTiled");
  if (!encoded)
    return encoded.error();
  return map;
}

} // namespace rho::cuda
