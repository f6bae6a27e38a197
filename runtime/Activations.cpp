// Activations on the device: their buffers, what fills them, and whether they are a gemm's.
#include "dsl/Expressions.h"
#include "dsl/Findings.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "runtime/InputTransformImpl.h"
#include "runtime/Kernel.h"
#include "runtime/QuantizerSource.h"
#include "runtime/Scalar.h"

#include <algorithm>

namespace rho {

static std::string describe(const std::string &format, int64_t m,
                            const compiler::ActivationLayout &layout, const dsl::Format &stored) {
  std::string bits;
  for (const compiler::ActivationLayout &part : layout.parts)
    bits += (bits.empty() ? "" : " and ") + std::to_string(part.elementBits);
  if (bits.empty())
    bits = std::to_string(layout.elementBits);
  const std::string as =
      stored.hasParts() ? "" : " of " + std::string(stored.element().type.name());
  return "format " + format + " for m = " + std::to_string(m) +
         ", k = " + std::to_string(layout.k) + ", stored in " + bits + " bits" + as +
         (layout.groupsPerWord > 1 ? " with words of scales" : "") +
         (layout.columnBits.empty() ? "" : " in an order of its own");
}

Status checkActivations(const Activations &activations, const Gemm::Impl &gemm) {
  if (Status valid = checkHandle(activations, "activations"); !valid)
    return valid;
  const Activations::Impl &given = activations.impl();
  if (given.backend != gemm.backend)
    return makeError(DiagId::wrong_device, {"activations"});
  const compiler::ActivationLayout &layout = gemm.image().activation;
  const std::shared_ptr<const dsl::Format> stored = gemm.storedActivation();
  const dsl::Format &format = gemm.gemm->activation;
  bool sameFormat = (given.format == stored || *given.format == *stored) &&
                    (given.declared.get() == &format || given.format == given.declared ||
                     *given.declared == format);
  if (!sameFormat || given.m != gemm.shape.m || given.layout != layout) {
    std::pair<std::string, std::string> lines; // where formats of one name differ
    if (!(*given.declared == format))
      lines = dsl::differingLines(*given.declared, format);
    return makeError(
        DiagId::activations_mismatch,
        {describe("'" + given.declared->name + "'" + lines.first, given.m, given.layout,
                  *given.format),
         describe("'" + format.name + "'" + lines.second, gemm.shape.m, layout, *stored)});
  }
  return Done{};
}

Result<Buffer> Activations::Impl::allocate(const compiler::StoredComponent &stored) const {
  const compiler::ActivationLayout &layout = layoutOf(stored);
  const dsl::Component &component = stored.declared();
  if (component.host >= 0)
    return Buffer(); // stored with its host
  int64_t bytes = stored.component == 0
                      ? m * layout.pitchBytes
                      : deviceCodes(component, m, layout) * componentBytes(component.type);
  return Device::allocateOn(backend, bytes);
}

Status Activations::Impl::makeQuantized() {
  const std::vector<compiler::StoredComponent> all = compiler::storedComponents(*format);
  for (const compiler::StoredComponent &wanted : compiler::storedComponents(*declared)) {
    auto isIt = [&](const compiler::StoredComponent &each) {
      return each.part == wanted.part && each.declared().name == wanted.declared().name;
    };
    const auto found = std::find_if(all.begin(), all.end(), isIt);
    if (found != all.end()) {
      quantized.push_back(memory->components[static_cast<size_t>(found - all.begin())].address());
      continue;
    }
    Result<Buffer> buffer = allocate(wanted);
    if (!buffer)
      return buffer.error();
    quantized.push_back(buffer->address());
    memory->unstored.push_back(std::move(*buffer));
  }
  return Done{};
}

Status Activations::Impl::allocate() {
  memory->rows = m;
  for (const compiler::StoredComponent &stored : compiler::storedComponents(*format)) {
    Result<Buffer> buffer = allocate(stored);
    if (!buffer)
      return buffer.error();
    memory->components.push_back(std::move(*buffer));
  }
  if (!quantizerSourceProblem(*declared, *format))
    if (Status made = makeQuantized(); !made)
      return made;
  if (!layout.parts.empty()) {
    Result<Buffer> tiles = Device::allocateOn(backend, layout.tableEntries() * tableEntryBytes);
    if (!tiles)
      return tiles.error();
    memory->tiles = std::move(*tiles);
  }
  if (int64_t bytes = quantizerScratchBytes(*declared, *format, m, layout.k); bytes > 0) {
    Result<Buffer> scratch = Device::allocateOn(backend, bytes);
    if (!scratch)
      return scratch.error();
    memory->scratch = std::move(*scratch);
  }
  return Done{};
}

Result<Activations> Activations::withRows(int64_t m) const {
  if (Status valid = checkHandle(*this, "activations"); !valid)
    return valid.error();
  if (const int64_t most = pimpl->memory->rows; m < 1 || m > most)
    return makeError(DiagId::bad_problem,
                     {"m of activations", std::to_string(m), std::to_string(most)});
  Activations other;
  other.pimpl = std::make_shared<Impl>(*pimpl);
  other.pimpl->m = m;
  return other;
}

Result<Activations> Gemm::makeActivations() const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  Activations activations;
  activations.pimpl = std::make_shared<Activations::Impl>();
  Activations::Impl &impl = *activations.pimpl;
  impl.backend = pimpl->backend;
  impl.declared = pimpl->activation();
  impl.format = pimpl->storedActivation();
  impl.layout = pimpl->image().activation;
  impl.m = pimpl->shape.m;
  if (Status made = impl.allocate(); !made)
    return made.error();
  return activations;
}

