// Decode sequences that others have published, with which those that are found are compared.
#pragma once

namespace rho::test {

constexpr int anyFactor = -1000; // log2 of the least that registers may hold of a value

struct Published {
  const char *element, *mmaType;
  int leastLog2;
  int instructions; // per 8 codes; 0: none known
  const char *source;
};

inline constexpr Published published[] = {
    {"s4", "f16", -24, 9, "Marlin `dequant.h`, after Kim et al. 2022, section 3.3"},
    {"u4", "f16", -24, 9, "Marlin `dequant.h`"},
    {"u4", "f16", 0, 9, "Marlin `dequant.h`"},
    {"s4", "bf16", -24, 11, "Marlin `dequant.h`"},
    {"u4", "bf16", -24, 11, "Marlin `dequant.h`"},
    {"e2m1", "f16", -24, 15, "Marlin `dequant.h`, without its multiplications"},
    {"e2m1", "bf16", anyFactor, 15, "Marlin `dequant.h`, without its multiplications"},
    {"e2m1", "bf16", -24, 19, "Marlin `dequant.h`"},
    {"s4 from -7", "f16", -24, 0, ""},
    {"s4 from -7", "e4m3", -24, 0, ""},
    {"s4", "e4m3", -24, 11, "Marlin `dequant.h`; CUTLASS `numeric_conversion.h` by byte permute"},
    {"u4", "e4m3", -24, 0, ""},
    {"e2m1", "e4m3", -24, 7, "Marlin `dequant.h`"},
    {"s4", "s8", -24, 3, "COMET, section 4.3 (zero extension, factor 16)"},
    {"u4", "s8", -24, 3, "QServe's unpacking (Lin et al. 2024)"},
    {"s8", "f16", -24, 8, "Marlin `dequant.h` (4 for 4 codes)"},
};

} // namespace rho::test
