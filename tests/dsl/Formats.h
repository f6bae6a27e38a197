// Formats of texts and of kernels/formats, for tests.
#pragma once

#include "dsl/Module.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <memory>

namespace rho::test {

using FormatPtr = std::shared_ptr<const dsl::Format>;

// The first format of a text.
inline FormatPtr declared(const std::string &text) {
  Result<dsl::Module> module = dsl::parseModule(text, "a.rho", nullptr);
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return std::make_shared<const dsl::Format>(module->formats.at(0));
}

inline dsl::Format formatOf(const std::string &text) { return *declared(text); }

inline FormatPtr shipped(const std::string &name) {
  Result<dsl::Module> module =
      dsl::loadModule((sourceDir() / "kernels/formats" / (name + ".rho")).string());
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return std::make_shared<const dsl::Format>(*module->findFormat(name));
}

} // namespace rho::test
