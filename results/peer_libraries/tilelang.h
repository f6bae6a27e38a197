// What is known of a kernel that TileLang made, and the list of all.
#pragma once
#include <cuda_runtime.h>

struct Config {
  const char *name;
  int n, k, block_m;
  int (*init)(); // what TileLang does once before launches
  int (*launch)(void *y, void *x, void *w, void *scales, int m, cudaStream_t stream);
  const char *(*error)();
};

void add_config(const Config &config);

// a kernel in a namespace, where TileLang's `call` creates the TMA descriptors and launches it
#define CONFIG(name, n, k, block_m, space)                                                         \
  static const int added_##space = [] {                                                            \
    auto launch = [](void *y, void *x, void *w, void *scales, int m, cudaStream_t stream) {        \
      return space::call((bfloat16_t *)x, (uint8_t *)w, (uint8_t *)scales, nullptr,                \
                         (bfloat16_t *)y, m, stream);                                              \
    };                                                                                             \
    add_config({name, n, k, block_m, space::init, launch, space::get_last_error});                 \
    return 0;                                                                                      \
  }();
