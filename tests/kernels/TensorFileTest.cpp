#include "kernels/TensorFile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

using namespace rho;
using namespace rho::kernels;
using Type = dsl::MatrixView::Type;

namespace {

std::string floats(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * 4};
}

class TensorFileTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rho-tensor-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern + "/";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string put(const std::string &name, const std::string &content) {
    std::ofstream(folder + name, std::ios::binary) << content;
    return folder + name;
  }

  std::string folder;
  // A valid header and its data.
  const std::string twoByThree = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string sixFloats = floats({1, 2, 3, 4, 5, 6});
};

std::string safetensors(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string npy(const std::string &header, const std::string &data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  uint32_t length = header.size();
  file.append(reinterpret_cast<const char *>(&length), version == 1 ? 2 : 4);
  return file + header + data;
}

std::string readError(const std::string &reference) {
  Result<Tensor> tensor = readTensor(reference);
  return tensor.ok() ? "read" : tensor.error().str();
}

TEST_F(TensorFileTest, readsSafetensors) {
  std::string path = put("a.safetensors", safetensors(twoByThree, sixFloats));
  for (const std::string &reference : {path, path + ":w"}) {
    Result<Tensor> tensor = readTensor(reference);
    ASSERT_TRUE(tensor.ok()) << tensor.error().str();
    EXPECT_EQ(tensor->view.rows, 2);
    EXPECT_EQ(tensor->view.k, 3);
    EXPECT_EQ(tensor->view.stride, 3);
    EXPECT_EQ(tensor->name, "w");
    EXPECT_EQ(tensor->view.at(1, 2), 6);
  }
}

TEST_F(TensorFileTest, readsOneOfManySafetensors) {
  std::string path =
      put("a.safetensors",
          safetensors(R"( {"__metadata__":{"format":"pt"}, "b" : {"shape":[1,2],"dtype":"F16",)"
                      R"("data_offsets":[24,28]},"ids":{"dtype":"I64","shape":[1],"data_offsets":)"
                      R"([28,36]},"q\u00e9\ud83d\ude00\n":{"dtype":"BF16","shape":[2,6],)"
                      R"("data_offsets":[0,24]}}    )",
                      std::string(24, '\x3f') + std::string("\x00\x3c\x00\xc0", 4) +
                          std::string(8, '\0')));
  Result<Tensor> half = readTensor(path + ":b");
  ASSERT_TRUE(half.ok()) << half.error().str();
  EXPECT_EQ(half->view.type, Type::F16);
  EXPECT_EQ(half->view.at(0, 0), 1);
  EXPECT_EQ(half->view.at(0, 1), -2);
  Result<Tensor> brain = readTensor(path + ":q\u00e9\U0001f600\n");
  ASSERT_TRUE(brain.ok()) << brain.error().str();
  EXPECT_EQ(brain->view.type, Type::BF16);
  EXPECT_EQ(brain->view.at(1, 5), 0x1.7ep-1);
  EXPECT_EQ(readError(path + ":ids"), "error: the numbers of '" + path +
                                          ":ids' are I64, only f32, f16 and bf16 are read "
                                          "[tensor_type_unsupported]\n");
  EXPECT_EQ(readError(path), "error: '" + path +
                                 "' holds 3 tensors, choose one as FILE.safetensors:NAME: "
                                 "'q\u00e9\U0001f600\\x0a', 'b', 'ids' [tensor_name_needed]\n");
  EXPECT_EQ(readError(path + ":c"), "error: there is no tensor 'c' in '" + path +
                                        "', it holds 'q\u00e9\U0001f600\\x0a', 'b', 'ids' "
                                        "[tensor_not_found]\n");
}

TEST_F(TensorFileTest, readsDataThatStartsAtAnOddByte) {
  std::string header = twoByThree;
  header.resize(header.size() / 4 * 4 + 5, ' ');
  Result<Tensor> tensor = readTensor(put("a.safetensors", safetensors(header, sixFloats)));
  ASSERT_TRUE(tensor.ok()) << tensor.error().str();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->view.data) % 4, 0U);
  EXPECT_EQ(tensor->view.at(1, 0), 4);
}

