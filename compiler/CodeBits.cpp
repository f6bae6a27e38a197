#include "compiler/CodeBits.h"

#include <cstring>

namespace rho::compiler {

void writeCodes(const std::vector<uint32_t> &table, int bits, const uint32_t *local, uint8_t *out) {
  if (bits == 4 && table.size() % 2 == 0) {
    for (size_t i = 0; i < table.size(); i += 2)
      *out++ = static_cast<uint8_t>(local[table[i]] | local[table[i + 1]] << 4);
    return;
  }
  uint64_t pending = 0;
  int count = 0;
  for (uint32_t from : table) {
    pending |= static_cast<uint64_t>(local[from]) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8)
      *out++ = static_cast<uint8_t>(pending);
  }
  if (count > 0)
    *out = static_cast<uint8_t>(pending);
}

void readCodes(const std::vector<uint32_t> &table, int bits, const uint8_t *in, uint32_t *local) {
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  uint64_t pending = 0;
  int count = 0;
  for (uint32_t to : table) {
    for (; count < bits; count += 8)
      pending |= static_cast<uint64_t>(*in++) << count;
    local[to] = static_cast<uint32_t>(pending & mask);
    pending >>= bits;
    count -= bits;
  }
}

ScatteredCodes::ScatteredCodes(const LayoutSection &section)
    : bits(section.codeBits), perWord(32 / section.codeBits), places(section.wordBits) {
  for (size_t i = 0; i < perWord; ++i)
    for (uint32_t code = 0; code < uint32_t(1) << bits; ++code) {
      uint32_t word = 0;
      for (int bit = 0; bit < bits; ++bit)
        word |= (code >> bit & 1) << places[i * bits + bit];
      words.push_back(word);
    }
}

void ScatteredCodes::write(const std::vector<uint32_t> &table, const uint32_t *local,
                           uint8_t *out) const {
  for (size_t first = 0; first < table.size(); first += perWord, out += 4) {
    uint32_t word = 0;
    for (size_t i = 0; i < perWord; ++i)
      word |= words[(i << bits) + local[table[first + i]]];
    std::memcpy(out, &word, 4);
  }
}

void ScatteredCodes::read(const std::vector<uint32_t> &table, const uint8_t *in,
                          uint32_t *local) const {
  for (size_t first = 0; first < table.size(); first += perWord, in += 4) {
    uint32_t word = 0;
    std::memcpy(&word, in, 4);
    for (size_t i = 0; i < perWord; ++i) {
      uint32_t code = 0;
      for (int bit = 0; bit < bits; ++bit)
        code |= (word >> places[i * bits + bit] & 1) << bit;
      local[table[first + i]] = code;
    }
  }
}

} // namespace rho::compiler
