#include "kernels/WeightFile.h"

#include "kernels/quantize/InputSteps.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/Slices.h"
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

Result<dsl::QuantizedMatrix> readSlice(const kernels::SafetensorsFile &file,
                                       const WeightFile::Slice &slice) {
  Result<dsl::QuantizedMatrix> codes = kernels::readQuantized(file, slice.name);
  if (!codes)
    return std::move(codes.error());
  if (slice.firstRow == 0 && slice.firstColumn == 0 && slice.rows == 0 && slice.columns == 0)
    return codes;
  return kernels::sliceOf(*codes, slice);
}

Result<dsl::QuantizedMatrix> readSlices(const kernels::SafetensorsFile &file,
                                        std::span<const WeightFile::Slice> slices) {
  if (slices.size() == 1)
    return readSlice(file, slices[0]);
  std::vector<dsl::QuantizedMatrix> weights;
  std::optional<InputSteps> first;
  for (const WeightFile::Slice &slice : slices) {
    Result<dsl::QuantizedMatrix> weight = readSlice(file, slice);
    if (!weight)
      return std::move(weight.error());
    weights.push_back(std::move(*weight));
    Result<kernels::LayerTransform> transform = kernels::readTransform(file, slice.name);
    if (!transform)
      return std::move(transform.error());
    InputSteps steps = kernels::inputSteps(*transform);
    if (first && steps != *first)
      return makeError(DiagId::slices_differ,
                       {slices[0].name, slice.name, "their inputs are transformed differently"});
    first = std::move(steps);
  }
  return kernels::stackOf(weights, slices);
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
  return pack(std::vector{Slice{.name = std::string(name)}}, gemm);
}

Result<Buffer> WeightFile::pack(std::span<const Slice> slices, const Gemm &gemm) const {
  if (Status valid = checkHandle(*this, "weight file"); !valid)
    return std::move(valid.error());
  if (Status valid = checkHandle(gemm, "gemm"); !valid)
    return std::move(valid.error());
  if (slices.empty())
    return makeError(DiagId::no_slices, {});
  return onHost(std::to_string(pimpl->file.size()), [&]() -> Result<Buffer> {
    Result<dsl::QuantizedMatrix> codes = readSlices(pimpl->file, slices);
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
