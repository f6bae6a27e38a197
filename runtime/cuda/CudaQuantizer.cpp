#include "runtime/cuda/CudaQuantizer.h"

#include "runtime/CacheEntries.h"
#include "runtime/QuantizerSource.h"
#include "runtime/cache/Sha256.h"
#include "runtime/cuda/Code.h"
#include "runtime/cuda/Nvrtc.h"

namespace rho::cuda {
namespace {

class CudaQuantizer final : public Quantizer {
public:
  explicit CudaQuantizer(std::shared_ptr<const CudaKernel> kernel) : kernel(std::move(kernel)) {}

  Status run(const Activations::Impl &out, DevicePointer x, ScalarType type, int64_t stride,
             Stream stream) const override {
    const QuantizerLaunch launch = quantizerLaunch(out, x, type, stride);
    const LaunchArgument arguments[] = {{launch.words.data(), static_cast<int>(launch.count * 8)}};
    return kernel->launch({.grid = {launch.ctas}}, arguments, stream);
  }

private:
  std::shared_ptr<const CudaKernel> kernel;
};

// Of each part.
std::string bitsText(const compiler::ActivationLayout &layout) {
  if (layout.parts.empty())
    return std::to_string(layout.elementBits);
  std::string text;
  for (const compiler::ActivationLayout &part : layout.parts)
    text += (text.empty() ? "" : ", ") + std::to_string(part.elementBits);
  return text;
}

Result<std::shared_ptr<const Quantizer>> load(const std::shared_ptr<const Context> &context,
                                              const std::string &cubin) {
  Result<std::shared_ptr<const CudaKernel>> kernel =
      CudaKernel::load(context, cubin, quantizerEntry, {quantizerThreads, 0});
  if (!kernel)
    return kernel.error();
  return std::shared_ptr<const Quantizer>(std::make_shared<CudaQuantizer>(std::move(*kernel)));
}

} // namespace

Result<std::shared_ptr<const Quantizer>>
makeCudaQuantizer(const std::shared_ptr<const Context> &context, int capability,
                  const dsl::Format &format, const dsl::Format &stored,
                  const compiler::ActivationLayout &layout, OpenNvrtc openNvrtc,
                  cache::DiskCache &disk, cache::Warnings &warnings) {
  if (std::optional<std::string> problem = quantizerSourceProblem(format, stored))
    return makeError(DiagId::no_quantizer_kernel, {format.name, *problem});
  const std::string header = quantizerHeader(format, stored, layout);
  // The cubin is for a whole architecture and NVRTC of any version gives a right one: neither the
  // driver nor the library takes part in the key, so that a cached quantizer needs no NVRTC.
  cache::Sha256 hash;
  hash.field("quantizer");
  hash.field(quantizerProgram());
  hash.field(header);
  hash.field(std::to_string(capability));
  const std::string key = cache::hex(hash.finish());

  auto cached = [&]() -> Result<std::shared_ptr<const Quantizer>> {
    const std::shared_ptr<const Quantizer> none;
    std::optional<cache::Entry> entry = disk.load(key, warnings);
    if (!entry)
      return none;
    Result<std::shared_ptr<const Quantizer>> loaded = load(context, (*entry)["cubin"]);
    if (loaded || isFaultOfDevice(loaded.error()))
      return loaded;
    disk.discard(key, loaded.error().diagnostics[0].message, warnings);
    return none;
  };
  if (auto quantizer = cached(); !quantizer || *quantizer)
    return quantizer;
  Result<const Nvrtc *> nvrtc = openNvrtc();
  if (!nvrtc)
    return nvrtc.error();
  cache::FileLock lock = disk.lock(key, warnings);
  if (lock.held())
    if (auto quantizer = cached(); !quantizer || *quantizer)
      return quantizer;
  // No contraction: the arithmetic is the host's, operation by operation.
  NvrtcOutput output = compileCuda(
      **nvrtc, {quantizerProgram(), "quantize_activations.cu", header, quantizerHeaderName},
      {"--gpu-architecture=sm_" + std::to_string(capability), "--std=c++17", "--fmad=false"});
  if (output.cubin.empty())
    return makeError(DiagId::nvrtc_failed, {format.name, output.log});
  Result<std::shared_ptr<const Quantizer>> loaded = load(context, output.cubin);
  if (loaded) {
    cache::Entry entry = {{"cubin", std::move(output.cubin)}};
    label(entry, {.kind = EntryKind::Quantizer,
                  .name = format.name,
                  .problem = "codes of " + bitsText(layout) + " bits",
                  .target = "sm_" + std::to_string(capability)});
    disk.store(key, entry, warnings);
  }
  return loaded;
}

} // namespace rho::cuda
