#include "runtime/tool/BarChart.h"

#include "runtime/tool/Report.h"

#include <algorithm>
#include <cmath>

namespace rho::tool {

namespace {

constexpr int letterWidth = 7; // of the font below, on average and a little more
constexpr int chartWidth = 560, valueWidth = 70, rowHeight = 20, headHeight = 56;

std::string escaped(const std::string &text) {
  std::string result;
  for (char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else
      result += c;
  }
  return result;
}

std::string text(int x, double y, const char *anchor, const std::string &content) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + fixedNumber(y, 1) + "\" text-anchor=\"" +
         anchor + "\">" + escaped(content) + "</text>\n";
}

} // namespace

std::string barChart(const std::string &title, const std::string &axis,
                     const std::vector<Bar> &bars) {
  double largest = 0;
  size_t longest = 0;
  for (const Bar &bar : bars) {
    largest = std::max(largest, bar.value);
    longest = std::max(longest, bar.label.size());
  }
  int labelWidth = 20 + letterWidth * static_cast<int>(longest);
  double scale = largest > 0 ? chartWidth / largest : 0;
  int width = labelWidth + chartWidth + valueWidth;
  int height = headHeight + rowHeight * static_cast<int>(bars.size()) + 10;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) +
                    "\" height=\"" + std::to_string(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += text(10, 20, "start", title) + text(labelWidth, 42, "start", axis);
  for (size_t i = 0; i < bars.size(); ++i) {
    double top = headHeight + static_cast<double>(i) * rowHeight;
    double length = bars[i].value * scale;
    svg += text(labelWidth - 8, top + 14, "end", bars[i].label);
    svg += "<rect x=\"" + std::to_string(labelWidth) + "\" y=\"" + fixedNumber(top + 3, 1) +
           "\" width=\"" + fixedNumber(length, 1) + "\" height=\"" + std::to_string(rowHeight - 6) +
           "\" fill=\"#4477aa\"/>\n";
    svg += text(labelWidth + static_cast<int>(std::lround(length)) + 6, top + 14, "start",
                fixedNumber(bars[i].value, 1));
  }
  return svg + "</svg>\n";
}

} // namespace rho::tool
