// The encodings of one stored number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// Integers s2..s8 (two's complement) and u1..u8; floats eXmY (sign, X exponent and Y mantissa bits)
// and ueXmY (no sign) of 3 to 16 bits; f16, bf16, f32; codebooks of 2 to 256 values.
//
// A float's exponent bias is 2^(X-1) - 1, an exponent field of 0 means zero and subnormals. What
// the largest exponent field means follows the standards: e4m3 and ue4m3 have one NaN, all ones
// below the sign (OCP 8-bit Floating Point 1.0); e5m2 has infinities and NaNs (the same); e8m0,
// also called ue8m0, is 2^(code - 127) without sign and zero, 0xff is NaN (OCP Microscaling Formats
// 1.0); every other eXmY has finite numbers only, as e2m1, e2m3 and e3m2 have there. The suffix f
// makes a type finite only (e5m2f), i gives it infinities and NaNs (e3m2i).
//
// A value type: an index into a table of encodings, which codebooks are added to.
class ElementType {
public:
  enum class Kind : uint8_t { Signed, Unsigned, Float, Codebook };

  static constexpr size_t maxCodebooks = 4096; // different ones in a process

  // The type of that name, e.g. "s4", or of a codebook's canonical text; none when there is no such
  // type. Two names of one type give the same type: e5m2i is e5m2, e5m10i is f16.
  static std::optional<ElementType> fromName(std::string_view name);
  // The type whose code i stands for values[i]: 2, 4, ... or 256 finite values. None for any other
  // number of values, and when the process has maxCodebooks others. Safe in any thread.
  static std::optional<ElementType> codebook(const std::vector<double> &values);
  static bool isCodebookSize(size_t values);
  // Names of the types in common use, for messages and completion.
  static std::vector<std::string> allNames();
  // Names of all types but codebooks.
  static std::vector<std::string_view> everyName();
  // For names known at compile time: get("f32").
  static ElementType get(std::string_view name);

  // Of a codebook "codebook [-1.0, 0, ...]", integers without a point.
  std::string_view name() const;
  Kind kind() const;
  int bits() const;
  bool isInteger() const { return kind() == Kind::Signed || kind() == Kind::Unsigned; }
  bool isFloat() const { return kind() == Kind::Float; }
  bool isCodebook() const { return kind() == Kind::Codebook; }
  // Float only: exponent bits and explicitly stored mantissa bits.
  int exponentBits() const;
  int mantissaBits() const;
  // Float only: of the smallest number that is normal.
  int leastExponent() const { return 2 - (1 << (exponentBits() - 1)); }
  // Float only: whether the top bit of a code is a sign.
  bool hasSign() const;
  // Binary digits of its numbers, at most: 11 of f16, 4 of e4m3 and u4, 3 of s4, whose -8 is a
  // power of two. Not of a codebook.
  int significantBits() const;
  // Largest and smallest finite value.
  double maxFinite() const;
  double minFinite() const;
  double maxMagnitude() const; // the larger of the two, without its sign

  // The number that a code stands for. Only the low bits() bits of `code` are read.
  double decode(uint32_t code) const;
  // The code nearest to `value`: ties to the even code, beyond the range saturated to the largest
  // (smallest) finite value. NaN gives the type's NaN, and the code of 0 where it has none.
  // Infinity stays infinity where the type has one and *value* is infinite (f16, bf16, f32, e5m2);
  // otherwise it saturates. Of a codebook's equal values the even code, then the lower.
  uint32_t encode(double value) const;

  friend bool operator==(ElementType, ElementType) = default;

private:
  explicit ElementType(uint16_t index) : index(index) {}
  uint16_t index;
};

// Bits that a code takes in memory where each has a unit of its own, and others may have the spare
// ones.
inline int unitBits(ElementType type) { return type.bits() <= 8 ? 8 : type.bits() <= 16 ? 16 : 32; }

} // namespace rho::dsl
