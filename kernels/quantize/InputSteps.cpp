#include "kernels/quantize/InputSteps.h"

#include "kernels/quantize/HadamardCores.h"

namespace rho::kernels {

static_assert(mostHadamardCore <= InputSteps::Rotation::mostCore, "every rotation has its kernels");

InputSteps inputSteps(const LayerTransform &transform) {
  InputSteps steps;
  if (transform.smoothing)
    steps.divisors = transform.smoothing->factors;
  if (transform.order)
    steps.channels = {transform.order->channels.begin(), transform.order->channels.end()};
  if (const std::optional<Rotation> &rotation = transform.rotation)
    steps.rotation = {{rotation->signedFactors().begin(), rotation->signedFactors().end()},
                      rotation->matrix().coreEntries()};
  return steps;
}

} // namespace rho::kernels