TEST_F(TensorFileTest, refusesMalformedSafetensors) {
  auto expected = [&](const std::string &what) {
    return "error: '" + folder + "a.safetensors' is not a valid .safetensors file: " + what +
           " [tensor_file_invalid]\n";
  };
  auto error = [&](const std::string &content) { return readError(put("a.safetensors", content)); };
  auto headerError = [&](const std::string &header) {
    return error(safetensors(header, sixFloats));
  };
  auto changed = [&](const std::string &from, const std::string &to) {
    std::string header = twoByThree;
    return headerError(header.replace(header.find(from), from.size(), to));
  };
  EXPECT_EQ(error(""), expected("it has 0 bytes, its first 8 are the length of the header"));
  EXPECT_EQ(error(std::string(8, '\xff')),
            expected("its header is said to have 18446744073709551615 bytes, 0 follow and "
                     "100000000 are possible"));
  EXPECT_EQ(error(safetensors(twoByThree, "").substr(0, 40)),
            expected("its header is said to have 57 bytes, 32 follow and 100000000 are possible"));
  EXPECT_EQ(error(safetensors(twoByThree, sixFloats.substr(1))),
            expected("'w' ends at byte 24 of the data, 23 are there"));
  EXPECT_EQ(error(safetensors(twoByThree, sixFloats + "x")),
            expected("1 bytes follow the last tensor"));
  EXPECT_EQ(headerError(""), expected("the header is not an object"));
  EXPECT_EQ(headerError("[]"), expected("the header is not an object"));
  EXPECT_EQ(headerError(twoByThree + "{}"), expected("something follows the header's object"));
  EXPECT_EQ(headerError(twoByThree.substr(0, 56)), expected("the header does not end with '}'"));
  EXPECT_EQ(headerError("{\"w\""), expected("':' is missing after 'w'"));
  EXPECT_EQ(headerError("{\"w"), expected("a string does not end or holds a control character"));
  EXPECT_EQ(headerError(R"({"\x":{}})"),
            expected("a string has an escape that JSON does not know"));
  EXPECT_EQ(headerError(R"({"\u12g4":{}})"),
            expected("a \\u escape has no four hexadecimal digits"));
  EXPECT_EQ(headerError(R"({"\ud800x":{}})"), expected("a string has half a surrogate pair"));
  EXPECT_EQ(headerError(R"({"\udc00":{}})"), expected("a string has half a surrogate pair"));
  EXPECT_EQ(headerError(R"({"w":1})"), expected("'w' is not an object"));
  EXPECT_EQ(headerError(R"({"w":{},})"),
            expected("'w' lacks one of dtype, shape and data_offsets"));
  EXPECT_EQ(headerError(R"({"__metadata__":{"a":1}})"),
            expected("'a' in '__metadata__' is no string"));
  EXPECT_EQ(headerError("{"), expected("a name in the header is no string"));
  EXPECT_EQ(changed("\"F32\"", "32"), expected("the dtype of 'w' is no string"));
  for (const char *bytes : {"\x80", "\xc1\x81", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\x80\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82"})
    EXPECT_EQ(headerError(std::string("{\"") + bytes + "\":{}}"),
              expected("byte 2 of its header begins no character of UTF-8"))
        << bytes;
  EXPECT_EQ(headerError("{\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\":1}"),
            expected("'\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80' is not an object"));
  EXPECT_EQ(headerError(R"({"__metadata__":{"a":"1","a":"2"}})"),
            expected("'a' stands twice in '__metadata__'"));
  EXPECT_EQ(headerError("{" + twoByThree.substr(1, 55) + "," + twoByThree.substr(1)),
            expected("'w' stands twice in the header"));
  EXPECT_EQ(changed("\"shape\"", "\"size\""), expected("'size' in 'w' is no part of the format"));
  EXPECT_EQ(changed("\"shape\":[2,3],", ""),
            expected("'w' lacks one of dtype, shape and data_offsets"));
  EXPECT_EQ(changed("\"shape\":[2,3],", "\"dtype\":\"F32\","),
            expected("'dtype' stands twice in 'w'"));
  EXPECT_EQ(changed("F32", "F31"), expected("'F31', the dtype of 'w', is not known"));
  EXPECT_EQ(changed("[2,3]", "[2,3.5]"),
            expected("the shape of 'w' has neither ',' nor ']' behind a count"));
  EXPECT_EQ(changed("[2,3]", "[2,-3]"),
            expected("the shape of 'w' holds something that is no count"));
  EXPECT_EQ(changed("[2,3]", "[2,03]"),
            expected("the shape of 'w' holds something that is no count"));
  EXPECT_EQ(changed("[2,3]", "6"), expected("the shape of 'w' is not a list"));
  EXPECT_EQ(changed("[2,3]", "[2,4]"), expected("the shape of 'w' does not make its 24 bytes"));
  EXPECT_EQ(changed("[2,3]", "[4294967296,4294967296]"),
            expected("the shape of 'w' does not make its 24 bytes"));
  EXPECT_EQ(changed("[2,3]", "[99999999999999999999,3]"),
            expected("the shape of 'w' holds something that is no count"));
  EXPECT_EQ(changed("[0,24]", "[24,0]"),
            expected("the data_offsets of 'w' are not a begin and an end"));
  EXPECT_EQ(changed("[0,24]", "[24]"),
            expected("the data_offsets of 'w' are not a begin and an end"));
  EXPECT_EQ(changed("[0,24]", "[8,32]"), expected("no tensor covers the bytes before 'w'"));
  EXPECT_EQ(headerError(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("v":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}})"),
            expected("'v' overlaps the tensor before it"));
  const std::string longName(10000, 'n'), control = R"(\u001b[2J)";
  for (const auto &[name, shown] :
       {std::pair{longName, longName.substr(0, 48) + "..."}, {control, std::string("\\x1b[2J")}}) {
    EXPECT_EQ(
        headerError("{\"" + name + R"(":{"dtype":"F32","shape":[2,4],"data_offsets":[0,24]}})"),
        expected("the shape of '" + shown + "' does not make its 24 bytes"));
    EXPECT_EQ(
        headerError("{\"" + name + R"(":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})"),
        expected("no tensor covers the bytes before '" + shown + "'"));
    EXPECT_EQ(headerError("{\"w\":{\"" + name + R"(":1}})"),
              expected("'" + shown + "' in 'w' is no part of the format"));
  }
}

