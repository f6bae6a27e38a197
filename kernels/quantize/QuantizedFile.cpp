#include "kernels/quantize/QuantizedFile.h"

#include "dsl/Division.h"
#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/CodeStreams.h"
#include "kernels/quantize/PackedCodes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace rho::kernels {

namespace {

// "[16, 64], 1024 bytes".
std::string sizeOf(const TensorEntry &entry) {
  std::string text = "[";
  for (size_t i = 0; i < entry.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
  return text + "], " + std::to_string(entry.bytes) + " bytes";
}

// Codes that are packed and written at a time, and those of one thread: multiples of 8.
constexpr int64_t chunkCodes = int64_t(1) << 24, sliceCodes = int64_t(1) << 18;

Status writeCodes(SafetensorsWriter &writer, const dsl::CodeArray &codes, int bits,
                  unsigned threads) {
  std::vector<uint8_t> packed(
      static_cast<size_t>(packedBytes(std::min(codes.size(), chunkCodes), bits)));
  for (int64_t begin = 0; begin < codes.size(); begin += chunkCodes) {
    int64_t end = std::min(codes.size(), begin + chunkCodes);
    dsl::parallelFor(divideUp(end - begin, sliceCodes), threads, [&](int64_t slice) {
      int64_t from = begin + slice * sliceCodes;
      packCodes(codes, bits, from, std::min(end, from + sliceCodes),
                packed.data() + slice * sliceCodes / 8 * bits);
    });
    if (Status written = writer.append(packed.data(), packedBytes(end - begin, bits)); !written)
      return written;
  }
  return Done{};
}

// "nvfp4 4096 x 2048 BF16"
std::optional<QuantizedShape> parseDescription(std::string_view text) {
  QuantizedShape found;
  size_t space = text.find(' ');
  if (space == std::string_view::npos)
    return std::nullopt;
  found.format = text.substr(0, space);
  const char *at = text.data() + space + 1, *end = text.data() + text.size();
  auto number = [&](int64_t &value) {
    auto [stop, error] = std::from_chars(at, end, value);
    at = stop;
    return error == std::errc() && value >= 1 && value <= std::numeric_limits<int32_t>::max();
  };
  if (!number(found.rows) || !std::string_view(at, end).starts_with(" x "))
    return std::nullopt;
  at += 3;
  if (!number(found.k) || at == end || *at != ' ')
    return std::nullopt;
  return found;
}

class MatrixReader {
public:
  MatrixReader(const SafetensorsFile &file, const std::string &name) : file(file), name(name) {}

  Result<dsl::QuantizedMatrix> read() {
    Result<QuantizedShape> what = quantizedShape(file, name);
    if (!what)
      return what.error();
    Result<std::shared_ptr<const dsl::Format>> format = readFormat(what->format);
    if (!format)
      return std::move(format.error());
    std::vector<CodeStream> streams = streamsOf(name, **format, what->rows, what->k);
    if (Status there = checkThere(streams); !there)
      return std::move(there.error());
    dsl::QuantizedMatrix matrix = dsl::emptyMatrix(*format, what->rows, what->k);
    for (const CodeStream &stream : streams)
      if (Status read = readStream(stream, matrix); !read)
        return std::move(read.error());
    shareCodes(matrix);
    return matrix;
  }

private:
  Error invalid(const std::string &what) const {
    return makeError(DiagId::quantized_file_invalid, {file.path(), what});
  }

  Result<std::shared_ptr<const dsl::Format>> readFormat(const std::string &formatName) const {
    if (dsl::isPlainType(formatName))
      return std::make_shared<const dsl::Format>(
          dsl::plainFormat(dsl::ElementType::get(formatName)));
    const Metadata &metadata = file.metadataWith(tensorKey + name);
    auto text = metadata.find(formatKey);
    if (text == metadata.end())
      return invalid(std::string("its metadata has no '") + formatKey + "'");
    Result<dsl::Module> module =
        dsl::parseModule(text->second, file.path() + ":" + formatKey,
                         [](const std::string &) { return std::optional<std::string>(); });
    if (!module)
      return std::move(module.error());
    const dsl::Format *found = module->findFormat(formatName);
    if (!found)
      return invalid("'" + formatName + "', the format of '" + name + "', is not in '" + formatKey +
                     "'");
    return std::make_shared<const dsl::Format>(*found);
  }

  Status checkThere(const std::vector<CodeStream> &streams) const {
    for (const CodeStream &stream : streams) {
      const TensorEntry *entry = file.find(stream.name);
      if (!entry)
        return invalid("'" + stream.name + "' is missing");
      TensorEntry planned = entryOf(stream);
      bool fits = stream.isSelective()
                      ? entry->bytes <= planned.bytes && entry->type == "U8"
                      : entry->shape == planned.shape && entry->type == planned.type;
      if (!fits)
        return invalid("'" + stream.name + "' is " + entry->type + " of " + sizeOf(*entry) +
                       ", it needs " + (stream.isSelective() ? "at most " : "") + planned.type +
                       " of " + sizeOf(planned));
    }
    return Done{};
  }

  Status readStream(const CodeStream &stream, dsl::QuantizedMatrix &matrix) const {
    const TensorEntry &entry = *file.find(stream.name);
    const auto *bytes = reinterpret_cast<const uint8_t *>(file.bytes(entry).data());
    dsl::CodeArray &codes = codesOf(matrix, stream);
    int bits = stream.type.bits();
    if (!stream.isSelective()) {
      unpackCodes(bytes, bits, 0, codes.size(), codes);
    } else {
      int64_t count = storedCount(stream, matrix);
      if (packedBytes(count, bits) != entry.bytes)
        return invalid("'" + stream.name + "' has " + std::to_string(entry.bytes) + " bytes, the " +
                       std::to_string(count) + " codes of its blocks need " +
                       std::to_string(packedBytes(count, bits)));
      dsl::CodeArray stored(bits, count);
      unpackCodes(bytes, bits, 0, count, stored);
      int64_t next = 0;
      forEachStored(stream, matrix, [&](int64_t at) { codes.set(at, stored.get(next++)); });
    }
    if (stream.choices > 0)
      for (int64_t i = 0; i < codes.size(); ++i)
        if (codes.get(i) >= static_cast<uint32_t>(stream.choices))
          return invalid("'" + stream.name + "' chooses part " + std::to_string(codes.get(i)) +
                         " of " + std::to_string(stream.choices));
    return checkFinite(stream, codes);
  }

  // No rule writes NaN or infinity.
  Status checkFinite(const CodeStream &stream, const dsl::CodeArray &codes) const {
    const dsl::ElementType &type = stream.type;
    constexpr int tableBits = 16;
    std::vector<bool> finite; // by code
    if (type.bits() <= tableBits)
      for (uint32_t code = 0; code < 1u << type.bits(); ++code)
        finite.push_back(std::isfinite(type.decode(code)));
    if (!finite.empty() && std::find(finite.begin(), finite.end(), false) == finite.end())
      return Done{};
    for (int64_t i = 0; i < codes.size(); ++i) {
      const uint32_t code = codes.get(i);
      if (finite.empty() ? std::isfinite(type.decode(code)) : finite[code])
        continue;
      return invalid("'" + stream.name + "' has " + dsl::nameOfNonFinite(type.decode(code)) +
                     " as code " + std::to_string(i));
    }
    return Done{};
  }

  const SafetensorsFile &file;
  const std::string &name;
};

} // namespace

std::vector<TensorEntry> planQuantized(const std::string &name, const dsl::Format &format,
                                       int64_t rows, int64_t k) {
  std::vector<TensorEntry> plan;
  for (const CodeStream &stream : streamsOf(name, format, rows, k))
    plan.push_back(entryOf(stream));
  return plan;
}

std::string describeQuantized(const dsl::Format &format, int64_t rows, int64_t k,
                              std::string_view type) {
  return format.name + " " + std::to_string(rows) + " x " + std::to_string(k) + " " +
         std::string(type);
}

Status writeQuantized(SafetensorsWriter &writer, const dsl::QuantizedMatrix &matrix,
                      unsigned threads) {
  for (const CodeStream &stream : streamsOf("", *matrix.format, matrix.rows, matrix.k)) {
    const dsl::CodeArray &codes = codesOf(matrix, stream);
    int bits = stream.type.bits();
    Status written = Done{};
    if (stream.isSelective()) {
      dsl::CodeArray stored(bits, storedCount(stream, matrix));
      int64_t next = 0;
      forEachStored(stream, matrix, [&](int64_t at) { stored.set(next++, codes.get(at)); });
      written = writeCodes(writer, stored, bits, threads);
    } else {
      written = writeCodes(writer, codes, bits, threads);
    }
    if (!written)
      return written;
    writer.endTensor();
  }
  return Done{};
}

std::vector<std::string> quantizedNames(const SafetensorsFile &file) {
  std::string_view prefix = tensorKey;
  std::vector<std::string> names;
  for (const auto &[key, value] : file.metadata())
    if (key.starts_with(prefix))
      names.push_back(key.substr(prefix.size()));
  return names;
}

Result<QuantizedShape> quantizedShape(const SafetensorsFile &file, const std::string &name) {
  auto described = file.metadata().find(tensorKey + name);
  if (described == file.metadata().end())
    return makeError(DiagId::not_quantized, {file.path(), dsl::shown(name)});
  auto invalid = [&](const std::string &what) {
    return makeError(DiagId::quantized_file_invalid, {file.path(), what});
  };
  std::optional<QuantizedShape> what = parseDescription(described->second);
  if (!what)
    return invalid("'" + described->second + "' does not describe '" + name + "'");
  // Before memory is taken: an element has at least 2 bits.
  if (what->rows * what->k / 4 > file.size())
    return invalid("the codes of '" + name + "' are fewer than its numbers");
  return *std::move(what);
}

Result<dsl::QuantizedMatrix> readQuantized(const SafetensorsFile &file, const std::string &name) {
  return MatrixReader(file, name).read();
}

Result<std::optional<QuantizedReference>> findQuantized(std::string_view text) {
  TensorReference reference = splitReference(text);
  std::optional<QuantizedReference> none;
  if (!isSafetensors(reference.path))
    return none;
  Result<SafetensorsFile> file = SafetensorsFile::open(reference.path);
  if (!file)
    return std::move(file.error());
  std::vector<std::string> names = quantizedNames(*file);
  if (names.empty())
    return none;
  const bool isOne =
      reference.name && std::find(names.begin(), names.end(), *reference.name) != names.end();
  if (reference.name && !isOne && file->find(*reference.name))
    return none; // a tensor as it is
  if (!isOne && (reference.name || names.size() != 1)) {
    std::vector<TensorEntry> entries;
    for (const std::string &name : names)
      entries.emplace_back().name = name;
    if (reference.name)
      return makeError(DiagId::tensor_not_found,
                       {dsl::shown(*reference.name), reference.path, printNames(entries)});
    return makeError(DiagId::tensor_name_needed,
                     {reference.path, std::to_string(names.size()), printNames(entries)});
  }
  return std::optional(QuantizedReference{std::move(*file), reference.name.value_or(names[0])});
}

} // namespace rho::kernels
