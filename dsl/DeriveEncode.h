// Encode rules that follow from the value expression.
#pragma once

#include "dsl/Format.h"

namespace rho::dsl {

// Whether the value is the product of all components and nothing else, each exactly once, and no
// code is remapped: `element * scale`, `element * block * tensor`. Such a number is encoded by
// division.
bool isProduct(const Format &format);
// The same of a remapped element, where the components that the remap reads are no factors.
bool isRemappedProduct(const Format &format);
// The product of the literals where the value is such a product but for them, 1 where there are
// none; else none.
std::optional<double> literalFactor(const Format &format);
// By what numbers are divided beside their scales, where that is how they are encoded: 1 of
// products, the literals of elements too wide for a search. None: the code with the nearest value
// is theirs.
std::optional<double> literalDivisor(const Format &format);

// The rule of a scale of a product, the element excluded:
//   c = absmax(x / coarser scales) / (largest element * |literals|) / largest finer scales
// Components before c in encodeOrder are coarser, those after it finer. A finer scale counts with
// its largest value where its type has at most 8 bits, at most 4 of them of the exponent, so that
// it is used over its whole range (nvfp4: tensor = absmax(x) / 6 / 448); other types count as 1.
// The largest element is 2^(b-1)-1 for sN (symmetric), 2^b-1 for uN, the largest finite value of a
// float, of a codebook the largest magnitude that no number of either sign exceeds.
//
// With an asymmetric type there is a zero point or an offset to choose too. In
//   value = (element - zero) * scales    zero the finest component, encoded after the scales
// lo and hi are the smallest and largest element, u is x / coarser scales, and
//   scale = (max(max(u), 0) - min(min(u), 0)) / (hi - lo) / largest finer scales
//   zero  = lo - min(min(x / scales), 0)
// In `element * scale + offset` and `element * scale - offset` with both in the same extent and an
// element that is never negative
//   offset = min(x), scale = (max(x) - min(x)) / hi      of a sum
//   offset = -min(min(x), 0), scale = (max(max(x), 0) - min(min(x), 0)) / hi
// so that 0 is a number of the format where it can be.
//
// The selector of a remap, at most u4, gets best(0, 1, ...); the element's remapped code counts for
// nothing in the rules of scales.
//
// Null where the value has none of these forms.
ExprPtr deriveEncode(const Format &format, int component);
// Why deriveEncode() is null, as a message says it.
std::string whyNotDerivable(const Format &format, int component);

// The zero point of a value (element - zero) * scales; -1 where it has another form.
int zeroPointOf(const Format &format);

// Whether a component has no negative number by its type, or as the form of its rule shows. Codes
// that the user brings are none of the rule's; who relies on it must look at those.
bool isNeverNegative(const Format &format, const Component &component);

} // namespace rho::dsl
