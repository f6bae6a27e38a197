// The exported functions of tilelang.so. The kernels themselves are what tilelang_generate.py
// writes.
#include <string>
#include <vector>
#include "tilelang.h"

namespace {
struct Entry {
  Config config;
  bool ready = false;
};

std::vector<Entry> &entries() {
  static std::vector<Entry> all;
  return all;
}

std::string g_error;

int failed(const Config &config) {
  g_error = std::string(config.name) + ": " + config.error();
  return -1;
}
} // namespace

void add_config(const Config &config) { entries().push_back({config}); }

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int tilelang_configs() { return int(entries().size()); }

EXPORT const char *tilelang_name(int i) { return entries().at(i).config.name; }

EXPORT const char *tilelang_error() { return g_error.c_str(); }

// 1 if configuration i is for weights of this shape, and its blocks are neither far too many nor
// far too large for m rows
EXPORT int tilelang_supported(int i, int m, int n, int k) {
  const Config &config = entries().at(i).config;
  return config.n == n && config.k == k && config.block_m <= 2 * (m > 32 ? m : 32) &&
         m <= 32 * config.block_m;
}

// y [m][n], x [m][k] bf16; w [n][k/2] as the example's fast decode wants it; scales [n][k/32], of
// which s means 2^s. 0, or -1 and tilelang_error().
EXPORT int tilelang_launch(int i, void *y, void *x, void *w, void *scales, int m, void *stream) {
  Entry &entry = entries().at(i);
  if (!entry.ready && entry.config.init())
    return failed(entry.config);
  entry.ready = true;
  return entry.config.launch(y, x, w, scales, m, cudaStream_t(stream)) ? failed(entry.config) : 0;
}
