// Offline quantization of a synthetic layer with outlier channels: the error of its outputs, in
// percent of their squares, on the inputs that it is calibrated with and on others.
#include "dsl/Module.h"
#include "kernels/ShippedFormats.h"
#include "kernels/Synthetic.h"
#include "kernels/quantize/EncodeLayer.h"
#include <cstdio>

using namespace rho::kernels;

// The weight of MosaicQuant, the activation of COMET.
const char *const text = R"(
format int4_channel { element: s4  scale: f16 per channel  value = element * scale }
format int4_token { element: s4  scale: f16 per token  value = element * scale }
format int8_token { element: s8  scale: f16 per token  value = element * scale }
format mosaic {
  element: s4
  scale:   f16 per channel
  value = element * scale
  residual fix: s4 / 16 per n[64] k[64] budget 10%
}
format comet { partition per tensor k[128] { low: int4_token  high: int8_token budget 20% } }
)";

// The value; else the diagnostics, and the end.
template <class T> T get(rho::Result<T> result) {
  if (!result)
    std::exit((std::fputs(result.error().str().c_str(), stderr), 1));
  return std::move(*result);
}

struct Layer {
  Matrix weight, calibration, others;
};

Layer makeLayer(int64_t n, int64_t k, int64_t tokens) {
  std::vector<float> x = syntheticActivation(2 * tokens, k, 1, {.outlierFraction = 0.01});
  auto half = x.begin() + tokens * k;
  return {{n, k, syntheticWeight(n, k, 1)},
          {tokens, k, {x.begin(), half}},
          {tokens, k, {half, x.end()}}};
}

// One cell of a table.
void print(const Layer &layer, const LayerFormats &formats, const LayerSteps &steps,
           bool calibrated = true) {
  EncodedLayer encoded =
      get(encodeLayer(layer.weight, calibrated ? &layer.calibration : nullptr, formats, steps));
  auto percent = [&](const Matrix &x) {
    return 100 * get(encodedLayerError(encoded, layer.weight, x, formats.activation));
  };
  std::printf(" %.2f / %.2f |", percent(layer.calibration), percent(layer.others));
}

int main() { // NOLINT(bugprone-exception-escape)
  const Layer layer = makeLayer(256, 1024, 128);
  const std::pair<const char *, LayerSteps> rows[] = {
      {"none", {}},
      {"smooth", {.smooth = true}},
      {"rotate", {.rotate = 1}},
      {"refine", {.refine = true}},
      {"rotate, refine", {.refine = true, .rotate = 1}},
      {"smooth, rotate, refine", {.smooth = true, .refine = true, .rotate = 1}}};
  const std::pair<const char *, const char *> pairs[] = {{"int4_channel", "int4_token"},
                                                         {"int4_g128", "int4_g128"},
                                                         {"nvfp4", "nvfp4_token"},
                                                         {"liquidquant", "int8_token"}};
  std::printf("| steps |");
  for (auto [weight, activation] : pairs)
    std::printf(" %s x %s |", weight, activation);
  std::printf("\n|---|---|---|---|---|\n");
  for (const auto &[name, steps] : rows) {
    std::printf("| %s |", name);
    for (auto [weight, activation] : pairs)
      print(layer, {shippedFormat(weight), shippedFormat(activation)}, steps);
    std::printf("\n");
  }

  rho::dsl::Module module = get(rho::dsl::parseModule(text, "formats", nullptr));
  auto format = [&](const char *name) {
    return std::make_shared<const rho::dsl::Format>(*module.findFormat(name));
  };
  std::printf("\n| weight | inputs as they are | smooth, inputs int4_g128 |\n|---|---|---|\n");
  for (const char *name : {"int4_channel", "mosaic"}) {
    std::printf("| %s |", name);
    print(layer, {format(name), nullptr}, {});
    print(layer, {format(name), shippedFormat("int4_g128")}, {.smooth = true});
    std::printf("\n");
  }
  std::printf("| mosaic, blocks by the weight alone |");
  print(layer, {format("mosaic"), nullptr}, {}, false);
  std::printf(" |\n");

  std::printf("\n| inputs, weight int4_g128 | channels as they are | permute |\n|---|---|---|\n");
  for (const char *name : {"int4_token", "comet", "int8_token"}) {
    std::printf("| %s |", name);
    print(layer, {shippedFormat("int4_g128"), format(name)}, {});
    print(layer, {shippedFormat("int4_g128"), format(name)}, {.permute = 128});
    std::printf("\n");
  }
}
