// Runs small PTX texts.
#pragma once

#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/TensorMap.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace rho::emulator::test {

// Entry `k` with parameters %in and %out (64-bit addresses, loaded into %din and %dout), thread
// number in %tid32, and registers of all widths. The body starts on line `bodyLine`. With maps, the
// entry also has the parameters map0 and so on.
constexpr int bodyLine = 21;
std::string kernel(const std::string &body, const std::string &declarations = "", size_t maps = 0);
// The same module for another target than sm_90a.
std::string forTarget(std::string ptx, const std::string &target);

struct Ran {
  std::string error; // rendered; empty: none
  std::vector<uint8_t> out;
  LaunchStats stats;

  template <class T> std::vector<T> as() const {
    std::vector<T> values(out.size() / sizeof(T));
    std::memcpy(values.data(), out.data(), values.size() * sizeof(T));
    return values;
  }
};

struct Config {
  Dim3 grid, block{32, 1, 1}, cluster;
  int64_t shared = 0;
  std::vector<uint8_t> in;
  int64_t outBytes = 0;
  std::vector<std::string> origins;
  uint64_t maxWarpInstructions = uint64_t(1) << 24;
  int threads = 1;
  bool dependent = false; // on a grid that writes all but `in`
  // Tensor maps, whose addresses count from `in`, or from `out` with 2^40 more.
  std::vector<TensorMap> maps;
};
constexpr uint64_t inOut = uint64_t(1) << 40;
Ran runKernel(const std::string &ptx, const Config &config);

template <class T> std::vector<uint8_t> bytesOf(const std::vector<T> &values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Evaluates straight-line code for each case, one thread per case. Sources are %a16, %b32, %c64 and
// so on, results %x16, %x32, %x64 or predicate %q; `width` says which is returned (1: %q).
using Case = std::array<uint64_t, 3>;
std::vector<uint64_t> evaluate(const std::string &code, int width, const std::vector<Case> &cases,
                               const std::string &target = "sm_90a");

// The text of an mma with four registers of C, %r8 to %r11, and of D, %r12 to %r15: with D in those
// of C, in reverse.
std::string withDInReversedC(std::string mma);

// A generator that gives the same numbers in every run.
inline std::mt19937_64 repeatable(uint64_t seed) { return std::mt19937_64(seed); }

// Values with interesting bits, then random ones.
std::vector<Case> integerCases(int width, int count = 600);

// The error of a parse; empty when it succeeds.
std::string parseError(const std::string &ptx);

} // namespace rho::emulator::test
