#include "kernels/quantize/PackedCodes.h"

#include <algorithm>
#include <cstring>

namespace rho::kernels {

namespace {

// Little-endian, as every host that this runs on.
template <class Word> Word readWord(const uint8_t *from, size_t bytes = sizeof(Word)) {
  Word word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

// Eight codes of at most 8 bits, a byte each, are `bits` bytes.
void packBytes(const uint8_t *codes, int bits, int64_t count, uint8_t *to) {
  const auto mask = static_cast<uint8_t>((1U << bits) - 1);
  auto word = [&](const uint8_t *from, int64_t codesLeft) {
    uint64_t packed = 0;
    for (int64_t i = 0; i < codesLeft; ++i)
      packed |= static_cast<uint64_t>(from[i] & mask) << (i * bits);
    return packed;
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8, to += bits) {
    uint64_t packed = word(codes + i, 8);
    std::memcpy(to, &packed, static_cast<size_t>(bits));
  }
  uint64_t rest = word(codes + i, count - i);
  std::memcpy(to, &rest, static_cast<size_t>(packedBytes(count - i, bits)));
}

void unpackBytes(const uint8_t *from, int bits, int64_t count, uint8_t *codes) {
  const auto mask = static_cast<uint8_t>((1U << bits) - 1);
  for (int64_t i = 0; i < count; i += 8, from += bits) {
    int64_t some = std::min<int64_t>(8, count - i);
    auto packed = readWord<uint64_t>(from, static_cast<size_t>(packedBytes(some, bits)));
    for (int64_t j = 0; j < some; ++j)
      codes[i + j] = static_cast<uint8_t>(packed >> (j * bits)) & mask;
  }
}

bool isPlain(int bits) { return bits == 8 || bits == 16 || bits == 32; }

} // namespace

void packCodes(const dsl::CodeArray &codes, int bits, int64_t begin, int64_t end, uint8_t *to) {
  const uint8_t *from = codes.data() + begin * codes.width();
  if (isPlain(bits)) {
    std::memcpy(to, from, static_cast<size_t>((end - begin) * codes.width()));
    return;
  }
  if (bits < 8)
    return packBytes(from, bits, end - begin, to);
  uint64_t pending = 0; // bits that fill no byte yet
  int have = 0;
  for (int64_t i = begin; i < end; ++i) {
    pending |= static_cast<uint64_t>(codes.get(i) & ((uint64_t(1) << bits) - 1)) << have;
    for (have += bits; have >= 8; have -= 8, pending >>= 8)
      *to++ = static_cast<uint8_t>(pending);
  }
  if (have > 0)
    *to = static_cast<uint8_t>(pending);
}

void unpackCodes(const uint8_t *from, int bits, int64_t begin, int64_t end, dsl::CodeArray &codes) {
  if (begin == end)
    return; // of no codes there may be no memory
  uint8_t *to = codes.data() + begin * codes.width();
  if (isPlain(bits)) {
    std::memcpy(to, from, static_cast<size_t>((end - begin) * codes.width()));
    return;
  }
  if (bits < 8)
    return unpackBytes(from, bits, end - begin, to);
  uint64_t pending = 0;
  int have = 0;
  for (int64_t i = begin; i < end; ++i) {
    for (; have < bits; have += 8)
      pending |= static_cast<uint64_t>(*from++) << have;
    codes.set(i, static_cast<uint32_t>(pending & ((uint64_t(1) << bits) - 1)));
    pending >>= bits;
    have -= bits;
  }
}

} // namespace rho::kernels
