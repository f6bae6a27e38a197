// A cache folder of a test's own, with a key and an entry that it may have.
#pragma once

#include "runtime/cache/DiskCache.h"
#include "tests/runtime/CacheKeys.h"
#include "tests/runtime/TemporaryFolder.h"

#include <gtest/gtest.h>

namespace rho::cache {

inline const Entry &sampleEntry() {
  static const Entry entry = {{"facts", "rho kernel 1\n"}, {"ptx", ".version 7.0\n"}};
  return entry;
}

class CacheFixture : public testing::Test {
protected:
  DiskCacheOptions options() const {
    DiskCacheOptions options;
    options.directory = folder.path() + "/cache";
    return options;
  }
  std::string path(const std::string &file = "") const {
    return options().directory + "/" + key + (file.empty() ? "" : "/" + file);
  }

  TemporaryFolder folder;
  const std::string key = keyOf("a spec");
  const Entry entry = sampleEntry();
};

} // namespace rho::cache
