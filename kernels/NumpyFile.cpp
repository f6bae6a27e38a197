// The .npy container: numpy.lib.format, versions 1.0, 2.0 and 3.0.
#include "kernels/HeaderScanner.h"
#include "kernels/TensorHeader.h"

#include <array>
#include <cstring>
#include <set>

namespace rho::kernels {

using Type = dsl::MatrixView::Type;

namespace {

constexpr std::string_view magic = "\x93NUMPY";

// numpy has no bfloat16: ml_dtypes writes it as the raw type V2, others as its name.
constexpr std::array<std::pair<std::string_view, Type>, 5> numpyTypes = {{
    {"<f4", Type::F32},
    {"<f2", Type::F16},
    {"<V2", Type::BF16},
    {"|V2", Type::BF16},
    {"bfloat16", Type::BF16},
}};

// A Python dict literal with the three keys that the format has.
class DictReader {
public:
  explicit DictReader(std::string_view text) : scanner(text) {}

  const std::string &problem() const { return failure; }

  TensorEntry read() {
    TensorEntry tensor;
    std::set<std::string> keys;
    if (!scanner.take("{"))
      fail("its header is not a dict");
    while (ok() && !scanner.take("}")) {
      std::string key = readString();
      if (ok() && !scanner.take(":"))
        fail("':' is missing after '" + key + "'");
      if (ok() && !keys.insert(key).second)
        fail("'" + key + "' stands twice in its header");
      if (ok())
        readValue(key, tensor);
      if (ok() && !scanner.take(",")) {
        if (!scanner.take("}"))
          fail("its header does not end with '}'");
        break;
      }
    }
    if (ok() && !scanner.atEnd())
      fail("something follows the dict in its header");
    if (ok() && keys.size() != 3)
      fail("its header lacks one of descr, fortran_order and shape");
    return tensor;
  }

private:
  bool ok() const { return failure.empty(); }
  void fail(const std::string &what) {
    if (ok())
      failure = what;
  }

  void readValue(const std::string &key, TensorEntry &tensor) {
    if (key == "descr") {
      if (scanner.take("["))
        return fail("it holds records, only numbers are read");
      tensor.type = readString();
    } else if (key == "fortran_order") {
      if (scanner.take("True"))
        return fail("it is in Fortran order, only C order is read");
      if (!scanner.take("False"))
        fail("its fortran_order is neither True nor False");
    } else if (key == "shape") {
      readShape(tensor.shape);
    } else {
      fail("'" + key + "' in its header is no part of the format");
    }
  }

  std::string readString() {
    char quote = scanner.take("'") ? '\'' : scanner.take("\"") ? '"' : '\0';
    std::string text;
    if (quote == 0)
      fail("a string is missing in its header");
    while (ok()) {
      char byte = scanner.takeByte();
      if (byte == quote)
        break;
      if (static_cast<unsigned char>(byte) < 0x20 || byte == '\\')
        fail("a string in its header does not end or has an escape");
      text += byte;
    }
    return text;
  }

  void readShape(std::vector<int64_t> &shape) {
    if (!scanner.take("("))
      return fail("its shape is not a tuple");
    while (!scanner.take(")")) {
      std::optional<int64_t> extent = scanner.takeCount();
      if (!extent)
        return fail("its shape holds something that is no count");
      shape.push_back(*extent);
      if (!scanner.take(",")) {
        if (!scanner.take(")"))
          fail("its shape does not end with ')'");
        return;
      }
    }
  }

  HeaderScanner scanner;
  std::string failure;
};

} // namespace

TensorHeader readNumpyHeader(std::string_view file) {
  TensorHeader header;
  auto fail = [&](const std::string &what) {
    header.problem = what;
    return header;
  };
  if (!file.starts_with(magic) || file.size() < 12)
    return fail("it does not start as a .npy file does");
  int version = static_cast<unsigned char>(file[6]);
  int minor = static_cast<unsigned char>(file[7]);
  if (version < 1 || version > 3 || minor != 0)
    return fail("its version is " + std::to_string(version) + "." + std::to_string(minor) +
                ", 1.0, 2.0 and 3.0 are read");
  // Little endian, two bytes in version 1.
  uint32_t length = 0;
  size_t start = version == 1 ? 10 : 12;
  std::memcpy(&length, file.data() + 8, start - 8);
  if (length > file.size() - start)
    return fail("its header is said to have " + std::to_string(length) + " bytes, " +
                std::to_string(file.size() - start) + " follow");
  DictReader reader(file.substr(start, length));
  TensorEntry tensor = reader.read();
  if (!reader.problem().empty())
    return fail(reader.problem());
  tensor.begin = static_cast<int64_t>(start + length);
  tensor.bytes = static_cast<int64_t>(file.size()) - tensor.begin;
  for (const auto &[name, type] : numpyTypes)
    if (name == tensor.type)
      tensor.supported = type;
  if (tensor.supported) {
    std::optional<int64_t> bytes = elementsOf(tensor.shape);
    int64_t needed = 0;
    if (!bytes || __builtin_mul_overflow(*bytes, bytesOf(*tensor.supported), &needed) ||
        needed != tensor.bytes)
      return fail("its shape does not make the " + std::to_string(tensor.bytes) +
                  " bytes after the header");
  }
  header.tensors.push_back(std::move(tensor));
  return header;
}

std::string writeNumpyHeader(const dsl::MatrixView &matrix) {
  std::string_view descr; // the first of its type in the table
  for (const auto &[name, type] : numpyTypes)
    if (type == matrix.type && descr.empty())
      descr = name;
  std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (" +
                     std::to_string(matrix.rows) + ", " + std::to_string(matrix.k) + "), }";
  // The data starts at a multiple of 64; the header ends in a newline.
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  std::string header(magic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 255);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

} // namespace rho::kernels
