#include "dsl/Division.h"
#include "dsl/StoredValues.h"
#include "runtime/Quantizer.h"
#include "runtime/Scalar.h"

#include <cstring>

namespace rho {
namespace {

// Natural order -> the layout of the device, see compiler::ActivationLayout.
std::vector<uint8_t> layOutElements(dsl::ElementType type, const dsl::CodeArray &codes,
                                    int64_t rows, const compiler::ActivationLayout &layout) {
  const bool widened = type.bits() < layout.elementBits;
  std::vector<uint8_t> out(static_cast<size_t>(rows * layout.pitchBytes), 0);
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t *to = out.data() + row * layout.pitchBytes;
    for (int64_t column = 0; column < layout.k; ++column) {
      uint32_t code = codes.get(row * layout.k + column);
      const int64_t place = layout.placeOf(column);
      if (widened)
        code = static_cast<uint32_t>(static_cast<int32_t>(type.decode(code)));
      if (layout.elementBits == 4)
        to[place / 2] |= static_cast<uint8_t>((code & 15) << (place % 2 * 4));
      else
        std::memcpy(to + place * (layout.elementBits / 8), &code, layout.elementBits / 8);
    }
  }
  return out;
}

dsl::CodeArray readElements(dsl::ElementType type, const std::vector<uint8_t> &bytes, int64_t rows,
                            const compiler::ActivationLayout &layout) {
  dsl::CodeArray codes(type.bits(), rows * layout.k);
  const uint32_t mask = UINT32_MAX >> (32 - type.bits()); // of a widened code
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t *from = bytes.data() + row * layout.pitchBytes;
    for (int64_t column = 0; column < layout.k; ++column) {
      uint32_t code = 0;
      const int64_t place = layout.placeOf(column);
      if (layout.elementBits == 4)
        code = from[place / 2] >> (place % 2 * 4) & 15;
      else
        std::memcpy(&code, from + place * (layout.elementBits / 8), layout.elementBits / 8);
      codes.set(row * layout.k + column, code & mask);
    }
  }
  return codes;
}

// Index in natural order -> index in the device buffer.
int64_t deviceIndex(const dsl::Component &component, int64_t natural, int64_t m,
                    const compiler::ActivationLayout &layout) {
  if (component.extent != dsl::Extent::Group)
    return natural;
  int64_t groups = divideUp(layout.k, component.group);
  int64_t group = natural % groups, row = natural / groups, perWord = layout.groupsPerWord;
  return (group / perWord * compiler::activationGroupStride(m) + row) * perWord + group % perWord;
}

// A component's codes as its buffer has them, with those in its spare bits.
std::vector<uint8_t> layOut(const compiler::StoredComponent &stored,
                            const dsl::QuantizedMatrix &codes, const Activations::Impl &out,
                            int64_t bytes) {
  const dsl::Component &component = stored.declared();
  const compiler::ActivationLayout &layout = out.layoutOf(stored);
  const dsl::CodeArray &from = codes.components[static_cast<size_t>(stored.component)];
  if (stored.component == 0)
    return layOutElements(component.type, from, out.m, layout);
  const int64_t width = componentBytes(component.type);
  const std::vector<int> guests = dsl::guestsOf(*stored.format, stored.component);
  std::vector<uint8_t> to(static_cast<size_t>(bytes), 0);
  for (int64_t j = 0; j < from.size(); ++j) {
    uint32_t code = from.get(j);
    for (int guest : guests)
      code |= codes.components[static_cast<size_t>(guest)].get(j)
              << stored.format->components[static_cast<size_t>(guest)].shift;
    std::memcpy(to.data() + deviceIndex(component, j, out.m, layout) * width, &code, width);
  }
  return to;
}

class HostQuantizer final : public Quantizer {
public:
  using Quantizer::Quantizer;
  Status run(const Activations::Impl &out, DevicePointer x, ScalarType type, int64_t stride,
             Stream stream) const override {
    return onHost(std::to_string(out.m * out.layout.k * scalarBytes(type)),
                  [&] { return runWithin(out, x, type, stride, stream); });
  }

private:
  static Status runWithin(const Activations::Impl &out, DevicePointer x, ScalarType type,
                          int64_t stride, Stream stream) {
    if (Status done = out.backend->synchronize(stream); !done)
      return done;
    const int64_t k = out.layout.k, element = scalarBytes(type);
    std::vector<uint8_t> rows(static_cast<size_t>(out.m * k * element));
    if (stride == k) {
      if (Status read = out.backend->read(x, rows.data(), out.m * k * element); !read)
        return read;
    } else {
      for (int64_t row = 0; row < out.m; ++row)
        if (Status read = out.backend->read(x + uint64_t(row) * uint64_t(stride) * element,
                                            rows.data() + row * k * element, k * element);
            !read)
          return read;
    }
    dsl::MatrixView view{rows.data(), viewType(type), out.m, k, k};
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(
        out.declared, view,
        dsl::QuantizeOptions{.choice = out.memory->choice, .given = out.memory->given});
    if (!codes)
      return codes.error();
    if (out.declared != out.format)
      codes = dsl::storedValues(*std::move(codes), out.format);
    const std::vector<compiler::StoredComponent> stored = compiler::storedComponents(*out.format);
    for (size_t i = 0; i < stored.size(); ++i) {
      if (stored[i].declared().host >= 0)
        continue; // written with its host
      const dsl::QuantizedMatrix &of = codes->parts.empty() ? *codes : codes->parts[stored[i].part];
      std::vector<uint8_t> bytes = layOut(stored[i], of, out, out.memory->components[i].bytes());
      if (Status written = out.backend->write(out.component(i), bytes.data(),
                                              static_cast<int64_t>(bytes.size()));
          !written)
        return written;
    }
    if (!codes->parts.empty()) {
      const std::span<const uint8_t> choice(codes->choice.data(),
                                            static_cast<size_t>(codes->choice.size()));
      std::vector<int32_t> table = tileTable(*out.format, choice, out.layout);
      return out.memory->tiles.write(table.data(), out.memory->tiles.bytes());
    }
    return Done{};
  }
};