Result<Activations> Gemm::makeActivations(const InputTransform &transform) const {
  if (Status valid = checkHandle(transform, "input transform"); !valid)
    return valid.error();
  Result<Activations> activations = makeActivations();
  if (!activations)
    return activations;
  Activations::Impl &impl = activations->impl();
  if (transform.impl().backend != impl.backend)
    return makeError(DiagId::wrong_device, {"input transform"});
  const int64_t k = impl.layout.k;
  if (transform.k() != k)
    return makeError(DiagId::transform_width,
                     {"input transform of " + std::to_string(transform.k()),
                      std::to_string(k) + " channels", "the same"});
  Result<Buffer> transformed =
      Device::allocateOn(impl.backend, impl.m * k * scalarBytes(ScalarType::F32));
  if (!transformed)
    return transformed.error();
  impl.memory->transformed = std::move(*transformed);
  impl.memory->transform = transform.pimpl;
  return activations;
}

Result<Activations> Gemm::viewActivations(DevicePointer x) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  std::shared_ptr<const dsl::Format> format = pimpl->activation();
  const compiler::ActivationLayout &layout = pimpl->image().activation;
  int64_t rowBytes = pimpl->shape.k * layout.elementBits / 8;
  bool asDeclared = dsl::isPlain(*format) && pimpl->storedActivation() == format &&
                    layout.elementBits == format->element().type.bits();
  if (!asDeclared || rowBytes != layout.pitchBytes)
    return makeError(
        DiagId::activations_not_viewable,
        {format->name, std::to_string(pimpl->shape.k),
         format->hasParts() ? "in parts"
         : dsl::isPlain(*format) && !asDeclared
             ? "stored as " + std::string(pimpl->storedActivation()->element().type.name())
             : std::to_string(rowBytes) + " bytes a row"});
  if (Status good = checkPointer(x, "x", dataAlignment); !good)
    return good.error();
  Activations activations;
  activations.pimpl = std::make_shared<Activations::Impl>();
  activations.pimpl->backend = pimpl->backend;
  activations.pimpl->declared = format;
  activations.pimpl->format = std::move(format);
  activations.pimpl->layout = layout;
  activations.pimpl->m = pimpl->shape.m;
  activations.pimpl->memory->rows = pimpl->shape.m;
  activations.pimpl->view = x;
  return activations;
}

