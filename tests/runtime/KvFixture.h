// Declarations and devices of the tests of paged caches.
#pragma once

#include "dsl/ElementType.h"
#include "runtime/KvCache.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

namespace rho {

inline constexpr const char *kvDeclarations = R"(
format kv4 {
  element: u4
  scale:   f16 per k[64]
  zero:    u8  per k[64]
  value = (element - zero) * scale
}
format kv4_least {
  element: u4
  scale:   f16 per k[32]
  least:   f16 per k[32]
  value = element * scale + least
}
format kv8 {
  element: s8
  scale:   bf16 per k[64]
  value = element * scale
}
format kv_fp8 {
  element: e4m3
  scale:   f32 per k[32]
  value = element * scale
}
format kv_fp4 {
  element: e2m1
  block:   e4m3 per k[16]
  scale:   e8m0 per k[64]
  value = element * block * scale
}
format kv_bare {
  element: e4m3
  value = element
}
format kv_wide_exponent {
  element: e5m2
  scale:   f32 per k[32]
  value = element * scale
  encode {
    scale = 0.25
  }
}
format kv_halves {
  element: f16
  value = element * 0.5
}
format kv_beyond {
  element: codebook [1e6, 2e6, -3e6, 0]
  scale:   f32 per k[64]
  value = element * scale
}
format kv3 {
  element: s3
  scale:   f16 per k[64]
  value = element * scale
  encode {
    scale = bit_floor(max(absmax(x), 0.001)) / 2
  }
}
format kv_nf {
  element: codebook [-1, -0.5, -0.25, 0, 0.125, 0.25, 0.5, 1]
  scale:   f16 per k[64]
  value = element * scale
}
format kv_wide {
  element: s8
  a: f32 per k[64]
  b: f32 per k[64]
  c: f32 per k[64]
  d: f32 per k[64]
  e: f32 per k[64]
  f: f32 per k[64]
  value = element * a * b * c * d * e * f
  encode {
    a = absmax(x) / 127
    b = 1
    c = 1
    d = 1
    e = 1
    f = 1
  }
}
format by_channel {
  element: s4
  scale:   f16 per channel
  value = element * scale
}
format by_8 {
  element: s4
  scale:   f16 per k[8]
  value = element * scale
}
format chosen {
  element: s4
  scale:   f16 per k[64]
  value = element * scale
  encode {
    scale = best(absmax(x) / 7, absmax(x) / 8)
  }
}
format bounded {
  element: u4
  step:    u8  per k[64]
  scale:   f16 per k[64]
  value = element * step * scale
  require element * step <= 255
  encode {
    scale = absmax(x) / 255
    step  = 17
  }
}
format masked {
  element: u4
  scale:   f16 per k[64]
  value = (element & 7) * scale
  encode {
    scale = absmax(x) / 7
  }
}
format books {
  element: s4
  scale:   codebook [0.5, 1, 2, 4] per k[64]
  value = element * scale
}
format spare {
  element: e2m1 remap 8 to [5, -5] by which
  block:   ue3m3 per k[64]
  which:   u1    in block
  value = element * block
}
)";

// Numbers of 16 bits and what they are.
struct KvNumbers {
  dsl::ElementType type;
  std::vector<uint16_t> codes;
  KvNumbers(dsl::ElementType type, size_t count) : type(type), codes(count) {}
  // Around a mean of each channel's own, as keys are.
  KvNumbers(dsl::ElementType type, size_t count, size_t dim, uint32_t seed)
      : KvNumbers(type, count) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> mean(dim);
    for (double &each : mean)
      each = normal(random);
    for (size_t i = 0; i < count; ++i)
      codes[i] = static_cast<uint16_t>(type.encode(mean[i % dim] + normal(random)));
  }
  double operator[](int64_t i) const { return type.decode(codes[static_cast<size_t>(i)]); }
  int64_t bytes() const { return static_cast<int64_t>(codes.size()) * 2; }
};

#define ASSERT_GOOD(result) ASSERT_TRUE((result).ok()) << (result).error().str()

inline constexpr std::string_view gpu =
    "GPU"; // in place of a target: the first one, where there is any

struct KvFixture {
  Device device;
  Engine engine;
  Module module;
  // Without a folder nothing is kept on disk.
  static KvFixture make(std::string_view target = "sm_80", const std::string &folder = "") {
    KvFixture f;
    Result<Device> device = target == gpu ? Device::cuda() : Device::emulated(target);
    if (!device)
      return f;
    f.device = *device;
    EngineOptions options;
    options.diskCache = !folder.empty();
    options.cacheDirectory = folder;
    f.engine = *Engine::create(f.device, options);
    Result<Module> module = Module::parse(kvDeclarations);
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
    f.module = *module;
    return f;
  }
  Buffer upload(const KvNumbers &numbers) const {
    Buffer buffer = std::move(*device.allocate(numbers.bytes()));
    EXPECT_TRUE(buffer.write(numbers.codes.data(), numbers.bytes()).ok());
    return buffer;
  }
};

inline KvCacheOptions optionsFor(const char *keys, const char *values) {
  KvCacheOptions options;
  options.keys = keys;
  options.values = values;
  options.pages = 8;
  options.pageTokens = 64;
  options.kvHeads = 2;
  options.queryHeads = 4;
  return options;
}

inline KvCache cacheOf(const KvFixture &f, const KvCacheOptions &options) {
  Result<KvCache> cache = KvCache::create(f.engine, f.module, options);
  EXPECT_TRUE(cache.ok()) << (cache.ok() ? "" : cache.error().str());
  return *cache;
}

} // namespace rho
