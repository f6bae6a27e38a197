// Numbers in place of the codes that stand for them: what instructions can multiply that do not
// take the codes.
#pragma once

#include "dsl/Quantize.h"

namespace rho::dsl {

// The format of a matrix that holds as its element, of `type`, what a code stands for times all
// factors of the value but the literal ones and scales: those of rows and of the tensor, with
// `keepsGroups` of groups too. These stay components. Named after both. A format without parts.
Format valuesAs(ElementType type, const Format &format, bool keepsGroups);

// Of a component that is stored otherwise than declared: it shares no unit with others, and its
// codes come from those of another format, by no rule.
void storeApart(Component &component);
void takeGivenCodes(Component &component);

// The component of that name beside the element, or null.
const Component *componentNamed(const Format &format, std::string_view name);

// What valuesAs() computes of the codes of one number.
Format valueOfElement(const Format &format, const Format &values);

// Codes of a format as those of valuesAs() of it, each number rounded once, 0 for -0; of a
// partition as those of one with such parts; of any format with parts as numbers of a plain one.
QuantizedMatrix storedValues(QuantizedMatrix codes, std::shared_ptr<const Format> values);

} // namespace rho::dsl
