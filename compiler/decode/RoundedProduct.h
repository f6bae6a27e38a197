// Cores that round the product of the element and scales to what operands of 8 bits are,
// e4m3(element * scale): scales of groups then cost no sum anything.
#pragma once

#include "compiler/decode/Affine.h"

namespace rho::compiler {

// Decodes the number `product` rounded to e4m3: f16 has to hold all such products, so that nothing
// is rounded twice. None where it does not, and of groups finer than half of an instruction's k.
std::optional<DecodeSequence> roundedProduct(const dsl::Format &format, const Affine &product);

// What makes parameters of forms LowProducts and HighProducts of such a number, f16 in both halves
// of a register: four bytes, its products with four of the eight magnitudes of an element, rounded
// to e4m3, from the smallest on.
DecodeProgram productsSequence(dsl::ElementType element, DecodeParam::Form form);

} // namespace rho::compiler
