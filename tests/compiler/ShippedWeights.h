// The weight formats of kernels/formats.
#pragma once

#include "compiler/Layout.h"
#include "dsl/Module.h"
#include "tests/compiler/EmulatedGemm.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rho::test {

inline std::string textOf(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Their names.
inline std::vector<std::string> shippedWeights() {
  const std::string formats = declaration({"int4_g128", "f16", "f32", "", "", {3, 64, 256}});
  const Result<dsl::Module> module =
      dsl::parseModule(formats, "shipped.rho", [](const std::string &) { return std::nullopt; });
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(RHO_SOURCE_DIR "/kernels/formats")) {
    const std::string text = textOf(entry.path());
    for (const dsl::Format &format : module->formats) {
      const bool isHere = text.find("format " + format.name + " {") != std::string::npos;
      bool isActivation = false;
      for (const compiler::StoredComponent &stored : compiler::storedComponents(format))
        isActivation = isActivation || stored.declared().perToken;
      if (isHere && !isActivation)
        names.push_back(format.name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace rho::test
