// Formats of texts and of kernels/formats, for tests.
#pragma once

#include "dsl/Module.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

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

// Of a declaration that begins with "format", else shipped.
inline FormatPtr declaredOrShipped(const std::string &text) {
  return text.starts_with("format") ? declared(text) : shipped(text);
}

// Codes of all components but the element.
inline std::vector<uint32_t> randomCodes(const dsl::Format &format, std::mt19937_64 &random) {
  std::vector<uint32_t> codes{0};
  for (size_t c = 1; c < format.components.size(); ++c)
    codes.push_back(static_cast<uint32_t>(random()) &
                    static_cast<uint32_t>((uint64_t(1) << format.components[c].type.bits()) - 1));
  return codes;
}

} // namespace rho::test