TEST_F(TensorFileTest, survivesEveryCutAndEveryChangedByteOfAHeader) {
  std::string file = safetensors(twoByThree, sixFloats);
  std::string numpy =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", sixFloats);
  for (const auto &[name, content] : {std::pair<std::string, std::string>("a.safetensors", file),
                                      std::pair<std::string, std::string>("a.npy", numpy)}) {
    for (size_t length = 0; length < content.size(); ++length)
      EXPECT_FALSE(readTensor(put(name, content.substr(0, length))).ok()) << name << length;
    for (size_t at = 0; at < content.size() - 24; ++at)
      for (char byte : {'9', '"', '\xff'}) {
        std::string changed = content;
        changed[at] = byte;
        Result<Tensor> tensor = readTensor(put(name, changed));
        if (tensor)
          EXPECT_EQ(tensor->view.rows * tensor->view.k * (tensor->view.type == Type::F32 ? 4 : 2),
                    24);
      }
  }
}

TEST_F(TensorFileTest, readsEveryVersionAndTypeOfNpy) {
  for (int version : {1, 2, 3}) {
    Result<Tensor> tensor = readTensor(
        put("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n",
                         sixFloats, version)));
    ASSERT_TRUE(tensor.ok()) << tensor.error().str();
    EXPECT_EQ(tensor->view.at(0, 1), 2);
    EXPECT_EQ(tensor->view.at(1, 2), 6);
  }
  for (const auto &[descr, type] : {std::pair<std::string, Type>("<f2", Type::F16),
                                    std::pair<std::string, Type>("<V2", Type::BF16),
                                    std::pair<std::string, Type>("|V2", Type::BF16),
                                    std::pair<std::string, Type>("bfloat16", Type::BF16)}) {
    Result<Tensor> tensor = readTensor(
        put("a.npy",
            npy("{\"descr\":'" + descr + "','fortran_order':False,'shape':(3,4)}", sixFloats)));
    ASSERT_TRUE(tensor.ok()) << tensor.error().str();
    EXPECT_EQ(tensor->view.type, type);
    EXPECT_EQ(tensor->view.k, 4);
  }
}

