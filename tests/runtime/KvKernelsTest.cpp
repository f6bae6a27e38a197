// The kernels of a paged cache on disk: made once, and found by all that their text depends on.
#include "runtime/CacheEntries.h"
#include "runtime/KvCacheImpl.h"
#include "tests/runtime/KvFixture.h"
#include "tests/runtime/TemporaryFolder.h"

#include <cfenv>
#include <cmath>
#include <set>

namespace rho {
namespace {

using Source = CompileReport::Source;

std::vector<const Kernel *> kernelsOf(const KvCache &cache) {
  const KvCache::Impl &c = cache.impl();
  return {c.quantizeKeys.get(), c.quantizeValues.get(), c.dequantizeKeys.get(),
          c.dequantizeValues.get(), c.attend.get()};
}

TEST(KvKernels, AreCompiledOnceThenLoaded) {
  TemporaryFolder folder;
  std::vector<std::vector<std::string>> texts;
  for (Source expected : {Source::Compiled, Source::Disk}) {
    KvFixture f = KvFixture::make("sm_80", folder.path()); // a new engine
    for (Source source : {expected, Source::Memory}) {
      KvCache cache = cacheOf(f, optionsFor("kv4", "kv8"));
      texts.emplace_back();
      ASSERT_EQ(cache.reports().size(), 5U);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(cache.reports()[i].source, source) << i;
        EXPECT_EQ(cache.reports()[i].warnings, std::vector<std::string>());
        const compiler::KernelImage &image = kernelsOf(cache)[i]->image;
        texts.back().insert(texts.back().end(), {image.ptx, image.printFacts()});
      }
      EXPECT_EQ(texts.back(), texts.front());
    }
  }
  EXPECT_EQ(cache::storedEntries(folder.path()).size(), 5U);
  for (const cache::StoredEntry &stored : cache::storedEntries(folder.path())) {
    cache::ReadEntry read = cache::readEntry(folder.path() + "/" + stored.key, stored.key);
    EXPECT_EQ(contentDamage(read.entry.value()), "");
    EXPECT_EQ(labelOf(*read.entry).problem, "page 64, head 128, heads 4 to 2");
  }
}

// What an engine finds under the key of an earlier cache is what the compiler would have made.
TEST(KvKernels, WithOneKeyAreOneText) {
  KvFixture f = KvFixture::make();
  std::set<std::string> keys;
  auto add = [&](auto change) {
    KvCacheOptions options = optionsFor("kv4", "kv4");
    options.headDim = 64;
    change(options);
    KvCache cache = cacheOf(f, options);
    const compiler::KvLayout &layout = cache.impl().layout;
    for (size_t i = 0; i < 5; ++i) {
      keys.insert(cache.reports()[i].key);
      if (cache.reports()[i].source == Source::Compiled)
        continue;
      const compiler::KernelImage &found = kernelsOf(cache)[i]->image;
      const compiler::KvTensor &tensor = i % 2 == 0 ? layout.keys : layout.values;
      Result<compiler::KernelImage> made = i == 4  ? compileKvAttend(layout, found.target)
                                           : i < 2 ? compileKvQuantize(tensor, found.target)
                                                   : compileKvDequantize(tensor, found.target);
      ASSERT_GOOD(made);
      EXPECT_EQ(found.ptx, made->ptx) << i;
      EXPECT_EQ(found.printFacts(), made->printFacts()) << i;
    }
  };
  using Options = KvCacheOptions;
  add([](Options &) {});
  EXPECT_EQ(keys.size(), 5U);
  add([](Options &o) { o.pages = 20; });
  add([](Options &o) { o.softmaxScale = 2; });
  EXPECT_EQ(keys.size(), 5U);
  add([](Options &o) { o.pageTokens = 128; });
  add([](Options &o) { o.kvHeads = 4; });
  add([](Options &o) { o.queryHeads = 6; });
  add([](Options &o) { o.type = ScalarType::BF16; });
  add([](Options &o) { o.headDim = 128; });
  add([](Options &o) { o.keys = "kv3"; });
  add([](Options &o) { o.values = "kv_fp4"; }); // whose groups make steps of 16 tokens
  EXPECT_GT(keys.size(), 5U);
}

// Decodes are kept in the process, and kernels on disk for all others.
TEST(KvKernels, AreThoseOfNoCallersRounding) {
  KvFixture f = KvFixture::make();
  // Read nowhere else: what is found of it is not known yet.
  Module module = *Module::parse("format rounded { element: codebook [-1.1, -0.9, -0.7, -0.3, 0.1, "
                                 "0.2, 0.3, 0.7, 0.9, 1.1, 1.3, 1.7, 1.9, 2.1, 2.3, 2.7] "
                                 "scale: f16 per k[64] value = element * scale }");
  std::fesetround(FE_UPWARD);
  Result<KvCache> cache = KvCache::create(f.engine, module, optionsFor("rounded", "rounded"));
  std::fesetround(FE_TONEAREST);
  ASSERT_GOOD(cache);
  const compiler::KvTensor &tensor = cache->impl().layout.of(compiler::KvPart::Keys);
  const compiler::DecodeSequence &decode = tensor.decode;
  for (uint32_t code = 0; code < 16; ++code) {
    std::vector<uint32_t> words{0};
    decode.put(code, 0, 0, words);
    const double number = std::ldexp(tensor.format.element().type.decode(code), decode.log2Factor);
    EXPECT_EQ(decode.program.run(words, {})[0] & 0xffff, tensor.shape.type.encode(number));
  }
}

TEST(KvKernels, AnEntryOfAnotherKindIsMadeAnew) {
  TemporaryFolder folder;
  KvFixture f = KvFixture::make("sm_80", folder.path());
  const std::string key = cacheOf(f, optionsFor("kv4", "kv4")).reports()[4].key;
  compiler::KernelImage gemm;
  gemm.entry = "g";
  gemm.target = "sm_80";
  gemm.threads = 32;
  gemm.n = gemm.k = gemm.tileM = gemm.tileN = gemm.tileK = 16;
  gemm.activation.k = gemm.weight.n = gemm.weight.k = 16;
  cache::Entry entry = kernelEntry(gemm, "");
  label(entry, {.kind = EntryKind::Kernel});
  ASSERT_EQ(contentDamage(entry), "");
  cache::Warnings warnings;
  cache::DiskCacheOptions options;
  options.directory = folder.path();
  ASSERT_TRUE(cache::DiskCache(options).store(key, entry, warnings));
  CompileReport again =
      cacheOf(KvFixture::make("sm_80", folder.path()), optionsFor("kv4", "kv4")).reports()[4];
  EXPECT_EQ(again.source, Source::Compiled);
  ASSERT_EQ(again.warnings.size(), 1U);
  EXPECT_NE(again.warnings[0].find("it is the kernel of a gemm"), std::string::npos)
      << again.warnings[0];
}

} // namespace
} // namespace rho
