#include "kernels/Synthetic.h"

#include "compiler/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rho::kernels {

namespace {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Each row has a generator of its own, so that rows
// can be made in any order.
class Random {
public:
  Random(uint64_t seed, uint64_t stream, uint64_t row)
      : state(mix(mix(mix(seed) ^ stream) ^ row)) {}

  uint64_t next() {
    state += 0x9e3779b97f4a7c15U;
    return mix(state);
  }
  // In (0, 1]: the logarithm below is always finite.
  double uniform() { return (static_cast<double>(next() >> 11) + 1) * 0x1p-53; }
  // Two independent standard normals (Box and Muller, 1958).
  std::pair<double, double> normals() {
    double radius = std::sqrt(-2 * std::log(uniform()));
    double angle = 2 * std::numbers::pi * uniform();
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

private:
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  uint64_t state;
};

// Streams keep weights, activations and the choice of channels independent under one seed.
enum Stream : uint64_t {
  WeightStream = 1,
  ActivationStream = 2,
  ChannelStream = 3,
  WeightChannelStream = 4,
  ExactWeightStream = 5,
  ExactActivationStream = 6
};

void fillNormals(Random &random, float *row, int64_t k, double deviation) {
  for (int64_t i = 0; i < k; i += 2) {
    auto [a, b] = random.normals();
    row[i] = static_cast<float>(a * deviation);
    if (i + 1 < k)
      row[i + 1] = static_cast<float>(b * deviation);
  }
}

// Of standard deviation 1.
double laplace(Random &random) {
  double size = -std::log(random.uniform()) / std::numbers::sqrt2;
  return random.next() & 1 ? size : -size;
}
double studentT(Random &random, int freedom) {
  double squares = 0; // of `freedom` normals
  for (int i = 0; i < freedom; i += 2) {
    auto [a, b] = random.normals();
    squares += a * a + (i + 1 < freedom ? b * b : 0);
  }
  return random.normals().first / std::sqrt(squares / (freedom - 2));
}

void fillBulk(Random &random, float *row, int64_t k, const WeightModel &model) {
  using Bulk = WeightModel::Bulk;
  if (model.bulk == Bulk::Normal)
    return fillNormals(random, row, k, model.deviation);
  for (int64_t i = 0; i < k; ++i) {
    double value = model.bulk == Bulk::Laplace ? laplace(random) : studentT(random, model.freedom);
    row[i] = static_cast<float>(value * model.deviation);
  }
}

// Ascending.
std::vector<int64_t> drawChannels(int64_t k, double fraction, uint64_t seed, Stream stream) {
  int64_t wanted = std::llround(fraction * static_cast<double>(k));
  wanted = std::clamp<int64_t>(wanted, 1, k);
  Random random(seed, stream, 0);
  std::vector<bool> chosen(static_cast<size_t>(k));
  // Floyd's sampling: each subset of that size is equally likely.
  for (int64_t last = k - wanted; last < k; ++last) {
    auto channel = static_cast<int64_t>(random.next() % static_cast<uint64_t>(last + 1));
    chosen[chosen[channel] ? last : channel] = true;
  }
  std::vector<int64_t> channels;
  for (int64_t i = 0; i < k; ++i)
    if (chosen[i])
      channels.push_back(i);
  return channels;
}

} // namespace

std::vector<float> syntheticWeight(int64_t rows, int64_t k, uint64_t seed,
                                   const WeightModel &model) {
  std::vector<float> values(static_cast<size_t>(rows * k));
  std::vector<int64_t> outliers;
  if (model.outlierFraction > 0)
    outliers = drawChannels(k, model.outlierFraction, seed, WeightChannelStream);
  parallelFor(rows, [&](int64_t row) {
    Random random(seed, WeightStream, static_cast<uint64_t>(row));
    float *out = values.data() + row * k;
    fillBulk(random, out, k, model);
    for (int64_t channel : outliers)
      out[channel] *= static_cast<float>(model.outlierScale);
    // Distances between tail weights are geometric: one draw per tail weight, not per weight.
    if (model.tailFraction <= 0)
      return;
    double perStep = std::log1p(-std::min(model.tailFraction, 0.999));
    auto gap = [&] { // at most k: a draw can be longer than any integer
      double steps = std::log(random.uniform()) / perStep;
      return static_cast<int64_t>(std::min(steps, static_cast<double>(k)));
    };
    for (int64_t i = gap(); i < k; i += 1 + gap())
      out[i] *= static_cast<float>(model.tailScale);
  });
  return values;
}

std::vector<int64_t> outlierChannels(int64_t k, uint64_t seed, const ActivationModel &model) {
  if (model.outlierFraction <= 0 || k < 64)
    return {};
  return drawChannels(k, model.outlierFraction, seed, ChannelStream);
}

std::vector<float> syntheticActivation(int64_t rows, int64_t k, uint64_t seed,
                                       const ActivationModel &model) {
  std::vector<int64_t> outliers = outlierChannels(k, seed, model);
  std::vector<float> values(static_cast<size_t>(rows * k));
  parallelFor(rows, [&](int64_t row) {
    Random random(seed, ActivationStream, static_cast<uint64_t>(row));
    float *out = values.data() + row * k;
    fillNormals(random, out, k, model.deviation);
    for (int64_t channel : outliers)
      out[channel] *= static_cast<float>(model.outlierScale);
  });
  return values;
}

std::vector<float> exactWeight(int64_t rows, int64_t k, uint64_t seed) {
  constexpr int64_t block = 128;
  std::vector<float> values(static_cast<size_t>(rows * k));
  parallelFor(rows, [&](int64_t row) {
    Random random(seed, ExactWeightStream, static_cast<uint64_t>(row));
    const auto size = static_cast<float>(std::ldexp(1.0, -static_cast<int>(random.next() % 8)));
    float *out = values.data() + row * k, ofBlock = size;
    for (int64_t i = 0; i < k; ++i) {
      if (i % block == 0)
        ofBlock = random.next() & 1 ? size : 2 * size;
      out[i] = random.next() & 1 ? ofBlock : -ofBlock;
    }
  });
  return values;
}

std::vector<float> exactActivation(int64_t rows, int64_t k, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * k));
  parallelFor(rows, [&](int64_t row) {
    Random random(seed, ExactActivationStream, static_cast<uint64_t>(row));
    const auto size = static_cast<float>(std::ldexp(1.0, static_cast<int>(random.next() % 8) - 4));
    float *out = values.data() + row * k;
    for (int64_t i = 0; i < exactTerms; ++i)
      out[random.next() % static_cast<uint64_t>(k)] = random.next() & 1 ? size : -size;
  });
  return values;
}

} // namespace rho::kernels