dsl::CodeArray readComponent(const compiler::StoredComponent &stored,
                             const std::vector<uint8_t> &bytes, const Activations::Impl &from) {
  const dsl::Component &component = stored.declared();
  const compiler::ActivationLayout &layout = from.layoutOf(stored);
  if (stored.component == 0)
    return readElements(component.type, bytes, from.m, layout);
  dsl::CodeArray codes(component.type.bits(), dsl::codeGrid(component, from.m, layout.k).size());
  const int hostIndex = dsl::hostOf(*stored.format, stored.component);
  const dsl::Component &host = stored.format->components[static_cast<size_t>(hostIndex)];
  const int64_t width = componentBytes(host.type);
  const uint32_t mask = UINT32_MAX >> (32 - component.type.bits());
  for (int64_t j = 0; j < codes.size(); ++j) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + deviceIndex(component, j, from.m, layout) * width, width);
    codes.set(j, code >> component.shift & mask);
  }
  return codes;
}

// The part of each block, from the table of k tiles.
Result<dsl::CodeArray> readChoice(const Activations::Impl &from) {
  std::vector<int32_t> table(static_cast<size_t>(from.layout.tableEntries()));
  if (Status read = from.memory->tiles.read(table.data(), from.memory->tiles.bytes()); !read)
    return read.error();
  const int64_t block = from.format->partition->blocks.k;
  const size_t parts = from.layout.parts.size();
  dsl::CodeArray choice(8, divideUp(from.layout.k, block));
  for (size_t part = 0; part < parts; ++part)
    for (int32_t i = table[part]; i < table[part + 1]; ++i)
      choice.set(table[parts + 1 + static_cast<size_t>(i)] * from.layout.tileK / block,
                 static_cast<uint32_t>(part));
  return choice;
}

} // namespace

std::vector<int32_t> tileTable(const dsl::Format &format, std::span<const uint8_t> choice,
                               const compiler::ActivationLayout &layout) {
  const int64_t block = format.partition->blocks.k;
  std::vector<std::vector<int32_t>> lists(layout.parts.size());
  for (int64_t tile = 0; tile < layout.tilesK(); ++tile)
    lists[choice[static_cast<size_t>(tile * layout.tileK / block)]].push_back(
        static_cast<int32_t>(tile));
  std::vector<int32_t> table{0};
  for (const std::vector<int32_t> &list : lists)
    table.push_back(table.back() + static_cast<int32_t>(list.size()));
  for (const std::vector<int32_t> &list : lists)
    table.insert(table.end(), list.begin(), list.end());
  return table;
}

std::shared_ptr<const Quantizer> makeHostQuantizer(std::string warning) {
  return std::make_shared<HostQuantizer>(std::move(warning));
}

int64_t deviceCodes(const dsl::Component &component, int64_t m,
                    const compiler::ActivationLayout &layout) {
  int64_t rows = compiler::activationGroupStride(m);
  if (component.extent != dsl::Extent::Group)
    return rows;
  int64_t ofWord = component.group * layout.groupsPerWord;
  return divideUp(layout.k, ofWord) * layout.groupsPerWord * rows;
}

Result<dsl::QuantizedMatrix> readActivations(const Activations &activations) {
  if (!activations.valid())
    return makeError(DiagId::empty_handle, {"activations"});
  return readActivations(activations.impl());
}

Result<dsl::QuantizedMatrix> readActivations(const Activations::Impl &from) {
  if (from.view)
    return makeError(DiagId::activations_are_a_view, {});
  dsl::QuantizedMatrix matrix;
  matrix.format = from.format;
  matrix.rows = from.m;
  matrix.k = from.layout.k;
  const std::vector<compiler::StoredComponent> stored = compiler::storedComponents(*from.format);
  for (size_t i = 0; i < stored.size(); ++i) {
    const int host = dsl::hostOf(*stored[i].format, stored[i].component);
    const Buffer &unit =
        from.memory->components[i - static_cast<size_t>(stored[i].component - host)];
    std::vector<uint8_t> bytes(static_cast<size_t>(unit.bytes()));
    if (Status read = unit.read(bytes.data(), unit.bytes()); !read)
      return read.error();
    if (from.layout.parts.empty()) {
      matrix.components.push_back(readComponent(stored[i], bytes, from));
      continue;
    }
    if (stored[i].component == 0) {
      const dsl::Part &part = from.format->partition->parts[stored[i].part];
      matrix.parts.push_back({part.format, from.m, matrix.k, {}, {}, {}});
    }
    matrix.parts.back().components.push_back(readComponent(stored[i], bytes, from));
  }
  if (from.layout.parts.empty())
    return matrix;
  Result<dsl::CodeArray> choice = readChoice(from);
  if (!choice)
    return choice.error();
  matrix.choice = *std::move(choice);
  return matrix;
}

} // namespace rho
