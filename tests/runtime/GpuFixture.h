// A GPU, and what a launch on it takes.
#pragma once

#include "runtime/Rho.h"
#include "tests/runtime/Declarations.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

namespace rho {

// Tests are skipped, with the reason, where there is none.
class OnGpu : public testing::Test {
protected:
  void SetUp() override {
    Result<Device> found = Device::cuda(0);
    if (!found)
      GTEST_SKIP() << found.error().str();
    device = *found;
    EngineOptions options;
    options.cacheDirectory = folder.path();
    engine = must(Engine::create(device, options));
  }

  TemporaryFolder folder;
  Device device;
  Engine engine;
};

struct Operands {
  Operands(const Device &device, const Gemm &gemm)
      : Operands(device, gemm, numbers(gemm.shape().n, gemm.shape().k, 1),
                 numbers(gemm.shape().m, gemm.shape().k, 2)) {}
  Operands(const Device &device, const Gemm &gemm, std::vector<float> ofWeight,
           std::vector<float> ofActivation)
      : w(std::move(ofWeight)), x(std::move(ofActivation)),
        weight(must(gemm.packWeights(w.data(), ScalarType::F32, gemm.shape().k))),
        activations(must(gemm.makeActivations())),
        input(must(device.allocate(static_cast<int64_t>(x.size()) * 4))),
        output(must(device.allocate(gemm.shape().m * gemm.shape().n * 4))),
        workspace(must(device.allocate(gemm.workspaceBytes()))) {
    EXPECT_TRUE(input.write(x.data(), input.bytes()));
  }
  std::vector<float> y() const {
    std::vector<float> numbers(static_cast<size_t>(output.bytes() / 4));
    EXPECT_TRUE(output.read(numbers.data(), output.bytes()));
    return numbers;
  }
  std::vector<float> w, x;
  Buffer weight;
  Activations activations;
  Buffer input, output, workspace;
};

} // namespace rho
