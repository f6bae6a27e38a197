#include "runtime/tool/LineChart.h"

#include "runtime/tool/Report.h"
#include "runtime/tool/Svg.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rho::tool {

namespace {

constexpr double panelWidth = 300, panelHeight = 210; // with its title and axes
constexpr double left = 44, right = 12, top = 26, bottom = 44, margin = 10;
constexpr double titleHeight = 44, legendHeight = 20, figureGap = 20;
constexpr size_t panelsInRow = 4;
constexpr double legendColumn = 200;
constexpr double markerRadius = 3;

// Paul Tol's bright scheme and black: told apart by colour-blind readers.
constexpr std::array<const char *, 8> colours = {"#4477aa", "#ee6677", "#228833", "#aa3377",
                                                 "#66ccee", "#ccbb44", "#888888", "#000000"};

std::string number(double value) { return fixedNumber(value, 1); }

// Every name, in the order of its first line.
std::vector<std::string> namesOf(const std::vector<LineFigure> &figures) {
  std::vector<std::string> names;
  for (const LineFigure &figure : figures)
    for (const Panel &panel : figure.panels)
      for (const Line &line : panel.lines)
        if (std::find(names.begin(), names.end(), line.name) == names.end())
          names.push_back(line.name);
  return names;
}

bool draws(const LineFigure &figure, const std::string &name) {
  auto named = [&](const Line &line) { return line.name == name; };
  return std::any_of(figure.panels.begin(), figure.panels.end(), [&](const Panel &panel) {
    return std::any_of(panel.lines.begin(), panel.lines.end(), named);
  });
}

struct Style {
  const char *colour;
  size_t shape;
};

Style styleOf(size_t index) {
  return {colours[index % colours.size()], (index + index / colours.size()) % 4};
}

// Where the i-th of cells lies that fill rows.
struct Cell {
  double x, y;
};
Cell cell(size_t i, size_t inRow, double width, double height) {
  size_t row = i / inRow, column = i % inRow;
  return {static_cast<double>(column) * width, static_cast<double>(row) * height};
}
double heightOf(size_t cells, size_t inRow, double height) {
  return cells == 0 ? 0 : cell(cells - 1, inRow, 0, height).y + height;
}

// A circle, a square, a triangle or a diamond.
std::string marker(double x, double y, const Style &style) {
  std::string fill = std::string(" fill=\"") + style.colour + "\"/>\n";
  double r = markerRadius;
  if (style.shape == 0)
    return "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(r) + "\"" +
           fill;
  std::vector<std::pair<double, double>> corners;
  if (style.shape == 1)
    corners = {{-r, -r}, {r, -r}, {r, r}, {-r, r}};
  else if (style.shape == 2)
    corners = {{0, -r - 1}, {r + 1, r}, {-r - 1, r}};
  else
    corners = {{0, -r - 1}, {r + 1, 0}, {0, r + 1}, {-r - 1, 0}};
  std::string points;
  for (const auto &[dx, dy] : corners)
    points += (points.empty() ? "" : " ") + number(x + dx) + "," + number(y + dy);
  return "<polygon points=\"" + points + "\"" + fill;
}

std::string rule(double x1, double y1, double x2, double y2, const char *colour) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" stroke=\"" + colour + "\"/>\n";
}

// What the axes span.
struct Range {
  int xFrom = 0, xTo = 1; // exponents of two
  double yTo = 1, yStep = 1;
  int yDigits = 0;
};

Range rangeOf(const LineFigure &figure) {
  Range range;
  double least = INFINITY;
  double most = 0;
  double highest = figure.reference;
  for (const Panel &panel : figure.panels)
    for (const Line &line : panel.lines)
      for (const auto &[x, y] : line.points) {
        least = std::min(least, x);
        most = std::max(most, x);
        highest = std::max(highest, y);
      }
  if (most > 0) {
    range.xFrom = static_cast<int>(std::floor(std::log2(least)));
    range.xTo = std::max(static_cast<int>(std::ceil(std::log2(most))), range.xFrom + 1);
  }
  // About five steps of 1, 2 or 5 times a power of ten.
  if (highest > 0) {
    double unit = std::pow(10, std::floor(std::log10(highest / 5)));
    double steps = highest / 5 / unit;
    range.yStep = unit * (steps <= 1 ? 1 : steps <= 2 ? 2 : steps <= 5 ? 5 : 10);
    range.yTo = std::ceil(highest / range.yStep - 1e-9) * range.yStep;
    range.yDigits = std::max(0, -static_cast<int>(std::floor(std::log10(range.yStep) + 1e-9)));
  }
  return range;
}

