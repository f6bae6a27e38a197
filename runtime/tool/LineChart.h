// Line charts as an SVG text.
#pragma once

#include <string>
#include <vector>

namespace rho::tool {

struct Line {
  std::string name;                              // equal names look alike in all figures
  std::vector<std::pair<double, double>> points; // x > 0 ascending, y >= 0
};

struct Panel {
  std::string title;
  std::vector<Line> lines;
};

// Panels of one size with common axes: x in powers of two, y from 0.
struct LineFigure {
  std::string title;
  std::string xAxis, yAxis; // quantities with their units
  double reference = 0;     // y of a grey line in every panel
  std::vector<Panel> panels;
};

// The figures one below the other, each with a legend. Lines differ in colour and in the shape of
// their markers.
std::string lineCharts(const std::vector<LineFigure> &figures);

} // namespace rho::tool
