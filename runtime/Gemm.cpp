#include "compiler/Layout.h"
#include "compiler/PackChecks.h"
#include "dsl/Expressions.h"
#include "dsl/Numbers.h"
#include "dsl/StoredFactors.h"
#include "runtime/Kernel.h"
#include "runtime/Origin.h"
#include "runtime/QuantizerSource.h"

#include <algorithm>
#include <array>

namespace rho {
namespace {

constexpr uint64_t weightAlignment = 256;

using Kind = compiler::KernelParameter::Kind;

Status checkBuffer(const Buffer &buffer, const Backend &backend, const char *what, int64_t needed,
                   uint64_t alignment) {
  if (buffer.bytes() < needed)
    return makeError(DiagId::buffer_too_small,
                     {what, std::to_string(buffer.bytes()), std::to_string(needed)});
  if (needed == 0)
    return Done{};
  if (buffer.impl()->backend.get() != &backend)
    return makeError(DiagId::wrong_device, {what});
  return checkPointer(buffer.address(), what, alignment);
}

std::string describe(const std::string &format, int64_t m,
                     const compiler::ActivationLayout &layout) {
  return "format '" + format + "' with m = " + std::to_string(m) +
         ", k = " + std::to_string(layout.k);
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
  if (!sameFormat || given.m != gemm.shape.m || given.layout != layout)
    return makeError(DiagId::activations_mismatch,
                     {describe(given.declared->name, given.m, given.layout),
                      describe(format.name, gemm.shape.m, layout)});
  return Done{};
}

// The operand at `base` as the matrix of bytes that KernelParameter says.
TensorMapShape tensorMapShape(const compiler::KernelParameter &parameter, DevicePointer base,
                              const Gemm::Impl &gemm, int64_t outputBytes) {
  int64_t rowBytes = gemm.shape.n * outputBytes, rows = gemm.shape.m;
  const compiler::ActivationLayout &layout = gemm.image().activation;
  compiler::StoredComponent stored;
  if (parameter.kind != Kind::Output)
    stored =
        compiler::storedComponents(*gemm.storedActivation())[static_cast<size_t>(parameter.index)];
  if (parameter.kind == Kind::Activation)
    rowBytes = (layout.parts.empty() ? layout : layout.parts[stored.part]).pitchBytes;
  if (parameter.kind == Kind::ActivationComponent) {
    const dsl::Component &component = stored.declared();
    rowBytes = compiler::activationGroupStride(gemm.shape.m) * componentBytes(component.type);
    rows = (gemm.shape.k + component.group - 1) / component.group;
  }
  return {base, rowBytes, rows, rowBytes, parameter.boxBytes, parameter.boxRows, parameter.swizzle};
}

} // namespace

GemmShape Gemm::shape() const { return pimpl ? pimpl->shape : GemmShape{}; }

const CompileReport &Gemm::report() const {
  static const CompileReport none{};
  return pimpl ? pimpl->report : none;
}

ScalarType Gemm::outputType() const {
  std::string_view type = pimpl ? pimpl->gemm->output.name() : "f16";
  return type == "f32" ? ScalarType::F32 : type == "bf16" ? ScalarType::BF16 : ScalarType::F16;
}

int64_t Gemm::packedWeightBytes() const { return pimpl ? pimpl->image().weight.bytes : 0; }

std::string Gemm::weightLayout() const { return pimpl ? pimpl->prepared->weightLayout : ""; }

int64_t Gemm::workspaceBytes() const {
  return pimpl ? pimpl->image().workspaceBytes(pimpl->shape.m) : 0;
}

Result<Buffer> Gemm::packWeights(const void *host, ScalarType type, int64_t stride) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!host)
    return makeError(DiagId::null_pointer, {"host"});
  if (Status good = checkScalarType(type); !good)
    return good.error();
  if (Status good = checkStride(stride, pimpl->shape.k); !good)
    return good.error();
  dsl::MatrixView view{host, viewType(type), pimpl->shape.n, pimpl->shape.k, stride};
  return withinMemory(std::to_string(view.rows * view.k), [&]() -> Result<Buffer> {
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(pimpl->weight(), view, true);
    if (!codes)
      return codes.error();
    return packQuantized(*codes);
  });
}

