// y = x * w^T with int4 weights: declaration, kernel, packed weights, launch, result.
#include "runtime/Rho.h"
#include <cstdio>
#include <cstdlib>
#include <random>

const char *text = R"(
format int4g128 { element: s4  scale: f16 per k[128]  value = element * scale }
gemm w4a16 { weight: int4g128  activation: f16  output: f32 }
)";

// The value; else the diagnostics, and the end.
template <class T> T get(rho::Result<T> result) {
  if (!result)
    std::exit((std::fputs(result.error().str().c_str(), stderr), 1));
  return std::move(*result);
}

int main() { // NOLINT(bugprone-exception-escape)
  const int64_t m = 16, n = 256, k = 512;
  rho::Module module = get(rho::Module::parse(text)); // of a file: load
  rho::Device device = get(rho::Device::automatic()); // a GPU, else the emulator
  rho::Engine engine = get(rho::Engine::create(device));
  rho::Gemm gemm = get(engine.compile(module, "", {m, n, k}));
  std::mt19937 random(std::random_device{}());
  std::vector<float> w(n * k), x(m * k), y(m * n);
  for (std::vector<float> *numbers : {&w, &x})
    for (float &number : *numbers)
      number = std::normal_distribution<float>()(random);
  rho::Buffer weight = get(gemm.packWeights(w.data(), rho::ScalarType::F32, k));
  rho::Buffer input = get(device.allocate(m * k * 4)), output = get(device.allocate(m * n * 4));
  rho::Buffer workspace = get(device.allocate(gemm.workspaceBytes()));
  rho::Activations codes = get(gemm.makeActivations());
  get(input.write(x.data(), m * k * 4));
  get(gemm.quantizeActivations(codes, input.address(), rho::ScalarType::F32, k));
  get(gemm.launch(weight, codes, output.address(), workspace));
  get(device.synchronize());
  get(output.read(y.data(), m * n * 4));
  std::printf("%s: y[0][0] = %g\n", device.name().c_str(), y[0]);
}
