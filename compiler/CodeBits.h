// The bits of a tile's codes as they lie in memory. A table says which of the codes in natural
// order each place has.
#pragma once

#include "compiler/Layout.h"

#include <cstdint>
#include <vector>

namespace rho::compiler {

// One code behind the other, least significant bit first.
void writeCodes(const std::vector<uint32_t> &table, int bits, const uint32_t *local, uint8_t *out);
void readCodes(const std::vector<uint32_t> &table, int bits, const uint8_t *in, uint32_t *local);

// Words of codes whose bits are in another order: LayoutSection::wordBits.
class ScatteredCodes {
public:
  explicit ScatteredCodes(const LayoutSection &section);
  void write(const std::vector<uint32_t> &table, const uint32_t *local, uint8_t *out) const;
  void read(const std::vector<uint32_t> &table, const uint8_t *in, uint32_t *local) const;

private:
  int bits;
  size_t perWord;
  const std::vector<uint8_t> &places;
  std::vector<uint32_t> words; // of each code at each place of a word
};

} // namespace rho::compiler
