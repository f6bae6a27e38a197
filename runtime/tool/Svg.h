// Pieces of SVG drawings.
#pragma once

#include <string>

namespace rho::tool {

// The whole drawing: a white ground of that many pixels under `content`.
std::string svgDocument(double width, double height, const std::string &content);
// `anchor`: "start", "middle" or "end" of the text lies at x.
std::string svgText(double x, double y, const char *anchor, const std::string &content);

} // namespace rho::tool
