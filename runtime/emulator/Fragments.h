// Fragments of mma.sync in the registers of one warp.
//
// One rule covers the layouts of all shapes of m16n8. Lane = 4 g + t. A 32-bit register holds
// E = 32 / element bits values. Register r of A holds row g + 8 (r & 1), columns
// 4 E (r >> 1) + E t ...; register r of B holds rows 4 E r + E t ... of column g.
#pragma once

#include "runtime/emulator/Elements.h"
#include "runtime/emulator/Machine.h"

#include <cstddef>

namespace rho::emulator {

inline constexpr int maxK = 64;

// A register of A is 8 rows of 4 E columns, row-major, as multiply() takes it.
template <class Element, class Number>
void unpackA(const Warp &w, const uint32_t *registers, int count, Number *a) {
  for (int r = 0; r < count; ++r)
    Element::unpack(w.reg<uint32_t>(registers[r]), a + ptrdiff_t(r) * 32 * Element::perRegister);
}

// A register of B is 8 columns of 4 E rows.
template <class Element, class Number>
void unpackB(const Warp &w, const uint32_t *registers, int count, Number *b) {
  constexpr int rows = 4 * Element::perRegister;
  for (int r = 0; r < count; ++r) {
    Number columns[8 * rows];
    Element::unpack(w.reg<uint32_t>(registers[r]), columns);
    for (int i = 0; i < rows; ++i)
      for (int n = 0; n < 8; ++n)
        b[(rows * r + i) * 8 + n] = columns[n * rows + i];
  }
}

} // namespace rho::emulator
