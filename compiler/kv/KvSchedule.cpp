// What each CTA of attention takes: sequences are cut into parts of so many pages that all SMs end
// at about the same time, and the longest parts start first.
#include "compiler/KvCache.h"
#include "dsl/Division.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

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

namespace {

// Sequences in parts of `partPages`, tails apart.
struct PartCounts {
  int64_t parts = 0;
  int64_t items = 0; // with tails, which every sequence of several parts may have
};

PartCounts divided(std::span<const int64_t> pages, int64_t partPages) {
  PartCounts counts;
  for (int64_t own : pages) {
    int64_t parts = std::max<int64_t>(1, divideUp(own, partPages));
    counts.parts += parts;
    counts.items += parts + (parts > 1 ? 1 : 0);
  }
  return counts;
}

} // namespace

int64_t kvPartPages(const KvLayout &layout, std::span<const int64_t> pages, int64_t mostItems,
                    int64_t sharedBytes, const DeviceModel &device) {
  const KvShape &shape = layout.shape;
  int64_t heads = shape.kvHeads * shape.headSets(), sms = device.smCount;
  int64_t slots = sms * kvCtasPerSm(sharedBytes, device);
  int64_t longest = *std::max_element(pages.begin(), pages.end());
  int64_t all = heads * std::reduce(pages.begin(), pages.end());
  double numbers = static_cast<double>(shape.pageTokens * shape.headDim) / fittedNumbers;
  double pageBytes = static_cast<double>(layout.keys.headBytes() + layout.values.headBytes());
  // Of a page, of each of `ctas` that run at a time.
  auto pageTime = [&](int64_t ctas) {
    return pageMicroseconds[static_cast<size_t>(divideUp(ctas, sms) - 1)] * numbers;
  };
  double memory = static_cast<double>(all) * pageBytes /
                  (device.bandwidthGBs * 1e3 * memoryShare); // 1e3: bytes of a microsecond
  // A step at least for every warp.
  int64_t leastPages = divideUp(KvLayout::warps, layout.keys.steps());
  int64_t best = std::max<int64_t>(1, longest), before = 0;
  double bestTime = 0;
  for (int64_t parts = 1; parts == 1 || longest / parts >= leastPages; ++parts) {
    int64_t partPages = std::max<int64_t>(1, divideUp(longest, parts));
    if (partPages == before)
      continue;
    before = partPages;
    PartCounts counts = divided(pages, partPages);
    int64_t ctas = heads * counts.parts;
    if (parts > 1 && (ctas > mostWaves * slots || counts.items > mostItems))
      break;
    // As if the work were all in parts of that size: short ones fill what long ones leave.
    int64_t whole = divideUp(all, partPages);
    int64_t fullWaves = whole / slots, rest = whole % slots;
    double perPage = static_cast<double>(fullWaves) * pageTime(slots);
    if (rest > 0)
      perPage += pageTime(rest);
    double time = std::max(static_cast<double>(partPages) * perPage, memory) +
                  static_cast<double>(divideUp(ctas, slots)) * waveMicroseconds;
    if (parts > 1)
      time += addMicroseconds + addPartMicroseconds * static_cast<double>(parts);
    if (parts == 1 || time < bestTime) {
      best = partPages;
      bestTime = time;
    }
  }
  return best;
}

int64_t kvMostItems(std::span<const int64_t> pages, int64_t partPages) {
  return divided(pages, partPages).items;
}

std::vector<KvItem> kvItems(const KvShape &shape, std::span<const int32_t> lengths,
                            int64_t partPages) {
  std::vector<KvItem> items;
  for (size_t s = 0; s < lengths.size(); ++s) {
    auto page = static_cast<int32_t>(shape.pageTokens), most = static_cast<int32_t>(partPages);
    int32_t pages = lengths[s] / page, tail = lengths[s] % page;
    size_t first = items.size();
    auto firstSums = static_cast<int32_t>(first);
    int32_t begin = 0;
    do {
      int32_t end = begin + std::min(most, pages - begin);
      items.push_back({.sequence = static_cast<int32_t>(s),
                       .firstPage = begin,
                       .lastPage = end,
                       .firstSums = firstSums});
      begin = end;
    } while (begin < pages);
    // A tail is a part, or of the only part: its sums then meet no others.
    if (items.size() - first == 1)
      items.back().tail = tail;
    else if (tail > 0)
      items.push_back({.sequence = static_cast<int32_t>(s), .tail = tail, .firstSums = firstSums});
    auto parts = static_cast<int32_t>(items.size() - first);
    for (int32_t part = 0; KvItem &item : std::span(items).subspan(first)) {
      item.part = part++;
      item.parts = parts;
    }
  }
  auto order = [](const KvItem &item) {
    return std::pair(item.firstPage - item.lastPage - (item.tail > 0 ? 1 : 0),
                     item.firstSums + item.part);
  };
  std::sort(items.begin(), items.end(),
            [&](const KvItem &a, const KvItem &b) { return order(a) < order(b); });
  return items;
}

} // namespace rho::compiler
