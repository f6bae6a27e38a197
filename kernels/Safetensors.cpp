// The safetensors container: https://huggingface.co/docs/safetensors, section Format.
#include "dsl/Findings.h"
#include "dsl/Numbers.h"
#include "dsl/Utf8.h"
#include "kernels/HeaderScanner.h"
#include "kernels/TensorHeader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace rho::kernels {

using Type = dsl::MatrixView::Type;

namespace {

struct TypeInfo {
  std::string_view name;
  int bits;
  std::optional<Type> supported;
};
constexpr std::array<TypeInfo, 22> safetensorsTypes = {{
    {"F32", 32, Type::F32}, {"F16", 16, Type::F16}, {"BF16", 16, Type::BF16}, {"F64", 64, {}},
    {"C64", 64, {}},        {"I64", 64, {}},        {"I32", 32, {}},          {"I16", 16, {}},
    {"I8", 8, {}},          {"U64", 64, {}},        {"U32", 32, {}},          {"U16", 16, {}},
    {"U8", 8, {}},          {"BOOL", 8, {}},        {"F8_E5M2", 8, {}},       {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},     {"F8_E4M3FNUZ", 8, {}}, {"F8_E5M2FNUZ", 8, {}},   {"F6_E3M2", 6, {}},
    {"F6_E2M3", 6, {}},     {"F4", 4, {}},
}};

void appendUtf8(std::string &text, uint32_t point) {
  if (point < 0x80) {
    text += static_cast<char>(point);
  } else if (point < 0x800) {
    text += static_cast<char>(0xc0 | point >> 6);
    text += static_cast<char>(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    text += static_cast<char>(0xe0 | point >> 12);
    text += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (point & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | point >> 18);
    text += static_cast<char>(0x80 | (point >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (point & 0x3f));
  }
}

// The JSON that this format needs and no more: an object of objects of strings and counts.
class JsonReader {
public:
  explicit JsonReader(std::string_view text) : scanner(text) {}

  const std::string &problem() const { return failure; }
  Metadata takeMetadata() { return std::move(texts); }

  std::vector<TensorEntry> read() {
    std::vector<TensorEntry> tensors;
    std::set<std::string> names;
    readObject("the header", names, [&](const std::string &name) {
      if (name == "__metadata__")
        return readMetadata();
      TensorEntry tensor;
      tensor.name = name;
      readTensor(tensor);
      tensors.push_back(std::move(tensor));
    });
    if (ok() && !scanner.atEnd())
      fail("something follows the header's object");
    return tensors;
  }

private:
  bool ok() const { return failure.empty(); }
  void fail(const std::string &what) {
    if (ok())
      failure = what;
  }

  // Calls member(key) in front of each value. Keys that stand twice are an error.
  template <class Member>
  void readObject(const std::string &what, std::set<std::string> &keys, const Member &member) {
    if (!scanner.take("{"))
      return fail(what + " is not an object");
    if (scanner.take("}"))
      return;
    do {
      std::string key = readString("a name in " + what);
      if (ok() && !scanner.take(":"))
        fail("':' is missing after '" + dsl::shown(key) + "'");
      if (ok() && !keys.insert(key).second)
        fail("'" + dsl::shown(key) + "' stands twice in " + what);
      if (ok())
        member(key);
    } while (ok() && scanner.take(","));
    if (ok() && !scanner.take("}"))
      fail(what + " does not end with '}'");
  }

  uint32_t readHexadecimal() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      char byte = scanner.takeByte();
      int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                  : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                  : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                               : -1;
      if (digit < 0)
        fail("a \\u escape has no four hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(digit & 15);
    }
    return value;
  }

  void readEscape(std::string &text) {
    static constexpr std::string_view plain = "\"\\/bfnrt";
    static constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    char byte = scanner.takeByte();
    if (size_t at = plain.find(byte); byte != 0 && at != std::string_view::npos) {
      text += meant[at];
      return;
    }
    if (byte != 'u')
      return fail("a string has an escape that JSON does not know");
    uint32_t point = readHexadecimal();
    if (point >= 0xd800 && point < 0xdc00) {
      bool pair = scanner.takeByte() == '\\' && scanner.takeByte() == 'u';
      uint32_t low = pair ? readHexadecimal() : 0;
      if (low < 0xdc00 || low > 0xdfff)
        return fail("a string has half a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xdc00 && point < 0xe000) {
      return fail("a string has half a surrogate pair");
    }
    appendUtf8(text, point);
  }

  std::string readString(const std::string &what) {
    std::string text;
    if (!scanner.take("\"")) {
      fail(what + " is no string");
      return text;
    }
    while (ok()) {
      char byte = scanner.takeByte();
      if (byte == '"')
        return text;
      if (static_cast<unsigned char>(byte) < 0x20)
        fail("a string does not end or holds a control character");
      else if (byte == '\\')
        readEscape(text);
      else
        text += byte;
    }
    return text;
  }

  std::vector<int64_t> readCounts(const std::string &what) {
    std::vector<int64_t> counts;
    if (!scanner.take("["))
      fail(what + " is not a list");
    if (!ok() || scanner.take("]"))
      return counts;
    do {
      std::optional<int64_t> count = scanner.takeCount();
      if (!count)
        fail(what + " holds something that is no count");
      counts.push_back(count.value_or(0));
    } while (ok() && scanner.take(","));
    if (ok() && !scanner.take("]"))
      fail(what + " has neither ',' nor ']' behind a count");
    return counts;
  }

  void readMetadata() {
    std::set<std::string> keys;
    readObject("'__metadata__'", keys, [&](const std::string &key) {
      texts[key] = readString("'" + dsl::shown(key) + "' in '__metadata__'");
    });
  }

  void readTensor(TensorEntry &tensor) {
    std::string what = "'" + dsl::shown(tensor.name) + "'";
    std::vector<int64_t> offsets;
    std::set<std::string> keys;
    readObject(what, keys, [&](const std::string &key) {
      if (key == "dtype")
        tensor.type = readString("the dtype of " + what);
      else if (key == "shape")
        tensor.shape = readCounts("the shape of " + what);
      else if (key == "data_offsets")
        offsets = readCounts("the data_offsets of " + what);
      else
        fail("'" + dsl::shown(key) + "' in " + what + " is no part of the format");
    });
    if (!ok())
      return;
    if (keys.size() != 3)
      return fail(what + " lacks one of dtype, shape and data_offsets");
    if (offsets.size() != 2 || offsets[1] < offsets[0])
      return fail("the data_offsets of " + what + " are not a begin and an end");
    tensor.begin = offsets[0];
    tensor.bytes = offsets[1] - offsets[0];
    const auto *info = std::find_if(safetensorsTypes.begin(), safetensorsTypes.end(),
                                    [&](const TypeInfo &type) { return type.name == tensor.type; });
    if (info == safetensorsTypes.end())
      return fail("'" + tensor.type + "', the dtype of " + what + ", is not known");
    tensor.supported = info->supported;
    std::optional<int64_t> elements = elementsOf(tensor.shape);
    int64_t bits = 0;
    if (!elements || __builtin_mul_overflow(*elements, int64_t(info->bits), &bits) ||
        bits % 8 != 0 || bits / 8 != tensor.bytes)
      fail("the shape of " + what + " does not make its " + std::to_string(tensor.bytes) +
           " bytes");
  }

  HeaderScanner scanner;
  Metadata texts;
  std::string failure;
};

// A JSON string. Bytes of UTF-8 stay as they are.
std::string jsonString(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += "\\u" + dsl::hexadecimal(static_cast<unsigned char>(c), 4);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

} // namespace

TensorHeader readSafetensorsHeader(std::string_view file) {
  TensorHeader header;
  auto fail = [&](const std::string &what) {
    header.problem = what;
    header.tensors.clear();
    return header;
  };
  if (file.size() < 8)
    return fail("it has " + std::to_string(file.size()) +
                " bytes, its first 8 are the length of "
                "the header");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8); // little endian, as every host that this runs on
  if (length > mostHeaderBytes || length > file.size() - 8)
    return fail("its header is said to have " + std::to_string(length) + " bytes, " +
                std::to_string(file.size() - 8) + " follow and " + std::to_string(mostHeaderBytes) +
                " are possible");
  if (std::optional<size_t> at = dsl::firstByteOfNoCharacter(file.substr(8, length)))
    return fail("byte " + std::to_string(*at) + " of its header begins no character of UTF-8");
  JsonReader reader(file.substr(8, length));
  header.tensors = reader.read();
  if (!reader.problem().empty())
    return fail(reader.problem());
  header.metadata = reader.takeMetadata();

  // The data must be used up by tensors, none twice.
  std::vector<TensorEntry *> order;
  order.reserve(header.tensors.size());
  for (TensorEntry &tensor : header.tensors)
    order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorEntry *a, const TensorEntry *b) {
    return std::pair(a->begin, a->bytes) < std::pair(b->begin, b->bytes);
  });
  auto dataBytes = static_cast<int64_t>(file.size() - 8 - length);
  int64_t end = 0;
  for (TensorEntry *tensor : order) {
    if (tensor->begin < end)
      return fail("'" + dsl::shown(tensor->name) + "' overlaps the tensor before it");
    if (tensor->begin > end)
      return fail("no tensor covers the bytes before '" + dsl::shown(tensor->name) + "'");
    end = tensor->begin + tensor->bytes;
    if (end > dataBytes)
      return fail("'" + dsl::shown(tensor->name) + "' ends at byte " + std::to_string(end) +
                  " of the data, " + std::to_string(dataBytes) + " are there");
    tensor->begin += static_cast<int64_t>(8 + length);
  }
  if (end != dataBytes)
    return fail(std::to_string(dataBytes - end) + " bytes follow the last tensor");
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry &a, const TensorEntry &b) { return a.name < b.name; });
  return header;
}

