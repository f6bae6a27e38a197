#include "runtime/Misfit.h"

#include "dsl/Division.h"
#include "runtime/Backend.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace rho {
namespace {

// Whether a plan divides its problem so among CTAs, and a weight and its inputs are laid out for
// it.
bool isOfPlan(const compiler::KernelImage &image, const compiler::Plan &plan) {
  const compiler::Schedule &s = plan.schedule;
  auto work = [](const auto &of) {
    return std::tie(of.tileM, of.tileN, of.tileK, of.pipeline, of.splitK, of.clusterN, of.clusterK,
                    of.residentCtas);
  };
  return image.target == plan.target && image.n == plan.problem.n && image.k == plan.problem.k &&
         work(image) == work(s) && image.dependentLaunch == s.dependent &&
         image.weight.n == image.n && image.weight.k == image.k && image.activation.k == image.k;
}

std::string misfitOfParameters(const std::vector<compiler::KernelParameter> &parameters,
                               const std::vector<compiler::StoredComponent> &components) {
  if (parameters.size() > maxKernelParameters)
    return "it has too many parameters";
  using Kind = compiler::KernelParameter::Kind;
  for (const compiler::KernelParameter &parameter : parameters) {
    if (parameter.kind != Kind::ActivationComponent && parameter.kind != Kind::Activation)
      continue;
    if (parameter.index < 0 || static_cast<size_t>(parameter.index) >= components.size())
      return "it has a parameter for a component that the activation lacks";
    const compiler::StoredComponent &stored = components[static_cast<size_t>(parameter.index)];
    const bool element = stored.component == 0;
    if (element != (parameter.kind == Kind::Activation))
      return "it has a parameter for another component";
    if (parameter.isTensorMap() && !element && stored.declared().extent != dsl::Extent::Group)
      return "it has a tensor map over a component without groups";
  }
  return {};
}

std::string misfitOfActivation(const compiler::KernelImage &image, const dsl::Format &activation,
                               const std::vector<compiler::StoredComponent> &components) {
  auto hasRoom = [&](const compiler::ActivationLayout &layout) {
    const int64_t unit = int64_t{1} << layout.columnBits.size(); // whose codes change places
    return layout.k == image.k && layout.pitchBytes % 16 == 0 &&
           layout.pitchBytes * 8 >= roundUp(layout.k, unit) * layout.elementBits;
  };
  const std::vector<compiler::ActivationLayout> &parts = image.activation.parts;
  if (parts.empty() ? !hasRoom(image.activation)
                    : !std::all_of(parts.begin(), parts.end(), hasRoom))
    return "its rows of activations have no room for their codes";
  const bool divided = activation.partition.has_value();
  if (parts.size() != (divided ? activation.partition->parts.size() : 0))
    return "its activations have other parts";
  if (divided &&
      (image.activation.tileK < 1 || activation.partition->blocks.k % image.activation.tileK != 0))
    return "blocks of its activations are no whole k tiles";
  for (const compiler::StoredComponent &stored : components) {
    if (stored.component != 0)
      continue;
    dsl::ElementType element = stored.declared().type;
    int bits = (divided ? parts[stored.part] : image.activation).elementBits;
    bool widened = element == dsl::ElementType::get("s4") && bits == 8;
    if (bits != element.bits() && !widened)
      return "its activations have other elements";
  }
  return {};
}

} // namespace

std::string misfit(const std::vector<compiler::OperandRange> &operands, const dsl::Gemm &gemm) {
  for (const compiler::OperandRange &range : operands) {
    const bool ofResidual = range.of == compiler::OperandRange::Of::Residual;
    if (ofResidual && !gemm.weight.residual)
      return "it is for a weight with a residual";
    const dsl::Format &weight = ofResidual ? *gemm.weight.residual->part.format : gemm.weight;
    std::vector<int> components(range.outside.begin(), range.outside.end());
    for (const compiler::RowNumber &number : range.numbers)
      for (int component : number.uses())
        components.push_back(component);
    if (std::any_of(components.begin(), components.end(), [&](int component) {
          return component < 1 || component >= static_cast<int>(weight.components.size());
        }))
      return "it takes numbers of components that the weight has not";
  }
  return {};
}

std::string misfit(const compiler::KernelImage &image, const dsl::Gemm &gemm,
                   const compiler::Plan &plan) {
  if (!isOfPlan(image, plan))
    return "it is not what the plan says";
  const std::vector<compiler::StoredComponent> components =
      compiler::storedComponents(gemm.activation);
  for (const std::string &reason :
       {misfit(image.operands, gemm), misfitOfParameters(image.parameters, components),
        misfitOfActivation(image, gemm.activation, components)})
    if (!reason.empty())
      return reason;
  if (image.tileM < 1 || image.tileN < 1 || image.threads < 1 || image.splitK < 0)
    return "its tile is empty";
  return {};
}

std::string misfitOfPlain(const compiler::KernelImage &image) {
  return image.isGemm() ? "it is the kernel of a gemm" : "";
}

} // namespace rho
