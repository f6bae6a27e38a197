// Layouts with random orders of bits, and a format for them.
#pragma once

#include "compiler/Layout.h"
#include "dsl/Division.h"
#include "tests/kernels/TestFormats.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace rho::test {

using namespace rho::compiler;

using Axis = AxisBit::Axis;

inline std::vector<AxisBit> randomOrder(int bitsN, int bitsK, uint32_t seed) {
  std::vector<AxisBit> order;
  order.reserve(32);
  for (int bit = 0; bit < bitsN; ++bit)
    order.push_back({Axis::N, static_cast<uint8_t>(bit)});
  for (int bit = 0; bit < bitsK; ++bit)
    order.push_back({Axis::K, static_cast<uint8_t>(bit)});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

inline int64_t unitsOf(const Component &component, int64_t k) {
  return component.extent == Extent::Element ? k
         : component.extent == Extent::Group ? divideUp(k, component.group)
                                             : 1;
}

// A layout with random bit orders: tiles of 2^bitsN x 2^bitsK elements.
inline WeightLayout makeLayout(const Format &format, int64_t n, int64_t k, int bitsN, int bitsK,
                               uint32_t seed) {
  WeightLayout layout;
  layout.n = n;
  layout.k = k;
  for (int c = 0; c < static_cast<int>(format.components.size()); ++c) {
    const Component &component = format.components[c];
    LayoutSection section;
    section.component = c;
    section.offset = layout.bytes;
    section.codeBits = component.type.bits();
    int rowBits = component.extent == Extent::Tensor ? 0 : bitsN;
    int unitBits = component.extent == Extent::Element ? bitsK : 0;
    if (component.extent == Extent::Group)
      unitBits = std::max(0, bitsK - static_cast<int>(std::log2(component.group)));
    section.tileN = int64_t(1) << rowBits;
    section.tileK = int64_t(1) << unitBits;
    section.unitK = component.extent == Extent::Element ? 1
                    : component.extent == Extent::Group ? component.group
                                                        : k;
    int64_t rows = component.extent == Extent::Tensor ? 1 : n;
    section.tilesN = divideUp(rows, section.tileN);
    section.tilesK = (unitsOf(component, k) + section.tileK - 1) / section.tileK;
    section.codeXor =
        component.type.kind() == ElementType::Kind::Signed ? 1U << (section.codeBits - 1) : 0;
    section.order = randomOrder(rowBits, unitBits, seed + static_cast<uint32_t>(c));
    int64_t tileBytes = (section.tileN * section.tileK * section.codeBits + 7) / 8;
    section.bytes = section.tilesN * section.tilesK * tileBytes;
    layout.bytes = (section.offset + section.bytes + 255) / 256 * 256;
    layout.sections.push_back(section);
  }
  return layout;
}

inline std::shared_ptr<Format> fourLevels(std::string_view element) {
  return productFormat("levels", {component("element", element, Extent::Element),
                                  component("scale", "f16", Extent::Group, 16),
                                  component("second", "u6", Extent::Group, 64),
                                  component("channel", "f32", Extent::Row),
                                  component("tensor", "f32", Extent::Tensor)});
}

} // namespace rho::test
