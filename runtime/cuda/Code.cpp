#include "runtime/cuda/Code.h"

#include <array>
#include <cstring>

namespace rho::cuda {
namespace {

// Above this a kernel must ask for its dynamic shared memory (CUDA C++ Programming Guide, "Shared
// memory" of compute capability 8.x).
constexpr int64_t sharedWithoutOptIn = int64_t(48) * 1024;
constexpr size_t maxArguments = 40;

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
};

} // namespace

Result<std::string> assemblePtx(const Context &context, const std::string &ptx,
                                const std::string &entry) {
  const Driver &driver = context.driver;
  if (int isa = ptxIsaOf(ptx), newest = newestPtxIsa(driver.version); isa > newest)
    return makeError(DiagId::ptx_version_too_new,
                     {printIsa(isa), printCudaVersion(driver.version), printIsa(newest)});
  ContextScope scope(driver, context.handle);
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
    return makeError(DiagId::kernel_refused, {entry, log.words(driver, result, call)});
  return code;
}

Result<std::shared_ptr<const CudaKernel>>
CudaKernel::load(const std::shared_ptr<const Context> &context, const std::string &cubin,
                 const std::string &entry, int threads, int64_t sharedBytes) {
  const Driver &driver = context->driver;
  ContextScope scope(driver, context->handle);
  JitLog log;
  CUmodule module = nullptr;
  CUresult result = driver.moduleLoadDataEx(&module, cubin.c_str(), log.options.size(),
                                            log.options.data(), log.values.data());
  if (result != CUDA_SUCCESS)
    return makeError(DiagId::kernel_refused,
                     {entry, log.words(driver, result, "cuModuleLoadData")});
  auto kernel = std::make_shared<CudaKernel>(context, module, threads, sharedBytes);
  result = driver.moduleGetFunction(&kernel->function, module, entry.c_str());
  if (result != CUDA_SUCCESS)
    return makeError(DiagId::kernel_refused,
                     {entry, log.words(driver, result, "cuModuleGetFunction")});
  if (sharedBytes > sharedWithoutOptIn)
    if (Status set = check(driver,
                           driver.funcSetAttribute(kernel->function, MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                   static_cast<int>(sharedBytes)),
                           "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
        !set)
      return set.error();
  int registers = -1, local = -1;
  if (driver.funcGetAttribute(&registers, NUM_REGS, kernel->function) == CUDA_SUCCESS)
    kernel->registers = registers;
  if (driver.funcGetAttribute(&local, LOCAL_SIZE_BYTES, kernel->function) == CUDA_SUCCESS)
    kernel->localBytes = local;
  return std::shared_ptr<const CudaKernel>(std::move(kernel));
}

CudaKernel::~CudaKernel() {
  ContextScope scope(context->driver, context->handle);
  context->driver.moduleUnload(module);
}

Status CudaKernel::launch(Grid grid, std::span<const LaunchArgument> arguments,
                          Stream stream) const {
  std::array<void *, maxArguments> parameters;
  if (arguments.size() > parameters.size())
    return makeError(DiagId::bad_size,
                     {std::to_string(arguments.size()), std::to_string(parameters.size())});
  for (size_t i = 0; i < arguments.size(); ++i)
    parameters[i] = const_cast<uint64_t *>(&arguments[i].value);
  ContextScope scope(context->driver, context->handle);
  return check(
      context->driver,
      context->driver.launchKernel(function, grid.x, grid.y, grid.z, static_cast<unsigned>(threads),
                                   1, 1, static_cast<unsigned>(sharedBytes),
                                   static_cast<CUstream>(stream), parameters.data(), nullptr),
      "cuLaunchKernel");
}

} // namespace rho::cuda