// What two formats' codes do not have in common, by the first lines of their declarations that
// differ; empty: each number has the same codes in both.
static std::string difference(const dsl::Format &codes, const dsl::Format &taken) {
  const dsl::Format a = dsl::meaningOf(codes), b = dsl::meaningOf(taken);
  if (a == b)
    return {};
  dsl::TextReader linesA(dsl::printWithParts(a)), linesB(dsl::printWithParts(b));
  std::string lineA, lineB;
  while (lineA == lineB && linesA && linesB) {
    std::getline(linesA, lineA);
    std::getline(linesB, lineB);
  }
  auto shown = [](const dsl::Format &format, const std::string &line) {
    const size_t begin = line.find_first_not_of(' ');
    return "'" + format.name + "'" +
           (begin == std::string::npos || line == "}" ? "" : " with '" + line.substr(begin) + "'");
  };
  return "the codes are of format " + shown(codes, lineA) + ", the gemm takes " +
         shown(taken, lineB);
}

Result<Buffer> Gemm::packQuantized(const dsl::QuantizedMatrix &given) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!given.format)
    return makeError(DiagId::empty_handle, {"quantized matrix"});
  if (std::string other = difference(*given.format, pimpl->gemm->weight); !other.empty())
    return makeError(DiagId::layout_mismatch, {other});
  const compiler::KernelImage &image = pimpl->image();
  const compiler::WeightLayout &layout = image.weight;
  return withinMemory(std::to_string(layout.bytes), [&]() -> Result<Buffer> {
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
    for (const compiler::OperandRange &range : image.operands)
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
      quantized.push_back(components[static_cast<size_t>(found - all.begin())].address());
      continue;
    }
    Result<Buffer> buffer = allocate(wanted);
    if (!buffer)
      return buffer.error();
    quantized.push_back(buffer->address());
    unstored.push_back(std::move(*buffer));
  }
  return Done{};
}

Result<Activations> Gemm::makeActivations() const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  auto impl = std::make_shared<Activations::Impl>();
  impl->backend = pimpl->backend;
  impl->declared = pimpl->activation();
  impl->format = pimpl->storedActivation();
  impl->layout = pimpl->image().activation;
  impl->m = pimpl->shape.m;
  for (const compiler::StoredComponent &stored : compiler::storedComponents(*impl->format)) {
    Result<Buffer> buffer = impl->allocate(stored);
    if (!buffer)
      return buffer.error();
    impl->components.push_back(std::move(*buffer));
  }
  if (!quantizerSourceProblem(*impl->declared, *impl->format))
    if (Status made = impl->makeQuantized(); !made)
      return made.error();
  if (!impl->layout.parts.empty()) {
    Result<Buffer> tiles =
        Device::allocateOn(pimpl->backend, impl->layout.tableEntries() * tableEntryBytes);
    if (!tiles)
      return tiles.error();
    impl->tiles = std::move(*tiles);
  }
  if (int64_t bytes =
          quantizerScratchBytes(*impl->declared, *impl->format, impl->m, impl->layout.k);
      bytes > 0) {
    Result<Buffer> scratch = Device::allocateOn(pimpl->backend, bytes);
    if (!scratch)
      return scratch.error();
    impl->scratch = std::move(*scratch);
  }
  Activations activations;
  activations.pimpl = std::move(impl);
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
    return makeError(DiagId::activations_not_viewable,
                     {format->name, std::to_string(pimpl->shape.k), std::to_string(rowBytes)});
  if (Status good = checkPointer(x, "x", dataAlignment); !good)
    return good.error();
  Activations activations;
  activations.pimpl = std::make_shared<Activations::Impl>();
  activations.pimpl->backend = pimpl->backend;
  activations.pimpl->declared = format;
  activations.pimpl->format = std::move(format);
  activations.pimpl->layout = layout;
  activations.pimpl->m = pimpl->shape.m;
  activations.pimpl->view = x;
  return activations;
}

