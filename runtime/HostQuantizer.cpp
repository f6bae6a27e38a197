#include "runtime/Quantizer.h"

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
      if (widened)
        code = static_cast<uint32_t>(static_cast<int32_t>(type.decode(code)));
      if (layout.elementBits == 4)
        to[column / 2] |= static_cast<uint8_t>((code & 15) << (column % 2 * 4));
      else
        std::memcpy(to + column * (layout.elementBits / 8), &code, layout.elementBits / 8);
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
      if (layout.elementBits == 4)
        code = from[column / 2] >> (column % 2 * 4) & 15;
      else
        std::memcpy(&code, from + column * (layout.elementBits / 8), layout.elementBits / 8);
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
  int64_t groups = (layout.k + component.group - 1) / component.group;
  int64_t group = natural % groups, row = natural / groups, perWord = layout.groupsPerWord;
  return (group / perWord * compiler::activationGroupStride(m) + row) * perWord + group % perWord;
}

int64_t naturalCodes(const dsl::Component &component, int64_t m, int64_t k) {
  if (component.extent == dsl::Extent::Group)
    return (k + component.group - 1) / component.group * m;
  return m;
}

class HostQuantizer final : public Quantizer {
public:
  Status run(const Activations::Impl &out, DevicePointer x, ScalarType type, int64_t stride,
             Stream stream) const override {
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
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(out.format, view, false);
    if (!codes)
      return codes.error();
    std::vector<uint8_t> elements =
        layOutElements(out.format->element().type, codes->components[0], out.m, out.layout);
    if (Status written = out.backend->write(out.components[0].address(), elements.data(),
                                            static_cast<int64_t>(elements.size()));
        !written)
      return written;
    for (size_t i = 1; i < out.components.size(); ++i) {
      const dsl::Component &component = out.format->components[i];
      if (component.host >= 0)
        continue; // written with its host
      const dsl::CodeArray &from = codes->components[i];
      const std::vector<int> guests = dsl::guestsOf(*out.format, static_cast<int>(i));
      const int64_t width = componentBytes(component.type);
      std::vector<uint8_t> to(static_cast<size_t>(out.components[i].bytes()), 0);
      for (int64_t j = 0; j < from.size(); ++j) {
        uint32_t code = from.get(j);
        for (int guest : guests)
          code |= codes->components[static_cast<size_t>(guest)].get(j)
                  << out.format->components[static_cast<size_t>(guest)].shift;
        std::memcpy(to.data() + deviceIndex(component, j, out.m, out.layout) * width, &code, width);
      }
      if (Status written = out.backend->write(out.components[i].address(), to.data(),
                                              static_cast<int64_t>(to.size()));
          !written)
        return written;
    }
    return Done{};
  }
};

} // namespace

std::shared_ptr<const Quantizer> makeHostQuantizer() { return std::make_shared<HostQuantizer>(); }

dsl::MatrixView::Type viewType(ScalarType type) {
  switch (type) {
  case ScalarType::F32:
    return dsl::MatrixView::Type::F32;
  case ScalarType::F16:
    return dsl::MatrixView::Type::F16;
  case ScalarType::BF16:
    break;
  }
  return dsl::MatrixView::Type::BF16;
}

int64_t deviceCodes(const dsl::Component &component, int64_t m,
                    const compiler::ActivationLayout &layout) {
  int64_t rows = compiler::activationGroupStride(m);
  if (component.extent != dsl::Extent::Group)
    return rows;
  int64_t ofWord = component.group * layout.groupsPerWord;
  return (layout.k + ofWord - 1) / ofWord * layout.groupsPerWord * rows;
}

Result<dsl::QuantizedMatrix> readActivations(const Activations &activations) {
  if (!activations.valid())
    return makeError(DiagId::empty_handle, {"activations"});
  const Activations::Impl &from = activations.impl();
  if (from.view)
    return makeError(DiagId::activations_are_a_view, {});
  dsl::QuantizedMatrix matrix;
  matrix.format = from.format;
  matrix.rows = from.m;
  matrix.k = from.layout.k;
  for (size_t i = 0; i < from.components.size(); ++i) {
    const dsl::Component &component = from.format->components[i];
    const Buffer &unit = from.components[component.host < 0 ? i : component.host];
    std::vector<uint8_t> bytes(static_cast<size_t>(unit.bytes()));
    if (Status read = unit.read(bytes.data(), unit.bytes()); !read)
      return read.error();
    if (i == 0) {
      matrix.components.push_back(
          readElements(from.format->element().type, bytes, from.m, from.layout));
      continue;
    }
    dsl::CodeArray codes(component.type.bits(), naturalCodes(component, from.m, matrix.k));
    const dsl::Component &host =
        component.host < 0 ? component : from.format->components[component.host];
    const int64_t width = componentBytes(host.type);
    const uint32_t mask = UINT32_MAX >> (32 - component.type.bits());
    for (int64_t j = 0; j < codes.size(); ++j) {
      uint32_t code = 0;
      std::memcpy(&code, bytes.data() + deviceIndex(component, j, from.m, from.layout) * width,
                  width);
      codes.set(j, code >> component.shift & mask);
    }
    matrix.components.push_back(std::move(codes));
  }
  return matrix;
}

} // namespace rho
