// The shapes of a benchmark suite, and what is made of its measurements: ratios, tables, plots.
#pragma once

#include "runtime/tool/Timing.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::tool {

// Rows and columns of a weight.
struct WeightShape {
  int64_t n = 0, k = 0;
  friend bool operator==(const WeightShape &, const WeightShape &) = default;
};

// Those of the linear layers of Llama models of 7 to 405 billion parameters.
const std::vector<WeightShape> &llamaWeights();
const std::vector<int64_t> &suiteRows(); // m

// One kernel at one shape.
struct SuiteRow {
  std::string name;    // of the gemm, of the peer with the library before it, or of the floor
  std::string mmaType; // of both operands in the tensor core
  std::string device;
  std::string launch; // "serial" or "dependent"; empty of libraries, which launch as they like
  GemmShape shape;    // m is 0 of the floor, which has no activations
  GpuTime time;
  int64_t weightBytes = 0;                 // as the kernel reads it: packed, scales included
  std::optional<double> roofline;          // microseconds, see rooflineMicroseconds
  std::optional<double> quantize;          // microseconds for x -> codes, a kernel of its own
  std::optional<double> rotateAndQuantize; // the same of inputs that are rotated first

  // What is known of gemms.
  std::string tile;    // "M x N x K" of a CTA
  std::string cluster; // "N x K" CTAs
  int pipeline = 0;
  int64_t splitK = 0;
  std::string roles, tables; // as a schedule names them
  std::string planSource;    // "planned" or "tuned"
  double predicted = 0;      // microseconds
  // What is known of peers: multiplications of 16 and of 8 bits, and the kernel that only reads.
  enum class Peer : uint8_t { None, Half, Byte, Floor } peer = Peer::None;
  std::string algorithm; // "2 of 8": the fastest of those that were tried
  int64_t paddedM = 0;   // rows that it computes; m unless the library cannot do that
};

// The least time of a gemm: max(weight bytes / memory bandwidth, 2mnk / peak rate), microseconds.
// None where the device's rates are not known.
std::optional<double> rooflineMicroseconds(const Device &device, const GemmShape &shape,
                                           int64_t weightBytes, std::string_view mmaType);

// The rows of one run, with what compares them.
class SuiteResults {
public:
  void add(SuiteRow row) { all.push_back(std::move(row)); }
  const std::vector<SuiteRow> &rows() const { return all; }

  // How many times faster a row is than the fastest peer of that kind at its shape. None without.
  std::optional<double> speedUp(const SuiteRow &row, SuiteRow::Peer over) const;
  static std::optional<double> rooflineShare(const SuiteRow &row);
  // The time of a gemm over that of reading as many bytes at the same shape, launched the same way.
  // None above `mostFloorRows`, where the weight is not what takes the time.
  static constexpr int64_t mostFloorRows = 16;
  std::optional<double> overFloor(const SuiteRow &row) const;

  std::string csv() const;
  // Markdown: for each m the geometric means over the shapes of the speed-ups over the bf16 peer
  // and over the fastest 8-bit peer, of the share of the roofline, and of overFloor(). A kernel
  // counts at the shapes where it was measured.
  std::string tables() const;
  // SVG: the speed-up over the bf16 peer and the share of the roofline against m, a panel a shape.
  std::string plots() const;

private:
  std::vector<SuiteRow> all;
};

double geometricMean(const std::vector<double> &values); // 0 of none

} // namespace rho::tool