Status Gemm::chooseParts(const Activations &out, std::span<const uint8_t> parts) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  if (Status good = checkActivations(out, *pimpl); !good)
    return good;
  Activations::Impl &impl = out.impl();
  const std::vector<uint8_t> choice(parts.begin(), parts.end());
  if (Status good = dsl::checkChoice(*impl.format, choice, impl.m, impl.layout.k); !good)
    return good;
  if (!choice.empty()) {
    const std::vector<int32_t> wide(choice.begin(), choice.end());
    if (Status written =
            impl.scratch.write(wide.data(), static_cast<int64_t>(wide.size() * sizeof(int32_t)),
                               quantizerChoiceOffset);
        !written)
      return written;
    const std::vector<int32_t> table = tileTable(*impl.format, choice, impl.layout);
    if (Status written = impl.tiles.write(table.data(), impl.tiles.bytes()); !written)
      return written;
  }
  impl.choice = choice;
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
                     {"'" + impl.declared->name + "' has no component '" + std::string(component) +
                      "' per tensor"});
  const auto index = static_cast<int>(found - all.begin());
  if (!value) {
    impl.given.erase(index);
    return Done{};
  }
  const dsl::ElementType type = found->type;
  const uint32_t code = type.encode(*value);
  // What multiplies numbers says nothing of them when it is 0.
  const std::vector<dsl::ExprPtr> factors = dsl::factorsOf(impl.declared->value);
  const bool isFactor =
      std::any_of(factors.begin(), factors.end(), [&](const dsl::ExprPtr &factor) {
        return factor->kind == dsl::Expr::Kind::Component && factor->component == index;
      });
  if (!(*value >= type.minFinite() && *value <= type.maxFinite()) ||
      (isFactor && !(type.decode(code) > 0)))
    return makeError(DiagId::bad_fixed_component,
                     {dsl::printNumber(*value) + " is no " + (isFactor ? "positive " : "") +
                      "number of " + std::string(type.name()) + ", the type of '" + found->name +
                      "'"});
  if (!impl.quantized.empty())
    if (Status written = impl.backend->write(impl.quantized[static_cast<size_t>(index)], &code,
                                             componentBytes(type));
        !written)
      return written;
  impl.given[index] = code;
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
  return pimpl->prepared->quantizer->run(out.impl(), x, type, stride, stream);
}

Status Gemm::launch(const Buffer &weight, const Activations &x, DevicePointer y,
                    const Buffer &workspace, Stream stream) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  const compiler::KernelImage &image = pimpl->image();
  if (Status good =
          checkBuffer(weight, *pimpl->backend, "weight", image.weight.bytes, weightAlignment);
      !good)
    return good;
  if (const std::string &layout = weight.impl()->layout;
      !layout.empty() && layout != pimpl->prepared->weightLayout)
    return makeError(DiagId::weight_mismatch, {pimpl->gemm->name, std::to_string(pimpl->shape.m)});
  if (Status good = checkActivations(x, *pimpl); !good)
    return good;
  if (Status good = checkPointer(y, "y", dataAlignment); !good)
    return good;
  if (Status good =
          checkBuffer(workspace, *pimpl->backend, "workspace", workspaceBytes(), dataAlignment);
      !good)
    return good;

  std::array<LaunchArgument, maxKernelParameters> arguments;
  std::array<uint64_t, maxKernelParameters> values;
  std::array<TensorMap, maxKernelParameters> maps;
  size_t count = 0; // within the arrays: Engine checked the image
  for (const compiler::KernelParameter &parameter : image.parameters) {
    uint64_t &value = values[count];
    arguments[count] = {&value, 8};
    switch (parameter.kind) {
    case Kind::Weight:
      value = weight.address();
      break;
    case Kind::ActivationTiles:
      value = x.impl().tiles.address();
      break;
    case Kind::Activation:
    case Kind::ActivationComponent:
      value = x.impl().component(static_cast<size_t>(parameter.index));
      break;
    case Kind::Output:
      value = y;
      break;
    case Kind::Workspace:
      value = workspace.address();
      break;
    case Kind::M:
      value = static_cast<uint64_t>(pimpl->shape.m);
      arguments[count].bytes = 4;
      break;
    }
    if (parameter.isTensorMap()) {
      Result<TensorMap> map = pimpl->backend->makeTensorMap(
          tensorMapShape(parameter, value, *pimpl, scalarBytes(outputType())));
      if (!map)
        return map.error();
      maps[count] = *map;
      arguments[count] = {&maps[count], sizeof(TensorMap)};
    }
    ++count;
  }
  const LaunchShape shape{image.grid(pimpl->shape.m), image.cluster(), image.dependentLaunch};
  Status launched = pimpl->backend->launch(*pimpl->prepared->kernel->loaded, shape,
                                           {arguments.data(), count}, stream);
  if (launched)
    return launched;
  clearCounters(*pimpl->backend, workspace);
  return withSpans(launched.error(), image.origins, *pimpl->gemm, *pimpl->module->module.sources);
}

} // namespace rho
