/* y = x * w^T with int4 weights through the C API: declaration, kernel, packed weights, launch,
 * result. */
#include "runtime/RhoC.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { m = 16, n = 256, k = 512 };

static const char *text =
    "format int4g128 { element: s4  scale: f16 per k[128]  value = element * scale }\n"
    "gemm w4a16 { weight: int4g128  activation: f16  output: f32 }\n";

/* Nothing; else the diagnostics, and the end. */
static void check(rho_error *error) {
  if (error != NULL) {
    fputs(rho_error_text(error), stderr);
    exit(1);
  }
}

int main(void) {
  static float w[n * k], x[m * k], y[m * n];
  for (int i = 0; i < n * k; ++i)
    w[i] = (float)rand() / (float)RAND_MAX - 0.5F;
  for (int i = 0; i < m * k; ++i)
    x[i] = (float)rand() / (float)RAND_MAX - 0.5F;

  rho_module *module;
  rho_device *device;
  rho_engine *engine;
  rho_gemm *gemm;
  check(rho_module_parse(text, strlen(text), NULL, NULL, 0, &module)); /* of a file: load */
  check(rho_device_automatic(&device)); /* a GPU, else the emulator */
  check(rho_engine_create(device, NULL, &engine));
  check(rho_engine_compile(engine, module, NULL, m, n, k, &gemm));

  rho_buffer *weight, *input, *output, *workspace;
  rho_activations *codes;
  check(rho_gemm_pack_weights(gemm, w, RHO_F32, k, &weight));
  check(rho_device_allocate(device, sizeof x, &input));
  check(rho_device_allocate(device, sizeof y, &output));
  check(rho_device_allocate(device, rho_gemm_workspace_bytes(gemm), &workspace));
  check(rho_gemm_make_activations(gemm, NULL, &codes));

  check(rho_buffer_write(input, x, sizeof x, 0));
  check(rho_gemm_quantize_activations(gemm, codes, rho_buffer_address(input), RHO_F32, k, NULL));
  check(rho_gemm_launch(gemm, weight, codes, rho_buffer_address(output), workspace, NULL));
  check(rho_device_synchronize(device, NULL));
  check(rho_buffer_read(output, y, sizeof y, 0));
  printf("%s: y[0][0] = %g\n", rho_device_name(device), y[0]);

  rho_activations_free(codes);
  rho_buffer_free(workspace);
  rho_buffer_free(output);
  rho_buffer_free(input);
  rho_buffer_free(weight);
  rho_gemm_free(gemm);
  rho_engine_free(engine);
  rho_device_free(device);
  rho_module_free(module);
  return 0;
}
