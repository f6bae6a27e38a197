#include "dsl/OperandRows.h"

namespace rho::dsl {

std::vector<std::vector<std::string>> extentsNotInOperand(const Format &format, bool weight) {
  std::vector<std::vector<std::string>> found;
  auto refuse = [&](const std::string &what, const std::string &extent) {
    found.push_back(
        {format.name, what, extent, weight ? "weight" : "activation",
         weight ? "the rows of a weight are channels" : "the rows of an activation are tokens"});
  };
  for (const Component &component : format.components)
    if ((component.extent == Extent::Row || component.rows > 1) && component.perToken == weight)
      refuse(component.name, printExtent(component));
  forEachPart(format, [&](const Part &part, const Blocks &blocks) {
    if (blocks.rows > 1 && blocks.perToken == weight)
      refuse(part.name, print(blocks));
    for (std::vector<std::string> &within : extentsNotInOperand(*part.format, weight))
      found.push_back(std::move(within));
  });
  return found;
}

} // namespace rho::dsl
