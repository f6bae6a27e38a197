#include "runtime/cuda/CudaQuantizer.h"

#include "runtime/CacheEntries.h"
#include "runtime/QuantizerSource.h"
#include "runtime/cache/Sha256.h"
#include "runtime/cuda/Code.h"
#include "runtime/cuda/Nvrtc.h"

#include <array>

namespace rho::cuda {
namespace {

constexpr int threads = 256; // as in quantize_activations.cu
// x, stride, k, pitch, groupStride, codes; then the components of at most 16 (dsl's limit).
constexpr size_t fixedArguments = 6;
constexpr size_t maxArguments = fixedArguments + 16;

constexpr std::array<const char *, 3> entries = {"rho_quantize_f32", "rho_quantize_f16",
                                                 "rho_quantize_bf16"};

class CudaQuantizer final : public Quantizer {
public:
  explicit CudaQuantizer(std::array<std::shared_ptr<const CudaKernel>, 3> kernels)
      : kernels(std::move(kernels)) {}

  Status run(const Activations::Impl &out, DevicePointer x, ScalarType type, int64_t stride,
             Stream stream) const override {
    std::array<uint64_t, maxArguments> values;
    std::array<LaunchArgument, maxArguments> arguments;
    size_t count = 0;
    auto add = [&](uint64_t value) {
      values[count] = value;
      arguments[count] = {&values[count], 8};
      ++count;
    };
    for (uint64_t value : {x, static_cast<uint64_t>(stride), static_cast<uint64_t>(out.layout.k),
                           static_cast<uint64_t>(out.layout.pitchBytes),
                           static_cast<uint64_t>(compiler::activationGroupStride(out.m)),
                           out.components[0].address()})
      add(value);
    for (size_t i = 1; i < out.components.size() && count < maxArguments; ++i)
      add(out.components[i].address());
    return kernels[static_cast<size_t>(type)]->launch({.grid = {static_cast<uint32_t>(out.m)}},
                                                      {arguments.data(), count}, stream);
  }

private:
  std::array<std::shared_ptr<const CudaKernel>, 3> kernels; // by ScalarType
};

Result<std::shared_ptr<const Quantizer>> load(const std::shared_ptr<const Context> &context,
                                              const std::string &cubin) {
  std::array<std::shared_ptr<const CudaKernel>, 3> kernels;
  for (size_t i = 0; i < kernels.size(); ++i) {
    Result<std::shared_ptr<const CudaKernel>> kernel =
        CudaKernel::load(context, cubin, entries[i], {threads, 0, 1});
    if (!kernel)
      return kernel.error();
    kernels[i] = std::move(*kernel);
  }
  return std::shared_ptr<const Quantizer>(std::make_shared<CudaQuantizer>(std::move(kernels)));
}

} // namespace

Result<std::shared_ptr<const Quantizer>>
makeCudaQuantizer(const std::shared_ptr<const Context> &context, int capability,
                  const dsl::Format &format, int elementBits, int groupsPerWord,
                  cache::DiskCache &disk, cache::Warnings &warnings) {
  if (std::optional<std::string> problem = quantizerSourceProblem(format))
    return makeError(DiagId::unsupported_activation, {format.name, *problem});
  const std::string header = quantizerHeader(format, elementBits, groupsPerWord);
  // The cubin is for a whole architecture and NVRTC of any version gives a right one: neither the
  // driver nor the library takes part in the key, so that a cached quantizer needs no NVRTC.
  cache::Sha256 hash;
  hash.field("quantizer");
  hash.field(quantizerProgram());
  hash.field(header);
  hash.field(std::to_string(capability));
  const std::string key = cache::hex(hash.finish());

  auto cached = [&]() -> std::shared_ptr<const Quantizer> {
    std::optional<cache::Entry> entry = disk.load(key, warnings);
    if (!entry)
      return nullptr;
    Result<std::shared_ptr<const Quantizer>> loaded = load(context, (*entry)["cubin"]);
    if (loaded)
      return *loaded;
    disk.discard(key, loaded.error().diagnostics[0].message, warnings);
    return nullptr;
  };
  if (auto quantizer = cached())
    return quantizer;
  Result<const Nvrtc *> nvrtc = Nvrtc::open();
  if (!nvrtc)
    return nvrtc.error();
  cache::FileLock lock = disk.lock(key, warnings);
  if (lock.held())
    if (auto quantizer = cached())
      return quantizer;
  Result<std::string> cubin = compileToCubin(
      **nvrtc, {quantizerProgram(), "quantize_activations.cu", header, quantizerHeaderName},
      capability, format.name);
  if (!cubin)
    return cubin.error();
  Result<std::shared_ptr<const Quantizer>> loaded = load(context, *cubin);
  if (loaded) {
    cache::Entry entry = {{"cubin", std::move(*cubin)}};
    label(entry, {.kind = EntryKind::Quantizer,
                  .name = format.name,
                  .problem = "codes of " + std::to_string(elementBits) + " bits",
                  .target = "sm_" + std::to_string(capability)});
    disk.store(key, entry, warnings);
  }
  return loaded;
}

} // namespace rho::cuda
