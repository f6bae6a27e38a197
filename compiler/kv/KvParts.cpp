// In how many parts attention divides the pages of a sequence.
#include "compiler/KvCache.h"
#include "compiler/LayoutMap.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rho::compiler {

namespace {

// Fitted to an H200: batches of 1, 16 and 64 with 1024 to 16384 tokens, 8 heads of 128 channels of
// 4 bits, in 1 to 64 parts.
// Of a CTA with a head of 128 tokens x 128 channels, one to three of them on an SM.
constexpr std::array<double, KvLayout::mostCtasPerSm> pageMicroseconds{1.1, 1.6, 1.72};
constexpr double fittedNumbers = 128 * 128;
constexpr double waveMicroseconds = 3; // until the first pages are there, and the last are added
constexpr double addMicroseconds = 4, addPartMicroseconds = 0.25; // parts, by the last CTA
constexpr double memoryShare = 0.95;                              // of the bandwidth
constexpr int64_t mostWaves = 4;

} // namespace

int kvCtasPerSm(int64_t sharedBytes, const DeviceModel &device) {
  return static_cast<int>(
      std::clamp<int64_t>(device.sharedPerSm / (sharedBytes + DeviceModel::reservedPerCta), 1,
                          KvLayout::mostCtasPerSm));
}

int64_t kvParts(const KvLayout &layout, int64_t sequences, int64_t pages, int64_t sharedBytes,
                const DeviceModel &device) {
  const KvShape &shape = layout.shape;
  int64_t heads = sequences * shape.kvHeads * shape.headSets(), sms = device.smCount;
  int64_t resident = kvCtasPerSm(sharedBytes, device);
  double numbers = static_cast<double>(shape.pageTokens * shape.headDim) / fittedNumbers;
  double pageBytes = static_cast<double>(layout.keys.headBytes() + layout.values.headBytes());
  // Of a page, of each of `ctas` that run at a time.
  auto pageTime = [&](int64_t ctas) {
    return pageMicroseconds[static_cast<size_t>(divideUp(ctas, sms) - 1)] * numbers;
  };
  double memory = static_cast<double>(heads * pages) * pageBytes /
                  (device.bandwidthGBs * 1e3 * memoryShare); // 1e3: bytes of a microsecond
  int64_t slots = sms * resident;
  // A step at least for every warp.
  int64_t leastPages = divideUp(KvLayout::warps, layout.keys.steps());
  int64_t most =
      std::clamp<int64_t>(mostWaves * slots / heads, 1, std::max<int64_t>(1, pages / leastPages));
  int64_t best = 1;
  double bestTime = 0;
  for (int64_t parts = 1; parts <= most; ++parts) {
    int64_t ctas = heads * parts, fullWaves = ctas / slots, rest = ctas % slots;
    double perPage = static_cast<double>(fullWaves) * pageTime(slots);
    if (rest > 0)
      perPage += pageTime(rest);
    double time = std::max(static_cast<double>(divideUp(pages, parts)) * perPage, memory) +
                  static_cast<double>(divideUp(ctas, slots)) * waveMicroseconds;
    if (parts > 1)
      time += addMicroseconds + addPartMicroseconds * static_cast<double>(parts);
    if (parts == 1 || time < bestTime) {
      best = parts;
      bestTime = time;
    }
  }
  return best;
}

} // namespace rho::compiler
