/* A process that opened the library itself and compiles when it has begun to end: LLVM, which the
 * library brought, is destroyed by then. An error says so. */
#include "runtime/RhoC.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text =
    "format int4 { element: s4  scale: f16 per channel  value = element * scale }\n"
    "gemm g { weight: int4  activation: f16  output: f32 }\n";

static void *library;
static rho_engine *engine;
static rho_module *module;

#define CALL(function) ((__typeof__(&function))dlsym(library, #function))

static void compile(void) {
  rho_gemm *gemm;
  rho_error *error = CALL(rho_engine_compile)(engine, module, NULL, 3, 64, 128, &gemm);
  fputs(error == NULL ? "no error\n" : CALL(rho_error_text)(error), stdout);
  fflush(stdout);
}

int main(int count, char **arguments) {
  rho_device *device;
  const rho_engine_options options = {.size = sizeof options, .flags = RHO_NO_DISK_CACHE};
  if (count != 2 || atexit(compile) != 0 || (library = dlopen(arguments[1], RTLD_NOW)) == NULL)
    return 1;
  if (CALL(rho_device_emulated)("sm_80", &device) != NULL ||
      CALL(rho_engine_create)(device, &options, &engine) != NULL ||
      CALL(rho_module_parse)(text, strlen(text), NULL, NULL, 0, &module) != NULL)
    return 1;
  return 0;
}
