// A gemm on the emulator with all that a launch takes.
#pragma once

#include "dsl/Quantize.h"
#include "runtime/Handles.h"
#include "tests/runtime/Declarations.h"

#include <gtest/gtest.h>

namespace rho {

inline dsl::QuantizedMatrix quantized(const dsl::Format &format, const std::vector<float> &x,
                                      int64_t rows, int64_t k) {
  return must(dsl::quantize(std::make_shared<const dsl::Format>(format),
                            {x.data(), dsl::MatrixView::Type::F32, rows, k, k}, false));
}

struct Walk {
  explicit Walk(const char *text, GemmShape shape = {5, 64, 192}, const char *target = "sm_80")
      : device(must(Device::emulated(target))), module(parsed(text)),
        gemm(must(engine.compile(module, "", shape))), shape(shape),
        w(numbers(shape.n, shape.k, 1)), x(numbers(shape.m, shape.k, 2)),
        weight(must(gemm.packWeights(w.data(), ScalarType::F32, shape.k))),
        activations(must(gemm.makeActivations())),
        input(must(device.allocate(shape.m * shape.k * 4))),
        output(must(device.allocate(shape.m * shape.n * 4))),
        workspace(must(device.allocate(gemm.workspaceBytes()))) {
    EXPECT_TRUE(input.write(x.data(), input.bytes()));
  }
  Status quantize() const {
    return gemm.quantizeActivations(activations, input.address(), ScalarType::F32, shape.k);
  }
  Status launch() const { return gemm.launch(weight, activations, output.address(), workspace); }
  const dsl::Gemm &declared() const { return module.impl().module.gemms[0]; }

  Device device;
  Engine engine = must(Engine::create(device, noDisk()));
  Module module;
  Gemm gemm;
  GemmShape shape;
  std::vector<float> w, x;
  Buffer weight;
  Activations activations;
  Buffer input, output, workspace;
};

} // namespace rho
