#include "runtime/tool/Svg.h"

#include "runtime/tool/Report.h"

namespace rho::tool {

namespace {

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

} // namespace

std::string svgDocument(double width, double height, const std::string &content) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixedNumber(width, 0) +
         "\" height=\"" + fixedNumber(height, 0) +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
         content + "</svg>\n";
}

std::string svgText(double x, double y, const char *anchor, const std::string &content) {
  return "<text x=\"" + fixedNumber(x, 1) + "\" y=\"" + fixedNumber(y, 1) + "\" text-anchor=\"" +
         anchor + "\">" + escaped(content) + "</text>\n";
}

} // namespace rho::tool