std::string_view safetensorsName(Type type) {
  const auto *info = std::find_if(safetensorsTypes.begin(), safetensorsTypes.end(),
                                  [&](const TypeInfo &known) { return known.supported == type; });
  return info->name;
}

int safetensorsBits(std::string_view type) {
  return std::find_if(safetensorsTypes.begin(), safetensorsTypes.end(),
                      [&](const TypeInfo &known) { return known.name == type; })
      ->bits;
}

std::string writeSafetensorsHeader(const std::vector<TensorEntry> &tensors,
                                   const Metadata &metadata, size_t least) {
  std::string text = "{";
  auto member = [&](const std::string &key) {
    text += (text.size() > 1 ? "," : "") + jsonString(key) + ":";
  };
  if (!metadata.empty()) {
    member("__metadata__");
    char before = '{';
    for (const auto &[key, value] : metadata) {
      text += before + jsonString(key) + ":" + jsonString(value);
      before = ',';
    }
    text += "}";
  }
  for (const TensorEntry &tensor : tensors) {
    member(tensor.name);
    text += R"({"dtype":")" + tensor.type + R"(","shape":[)";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    text += R"(],"data_offsets":[)" + std::to_string(tensor.begin) + "," +
            std::to_string(tensor.begin + tensor.bytes) + "]}";
  }
  text += "}";
  // The data starts at a multiple of 8.
  text.resize((std::max(text.size() + 8, least) + 7) / 8 * 8 - 8, ' ');
  uint64_t length = text.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + text;
}

} // namespace rho::kernels
