#include "compiler/Compiler.h"
#include "runtime/Kernel.h"
#include "runtime/QuantizerSource.h"
#include "runtime/cache/MemoryCache.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <system_error>

namespace rho {
namespace {

// Handles of shapes that were asked for; kernels and quantizers behind them are far fewer.
constexpr size_t maxRequests = 8192;
constexpr size_t maxKernels = 1024;
constexpr size_t maxQuantizers = 64;
// CUDA C++ Programming Guide, "Technical specifications per compute capability": grid y and z.
constexpr int64_t maxGridRows = 65535;

class Stopwatch {
public:
  // Milliseconds since construction or the last lap.
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double passed = std::chrono::duration<double, std::milli>(now - start).count();
    start = now;
    return passed;
  }

private:
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

struct Request {
  cache::Digest declaration;
  GemmShape shape;
  friend bool operator==(const Request &a, const Request &b) {
    return a.declaration == b.declaration && a.shape.m == b.shape.m && a.shape.n == b.shape.n &&
           a.shape.k == b.shape.k;
  }
};

struct RequestHash {
  size_t operator()(const Request &request) const {
    uint64_t hash = 0;
    std::memcpy(&hash, request.declaration.data(), sizeof hash);
    for (int64_t part : {request.shape.m, request.shape.n, request.shape.k})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
};

std::string cacheFolder(const EngineOptions &options) {
  if (!options.diskCache)
    return {};
  if (!options.cacheDirectory.empty())
    return options.cacheDirectory;
  auto environment = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string folder = environment("RHO_CACHE_DIR"); !folder.empty())
    return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/rho";
  if (std::string folder = environment("HOME"); !folder.empty())
    return folder + "/.cache/rho";
  return {};
}

Result<const dsl::Gemm *> findGemm(const dsl::Module &module, std::string_view name) {
  std::string names;
  for (const dsl::Gemm &gemm : module.gemms)
    names += (names.empty() ? "" : ", ") + gemm.name;
  if (module.gemms.empty())
    return makeError(DiagId::no_gemm);
  if (name.empty() && module.gemms.size() > 1)
    return makeError(DiagId::ambiguous_gemm, {std::to_string(module.gemms.size()), names});
  if (name.empty())
    return &module.gemms[0];
  if (const dsl::Gemm *gemm = module.findGemm(name))
    return gemm;
  return makeError(DiagId::unknown_gemm, {std::string(name), names});
}

// What launch() relies on: an image may come from a file.
std::string misfit(const compiler::KernelImage &image, const dsl::Gemm &gemm) {
  if (image.parameters.size() > maxKernelParameters)
    return "it has too many parameters";
  const std::vector<dsl::Component> &components = gemm.activation.components;
  for (const compiler::KernelParameter &parameter : image.parameters) {
    if (parameter.kind != compiler::KernelParameter::Kind::ActivationComponent)
      continue;
    if (parameter.index < 0 || static_cast<size_t>(parameter.index) >= components.size())
      return "it has a parameter for a component that the activation lacks";
    if (parameter.isTensorMap() &&
        components[static_cast<size_t>(parameter.index)].extent != dsl::Extent::Group)
      return "it has a tensor map over a component without groups";
  }
  dsl::ElementType element = gemm.activation.element().type;
  bool widened = element == dsl::ElementType::get("s4") && image.activation.elementBits == 8;
  if (image.activation.elementBits != element.bits() && !widened)
    return "its activations have other elements";
  if (image.tileM < 1 || image.tileN < 1 || image.threads < 1 || image.splitK < 1)
    return "its tile is empty";
  return {};
}

} // namespace

struct Engine::Impl {
  Impl(Device device, cache::DiskCacheOptions options)
      : device(std::move(device)), backend(this->device.impl().backend), disk(std::move(options)) {}

  Device device;
  std::shared_ptr<Backend> backend;
  cache::DiskCache disk;
  cache::MemoryCache<Request, Prepared, RequestHash> requests{maxRequests};
  cache::MemoryCache<std::string, Kernel> kernels{maxKernels};
  cache::MemoryCache<std::string, Quantizer> quantizers{maxQuantizers};

