// A bar chart as an SVG text.
#pragma once

#include <string>
#include <vector>

namespace rho::tool {

struct Bar {
  std::string label;
  double value;
};

// Horizontal bars from 0, in the order given, each with its value written behind it; one that is
// infinite, of what has no error, is as long as the longest. `axis` names the quantity with its
// unit.
std::string barChart(const std::string &title, const std::string &axis,
                     const std::vector<Bar> &bars);

} // namespace rho::tool
