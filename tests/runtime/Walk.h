// A gemm on the emulator with all that a launch takes.
#pragma once

#include "dsl/Quantize.h"
#include "kernels/Reference.h"
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
  // Of a gemm of this declaration, n and k, with a weight that may have been packed for another:
  // its outputs, in f32, are the reference's. Fatal failures where they are not.
  void expectReference(const Gemm &of, const Buffer &packed) const {
    expectReference(of, packed, must(of.makeActivations()));
  }
  void expectReference(const Gemm &of, const Buffer &packed, const Activations &codes) const {
    auto [m, n, k] = of.shape();
    Buffer partial = must(device.allocate(of.workspaceBytes()));
    ASSERT_EQ(errorText(of.quantizeActivations(codes, input.address(), ScalarType::F32, k)), "");
    ASSERT_EQ(errorText(of.launch(packed, codes, output.address(), partial)), "");
    std::vector<float> y(static_cast<size_t>(m * n));
    ASSERT_TRUE(output.read(y.data(), m * n * 4));
    kernels::ReferenceOutput expected = kernels::reference(
        quantized(declared().activation, x, m, k), quantized(declared().weight, w, n, k));
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected.y[i], expected.magnitude[i] * 1e-3) << m << ", " << i;
  }
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
