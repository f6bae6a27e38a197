/* A process whose main thread ends it while another compiles, for the first time. */
#include "runtime/RhoC.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text =
    "format int4 { element: s4  scale: f16 per channel  value = element * scale }\n"
    "gemm g { weight: int4  activation: f16  output: f32 }\n";

static void *compile(void *unused) {
  rho_device *device;
  rho_engine *engine;
  rho_module *module;
  const rho_engine_options options = {.size = sizeof options, .flags = RHO_NO_DISK_CACHE};
  if (rho_device_emulated("sm_80", &device) != NULL ||
      rho_engine_create(device, &options, &engine) != NULL ||
      rho_module_parse(text, strlen(text), NULL, NULL, 0, &module) != NULL)
    abort();
  for (int64_t m = 1;; ++m) { /* until an error says that the process ends */
    rho_gemm *gemm;
    rho_error *error = rho_engine_compile(engine, module, NULL, m, 64, 128, &gemm);
    if (error != NULL)
      return unused;
    rho_gemm_free(gemm);
  }
}

int main(int count, char **arguments) {
  pthread_t thread;
  if (count != 2 || pthread_create(&thread, NULL, compile, NULL) != 0)
    return 1;
  usleep((useconds_t)atoi(arguments[1]) * 1000);
  return 0;
}
