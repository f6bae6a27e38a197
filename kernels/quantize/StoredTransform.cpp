#include "kernels/quantize/StoredTransform.h"

#include "dsl/Numbers.h"
#include "kernels/quantize/QuantizedFile.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rho::kernels {

namespace {

constexpr int64_t bytesOfNumber = 4; // of a factor in f32, of a channel in i32

TensorEntry vectorOf(std::string name, std::string type, int64_t k) {
  TensorEntry entry;
  entry.name = std::move(name);
  entry.type = std::move(type);
  entry.shape = {k};
  entry.bytes = k * bytesOfNumber;
  return entry;
}

class TransformReader {
public:
  TransformReader(const SafetensorsFile &file, const std::string &name) : file(file), name(name) {}

  Result<LayerTransform> read() {
    LayerTransform transform;
    Result<QuantizedShape> shape = quantizedShape(file, name);
    if (!shape)
      return shape.error();
    k = shape->k;
    auto described = file.metadata().find(transformKey + name);
    const std::string text = described == file.metadata().end() ? "" : described->second;
    rest = text;
    if (take("smoothing")) {
      Result<std::vector<float>> factors = vector<float>(smoothingSuffix, "F32");
      if (!factors)
        return factors.error();
      for (float factor : *factors)
        if (!std::isnormal(factor) || factor < 0)
          return invalid("'" + name + ".smoothing' has the factor " + dsl::printNumber(factor));
      transform.smoothing = SmoothingScales{std::nullopt, std::move(*factors)};
    } else if (file.find(name + smoothingSuffix)) {
      return invalid("'" + text + "' does not name '" + name + ".smoothing', which is there");
    }
    if (take("order")) {
      Result<std::vector<int32_t>> channels = vector<int32_t>(orderSuffix, "I32");
      if (!channels)
        return channels.error();
      std::vector<bool> seen(channels->size(), false);
      for (int32_t channel : *channels) {
        if (channel < 0 || channel >= std::ssize(seen) || seen[static_cast<size_t>(channel)])
          return invalid("'" + name + ".order' is no permutation");
        seen[static_cast<size_t>(channel)] = true;
      }
      transform.order = ChannelOrder{{channels->begin(), channels->end()}};
    } else if (file.find(name + orderSuffix)) {
      return invalid("'" + text + "' does not name '" + name + ".order', which is there");
    }
    if (take("rotation")) {
      auto size = number<int64_t>();
      bool seeded = take("seed");
      auto seed = number<uint64_t>();
      if (!size || !seeded || !seed)
        return invalid("'" + text + "' does not describe a transform");
      if (*size != k)
        return invalid("the rotation of '" + name + "' is of " + std::to_string(*size) +
                       " channels, it has " + std::to_string(k));
      Result<Rotation> rotation = Rotation::ofSize(*size, seed);
      if (!rotation)
        return invalid("the rotation of '" + name +
                       "': " + rotation.error().diagnostics[0].message);
      transform.rotation = std::move(*rotation);
    }
    if (!rest.empty())
      return invalid("'" + text + "' does not describe a transform");
    return transform;
  }

private:
  Error invalid(const std::string &what) const {
    return makeError(DiagId::quantized_file_invalid, {file.path(), what});
  }

  std::string_view word() const { return rest.substr(0, rest.find(' ')); }
  void skip() { rest.remove_prefix(std::min(rest.size(), word().size() + 1)); }
  bool take(std::string_view expected) {
    if (word() != expected)
      return false;
    skip();
    return true;
  }
  template <class Number> std::optional<Number> number() {
    std::string_view text = word();
    Number value = 0;
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
      return std::nullopt;
    skip();
    return value;
  }

  template <class Number>
  Result<std::vector<Number>> vector(const char *suffix, std::string_view type) const {
    const TensorEntry *entry = file.find(name + suffix);
    if (!entry || entry->type != type || entry->shape != std::vector{k} ||
        entry->bytes != k * bytesOfNumber)
      return invalid("'" + name + suffix + "' is no vector of " + std::to_string(k) + " " +
                     std::string(type));
    std::vector<Number> numbers(static_cast<size_t>(entry->shape[0]));
    std::string_view bytes = file.bytes(*entry);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(numbers.data()));
    return numbers;
  }

  const SafetensorsFile &file;
  const std::string &name;
  int64_t k = 0;
  std::string_view rest;
};

} // namespace

std::string describeTransform(const LayerSteps &steps, int64_t k) {
  std::string text;
  if (steps.smooth)
    text += " smoothing";
  if (steps.permute)
    text += " order";
  if (steps.rotate)
    text += " rotation " + std::to_string(k) + " seed " + std::to_string(*steps.rotate);
  return text.empty() ? text : text.substr(1);
}

std::vector<TensorEntry> planTransform(const std::string &name, const LayerSteps &steps,
                                       int64_t k) {
  std::vector<TensorEntry> plan;
  if (steps.smooth)
    plan.push_back(vectorOf(name + smoothingSuffix, "F32", k));
  if (steps.permute)
    plan.push_back(vectorOf(name + orderSuffix, "I32", k));
  return plan;
}

Status writeTransform(SafetensorsWriter &writer, const LayerTransform &transform) {
  auto write = [&](const auto &numbers) {
    Status written =
        writer.append(numbers.data(), static_cast<int64_t>(numbers.size()) * bytesOfNumber);
    writer.endTensor();
    return written;
  };
  if (transform.smoothing)
    if (Status written = write(transform.smoothing->factors); !written)
      return written;
  if (transform.order) {
    const std::vector<int64_t> &channels = transform.order->channels;
    return write(std::vector<int32_t>(channels.begin(), channels.end()));
  }
  return Done();
}

Result<LayerTransform> readTransform(const SafetensorsFile &file, const std::string &name) {
  return TransformReader(file, name).read();
}

} // namespace rho::kernels
