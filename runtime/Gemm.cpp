#include "compiler/Layout.h"
#include "dsl/Division.h"
#include "runtime/Kernel.h"
#include "runtime/Origin.h"
#include "runtime/Scalar.h"

#include <array>

namespace rho {
namespace {

using Kind = compiler::KernelParameter::Kind;

Status checkBuffer(const Buffer &buffer, const Backend &backend, const char *what, int64_t needed,
                   uint64_t alignment) {
  if (!buffer.impl() && needed > 0)
    return makeError(DiagId::empty_handle, {what});
  if (buffer.bytes() < needed)
    return makeError(DiagId::buffer_too_small,
                     {what, std::to_string(buffer.bytes()), std::to_string(needed)});
  if (needed == 0)
    return Done{};
  if (buffer.impl()->backend.get() != &backend)
    return makeError(DiagId::wrong_device, {what});
  return checkPointer(buffer.address(), what, alignment);
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
    rows = divideUp(gemm.shape.k, component.group);
  }
  return {base,
          rowBytes,
          rows,
          rowBytes,
          parameter.boxBytes,
          parameter.boxRowsFor(gemm.shape.m),
          parameter.swizzle};
}

// That a launch writes over nothing that it reads.
Status checkMemory(const Gemm &gemm, const Buffer &weight, const Activations &x,
                   const Buffer &workspace, DevicePointer y) {
  const GemmShape shape = gemm.shape();
  const Activations::Impl &impl = x.impl();
  const Memory ofWeight{"weight", weight.address(), gemm.packedWeightBytes()};
  const Memory ofWorkspace{"workspace", workspace.address(), gemm.workspaceBytes()};
  const Memory ofOutput{"y", y, shape.m * shape.n * scalarBytes(gemm.outputType())};
  const Memory ofView{"x", impl.view, impl.view == 0 ? 0 : impl.m * impl.layout.pitchBytes};
  Status apart = checkApart(ofOutput, {ofWeight, ofWorkspace, ofView});
  return apart ? checkApart(ofWorkspace, {ofWeight, ofView}) : apart;
}

Status checkLaunch(const Gemm &gemm, const Buffer &weight, const Activations &x, DevicePointer y,
                   const Buffer &workspace) {
  const Gemm::Impl &impl = gemm.impl();
  if (Status good = checkBuffer(weight, *impl.backend, "weight", impl.image().weight.bytes,
                                compiler::sectionAlignment);
      !good)
    return good;
  if (const std::string &layout = weight.impl()->layout;
      !layout.empty() && layout != impl.prepared->weightLayout)
    return makeError(DiagId::weight_mismatch, {impl.gemm->name, std::to_string(impl.shape.m)});
  if (Status good = checkActivations(x, impl); !good)
    return good;
  if (Status good = checkPointer(y, "y", dataAlignment); !good)
    return good;
  if (Status good =
          checkBuffer(workspace, *impl.backend, "workspace", gemm.workspaceBytes(), dataAlignment);
      !good)
    return good;
  return checkMemory(gemm, weight, x, workspace, y);
}

uint64_t valueOf(const compiler::KernelParameter &parameter, int64_t m, const Buffer &weight,
                 const Activations::Impl &x, DevicePointer y, const Buffer &workspace) {
  switch (parameter.kind) {
  case Kind::Weight:
    return weight.address();
  case Kind::ActivationTiles:
    return x.memory->tiles.address();
  case Kind::Activation:
  case Kind::ActivationComponent:
    return x.component(static_cast<size_t>(parameter.index));
  case Kind::Output:
    return y;
  case Kind::Workspace:
    return workspace.address();
  case Kind::M:
    break;
  }
  return static_cast<uint64_t>(m);
}

} // namespace

Status checkGrid(int64_t m, int64_t tileM) {
  if (const int64_t rows = divideUp(m, tileM); rows > mostGridRows)
    return makeError(DiagId::grid_too_large,
                     {std::to_string(m), std::to_string(rows), std::to_string(mostGridRows)});
  return Done{};
}

Result<Gemm> Gemm::withRows(int64_t m) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  compiler::Plan plan = pimpl->plan();
  plan.problem.m = m;
  if (Status good = compiler::checkRows(plan); !good)
    return good.error();
  if (Status fits = checkGrid(m, plan.schedule.tileM); !fits)
    return fits.error();
  auto impl = std::make_shared<Impl>(*pimpl);
  impl->shape.m = m;
  Gemm other;
  other.pimpl = std::move(impl);
  return other;
}

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

Status Gemm::launch(const Buffer &weight, const Activations &x, DevicePointer y,
                    const Buffer &workspace, Stream stream) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid;
  if (Status good = checkLaunch(*this, weight, x, y, workspace); !good)
    return good;
  const compiler::KernelImage &image = pimpl->image();
  std::array<LaunchArgument, maxKernelParameters> arguments;
  std::array<uint64_t, maxKernelParameters> values;
  std::array<TensorMap, maxKernelParameters> maps;
  size_t count = 0; // within the arrays, see maxKernelParameters; Engine checks images from disk
  for (const compiler::KernelParameter &parameter : image.parameters) {
    values[count] = valueOf(parameter, pimpl->shape.m, weight, x.impl(), y, workspace);
    arguments[count] = {&values[count], parameter.kind == Kind::M ? 4 : 8};
    if (parameter.isTensorMap()) {
      Result<TensorMap> map = pimpl->backend->makeTensorMap(
          tensorMapShape(parameter, values[count], *pimpl, scalarBytes(outputType())));
      if (!map)
        return map.error();
      maps[count] = *map;
      arguments[count] = {&maps[count], sizeof(TensorMap)};
    }
    ++count;
  }
  const LaunchShape shape{image.grid(pimpl->shape.m), image.cluster(), image.dependentLaunch,
                          weight.address(), image.weight.bytes};
  Status launched = pimpl->backend->launch(*pimpl->prepared->kernel->loaded, shape,
                                           {arguments.data(), count}, stream);
  if (launched)
    return launched;
  clearCounters(*pimpl->backend, workspace, compiler::KernelImage::counterBytes);
  return withSpans(launched.error(), image.origins, *pimpl->gemm, *pimpl->module->module.sources);
}

} // namespace rho
