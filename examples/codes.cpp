// Weights of another quantizer: its codes and scales, packed once, kept, and read by a later
// process.
#include "runtime/Rho.h"
#include <cmath>
#include <cstdio>
#include <fstream>

const char *text = R"(
format w { element: s4  scale: f32 per k[32]  value = element * scale }
gemm g { weight: w  activation: f16  output: f32 }
)";

// The value; else the diagnostics, and the end.
template <class T> T get(rho::Result<T> result) {
  if (!result)
    std::exit((std::fputs(result.error().str().c_str(), stderr), 1));
  return std::move(*result);
}

int main() { // NOLINT(bugprone-exception-escape)
  const int64_t m = 4, n = 64, k = 128, group = 32;
  rho::Device device = get(rho::Device::automatic()); // a GPU, else the emulator
  rho::Engine engine = get(rho::Engine::create(device));
  rho::Gemm gemm = get(engine.compile(get(rho::Module::parse(text)), "", {m, n, k}));

  // Row by row: a code of s4 in a byte, its sign in the bits above or not; a scale for each 32 of
  // k.
  std::vector<uint8_t> element(n * k);
  std::vector<float> scale(n * k / group);
  for (int64_t i = 0; i < n * k; ++i)
    element[i] = static_cast<uint8_t>(static_cast<int8_t>(i % 15 - 7));
  for (int64_t i = 0; i < n * k / group; ++i)
    scale[i] = 0.01F * static_cast<float>(i % 7 + 1);
  const rho::ComponentCodes codes[] = {
      {"element", element},
      {"scale", {reinterpret_cast<const uint8_t *>(scale.data()), scale.size() * sizeof(float)}}};
  rho::Buffer packed = get(gemm.packCodes(codes));

  // Kept are its bytes and the name of their layout, which depends on the plan.
  std::vector<char> bytes(packed.bytes());
  get(packed.read(bytes.data(), packed.bytes()));
  std::ofstream("packed.bin", std::ios::binary).write(bytes.data(), packed.bytes());
  std::ofstream("packed.layout") << gemm.weightLayout();

  // Whoever reads them says what they are: launches compare that with their own layout.
  std::string layout;
  std::ifstream("packed.layout") >> layout;
  std::ifstream("packed.bin", std::ios::binary).read(bytes.data(), packed.bytes());
  rho::Buffer memory = get(device.allocate(packed.bytes()));
  get(memory.write(bytes.data(), packed.bytes()));
  rho::Buffer weight = get(device.view(memory.address(), packed.bytes(), layout));

  std::vector<float> x(m * k, 1), y(m * n);
  rho::Buffer input = get(device.allocate(m * k * 4)), output = get(device.allocate(m * n * 4));
  rho::Buffer workspace = get(device.allocate(gemm.workspaceBytes()));
  rho::Activations ones = get(gemm.makeActivations());
  get(input.write(x.data(), m * k * 4));
  get(gemm.quantizeActivations(ones, input.address(), rho::ScalarType::F32, k));
  get(gemm.launch(weight, ones, output.address(), workspace));
  get(device.synchronize());
  get(output.read(y.data(), m * n * 4));
  double sum = 0; // of the last row of the weight
  for (int64_t i = (n - 1) * k; i < n * k; ++i)
    sum += static_cast<int8_t>(element[i]) * scale[i / group];
  std::printf("%s: y[0][%ld] = %g, %g expected\n", device.name().c_str(), n - 1, y[n - 1], sum);
  return std::fabs(y[n - 1] - sum) < 1e-3 ? 0 : 1;
}
