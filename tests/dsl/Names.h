// Names of parameterised tests.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace rho::test {

// What GoogleTest takes as a name: all but letters and digits becomes an underscore.
inline std::string testName(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return text;
}

} // namespace rho::test