class PanelDrawing {
public:
  PanelDrawing(double x, double y, const Range &range) : x0(x + left), y0(y + top), range(range) {}

  std::string axes(const std::string &title, const std::string &xAxis, double reference) const {
    std::string svg = svgText(x0, y0 - 8, "start", title) +
                      svgText(x0 + width / 2, y0 + height + 33, "middle", xAxis);
    for (int i = 0; i <= static_cast<int>(std::lround(range.yTo / range.yStep)); ++i) {
      double y = i * range.yStep;
      svg += rule(x0, atY(y), x0 + width, atY(y), "#e0e0e0");
      const std::string label = fixedNumber(y, range.yDigits);
      svg += svgText(x0 - 6, atY(y) + 4, "end", label.size() > 6 ? powerOfTen(y) : label);
    }
    int step = range.xTo - range.xFrom > 7 ? 2 : 1;
    for (int e = range.xFrom; e <= range.xTo; e += step) {
      double x = atX(std::exp2(e));
      svg += rule(x, y0 + height, x, y0 + height + 4, "#404040");
      svg += svgText(x, y0 + height + 17, "middle", powerOfTwo(e));
    }
    if (reference > 0)
      svg += rule(x0, atY(reference), x0 + width, atY(reference), "#808080");
    return svg + rule(x0, y0 + height, x0 + width, y0 + height, "#404040");
  }

  std::string line(const Line &line, const Style &style) const {
    std::string points;
    std::string markers;
    for (const auto &[x, y] : line.points) {
      points += (points.empty() ? "" : " ") + number(atX(x)) + "," + number(atY(y));
      markers += marker(atX(x), atY(y), style);
    }
    return "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + style.colour +
           "\" stroke-width=\"1.5\"/>\n" + markers;
  }

private:
  // "2e+07", where all digits would have no room beside the plot.
  static std::string powerOfTen(double value) { return significantNumber(value, 2); }
  static std::string powerOfTwo(int exponent) {
    return fixedNumber(std::exp2(exponent), std::max(0, -exponent));
  }
  double atX(double x) const {
    return x0 + width * (std::log2(x) - range.xFrom) / (range.xTo - range.xFrom);
  }
  double atY(double y) const { return y0 + height * (1 - y / range.yTo); }

  static constexpr double width = panelWidth - left - right;
  static constexpr double height = panelHeight - top - bottom;
  double x0, y0; // of the upper left corner of the plot itself
  const Range &range;
};

// Draws from `y` on and moves `y` behind the figure. The index of a name chooses its style.
std::string draw(const LineFigure &figure, const std::vector<std::string> &names, double &y) {
  Range range = rangeOf(figure);
  std::string svg = "<g font-size=\"15\">" + svgText(margin, y + 18, "start", figure.title) +
                    "</g>\n" + svgText(margin, y + 36, "start", figure.yAxis);
  y += titleHeight;
  constexpr auto inRow = static_cast<size_t>(panelsInRow * panelWidth / legendColumn);
  size_t entries = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!draws(figure, names[i]))
      continue;
    Cell at = cell(entries++, inRow, legendColumn, legendHeight);
    double x = margin + at.x, middle = y + at.y + legendHeight / 2;
    svg += rule(x, middle, x + 24, middle, styleOf(i).colour);
    svg += marker(x + 12, middle, styleOf(i)) + svgText(x + 30, middle + 4, "start", names[i]);
  }
  y += heightOf(entries, inRow, legendHeight);
  for (size_t i = 0; i < figure.panels.size(); ++i) {
    const Panel &panel = figure.panels[i];
    Cell at = cell(i, panelsInRow, panelWidth, panelHeight);
    PanelDrawing drawing(at.x, y + at.y, range);
    svg += drawing.axes(panel.title, figure.xAxis, figure.reference);
    for (const Line &line : panel.lines) {
      auto index = std::find(names.begin(), names.end(), line.name) - names.begin();
      svg += drawing.line(line, styleOf(static_cast<size_t>(index)));
    }
  }
  y += heightOf(figure.panels.size(), panelsInRow, panelHeight) + figureGap;
  return svg;
}

} // namespace

std::string lineCharts(const std::vector<LineFigure> &figures) {
  std::vector<std::string> names = namesOf(figures);
  std::string svg;
  double y = 0;
  for (const LineFigure &figure : figures)
    svg += draw(figure, names, y);
  return svgDocument(panelWidth * panelsInRow + 2 * margin, y, svg);
}

} // namespace rho::tool
