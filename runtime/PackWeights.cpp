// From numbers or codes to weights on the device.
#include "compiler/Layout.h"
#include "compiler/PackChecks.h"
#include "dsl/Findings.h"
#include "dsl/Parallel.h"
#include "dsl/StoredFactors.h"
#include "runtime/Kernel.h"
#include "runtime/Scalar.h"

#include <algorithm>

namespace rho {

Result<Buffer> Gemm::packWeights(const void *host, ScalarType type, int64_t stride) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!host)
    return makeError(DiagId::null_pointer, {"host"});
  if (Status good = checkScalarType(type); !good)
    return good.error();
  if (Status good = checkStride(stride, pimpl->shape.k); !good)
    return good.error();
  const dsl::ThreadLimit threads(pimpl->threads);
  dsl::MatrixView view{host, viewType(type), pimpl->shape.n, pimpl->shape.k, stride};
  return onHost(std::to_string(view.rows * view.k), [&]() -> Result<Buffer> {
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(pimpl->weight(), view, true);
    if (!codes)
      return codes.error();
    return packQuantized(*codes);
  });
}

// Takes from codes of signed integers the bits above their type's that only go on with the sign.
static void dropSigns(dsl::CodeArray &codes, dsl::ElementType type) {
  const int stored = 8 * codes.width();
  if (type.kind() != dsl::ElementType::Kind::Signed || type.bits() == stored)
    return;
  const uint32_t mask = UINT32_MAX >> (32 - type.bits()), sign = mask ^ mask >> 1;
  const uint32_t above = (UINT32_MAX >> (32 - stored)) & ~mask;
  for (int64_t i = 0; i < codes.size(); ++i)
    if (uint32_t code = codes.get(i); (code & above) == above && (code & sign) != 0)
      codes.set(i, code & mask);
}

Result<Buffer> Gemm::packCodes(std::span<const ComponentCodes> components) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  const std::shared_ptr<const dsl::Format> format = pimpl->weight();
  auto refused = [&](const std::string &why) {
    return makeError(DiagId::bad_component_codes, {format->name, why});
  };
  if (format->hasParts())
    return refused("it stores parts, each of which has its own");
  dsl::QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = pimpl->shape.n;
  matrix.k = pimpl->shape.k;
  return onHost([&]() -> Result<Buffer> {
    std::vector<std::string> names;
    for (const dsl::Component &component : format->components)
      names.push_back(component.name);
    for (const ComponentCodes &given : components)
      if (std::find(names.begin(), names.end(), given.component) == names.end())
        return refused("'" + dsl::shown(given.component) + "' is none of its components " +
                       dsl::join(names));
    for (const dsl::Component &component : format->components) {
      auto isOurs = [&](const ComponentCodes &given) { return given.component == component.name; };
      const auto given = std::find_if(components.begin(), components.end(), isOurs);
      if (std::count_if(components.begin(), components.end(), isOurs) != 1)
        return refused("'" + component.name + "' is given " +
                       (given == components.end() ? "nowhere" : "twice"));
      const int bits = dsl::unitBits(component.type);
      const int64_t count = dsl::codeGrid(component, matrix.rows, matrix.k).size();
      const auto bytes = static_cast<size_t>(count * bits / 8);
      if (given->codes.size() != bytes)
        return refused("'" + component.name + "' has " + std::to_string(given->codes.size()) +
                       " bytes, " + std::to_string(bytes) + " are needed");
      dsl::CodeArray codes(bits, count);
      std::copy(given->codes.begin(), given->codes.end(), codes.data());
      dropSigns(codes, component.type);
      matrix.components.push_back(std::move(codes));
    }
    return packQuantized(matrix);
  });
}

// What two formats' codes do not have in common; empty: each number has the same codes in both.
static std::string difference(const dsl::Format &codes, const dsl::Format &taken) {
  const dsl::Format a = dsl::meaningOf(codes), b = dsl::meaningOf(taken);
  if (a == b)
    return {};
  const auto [ofCodes, ofGemm] = dsl::differingLines(a, b);
  return "the codes are of format '" + codes.name + "'" + ofCodes + ", the gemm takes '" +
         taken.name + "'" + ofGemm;
}

Result<Buffer> Gemm::packQuantized(const dsl::QuantizedMatrix &given) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!given.format)
    return makeError(DiagId::empty_handle, {"quantized matrix"});
  if (std::string other = difference(*given.format, pimpl->gemm->weight); !other.empty())
    return makeError(DiagId::layout_mismatch, {other});
  const dsl::ThreadLimit threads(pimpl->threads);
  const compiler::KernelImage &image = pimpl->image();
  const compiler::WeightLayout &layout = image.weight;
  return onHost(std::to_string(layout.bytes), [&]() -> Result<Buffer> {
    std::optional<dsl::QuantizedMatrix> numbers;
    if (!pimpl->prepared->target->weightFactors.empty()) {
      if (std::string problem = compiler::codesProblem(given); !problem.empty())
        return makeError(DiagId::layout_mismatch, {problem});
      Result<dsl::QuantizedMatrix> stored = dsl::storedFactors(given, pimpl->packedWeight());
      if (!stored)
        return stored.error();
      numbers = *std::move(stored);
    }
    const dsl::QuantizedMatrix &weight = numbers ? *numbers : given;
    std::vector<uint8_t> packed(static_cast<size_t>(layout.bytes));
    if (Status done = compiler::pack(layout, weight, packed.data()); !done)
      return done.error();
    for (const compiler::OperandRange &range : pimpl->prepared->operands)
      if (std::optional<Error> beyond = compiler::beyondOperands(range, weight))
        return *beyond;
    Result<Buffer> buffer = Device::allocateOn(pimpl->backend, layout.bytes);
    if (!buffer)
      return buffer;
    if (Status written = buffer->write(packed.data(), layout.bytes); !written)
      return written.error();
    buffer->impl()->layout = pimpl->prepared->weightLayout;
    return buffer;
  });
}

} // namespace rho