TEST_F(TensorFileTest, refusesMalformedNpy) {
  auto expected = [&](const std::string &what) {
    return "error: '" + folder + "a.npy' is not a valid .npy file: " + what +
           " [tensor_file_invalid]\n";
  };
  auto error = [&](const std::string &content) { return readError(put("a.npy", content)); };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  auto changed = [&](const std::string &from, const std::string &to) {
    std::string header = good;
    return error(npy(header.replace(header.find(from), from.size(), to), sixFloats));
  };
  EXPECT_EQ(error(""), expected("it does not start as a .npy file does"));
  EXPECT_EQ(error("\x93NUMPX and more"), expected("it does not start as a .npy file does"));
  EXPECT_EQ(error(npy(good, sixFloats, 4)),
            expected("its version is 4.0, 1.0, 2.0 and 3.0 are read"));
  EXPECT_EQ(error(npy(good, "").substr(0, 30)),
            expected("its header is said to have 60 bytes, 20 follow"));
  EXPECT_EQ(error(npy(good, sixFloats.substr(1))),
            expected("its shape does not make the 23 bytes after the header"));
  EXPECT_EQ(error(npy(good, sixFloats + "1234")),
            expected("its shape does not make the 28 bytes after the header"));
  EXPECT_EQ(changed("False", "True"), expected("it is in Fortran order, only C order is read"));
  EXPECT_EQ(changed("False", "0"), expected("its fortran_order is neither True nor False"));
  EXPECT_EQ(changed("{", "["), expected("its header is not a dict"));
  EXPECT_EQ(changed("}", "]"), expected("a string is missing in its header"));
  EXPECT_EQ(changed(", }", "]"), expected("its header does not end with '}'"));
  EXPECT_EQ(changed("}", "}}"), expected("something follows the dict in its header"));
  EXPECT_EQ(changed("'shape': (2, 3), ", ""),
            expected("its header lacks one of descr, fortran_order and shape"));
  EXPECT_EQ(changed("'shape'", "'descr'"), expected("'descr' stands twice in its header"));
  EXPECT_EQ(changed("'shape'", "'size'"),
            expected("'size' in its header is no part of the format"));
  EXPECT_EQ(changed("'shape':", "'shape'"), expected("':' is missing after 'shape'"));
  EXPECT_EQ(changed("'<f4'", "[('a', '<f4')]"),
            expected("it holds records, only numbers are read"));
  EXPECT_EQ(changed("'<f4'", "'<f\\4'"),
            expected("a string in its header does not end or has an escape"));
  EXPECT_EQ(changed("(2, 3)", "[2, 3]"), expected("its shape is not a tuple"));
  EXPECT_EQ(changed("(2, 3)", "(2, x)"), expected("its shape holds something that is no count"));
  EXPECT_EQ(changed("(2, 3)", "(2 3)"), expected("its shape does not end with ')'"));
  EXPECT_EQ(changed("(2, 3)", "(2, 4)"),
            expected("its shape does not make the 24 bytes after the header"));
  EXPECT_EQ(changed("'<f4'", "'<i4'"), "error: the numbers of '" + folder +
                                           "a.npy' are <i4, only f32, f16 and bf16 are read "
                                           "[tensor_type_unsupported]\n");
  EXPECT_EQ(
      changed("(2, 3)", "(6,)"),
      "error: the shape of '" + folder +
          "a.npy' is 6, a matrix needs two extents of at least 1 [tensor_shape_unsupported]\n");
  EXPECT_EQ(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3)}", "")),
            "error: the shape of '" + folder +
                "a.npy' is 0 x 3, a matrix needs two extents of at "
                "least 1 [tensor_shape_unsupported]\n");
}

