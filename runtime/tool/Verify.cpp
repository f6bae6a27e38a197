#include "runtime/tool/Verify.h"

#include "compiler/Parallel.h"
#include "dsl/Division.h"
#include "kernels/Reference.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace rho::tool {

namespace {

// Above this many multiplications checking every output takes longer than a few seconds.
constexpr double fullLimit = 4e9;
constexpr size_t sampleCount = 4096;

// The corners and edges, where tiles are cut, and places spread over the whole output.
std::vector<kernels::Sample> chooseSamples(int64_t m, int64_t n) {
  std::set<std::pair<int64_t, int64_t>> places;
  for (int64_t row : {int64_t(0), m - 1})
    for (int64_t column : {int64_t(0), n - 1})
      places.emplace(row, column);
  std::mt19937_64 random(1); // the same places every time
  auto next = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  // Rows of activations are dequantized once each, so few rows and many columns are cheap.
  std::set<int64_t> rows = {0, m - 1};
  while (static_cast<int64_t>(rows.size()) < std::min<int64_t>(m, 64))
    rows.insert(next(m));
  std::vector<int64_t> rowList(rows.begin(), rows.end());
  for (size_t i = 0; i < sampleCount; ++i)
    places.emplace(rowList[i % rowList.size()],
                   i % 16 == 0 ? n - 1 - next(std::min<int64_t>(n, 64)) : next(n));
  std::vector<kernels::Sample> samples;
  samples.reserve(places.size());
  for (auto [row, column] : places)
    samples.push_back({row, column});
  return samples;
}

void add(Comparison &comparison, const Comparison::Place &place) {
  ++comparison.checked;
  const Judgement &judgement = place.judgement;
  if (!(judgement.ratio <= 1))
    ++comparison.outside;
  if (!std::isfinite(place.exact))
    ++comparison.notFinite;
  if (judgement.bound >= std::fabs(place.exact) && place.exact != 0)
    ++comparison.loose;
  if (comparison.checked == 1 || judgement.error > comparison.largestError.judgement.error)
    comparison.largestError = place;
  if (comparison.checked == 1 || judgement.ratio > comparison.worstRatio.judgement.ratio)
    comparison.worstRatio = place;
}

} // namespace

Judgement judge(double computed, double exact, double bound, dsl::ElementType output) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // NaN may be the difference of infinities, of which a kernel has scaled only one.
  if (std::isnan(exact) || std::isnan(computed)) {
    bool same = std::isnan(exact) && !std::isfinite(computed);
    return {same ? 0 : infinity, bound, same ? 0 : infinity};
  }
  // Beyond the output's range both are infinite; near its end either may be, and where the bound
  // has both ends of it, of either sign.
  if (std::isinf(computed) || std::isinf(exact)) {
    const double sign = computed > 0 ? 1 : -1;
    const bool same =
        std::isinf(computed) &&
        (std::isinf(exact) ? sign * exact > 0 : sign * exact + bound > output.maxFinite());
    return {same ? 0 : infinity, bound, same ? 0 : infinity};
  }
  double error = std::fabs(computed - exact);
  double ratio = error == 0 ? 0 : bound > 0 ? error / bound : infinity;
  return {error, bound, ratio};
}

VerifyMode verifyMode(const std::string &text, const compiler::Problem &problem) {
  if (text == "full")
    return VerifyMode::Full;
  if (text == "sample")
    return VerifyMode::Sample;
  if (text == "none")
    return VerifyMode::None;
  double products = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                    static_cast<double>(problem.k);
  return products <= fullLimit ? VerifyMode::Full : VerifyMode::Sample;
}

Comparison verify(const dsl::Gemm &gemm, const compiler::Plan &plan,
                  const dsl::QuantizedMatrix &activation, const dsl::QuantizedMatrix &weight,
                  const dsl::MatrixView &output, VerifyMode mode, compiler::Summing by) {
  Comparison comparison;
  if (mode == VerifyMode::None)
    return comparison;
  std::vector<kernels::Sample> samples;
  kernels::SampleOutput exact;
  if (mode == VerifyMode::Full) {
    kernels::ReferenceOutput whole = kernels::reference(activation, weight);
    exact = {std::move(whole.y), std::move(whole.magnitude)};
  } else {
    samples = chooseSamples(output.rows, output.k);
    exact = kernels::referenceAt(activation, weight, samples);
  }
  auto count = static_cast<int64_t>(exact.y.size());
  const compiler::ErrorBound errorBound(gemm, plan, by);
  constexpr int64_t chunk = 4096;
  int64_t chunks = divideUp(count, chunk);
  std::vector<Comparison> parts(static_cast<size_t>(chunks));
  parallelFor(chunks, [&](int64_t part) {
    int64_t end = std::min(count, (part + 1) * chunk);
    for (int64_t i = part * chunk; i < end; ++i) {
      kernels::Sample at =
          mode == VerifyMode::Full ? kernels::Sample{i / output.k, i % output.k} : samples[i];
      double computed = output.at(at.m, at.n);
      double bound = errorBound(exact.magnitude[i], exact.y[i]);
      add(parts[part],
          {at.m, at.n, computed, exact.y[i], judge(computed, exact.y[i], bound, gemm.output)});
    }
  });
  for (const Comparison &part : parts) {
    int64_t checked = comparison.checked + part.checked;
    int64_t outside = comparison.outside + part.outside;
    int64_t notFinite = comparison.notFinite + part.notFinite;
    int64_t loose = comparison.loose + part.loose;
    add(comparison, part.largestError);
    add(comparison, part.worstRatio);
    comparison.checked = checked;
    comparison.outside = outside;
    comparison.notFinite = notFinite;
    comparison.loose = loose;
  }
  return comparison;
}

int64_t differingCodes(const dsl::QuantizedMatrix &a, const dsl::QuantizedMatrix &b) {
  std::atomic<int64_t> differing = 0;
  if (!a.parts.empty()) // whose codes count where a block is stored in them
    parallelFor(a.rows, [&](int64_t row) {
      const std::vector<double> x = a.rowValues(row), y = b.rowValues(row);
      for (size_t i = 0; i < x.size(); ++i)
        differing += x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i]));
    });
  for (size_t c = 0; c < a.components.size(); ++c) {
    const dsl::CodeArray &x = a.components[c];
    const dsl::CodeArray &y = b.components[c];
    if (x.size() != y.size())
      return std::max(x.size(), y.size());
    constexpr int64_t chunk = 1 << 16;
    parallelFor(divideUp(x.size(), chunk), [&](int64_t part) {
      int64_t found = 0;
      for (int64_t i = part * chunk; i < std::min(x.size(), (part + 1) * chunk); ++i)
        found += x.get(i) != y.get(i);
      differing += found;
    });
  }
  return differing;
}

} // namespace rho::tool
