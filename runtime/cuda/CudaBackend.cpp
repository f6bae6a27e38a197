#include "runtime/cuda/CudaBackend.h"

#include "compiler/Targets.h"
#include "dsl/Lasting.h"
#include "runtime/cuda/Code.h"
#include "runtime/cuda/CudaQuantizer.h"
#include "runtime/cuda/WholeProgram.h"

#include <array>
#include <map>
#include <mutex>

namespace rho::cuda {
namespace {

class CudaBackend final : public Backend {
public:
  CudaBackend(std::shared_ptr<const Context> context, compiler::DeviceModel model, int capability,
              OpenNvrtc openNvrtc)
      : context(std::move(context)), driver(this->context->driver), device(std::move(model)),
        capability(capability), openNvrtc(openNvrtc) {}

  const compiler::DeviceModel &model() const override { return device; }
  bool emulated() const override { return false; }
  std::string codeVersion() const override {
    return "cuda " + std::to_string(driver.version) + " ptx " +
           std::to_string(newestPtxIsa(driver.version)) + " sm " + std::to_string(capability);
  }

  Result<DevicePointer> allocate(int64_t bytes) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
    if (!scope.entered())
      return scope.entered().error();
    CUdeviceptr address = 0;
    CUresult result = driver.memAlloc(&address, static_cast<size_t>(bytes));
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      return makeError(DiagId::out_of_memory, {std::to_string(bytes), device.name});
    if (Status done = check(driver, result, "cuMemAlloc"); !done)
      return done.error();
    // Finished before the caller may use the memory on any other stream, and not on the default
    // stream, which waits for others, among them such as are captured.
    Status cleared =
        check(driver, driver.memsetD8Async(address, 0, static_cast<size_t>(bytes), streamPerThread),
              "cuMemset");
    if (cleared)
      cleared = check(driver, driver.streamSynchronize(streamPerThread), "cuStreamSynchronize");
    if (!cleared) {
      driver.memFree(address);
      return cleared.error();
    }
    return DevicePointer(address);
  }

