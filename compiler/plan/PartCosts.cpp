// Predictions for activations in parts.
#include "compiler/plan/CostModel.h"
#include "dsl/Division.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rho::compiler {

using Part = Cost::Part;

namespace {

// The k tiles of one output, part by part: a part has `fractions` of them, one of which takes
// `times` and counts as `weights` when they are divided into shares.
struct PartLists {
  std::vector<double> fractions, times, weights;

  double sumOf(const std::vector<double> &each) const {
    return std::inner_product(fractions.begin(), fractions.end(), each.begin(), 0.0);
  }
  // Of the k tiles that lie in the first `work` of many outputs, one after the other.
  double timeOf(double work) const {
    double all = sumOf(weights), time = std::floor(work / all) * sumOf(times), at = 0;
    double left = work - std::floor(work / all) * all;
    for (size_t part = 0; part < fractions.size(); ++part) {
      double ofPart = fractions[part] * weights[part];
      time += std::clamp(left - at, 0.0, ofPart) / weights[part] * times[part];
      at += ofPart;
    }
    return time;
  }
};

// Of so many outputs in as many shares: the time of the slowest share to that of all of them in the
// mean.
double imbalance(const PartLists &lists, double outputs, int64_t shares) {
  double all = lists.sumOf(lists.weights) * outputs, slowest = 0;
  for (int64_t share = 0; share < shares; ++share) {
    auto before = [&](int64_t i) {
      return lists.timeOf(all * static_cast<double>(i) / static_cast<double>(shares));
    };
    slowest = std::max(slowest, before(share + 1) - before(share));
  }
  return slowest * static_cast<double>(shares) / (lists.sumOf(lists.times) * outputs);
}

// Of this schedule's division of k.
double imbalance(const PartLists &lists, const Schedule &schedule, const Problem &problem) {
  if (!schedule.streamsK())
    return imbalance(lists, 1, schedule.splitK);
  int64_t outputs = outputTiles(problem, schedule.tileM, schedule.tileN);
  int64_t tiles = outputs * divideUp(problem.k, schedule.tileK);
  return imbalance(lists, static_cast<double>(outputs), std::min(tiles, schedule.residentCtas));
}

} // namespace

Cost predictParts(const dsl::Gemm &gemm, const PlacedGemm &placed, const Schedule &schedule,
                  const Problem &problem, const DeviceModel &device) {
  PartLists lists{expectedShares(*gemm.activation.partition), {}, {}};
  lists.weights.assign(schedule.tileCosts.begin(), schedule.tileCosts.end());
  lists.weights.resize(lists.fractions.size(), 1);
  Cost cost;
  double overhead = 0;
  forEachGemm(gemm, placed, [&](const dsl::Gemm &one, const PlacedGemm &own) {
    Cost alone = predict(one, own, schedule, problem, device);
    double share = lists.fractions[lists.times.size()];
    lists.times.push_back(alone.microseconds - alone[Part::Overhead]);
    cost.microseconds += share * lists.times.back();
    overhead += share * alone[Part::Overhead];
    for (size_t i = 0; i < cost.parts.size(); ++i)
      cost.parts[i] += share * alone.parts[i];
  });
  if (schedule.splitK != 1)
    cost.microseconds *= imbalance(lists, schedule, problem);
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
