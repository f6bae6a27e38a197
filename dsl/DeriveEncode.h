// Encode rules that follow from the value expression.
#pragma once

#include "dsl/Format.h"

namespace rho::dsl {

// Whether the value is the product of all components and nothing else, each exactly once:
// `element * scale`, `element * block * tensor`. Such a number is encoded by division.
bool isProduct(const Format &format);

// The rule of a scale of a product, the element excluded:
//   c = absmax(x / coarser scales) / largest element / largest finer scales
// Components before c in encodeOrder are coarser, those after it finer. A finer scale counts with
// its largest value where its type has at most 8 bits, at most 5 of them of the exponent, so that
// it is used over its whole range (nvfp4: tensor = absmax(x) / 6 / 448); other types count as 1.
// The largest element is 2^(b-1)-1 for sN (symmetric), 2^b-1 for uN, the largest finite value of a
// float, of a codebook the largest magnitude that no number of either sign exceeds.
ExprPtr deriveEncode(const Format &format, int component);

} // namespace rho::dsl