TEST_F(TensorFileTest, refusesWhatIsNoFile) {
  EXPECT_EQ(readError(folder + "none.npy"), "error: '" + folder +
                                                "none.npy' cannot be read: No such file or "
                                                "directory [file_not_readable]\n");
  std::filesystem::create_directory(folder + "d.npy");
  EXPECT_EQ(readError(folder + "d.npy"), "error: '" + folder +
                                             "d.npy' cannot be read: not a regular file "
                                             "[file_not_readable]\n");
  ASSERT_EQ(mkfifo((folder + "p.npy").c_str(), 0600), 0);
  EXPECT_EQ(readError(folder + "p.npy"), "error: '" + folder +
                                             "p.npy' cannot be read: not a regular file "
                                             "[file_not_readable]\n");
  EXPECT_EQ(readError("weights.bin"),
            "error: 'weights.bin' ends in neither .npy nor .safetensors, only these files hold "
            "matrices [tensor_file_kind]\n");
}

// Sparse, so that it takes no room: the header, then 6 GB of zeros and a last number.
TEST_F(TensorFileTest, readsBeyondFourGigabytes) {
  const int64_t rows = 3072;
  const int64_t columns = 524288;
  const int64_t bytes = rows * columns * 4;
  std::string header = R"({"w":{"dtype":"F32","shape":[3072,524288],"data_offsets":[0,)" +
                       std::to_string(bytes) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string path = put("big.safetensors", safetensors(header, ""));
  std::error_code error;
  std::filesystem::resize_file(path, 8 + header.size() + bytes, error);
  if (error)
    GTEST_SKIP() << "the file system holds no sparse file of 6 GB";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file << floats({42});
  }
  Result<Tensor> tensor = readTensor(path);
  ASSERT_TRUE(tensor.ok()) << tensor.error().str();
  EXPECT_EQ(tensor->view.at(rows - 1, columns - 1), 42);
  EXPECT_EQ(tensor->view.at(rows - 1, columns - 2), 0);
}

TEST_F(TensorFileTest, writesWhatItReads) {
  std::vector<float> wide = {1, -2, 3.5F, 1e-30F, 5, 6};
  std::vector<uint16_t> narrow = {0x3c00, 0xbc00, 0x7bff, 1, 0, 0x8000};
  for (const char *name : {"y.npy", "y.safetensors"})
    for (Type type : {Type::F32, Type::F16, Type::BF16}) {
      const void *data = type == Type::F32 ? static_cast<const void *>(wide.data()) : narrow.data();
      size_t bytes = type == Type::F32 ? 24 : 12;
      Status written = writeTensor(folder + name, "y", {data, type, 3, 2, 2});
      ASSERT_TRUE(written.ok()) << written.error().str();
      Result<Tensor> tensor = readTensor(folder + name);
      ASSERT_TRUE(tensor.ok()) << tensor.error().str();
      EXPECT_EQ(tensor->view.type, type);
      EXPECT_EQ(tensor->view.rows, 3);
      EXPECT_EQ(tensor->view.k, 2);
      EXPECT_EQ(std::memcmp(tensor->view.data, data, bytes), 0);
    }
  // Nothing is left beside the two files.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
}

TEST_F(TensorFileTest, refusesWhereItCannotWrite) {
  float one = 1;
  auto error = [&](const std::string &path) {
    return writeTensor(path, "y", {&one, Type::F32, 1, 1, 1}).error().str();
  };
  EXPECT_EQ(error(folder + "none/y.npy"), "error: '" + folder +
                                              "none/y.npy' cannot be written: No such file or "
                                              "directory [file_not_writable]\n");
  EXPECT_EQ(error("y.txt"), "error: 'y.txt' ends in neither .npy nor .safetensors, only these "
                            "files hold matrices [tensor_file_kind]\n");
  std::filesystem::create_directories(folder + "y.npy/full");
  EXPECT_FALSE(writeTensor(folder + "y.npy", "y", {&one, Type::F32, 1, 1, 1}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

} // namespace