Status Gemm::chooseParts(const Activations &out, std::span<const uint8_t> parts) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  if (Status good = checkActivations(out, *pimpl); !good)
    return good;
  Activations::Impl &impl = out.impl();
  if (Status good = dsl::checkChoice(*impl.declared, parts, impl.m, impl.layout.k); !good)
    return good;
  const std::vector<uint8_t> choice(parts.begin(), parts.end());
  if (!choice.empty() && impl.format->partition) { // else its numbers are stored, by the host
    const std::vector<int32_t> wide(choice.begin(), choice.end());
    if (Status written = impl.memory->scratch.write(
            wide.data(), static_cast<int64_t>(wide.size() * sizeof(int32_t)),
            quantizerChoiceOffset);
        !written)
      return written;
    const std::vector<int32_t> table = tileTable(*impl.format, choice, impl.layout);
    if (Status written = impl.memory->tiles.write(table.data(), impl.memory->tiles.bytes());
        !written)
      return written;
  }
  impl.memory->choice = choice;
  return Done{};
}

Status Gemm::fixComponent(const Activations &out, std::string_view component,
                          std::optional<double> value) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  if (Status good = checkActivations(out, *pimpl); !good)
    return good;
  Activations::Impl &impl = out.impl();
  const std::vector<dsl::Component> &all = impl.declared->components;
  const auto found = std::find_if(all.begin(), all.end(), [&](const dsl::Component &each) {
    return each.name == component && each.extent == dsl::Extent::Tensor;
  });
  if (found == all.end())
    return makeError(DiagId::bad_fixed_component,
                     {"'" + impl.declared->name + "' has no component '" + dsl::shown(component) +
                      "' per tensor"});
  const auto index = static_cast<int>(found - all.begin());
  if (!value) {
    impl.memory->given.erase(index);
    return Done{};
  }
  const FloatEnvironment numbers;
  const dsl::ElementType type = found->type;
  const uint32_t code = type.encode(*value);
  // What multiplies or divides the element says nothing of numbers when it is 0.
  const std::vector<dsl::ExprPtr> factors = dsl::factorsOf(impl.declared->value);
  const bool isFactor =
      std::any_of(factors.begin(), factors.end(), [&](const dsl::ExprPtr &factor) {
        return factor->kind == dsl::Expr::Kind::Component && factor->component == index;
      });
  const bool scales = dsl::anyWithin(*impl.declared->value, [&](const dsl::Expr &within) {
    if (within.kind != dsl::Expr::Kind::Binary)
      return false;
    const dsl::Expr &a = *within.operands[0], &b = *within.operands[1];
    return (within.op == dsl::Expr::Op::Div && dsl::mentions(b, index)) ||
           (within.op == dsl::Expr::Op::Mul && ((dsl::mentions(a, 0) && dsl::mentions(b, index)) ||
                                                (dsl::mentions(a, index) && dsl::mentions(b, 0))));
  });
  const bool isPositive = isFactor || scales;
  if (!(*value >= type.minFinite() && *value <= type.maxFinite()) ||
      (isPositive && !(type.decode(code) > 0)))
    return makeError(DiagId::bad_fixed_component,
                     {dsl::printNumber(*value) + " is no " + (isPositive ? "positive " : "") +
                      "number of " + std::string(type.name()) + ", the type of '" + found->name +
                      "'"});
  if (!impl.quantized.empty())
    if (Status written = impl.backend->write(impl.quantized[static_cast<size_t>(index)], &code,
                                             componentBytes(type));
        !written)
      return written;
  impl.memory->given[index] = code;
  return Done{};
}

Status Gemm::quantizeActivations(const Activations &out, DevicePointer x, ScalarType type,
                                 int64_t stride, Stream stream) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  if (Status good = checkActivations(out, *pimpl); !good)
    return good;
  if (out.impl().view)
    return makeError(DiagId::activations_are_a_view, {});
  if (Status good = checkScalarType(type); !good)
    return good;
  if (Status good = checkPointer(x, "x", static_cast<uint64_t>(scalarBytes(type))); !good)
    return good;
  if (Status good = checkStride(stride, pimpl->shape.k); !good)
    return good;
  const dsl::ThreadLimit threads(pimpl->threads); // where the host quantizes
  const Activations::Impl &impl = out.impl();
  if (const ActivationMemory &memory = *impl.memory; memory.transform) {
    const DevicePointer transformed = memory.transformed.address();
    if (Status done = memory.transform->run(x, type, stride, impl.m, transformed, stream); !done)
      return done;
    return pimpl->prepared->quantizer->run(impl, transformed, ScalarType::F32, impl.layout.k,
                                           stream);
  }
  return pimpl->prepared->quantizer->run(impl, x, type, stride, stream);
}

} // namespace rho
