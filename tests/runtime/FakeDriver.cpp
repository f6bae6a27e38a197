#include "tests/runtime/FakeDriver.h"

#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(performance-no-int-to-ptr): addresses are numbers to a driver

namespace rho::cuda {
namespace {

constexpr CUresult invalidImage = 200, notFound = 500, captureUnsupported = 900,
                   captureImplicit = 906;

thread_local CUcontext currentContext = nullptr;
thread_local CaptureMode captureMode = CAPTURE_MODE_GLOBAL;
const auto theContext = reinterpret_cast<CUcontext>(uintptr_t(0xc0));
std::string cubin;

CUresult breakCapture(CUresult result) {
  fake().capture->broken = true;
  return result;
}

// Of a call that a capture forbids in its thread, and one in the global mode everywhere.
CUresult besideCaptures() {
  const std::optional<FakeCapture> &capture = fake().capture;
  if (!capture || captureMode == CAPTURE_MODE_RELAXED || capture->mode == CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  const bool isOwn = capture->thread == std::this_thread::get_id(),
             isOfAll = capture->mode == CAPTURE_MODE_GLOBAL;
  return isOwn || (isOfAll && captureMode == CAPTURE_MODE_GLOBAL) ? breakCapture(captureUnsupported)
                                                                  : CUDA_SUCCESS;
}

// The default stream waits for that which is captured.
CUresult usesStream(CUstream stream) {
  return stream || !fake().capture ? CUDA_SUCCESS : breakCapture(captureImplicit);
}

CUresult log(const std::string &text, int *options, void **values, unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == JIT_ERROR_LOG_BUFFER)
      std::strcpy(static_cast<char *>(values[i]), text.c_str());
  return invalidImage;
}

// The link state keeps where its log goes, as the driver does.
int *linkOptions = nullptr;
void **linkValues = nullptr;
unsigned linkCount = 0;

void record(FakeLaunch launch, void **parameters) {
  for (size_t i = 0; i < fake().expectedArguments; ++i)
    std::memcpy(&launch.arguments.emplace_back(), parameters[i], 8);
  fake().launches.push_back(std::move(launch));
}

FakeLaunch launchOf(const CUlaunchConfig &config) {
  return {config.gridDimX,
          config.gridDimY,
          config.gridDimZ,
          config.blockDimX,
          config.sharedMemBytes,
          config.hStream,
          {},
          {config.attrs, config.attrs + config.numAttrs},
          true};
}

Driver makeDriver() {
  Driver d;
  d.version = 12040;
  d.getErrorName = [](CUresult error, const char **text) -> CUresult {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == invalidImage           ? "CUDA_ERROR_INVALID_IMAGE"
            : error == notFound               ? "CUDA_ERROR_NOT_FOUND"
                                              : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  d.getErrorString = [](CUresult, const char **text) -> CUresult {
    *text = "as the test wants it";
    return CUDA_SUCCESS;
  };
  d.deviceGetCount = [](int *count) -> CUresult {
    *count = 1;
    return CUDA_SUCCESS;
  };
  d.deviceGet = [](CUdevice *device, int ordinal) -> CUresult {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  d.deviceGetName = [](char *name, int size, CUdevice) -> CUresult {
    std::strncpy(name, fake().deviceName.c_str(), static_cast<size_t>(size));
    return CUDA_SUCCESS;
  };
  d.deviceGetAttribute = [](int *value, int attribute, CUdevice) -> CUresult {
    *value = fake().attributes[attribute];
    return CUDA_SUCCESS;
  };
  d.primaryCtxRetain = [](CUcontext *context, CUdevice) -> CUresult {
    ++fake().retained;
    *context = theContext;
    return CUDA_SUCCESS;
  };
  d.primaryCtxRelease = [](CUdevice) -> CUresult {
    --fake().retained;
    return CUDA_SUCCESS;
  };
  d.ctxGetCurrent = [](CUcontext *context) -> CUresult {
    *context = currentContext;
    return CUDA_SUCCESS;
  };
  d.ctxPushCurrent = [](CUcontext context) -> CUresult {
    if (fake().pushResult == CUDA_SUCCESS)
      currentContext = context;
    return fake().pushResult;
  };
  d.ctxPopCurrent = [](CUcontext *context) -> CUresult {
    *context = currentContext;
    currentContext = nullptr;
    return CUDA_SUCCESS;
  };
  d.memAlloc = [](CUdeviceptr *address, size_t bytes) -> CUresult {
    if (CUresult result = besideCaptures(); result != CUDA_SUCCESS)
      return result;
    if (bytes > fake().freeBytes)
      return CUDA_ERROR_OUT_OF_MEMORY;
    ++fake().allocations;
    *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return CUDA_SUCCESS;
  };
  d.memFree = [](CUdeviceptr address) -> CUresult {
    if (CUresult result = besideCaptures(); result != CUDA_SUCCESS)
      return result;
    --fake().allocations;
    std::free(reinterpret_cast<void *>(address));
    return CUDA_SUCCESS;
  };
  d.memsetD8Async = [](CUdeviceptr to, unsigned char value, size_t bytes,
                       CUstream stream) -> CUresult {
    std::memset(reinterpret_cast<void *>(to), value, bytes);
    return usesStream(stream);
  };
  d.memcpyHtoD = [](CUdeviceptr to, const void *from, size_t bytes) -> CUresult {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return besideCaptures();
  };
  d.memcpyHtoDAsync = [](CUdeviceptr to, const void *from, size_t bytes,
                         CUstream stream) -> CUresult {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return usesStream(stream);
  };
  d.streamIsCapturing = [](CUstream stream, int *status) -> CUresult {
    *status = fake().capture ? 1 : 0;
    return usesStream(stream);
  };
  d.memcpyDtoH = [](void *to, CUdeviceptr from, size_t bytes) -> CUresult {
    std::memcpy(to, reinterpret_cast<void *>(from), bytes);
    return besideCaptures();
  };
  d.linkCreate = [](unsigned count, int *options, void **values, CUlinkState *) -> CUresult {
    linkOptions = options;
    linkValues = values;
    linkCount = count;
    return fake().linkCreateResult;
  };
  d.linkAddData = [](CUlinkState, int, void *data, size_t, const char *, unsigned, int *,
                     void **) -> CUresult {
    if (!fake().linkError.empty())
      return log(fake().linkError, linkOptions, linkValues, linkCount);
    cubin = "cubin of " + std::string(static_cast<const char *>(data));
    return CUDA_SUCCESS;
  };
  d.linkComplete = [](CUlinkState, void **data, size_t *size) -> CUresult {
    *data = cubin.data();
    *size = cubin.size();
    return CUDA_SUCCESS;
  };
  d.linkDestroy = [](CUlinkState) -> CUresult {
    cubin.clear(); // its memory is gone
    return CUDA_SUCCESS;
  };
  d.moduleLoadDataEx = [](CUmodule *, const void *code, unsigned count, int *options,
                          void **values) -> CUresult {
    if (!fake().loadError.empty())
      return log(fake().loadError, options, values, count);
    if (fake().loadResult != CUDA_SUCCESS)
      return fake().loadResult;
    if (CUresult result = besideCaptures(); result != CUDA_SUCCESS)
      return result;
    ++fake().modules;
    fake().loaded.emplace_back(static_cast<const char *>(code));
    if (fake().whileLoading)
      fake().whileLoading();
    return CUDA_SUCCESS;
  };
  d.moduleUnload = [](CUmodule) -> CUresult {
    if (CUresult result = besideCaptures(); result != CUDA_SUCCESS)
      return result;
    --fake().modules;
    return CUDA_SUCCESS;
  };
  d.moduleGetFunction = [](CUfunction *, CUmodule, const char *name) -> CUresult {
    return std::strcmp(name, "missing") == 0 ? notFound : CUDA_SUCCESS;
  };
  d.funcGetAttribute = [](int *value, int attribute, CUfunction) -> CUresult {
    *value = attribute == NUM_REGS ? 77 : 16;
    return CUDA_SUCCESS;
  };
  d.funcSetAttribute = [](CUfunction, int attribute, int value) -> CUresult {
    fake().functionAttributes[attribute] = value;
    return CUDA_SUCCESS;
  };
  d.streamSynchronize = [](CUstream stream) -> CUresult { return usesStream(stream); };
  d.threadExchangeCaptureMode = [](int *mode) -> CUresult {
    const CaptureMode before = captureMode;
    captureMode = static_cast<CaptureMode>(*mode);
    *mode = before;
    return CUDA_SUCCESS;
  };
  d.launchKernel = [](CUfunction, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                      unsigned, unsigned shared, CUstream stream, void **parameters,
                      void **) -> CUresult {
    record({x, y, z, threads, shared, stream, {}, {}}, parameters);
    return CUDA_SUCCESS;
  };
  d.launchKernelEx = [](const CUlaunchConfig *config, CUfunction, void **parameters,
                        void **) -> CUresult {
    record(launchOf(*config), parameters);
    return CUDA_SUCCESS;
  };
  d.occupancyMaxActiveClusters = [](int *clusters, CUfunction,
                                    const CUlaunchConfig *config) -> CUresult {
    fake().asked.push_back(launchOf(*config));
    *clusters = fake().activeClusters;
    return fake().activeClusters > 0 ? CUDA_SUCCESS : notFound;
  };
  d.tensorMapEncodeTiled = [](void *map, int dataType, uint32_t rank, void *address,
                              const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                              const uint32_t *elementStrides, int interleave, int swizzle,
                              int l2Promotion, int outsideFill) -> CUresult {
    std::memset(map, static_cast<int>(fake().tensorMaps.size()), 128);
    fake().tensorMaps.push_back({dataType,
                                 reinterpret_cast<uint64_t>(address),
                                 {dims, dims + rank},
                                 {strides, strides + rank - 1},
                                 {box, box + rank},
                                 {elementStrides, elementStrides + rank},
                                 interleave,
                                 swizzle,
                                 l2Promotion,
                                 outsideFill});
    return fake().tensorMapResult;
  };
  return d;
}

} // namespace

FakeState &fake() {
  static FakeState state;
  return state;
}

CaptureMode &fakeCaptureMode() { return captureMode; }

const Driver &resetFake() {
  static const Driver driver = makeDriver();
  fake() = FakeState();
  currentContext = nullptr;
  captureMode = CAPTURE_MODE_GLOBAL;
  // The H200's own answers.
  fake().attributes = {{COMPUTE_CAPABILITY_MAJOR, 9},  {COMPUTE_CAPABILITY_MINOR, 0},
                       {MULTIPROCESSOR_COUNT, 132},    {SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
                       {SHARED_MEMORY_PER_SM, 233472}, {L2_CACHE_BYTES, 62914560},
                       {CLOCK_RATE_KHZ, 1980000},      {MEMORY_CLOCK_RATE_KHZ, 3201000},
                       {MEMORY_BUS_WIDTH_BITS, 6144}};
  return driver;
}

const Driver &resetNewFake() {
  static const Driver driver = [] {
    Driver driver = resetFake();
    driver.version = 13000;
    return driver;
  }();
  resetFake();
  return driver;
}

const Driver &resetOldFake() {
  static const Driver driver = [] {
    Driver old = resetFake();
    old.version = 11040;
    old.launchKernelEx = nullptr;
    old.occupancyMaxActiveClusters = nullptr;
    old.tensorMapEncodeTiled = nullptr;
    return old;
  }();
  resetFake();
  return driver;
}

} // namespace rho::cuda

// NOLINTEND(performance-no-int-to-ptr)
