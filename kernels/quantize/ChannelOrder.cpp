#include "kernels/quantize/ChannelOrder.h"

#include "dsl/Division.h"
#include "kernels/quantize/ChannelRange.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace rho::kernels {

ChannelOrder ChannelOrder::identity(int64_t k) {
  ChannelOrder order{std::vector<int64_t>(static_cast<size_t>(k))};
  std::iota(order.channels.begin(), order.channels.end(), 0);
  return order;
}

ChannelOrder ChannelOrder::inverse() const {
  ChannelOrder back{std::vector<int64_t>(channels.size())};
  for (size_t i = 0; i < channels.size(); ++i)
    back.channels[static_cast<size_t>(channels[i])] = static_cast<int64_t>(i);
  return back;
}

Result<std::vector<int64_t>> detectOutliers(const Matrix &activation) {
  if (Status finite = checkActivation(activation); !finite)
    return finite.error();
  std::vector<float> largest = channelMaxima(activation), sorted = largest;
  auto median = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), median, sorted.end());
  std::vector<int64_t> outliers;
  for (int64_t channel = 0; channel < activation.k; ++channel)
    if (largest[static_cast<size_t>(channel)] > outlierRatio * *median)
      outliers.push_back(channel);
  return outliers;
}

Result<ChannelOrder> clusterOutliers(const Matrix &activation) {
  Result<std::vector<int64_t>> outliers = detectOutliers(activation);
  if (!outliers)
    return outliers.error();
  std::vector<float> largest = channelMaxima(activation);
  ChannelOrder order = ChannelOrder::identity(activation.k);
  auto key = [&](int64_t channel) {
    bool outlier = std::binary_search(outliers->begin(), outliers->end(), channel);
    return std::tuple(outlier ? -largest[static_cast<size_t>(channel)] : 0, channel);
  };
  std::sort(order.channels.begin(), order.channels.end(),
            [&](int64_t a, int64_t b) { return key(a) < key(b); });
  return order;
}

Result<int64_t> blocksWithoutOutliers(const ChannelOrder &order,
                                      const std::vector<int64_t> &outliers, int64_t block) {
  auto k = static_cast<int64_t>(order.channels.size());
  if (block < 1)
    return makeError(DiagId::bad_block, {std::to_string(block)});
  if (k == 0)
    return makeError(DiagId::empty_matrix, {"0", "0"});
  std::vector<int64_t> places = order.inverse().channels;
  std::vector<bool> has(static_cast<size_t>(divideUp(k, block)), false);
  for (int64_t channel : outliers)
    has[static_cast<size_t>(places[static_cast<size_t>(channel)] / block)] = true;
  return std::count(has.begin(), has.end(), false);
}

Result<Matrix> permuteChannels(const Matrix &matrix, const ChannelOrder &order) {
  if (static_cast<int64_t>(order.channels.size()) != matrix.k)
    return makeError(DiagId::transform_width, {"order of " + std::to_string(order.channels.size()),
                                               std::to_string(matrix.k) + " channels", "the same"});
  Matrix out = matrix;
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t i = 0; i < matrix.k; ++i)
      out.row(row)[i] = matrix.row(row)[order.channels[static_cast<size_t>(i)]];
  return out;
}

} // namespace rho::kernels
