// Seeded numbers that look like a language model's: for runs without files. The same values for any
// number of threads.
#pragma once

#include <cstdint>
#include <vector>

namespace rho::kernels {

struct WeightModel {
  enum class Bulk : uint8_t {
    Normal,
    Laplace,
    StudentT, // with `freedom` degrees of freedom, at least 3
  };
  double deviation = 0.02; // standard deviation of the bulk
  // This share of the weights is drawn `tailScale` times wider: heavier tails than a normal's.
  double tailFraction = 0.01;
  double tailScale = 4;
  Bulk bulk = Bulk::Normal;
  int freedom = 5;
  // This share of the columns, at least one where it is above 0, is `outlierScale` times wider.
  double outlierFraction = 0;
  double outlierScale = 8;
};

// A few channels (columns of k) of activations are far larger than all others, in every token:
// about 0.1% of channels, up to 20..100 times the rest (LLM.int8(), arXiv:2208.07339, section 4;
// SmoothQuant, arXiv:2211.10438, section 3).
struct ActivationModel {
  double deviation = 1;
  double outlierFraction = 0.001; // of channels; at least one channel when k >= 64
  double outlierScale = 30;
};

// [rows][k], row-major.
std::vector<float> syntheticWeight(int64_t rows, int64_t k, uint64_t seed,
                                   const WeightModel &model = {});
std::vector<float> syntheticActivation(int64_t rows, int64_t k, uint64_t seed,
                                       const ActivationModel &model = {});
// Numbers that formats of few bits hold exactly, and of whose products every order of adding has
// the same sums in 14 bits: weights of both signs, of a row one power of two, or twice it in some
// of its blocks of 128 of k; activations of both signs, of a row one power of two, all but
// exactTerms of them 0. What their sums miss, a kernel has left out or added twice.
inline constexpr int64_t exactTerms = 32;
std::vector<float> exactWeight(int64_t rows, int64_t k, uint64_t seed);
std::vector<float> exactActivation(int64_t rows, int64_t k, uint64_t seed);
// The outlier channels of syntheticActivation, ascending.
std::vector<int64_t> outlierChannels(int64_t k, uint64_t seed, const ActivationModel &model = {});

} // namespace rho::kernels
