// A layer's transform as the device makes it of inputs.
#pragma once

#include "kernels/quantize/LayerTransform.h"
#include "runtime/InputTransform.h"

namespace rho::kernels {

InputSteps inputSteps(const LayerTransform &transform);

} // namespace rho::kernels
