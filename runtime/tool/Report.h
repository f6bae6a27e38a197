// How the tool writes: numbers, labelled lines, and progress for who watches.
#pragma once

#include "runtime/Rho.h"
#include "runtime/Stopwatch.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace rho::tool {

// The letters of a UTF-8 text, taken to be equally wide.
size_t lettersOf(std::string_view text);

// As a shell reads it as one word.
std::string shellWord(const std::string &text);

// 3 significant digits and no exponent for usual sizes: 0.00123, 1.23, 123, 12345.
std::string shortNumber(double value);
std::string numberOrNone(const std::optional<double> &value); // shortNumber(), or an empty text
std::string fixedNumber(double value, int digits);
std::string significantNumber(double value, int digits); // as "%g"
std::string microseconds(double value);                  // of a kernel
std::string bitCount(double bits);                       // "4.125 bits per element"
std::string byteCount(int64_t bytes);                    // "69.6 KB" in units of 1000

std::string shapeText(const GemmShape &shape);                   // "m = 16, n = 4096, k = 4096"
std::string weightText(int64_t n, int64_t k);                    // "n = 4096, k = 4096"
std::string extentsText(std::initializer_list<int64_t> extents); // "64 x 128 x 64"
std::string deviceText(const Device &device);                    // "NVIDIA H200, sm_90a"

// "label      text"; an empty label goes on with the line before.
void printLine(std::string_view label, std::string_view text);
// Why the first line that did not reach standard output did not, as errno says it; 0: all did.
int lineFailure();

std::string_view name(CompileReport::Source source);
std::string_view name(CompileReport::PlanSource source);

// "[######      ] 12 of 24", but 24 wide.
std::string progressBar(int64_t done, int64_t total);

// What goes on, on stderr while it is a terminal, with the seconds that it takes. Gone when the
// object is.
class Progress {
public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  void update(std::string what);

private:
  struct Ticker;
  std::unique_ptr<Ticker> ticker;
};

} // namespace rho::tool