  void release(DevicePointer address) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_RELAXED);
    if (scope.entered())
      driver.memFree(address);
  }

  Status write(DevicePointer to, const void *from, int64_t bytes) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
    if (!scope.entered())
      return scope.entered().error();
    if (Status copied =
            check(driver, driver.memcpyHtoD(to, from, static_cast<size_t>(bytes)), "cuMemcpyHtoD");
        !copied)
      return copied;
    // It may return before the last byte is there, which streams that do not block would not see;
    // reading it back waits, also beside a stream that is being captured.
    uint8_t last = 0;
    return check(driver, driver.memcpyDtoH(&last, to + static_cast<uint64_t>(bytes) - 1, 1),
                 "cuMemcpyDtoH");
  }

  Status read(DevicePointer from, void *to, int64_t bytes) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
    if (!scope.entered())
      return scope.entered().error();
    return check(driver, driver.memcpyDtoH(to, from, static_cast<size_t>(bytes)), "cuMemcpyDtoH");
  }

  Status writeInOrder(DevicePointer to, const void *from, int64_t bytes, Stream stream) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
    if (!scope.entered())
      return scope.entered().error();
    auto *const order = static_cast<CUstream>(stream);
    int capturing = 0; // a graph would read the caller's memory when it is launched
    if (Status asked =
            check(driver, driver.streamIsCapturing(order, &capturing), "cuStreamIsCapturing");
        !asked)
      return asked;
    if (capturing != 0)
      return makeError(DiagId::cuda_call_failed,
                       {"cuMemcpyHtoDAsync", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                        "the stream is being captured"});
    // The driver has copied what is not page-locked before it returns.
    return check(driver, driver.memcpyHtoDAsync(to, from, static_cast<size_t>(bytes), order),
                 "cuMemcpyHtoDAsync");
  }

  Status synchronize(Stream stream) override {
    const ContextScope scope(driver, context->handle, CAPTURE_MODE_THREAD_LOCAL);
    if (!scope.entered())
      return scope.entered().error();
    return check(driver, driver.streamSynchronize(static_cast<CUstream>(stream)),
                 "cuStreamSynchronize");
  }

  Result<std::string> assemble(const compiler::KernelImage &image) override {
    if (compilesAsItLoads(image)) {
      if (Status known = checkPtxVersion(*context, image.ptx); !known)
        return known.error();
      return image.ptx;
    }
    return assemblePtx(*context, image.ptx, image.entry);
  }

  // The driver's linker compiles for linking only.
  bool compilesAsItLoads(const compiler::KernelImage &image) const override {
    return image.wholeProgram;
  }

  std::optional<std::string> assembleWhole(const compiler::KernelImage &image) override {
    Result<const Nvrtc *> nvrtc = openNvrtc();
    return nvrtc ? assembleWholeProgram(**nvrtc, driver.version, image) : std::nullopt;
  }

  Result<std::shared_ptr<const LoadedKernel>> load(const compiler::KernelImage &image,
                                                   const std::string &code) override {
    if (code.empty())
      return makeError(DiagId::kernel_refused, {image.entry, "there is no cubin"});
    Result<std::shared_ptr<const CudaKernel>> kernel = CudaKernel::load(
        context, code, image.entry,
        {image.threads, image.sharedBytes, image.cluster(), image.residentCtas > 0});
    if (!kernel)
      return kernel.error();
    return std::shared_ptr<const LoadedKernel>(std::move(*kernel));
  }

  Status launch(const LoadedKernel &kernel, const LaunchShape &shape,
                std::span<const LaunchArgument> arguments, Stream stream) override {
    return static_cast<const CudaKernel &>(kernel).launch(shape, arguments, stream);
  }

  Result<TensorMap> makeTensorMap(const TensorMapShape &shape) override {
    const ContextScope scope(driver,
                             context->handle); // the driver asks for one, for whatever reason
    if (!scope.entered())
      return scope.entered().error();
    return encodeTensorMap(driver, shape);
  }

  Result<std::shared_ptr<const Quantizer>> makeQuantizer(std::shared_ptr<const dsl::Format> format,
                                                         const dsl::Format &stored,
                                                         const compiler::ActivationLayout &layout,
                                                         cache::DiskCache &disk,
                                                         cache::Warnings &warnings) override {
    Result<std::shared_ptr<const Quantizer>> made =
        makeCudaQuantizer(context, capability, *format, stored, layout, openNvrtc, disk, warnings);
    if (made || isFaultOfDevice(made.error()))
      return made;
    return makeHostQuantizer(
        makeDiagnostic(DiagId::host_quantization, {made.error().diagnostics[0].message}).message);
  }

  const std::shared_ptr<const Context> context;

private:
  const Driver &driver;
  const compiler::DeviceModel device;
  const int capability; // major * 10 + minor
  const OpenNvrtc openNvrtc;
};

struct Found {
  compiler::DeviceModel model;
  int capability; // major * 10 + minor
};

