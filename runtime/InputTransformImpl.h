// The insides of an input transform.
#pragma once

#include "compiler/InputTransform.h"
#include "runtime/EngineImpl.h"
#include "runtime/InputTransform.h"

namespace rho {

struct InputTransform::Impl {
  std::shared_ptr<Backend> backend;
  compiler::InputTransform transform;
  Buffer divisors, channels, factors, signs; // empty where there are none
  struct Pass {
    compiler::InputPass pass;
    std::shared_ptr<const Kernel> kernel;
  };
  std::vector<Pass> ofFewRows, ofManyRows;
  std::vector<CompileReport> reports;

  Status makePasses(Engine::Impl &engine);
  Status upload(const Device &device, const InputSteps &steps);
  // x [m][k], rows `stride` numbers apart -> results f32 [m][k].
  Status run(DevicePointer x, ScalarType type, int64_t stride, int64_t m, DevicePointer results,
             Stream stream) const;
};

} // namespace rho
