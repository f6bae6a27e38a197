// A quantized model of `rho quantize`: one of its weights, packed once, for decoding and
// prefilling.
#include "kernels/WeightFile.h"
#include <cstdio>

// The value; else the diagnostics, and the end.
template <class T> T get(rho::Result<T> result) {
  if (!result)
    std::exit((std::fputs(result.error().str().c_str(), stderr), 1));
  return std::move(*result);
}

int main(int argc, char **argv) { // NOLINT(bugprone-exception-escape)
  if (argc != 3)
    return std::fputs("usage: example_weights FILE.safetensors NAME\n", stderr), 2;
  rho::WeightFile file = get(rho::WeightFile::open(argv[1]));
  const rho::WeightFile::Weight what = get(file.describe(argv[2]));
  rho::Module module = get(rho::Module::parse(
      what.declarations + "gemm g { weight: " + what.format + "  activation: f16  output: f32 }"));
  rho::Engine engine = get(rho::Engine::create(get(rho::Device::automatic())));
  const std::vector<int64_t> batches{1, 64};
  std::vector<rho::Gemm> gemms = get(engine.compileShared(module, "", what.n, what.k, batches));
  rho::Buffer weight = get(file.pack(argv[2], gemms[0]));
  rho::InputTransform transform = get(file.inputTransform(argv[2], engine));
  for (const rho::Gemm &gemm : gemms) {
    const int64_t m = gemm.shape().m;
    std::vector<float> x(m * what.k, 1), y(m * what.n);
    rho::Buffer input = get(engine.device().allocate(m * what.k * 4));
    rho::Buffer output = get(engine.device().allocate(m * what.n * 4));
    rho::Buffer workspace = get(engine.device().allocate(gemm.workspaceBytes()));
    rho::Activations codes = get(gemm.makeActivations(transform));
    get(input.write(x.data(), input.bytes()));
    get(gemm.quantizeActivations(codes, input.address(), rho::ScalarType::F32, what.k));
    get(gemm.launch(weight, codes, output.address(), workspace));
    get(engine.device().synchronize());
    get(output.read(y.data(), output.bytes()));
    std::printf("m = %lld: y[0][0] = %g\n", static_cast<long long>(m), y[0]);
  }
}
