#include "kernels/WeightFile.h"

#include "kernels/quantize/InputSteps.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"
#include "runtime/Handles.h"

namespace rho {

struct WeightFile::Impl {
  kernels::SafetensorsFile file;
};

namespace {

struct Stored {
  kernels::QuantizedShape shape;
  kernels::LayerTransform transform;
};
Result<Stored> readStored(const kernels::SafetensorsFile &file, const std::string &name) {
  return onHost(std::to_string(file.size()), [&]() -> Result<Stored> {
    Result<kernels::QuantizedShape> shape = kernels::quantizedShape(file, name);
    if (!shape)
      return std::move(shape.error());
    Result<kernels::LayerTransform> transform = kernels::readTransform(file, name);
    if (!transform)
      return std::move(transform.error());
    return Stored{std::move(*shape), std::move(*transform)};
  });
}

} // namespace

Result<WeightFile> WeightFile::open(const std::string &path) {
  Result<kernels::SafetensorsFile> file = kernels::SafetensorsFile::open(path);
  if (!file)
    return std::move(file.error());
  if (!file->metadata().contains(kernels::formatKey))
    return makeError(DiagId::quantized_file_invalid,
                     {path, std::string("its metadata has no '") + kernels::formatKey + "'"});
  if (kernels::quantizedNames(*file).empty())
    return makeError(DiagId::quantized_file_invalid, {path, "it has no quantized weight"});
  WeightFile opened;
  opened.pimpl = std::make_shared<const Impl>(Impl{std::move(*file)});
  return opened;
}

std::vector<std::string> WeightFile::names() const {
  return pimpl ? kernels::quantizedNames(pimpl->file) : std::vector<std::string>();
}

Result<WeightFile::Weight> WeightFile::describe(std::string_view name) const {
  if (Status valid = checkHandle(*this, "weight file"); !valid)
    return std::move(valid.error());
  Result<Stored> stored = readStored(pimpl->file, std::string(name));
  if (!stored)
    return std::move(stored.error());
  const auto &[shape, transform] = *stored;
  const kernels::Metadata &texts = pimpl->file.metadataWith(kernels::tensorKey + std::string(name));
  auto declared = texts.find(kernels::formatKey);
  return Weight{shape.format, declared == texts.end() ? "" : declared->second, shape.rows, shape.k,
                !transform.isIdentity()};
}

Result<Buffer> WeightFile::pack(std::string_view name, const Gemm &gemm) const {
  if (Status valid = checkHandle(*this, "weight file"); !valid)
    return std::move(valid.error());
  if (Status valid = checkHandle(gemm, "gemm"); !valid)
    return std::move(valid.error());
  return onHost(std::to_string(pimpl->file.size()), [&]() -> Result<Buffer> {
    Result<dsl::QuantizedMatrix> codes = kernels::readQuantized(pimpl->file, std::string(name));
    if (!codes)
      return std::move(codes.error());
    return gemm.packQuantized(*codes);
  });
}

Result<InputTransform> WeightFile::inputTransform(std::string_view name,
                                                  const Engine &engine) const {
  if (Status valid = checkHandle(*this, "weight file"); !valid)
    return valid.error();
  Result<Stored> stored = readStored(pimpl->file, std::string(name));
  if (!stored)
    return stored.error();
  return InputTransform::create(engine, stored->shape.k, kernels::inputSteps(stored->transform));
}

} // namespace rho
