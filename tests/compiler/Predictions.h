// Predicted times of shipped gemms on shipped devices, for tests that hold them to printed ones.
#pragma once

#include "compiler/Devices.h"
#include "compiler/Explain.h"
#include "dsl/Module.h"

#include <gtest/gtest.h>

#include <string>

namespace rho::compiler {

inline dsl::Gemm shipped(const std::string &name) {
  Result<dsl::Module> module =
      dsl::loadModule(std::string(RHO_SOURCE_DIR) + "/kernels/gemms/" + name + ".rho");
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return module->gemms.at(0);
}

inline DeviceModel model(const std::string &name) { return modelOf(*shippedDevice(name)); }

inline double microseconds(const dsl::Gemm &gemm, const Problem &problem,
                           const DeviceModel &device) {
  Result<Plan> planned = plan(gemm, problem, device, nullptr);
  EXPECT_TRUE(planned.ok()) << (planned.ok() ? "" : planned.error().str());
  return planned.ok() ? planned->predictedMicroseconds : 0;
}

inline double overF16(const dsl::Gemm &gemm, const Problem &problem, const DeviceModel &device) {
  return *predictLibraryMicroseconds(problem, "f16", device) / microseconds(gemm, problem, device);
}

// The figure lies within a quarter of what is printed, "0.43 to 0.47" or one number.
inline void expectNear(double figure, double least, double most, const std::string &what) {
  EXPECT_GE(figure, least * 0.75) << what;
  EXPECT_LE(figure, most * 1.25) << what;
}

} // namespace rho::compiler
