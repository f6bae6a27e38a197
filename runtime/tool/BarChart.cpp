#include "runtime/tool/BarChart.h"

#include "runtime/tool/Report.h"
#include "runtime/tool/Svg.h"

#include <algorithm>
#include <cmath>

namespace rho::tool {

namespace {

constexpr int letterWidth = 7; // of the font, on average and a little more
constexpr int chartWidth = 560, valueWidth = 70, rowHeight = 20, headHeight = 56;

} // namespace

std::string barChart(const std::string &title, const std::string &axis,
                     const std::vector<Bar> &bars) {
  double largest = 0;
  size_t longest = 0;
  for (const Bar &bar : bars) {
    if (std::isfinite(bar.value))
      largest = std::max(largest, bar.value);
    longest = std::max(longest, lettersOf(bar.label));
  }
  int labelWidth = 20 + letterWidth * static_cast<int>(longest);
  double scale = largest > 0 ? chartWidth / largest : 0;
  std::string svg = svgText(10, 20, "start", title) + svgText(labelWidth, 42, "start", axis);
  for (size_t i = 0; i < bars.size(); ++i) {
    double top = headHeight + static_cast<double>(i) * rowHeight;
    const bool finite = std::isfinite(bars[i].value);
    double length = finite ? bars[i].value * scale : chartWidth;
    svg += svgText(labelWidth - 8, top + 14, "end", bars[i].label);
    svg += "<rect x=\"" + std::to_string(labelWidth) + "\" y=\"" + fixedNumber(top + 3, 1) +
           "\" width=\"" + fixedNumber(length, 1) + "\" height=\"" + std::to_string(rowHeight - 6) +
           "\" fill=\"#4477aa\"/>\n";
    svg += svgText(labelWidth + length + 6, top + 14, "start",
                   finite ? fixedNumber(bars[i].value, 1) : "no error");
  }
  return svgDocument(labelWidth + chartWidth + valueWidth,
                     headHeight + rowHeight * static_cast<double>(bars.size()) + 10, svg);
}

} // namespace rho::tool
