// What `rho tune` makes of measurements, and the check that keeps wrong kernels from being chosen.
#pragma once

#include "runtime/tool/TimingOperands.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::tool {

// One shape of one gemm.
struct TunedRow {
  std::string gemm, device;
  GemmShape shape;
  int64_t candidates = 0, failed = 0;
  std::optional<double> planned; // microseconds of the planner's own choice, unless it failed
  double best = 0;               // microseconds
  int64_t rank = 0;              // of the best one among the predictions, from 1 on
  std::string plannedSchedule, bestSchedule;

  std::optional<double> ratio() const { return planned ? *planned / best : planned; }
};
TunedRow tunedRow(const std::string &gemm, const Device &device, const GemmShape &shape,
                  const TuneReport &report);

// One candidate that was measured: what a fit of the cost model needs.
struct MeasuredRow {
  std::string gemm, device;
  GemmShape shape;
  double predicted = 0, measured = 0; // microseconds
  std::string schedule;
};
std::vector<MeasuredRow> measuredRows(const std::string &gemm, const Device &device,
                                      const GemmShape &shape, const TuneReport &report);
std::string measuredCsv(const std::vector<MeasuredRow> &rows);

// What a plan's text says of the schedule, in one line.
std::string scheduleText(const std::string &plan);

std::string tunedCsv(const std::vector<TunedRow> &rows);
// How far the planner's own choices are from the best: the geometric mean of planned / best, and
// the worst. Empty of none.
std::string plannerSummary(const std::vector<TunedRow> &rows);

// Exact results for a few rows of the output, all their columns, at one shape.
class ExpectedRows {
public:
  // For operands of TimingOperands: the codes that repeat along n, and x.
  static Result<ExpectedRows> create(const Device &device, const Gemm &gemm,
                                     const dsl::QuantizedMatrix &slice,
                                     const TimingOperands::Input &x);
  int64_t period() const { return columns; } // of the codes along n
  // After a launch on them. Errors: candidate_wrong.
  Status check(const ReadyGemm &ready) const;

private:
  std::vector<int64_t> rows; // of the output
  int64_t columns = 0;
  std::vector<double> y, magnitude; // [rows][columns], see kernels::reference
};

} // namespace rho::tool