  Result<std::shared_ptr<const Prepared>> prepare(const dsl::Gemm &gemm, const GemmShape &shape,
                                                  const SourceMap *sources);
  Result<std::shared_ptr<const Kernel>> makeKernel(const dsl::Gemm &gemm,
                                                   const compiler::Plan &plan,
                                                   const SourceMap *sources, CompileReport &report);
  std::shared_ptr<const Kernel> loadEntry(const dsl::Gemm &gemm, CompileReport &report);
  std::string kernelKey(const dsl::Gemm &gemm, const compiler::Plan &plan) const;
};

std::string Engine::Impl::kernelKey(const dsl::Gemm &gemm, const compiler::Plan &plan) const {
  cache::Sha256 hash;
  hash.field("kernel");
  hash.field(compiler::printSpec(gemm, plan));
  hash.field(compiler::buildId());
  hash.field(compiler::llvmVersion());
  hash.field(plan.target);
  hash.field(backend->codeVersion());
  return cache::hex(hash.finish());
}

// The kernel of report.key from disk, or null; what cannot be used is discarded with a warning.
std::shared_ptr<const Kernel> Engine::Impl::loadEntry(const dsl::Gemm &gemm,
                                                      CompileReport &report) {
  Stopwatch watch;
  std::optional<cache::Entry> entry = disk.load(report.key, report.warnings);
  if (!entry)
    return nullptr;
  auto discard = [&](const std::string &reason) {
    disk.discard(report.key, reason, report.warnings);
    return nullptr;
  };
  if (!entry->contains("facts") || !entry->contains("ptx"))
    return discard("it holds no kernel");
  Result<compiler::KernelImage> image =
      compiler::KernelImage::parse(entry->at("facts"), std::move(entry->at("ptx")));
  if (!image)
    return discard(image.error().diagnostics[0].message);
  if (std::string reason = misfit(*image, gemm); !reason.empty())
    return discard(reason);
  double read = watch.lap();
  Result<std::shared_ptr<const LoadedKernel>> loaded = backend->load(*image, (*entry)["cubin"]);
  if (!loaded)
    return discard(loaded.error().diagnostics[0].message);
  report.source = CompileReport::Source::Disk;
  report.stages.push_back({"read", read});
  report.stages.push_back({"load", watch.lap()});
  return std::make_shared<Kernel>(Kernel{std::move(*image), std::move(*loaded)});
}

Result<std::shared_ptr<const Kernel>> Engine::Impl::makeKernel(const dsl::Gemm &gemm,
                                                               const compiler::Plan &plan,
                                                               const SourceMap *sources,
                                                               CompileReport &report) {
  if (auto kernel = loadEntry(gemm, report))
    return kernel;
  cache::FileLock lock = disk.lock(report.key, report.warnings);
  if (lock.held()) // another process may have published it meanwhile
    if (auto kernel = loadEntry(gemm, report))
      return kernel;
  report.source = CompileReport::Source::Compiled;
  Result<compiler::Compiled> compiled = compiler::compile(gemm, plan, sources);
  if (!compiled)
    return compiled.error();
  for (const compiler::StageTime &stage : compiled->times)
    report.stages.push_back({stage.name, stage.milliseconds});
  Stopwatch watch;
  Result<std::string> code = backend->assemble(compiled->image);
  if (!code)
    return code.error();
  report.stages.push_back({"assemble", watch.lap()});
  Result<std::shared_ptr<const LoadedKernel>> loaded = backend->load(compiled->image, *code);
  if (!loaded)
    return loaded.error();
  report.stages.push_back({"load", watch.lap()});
  cache::Entry entry = {{"facts", compiled->image.printFacts()}, {"ptx", compiled->image.ptx}};
  if (!code->empty())
    entry.emplace("cubin", std::move(*code));
  disk.store(report.key, entry, report.warnings);
  report.stages.push_back({"store", watch.lap()});
  return std::shared_ptr<const Kernel>(
      std::make_shared<Kernel>(Kernel{std::move(compiled->image), std::move(*loaded)}));
}

Result<std::shared_ptr<const Prepared>>
Engine::Impl::prepare(const dsl::Gemm &gemm, const GemmShape &shape, const SourceMap *sources) {
  Stopwatch total, watch;
  Result<compiler::Plan> plan =
      compiler::plan(gemm, {shape.m, shape.n, shape.k}, backend->model(), sources);
  if (!plan)
    return plan.error();
  if (Status supported = checkActivationFormat(gemm, sources); !supported)
    return supported.error();
  auto prepared = std::make_shared<Prepared>();
  CompileReport &report = prepared->report;
  report.stages.push_back({"plan", watch.lap()});
  if (int64_t rows = (shape.m + plan->schedule.tileM - 1) / plan->schedule.tileM;
      rows > maxGridRows)
    return makeError(DiagId::grid_too_large,
                     {std::to_string(shape.m), std::to_string(rows), std::to_string(maxGridRows)});
  report.plan = plan->print();
  report.key = kernelKey(gemm, *plan);

  // NVRTC takes as long as the rest together, so it runs beside it.
  cache::Warnings quantizerWarnings;
  double quantizerTime = 0;
  auto makeQuantizer = [&] {
    Stopwatch quantizerWatch;
    auto format = std::make_shared<const dsl::Format>(gemm.activation);
    int elementBits = dsl::ElementType::get(plan->mmaType).bits();
    auto result = quantizers.get(std::to_string(elementBits) + " bits " + print(*format), [&] {
      return backend->makeQuantizer(format, elementBits, disk, quantizerWarnings);
    });
    quantizerTime = quantizerWatch.lap();
    return result;
  };
  using QuantizerResult = Result<std::shared_ptr<const Quantizer>>;
  std::future<QuantizerResult> pending;
  if (!backend->emulated()) {
    try {
      pending = std::async(std::launch::async, makeQuantizer);
    } catch (const std::system_error &) {
      // No thread to be had: below, one after the other.
      pending = {};
    }
  }
  report.source = CompileReport::Source::Memory;
  Result<std::shared_ptr<const Kernel>> kernel =
      kernels.get(report.key, [&] { return makeKernel(gemm, *plan, sources, report); });
  QuantizerResult quantizer = pending.valid() ? pending.get() : makeQuantizer();
  if (!kernel)
    return kernel.error();
  if (!quantizer)
    return quantizer.error();
  report.stages.push_back({"quantizer", quantizerTime});
  report.warnings.insert(report.warnings.end(), quantizerWarnings.begin(), quantizerWarnings.end());
  prepared->kernel = std::move(*kernel);
  prepared->quantizer = std::move(*quantizer);
  report.registers = prepared->kernel->loaded->registers;
  report.localBytes = prepared->kernel->loaded->localBytes;
  report.sharedBytes = prepared->kernel->image.sharedBytes;
  report.totalMilliseconds = total.lap();
  return std::shared_ptr<const Prepared>(std::move(prepared));
}

Result<Engine> Engine::create(const Device &device, const EngineOptions &options) {
  if (Status valid = checkHandle(device, "device"); !valid)
    return valid.error();
  cache::DiskCacheOptions disk;
  disk.directory = cacheFolder(options);
  disk.readOnly = options.cacheReadOnly;
  disk.limitBytes = options.cacheLimitBytes;
  Engine engine;
  engine.pimpl = std::make_shared<Impl>(device, std::move(disk));
  return engine;
}

const Device &Engine::device() const {
  static const Device none;
  return pimpl ? pimpl->device : none;
}

Result<Gemm> Engine::compile(const Module &module, std::string_view name,
                             const GemmShape &shape) const {
  if (Status valid = checkHandle(*this, "engine"); !valid)
    return valid.error();
  if (Status valid = checkHandle(module, "module"); !valid)
    return valid.error();
  Stopwatch watch;
  const dsl::Module &declared = module.impl().module;
  Result<const dsl::Gemm *> found = findGemm(declared, name);
  if (!found)
    return found.error();
  const dsl::Gemm *gemm = *found;
  Request request{module.impl().digests[static_cast<size_t>(gemm - declared.gemms.data())], shape};
  bool built = false;
  Result<std::shared_ptr<const Prepared>> prepared = pimpl->requests.get(request, [&] {
    built = true;
    return pimpl->prepare(*gemm, shape, declared.sources.get());
  });
  if (!prepared)
    return prepared.error();

  auto impl = std::make_shared<Gemm::Impl>();
  impl->backend = pimpl->backend;
  impl->module = module.pimpl;
  impl->gemm = gemm;
  impl->shape = shape;
  impl->prepared = std::move(*prepared);
  const CompileReport &report = impl->prepared->report;
  if (built) {
    impl->report = report;
  } else {
    impl->report.source = CompileReport::Source::Memory;
    impl->report.plan = report.plan;
    impl->report.key = report.key;
    impl->report.registers = report.registers;
    impl->report.sharedBytes = report.sharedBytes;
    impl->report.localBytes = report.localBytes;
  }
  impl->report.totalMilliseconds = watch.lap();
  Gemm handle;
  handle.pimpl = std::move(impl);
  return handle;
}

} // namespace rho
