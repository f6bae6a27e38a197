// A folder for the files of one test, and .safetensors files put together byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace rho::test {

class TemporaryFiles : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rho-files-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern + "/";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string put(const std::string &name, const std::string &content) const {
    std::ofstream(folder + name, std::ios::binary) << content;
    return folder + name;
  }
  static std::string contentOf(const std::string &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  size_t filesThere() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                             std::filesystem::directory_iterator()));
  }

  std::string folder;
};

template <class Number> std::string bytesOf(const std::vector<Number> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Number)};
}

inline std::string safetensors(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

// One tensor of a file; `shape` without brackets.
struct TensorBytes {
  std::string name, type, shape, data;
};
inline std::string safetensors(const std::vector<TensorBytes> &tensors,
                               const std::string &metadata = "") {
  std::string header = "{" + metadata, data;
  for (const TensorBytes &tensor : tensors) {
    header += header.size() > 1 ? "," : "";
    header += "\"" + tensor.name + R"(":{"dtype":")" + tensor.type + R"(","shape":[)" +
              tensor.shape + R"(],"data_offsets":[)" + std::to_string(data.size()) + ",";
    data += tensor.data;
    header += std::to_string(data.size()) + "]}";
  }
  return safetensors(header + "}", data);
}

} // namespace rho::test