// What a driver does not say is that of the declared GPU, or of one of its architecture. Errors:
// cuda_call_failed, cuda_device_too_old.
Result<Found> describe(const Driver &driver, CUdevice device) {
  std::array<char, 256> name{};
  if (Status named = check(driver, driver.deviceGetName(name.data(), name.size() - 1, device),
                           "cuDeviceGetName");
      !named)
    return named.error();
  Status failed = Done{};
  auto attribute = [&](DeviceAttribute which) -> int64_t {
    int value = 0;
    Status got =
        check(driver, driver.deviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    if (!got)
      failed = got;
    return value;
  };
  int major = static_cast<int>(attribute(COMPUTE_CAPABILITY_MAJOR));
  int minor = static_cast<int>(attribute(COMPUTE_CAPABILITY_MINOR));
  const int capability = major * 10 + minor;
  compiler::DeviceModel model;
  model.name = name.data();
  model.target = compiler::targetOfCapability(capability);
  model.smCount = static_cast<int>(attribute(MULTIPROCESSOR_COUNT));
  model.sharedPerCta = attribute(SHARED_MEMORY_PER_BLOCK_OPTIN);
  model.sharedPerSm = attribute(SHARED_MEMORY_PER_SM);
  model.l2Bytes = attribute(L2_CACHE_BYTES);
  model.clockGHz = static_cast<double>(attribute(CLOCK_RATE_KHZ)) * 1e-6;
  // Two transfers a clock: kHz * bits / 8 * 2 bytes a millisecond.
  model.bandwidthGBs = static_cast<double>(attribute(MEMORY_CLOCK_RATE_KHZ)) *
                       static_cast<double>(attribute(MEMORY_BUS_WIDTH_BITS)) / 4 * 1e-6;
  if (!failed)
    return failed.error();
  if (model.target.empty())
    return makeError(DiagId::cuda_device_too_old,
                     {model.name, std::to_string(major) + "." + std::to_string(minor)});
  model.architecture = "sm_" + std::to_string(capability);
  const dsl::Device &declared = *compiler::declarationOf(model.name, model.architecture);
  model.clockGHz = model.clockGHz > 0 ? model.clockGHz : declared.clockGHz;
  model.bandwidthGBs = model.bandwidthGBs > 0 ? model.bandwidthGBs : declared.bandwidthGBs;
  model.l2BandwidthGBs = declared.l2BandwidthGBs;
  model.registersPerSm = declared.registers;
  model.threadsPerSm = declared.threads;
  model.rates = declared.rates;
  return Found{std::move(model), capability};
}

} // namespace

Result<std::shared_ptr<Backend>> openDevice(const Driver &driver, int ordinal,
                                            OpenNvrtc openNvrtc) {
  int count = 0;
  if (Status counted = check(driver, driver.deviceGetCount(&count), "cuDeviceGetCount"); !counted)
    return counted.error();
  if (ordinal < 0 || ordinal >= count)
    return makeError(DiagId::cuda_not_available,
                     {"ordinal " + std::to_string(ordinal) + ", the driver has " +
                      std::to_string(count) + (count == 1 ? " device" : " devices")});
  CUdevice device = 0;
  if (Status got = check(driver, driver.deviceGet(&device, ordinal), "cuDeviceGet"); !got)
    return got.error();
  Result<Found> found = describe(driver, device);
  if (!found)
    return found.error();
  CUcontext handle = nullptr;
  if (Status retained =
          check(driver, driver.primaryCtxRetain(&handle, device), "cuDevicePrimaryCtxRetain");
      !retained)
    return retained.error();
  auto context = std::make_shared<const Context>(driver, device, handle);
  return std::shared_ptr<Backend>(std::make_shared<CudaBackend>(
      std::move(context), std::move(found->model), found->capability, openNvrtc));
}

Context::~Context() { driver.primaryCtxRelease(device); }

Result<std::shared_ptr<Backend>> backendOf(int ordinal) {
  static std::mutex mutex;
  static auto &backends = dsl::lasting(std::map<int, std::weak_ptr<Backend>>());
  std::lock_guard lock(mutex);
  if (std::shared_ptr<Backend> known = backends[ordinal].lock())
    return known;
  Result<const Driver *> driver = Driver::open();
  if (!driver)
    return driver.error();
  Result<std::shared_ptr<Backend>> opened = openDevice(**driver, ordinal);
  if (opened)
    backends[ordinal] = *opened;
  return opened;
}

std::shared_ptr<const Context> contextOf(const Backend &backend) {
  const auto *cuda = dynamic_cast<const CudaBackend *>(&backend);
  return cuda ? cuda->context : nullptr;
}

} // namespace rho::cuda
