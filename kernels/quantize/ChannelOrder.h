// The channel permutation of FMPQ (COMET, section 3.2): outlier channels share blocks of k, so that
// few blocks need more bits.
#pragma once

#include "kernels/quantize/Layer.h"

namespace rho::kernels {

// A permutation of the k channels of a layer's activations and weight: channel i of the permuted
// layer is channels[i] of the given one.
struct ChannelOrder {
  std::vector<int64_t> channels;

  static ChannelOrder identity(int64_t k);
  ChannelOrder inverse() const;
};

// The channels whose largest |x| exceeds outlierRatio times the median of all channels' largest
// |x|, ascending. The paper says that outliers exceed the typical by tens to hundreds of times and
// gives no rule; the ratio is ours. Error as checkActivation.
inline constexpr double outlierRatio = 8;
Result<std::vector<int64_t>> detectOutliers(const Matrix &activation);

// Outliers first, those with the largest |x| at the front, then all others in their order. Error as
// checkActivation.
Result<ChannelOrder> clusterOutliers(const Matrix &activation);

// How many blocks of `block` channels, in the permuted order, have no outlier: those of which FMPQ
// stores 4 bits. The last block may be smaller. Error bad_block for a block below 1.
Result<int64_t> blocksWithoutOutliers(const ChannelOrder &order,
                                      const std::vector<int64_t> &outliers, int64_t block);

// Activations or weight in another order of channels. Error transform_width for an order of another
// number of channels.
Result<Matrix> permuteChannels(const Matrix &matrix, const ChannelOrder &order);

} // namespace rho::kernels
