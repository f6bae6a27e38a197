#include "runtime/tool/Svg.h"

#include "runtime/tool/Report.h"

#include <nlohmann/json.hpp>

namespace rho::tool {

namespace {

// As XML 1.0 takes it. What is no character there, or no UTF-8, becomes U+FFFD.
std::string escaped(const std::string &text) {
  using Json = nlohmann::json;
  const std::string characters =
      Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
  constexpr std::string_view replacement = "\xEF\xBF\xBD"; // of what XML does not take
  std::string result;
  for (char c : characters) {
    bool control = static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (control)
      result += replacement;
    else
      result += c;
  }
  for (std::string_view excluded : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) // U+FFFE and U+FFFF
    for (size_t at = 0; (at = result.find(excluded, at)) != std::string::npos;)
      result.replace(at, excluded.size(), replacement);
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
