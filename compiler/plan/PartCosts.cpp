// Predictions for activations in parts.
#include "compiler/plan/CostModel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rho::compiler {

using Part = Cost::Part;

namespace {

// Of lists of k tiles, part by part, in as many shares: the time of the slowest share to that of
// all of them in the mean. A part has `fractions` of the k tiles, one of which takes `times` and
// counts as `weights` when the lists are divided.
double imbalance(const std::vector<double> &fractions, const std::vector<double> &times,
                 const std::vector<double> &weights, int64_t shares) {
  double mean = 0, all = 0, slowest = 0;
  for (size_t part = 0; part < fractions.size(); ++part) {
    mean += fractions[part] * times[part];
    all += fractions[part] * weights[part];
  }
  for (int64_t share = 0; share < shares; ++share) {
    double begin = all * static_cast<double>(share) / static_cast<double>(shares);
    double end = all * static_cast<double>(share + 1) / static_cast<double>(shares);
    double time = 0, at = 0;
    for (size_t part = 0; part < fractions.size(); ++part) {
      double next = at + fractions[part] * weights[part];
      time +=
          std::max(0.0, std::min(end, next) - std::max(begin, at)) / weights[part] * times[part];
      at = next;
    }
    slowest = std::max(slowest, time * static_cast<double>(shares));
  }
  return slowest / mean;
}

} // namespace

Cost predictParts(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                  const Problem &problem, const DeviceModel &device) {
  std::vector<double> fractions = expectedShares(*gemm.activation.partition);
  std::vector<double> times, weights(fractions.size(), 1);
  for (size_t part = 0; part < schedule.tileCosts.size(); ++part)
    weights[part] = static_cast<double>(schedule.tileCosts[part]);
  Cost cost;
  double overhead = 0;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &own) {
    Cost alone = predict(one, own, schedule, problem, device);
    double share = fractions[times.size()];
    times.push_back(alone.microseconds - alone[Part::Overhead]);
    cost.microseconds += share * times.back();
    overhead += share * alone[Part::Overhead];
    for (size_t i = 0; i < cost.parts.size(); ++i)
      cost.parts[i] += share * alone.parts[i];
  });
  if (schedule.splitK > 1)
    cost.microseconds *= imbalance(fractions, times, weights, schedule.splitK);
  double restarts = static_cast<double>(placed.parts.size() - 1) * memoryLatencyMicroseconds;
  cost.microseconds += overhead + restarts;
  cost[Part::Overhead] += restarts;
  return cost;
}

std::vector<int64_t> tileCosts(const dsl::Gemm &gemm, const PlacedGemm &placed,
                               const Schedule &schedule, const Problem &problem,
                               const DeviceModel &device) {
  constexpr double steps = 4; // to the cheapest
  std::vector<double> times;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &own) {
    Cost alone = predict(one, own, schedule, problem, device);
    times.push_back(alone.microseconds - alone[Part::Overhead]);
  });
  double least = *std::min_element(times.begin(), times.end());
  std::vector<int64_t> costs;
  for (double time : times)
    costs.push_back(
        std::clamp<int64_t>(std::llround(steps * time / least), 1, Schedule::largestCost));
  int64_t divisor = costs[0];
  for (int64_t cost : costs)
    divisor = std::gcd(divisor, cost);
  for (int64_t &cost : costs)
    cost /= divisor;
  return costs;
}

std::vector<double> expectedShares(const dsl::Partition &partition) {
  std::vector<double> shares{1};
  auto count = static_cast<double>(partition.parts.size());
  for (size_t part = 1; part < partition.parts.size(); ++part) {
    double wanted = partition.parts[part].budget ? *partition.parts[part].budget / 100 : 1 / count;
    shares.push_back(std::min(wanted, shares[0]));
    shares[0] -= shares.back();
  }
  return shares;
}

} // namespace rho::compiler
