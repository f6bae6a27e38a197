// The encodings of one stored number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// s2..s8 (two's complement), u2..u8, e2m1 (OCP MXFP4 element), e4m3 (OCP FP8, finite with NaN at
// 0x7f/0xff, largest 448), f16, bf16, f32. A value type: an index into a table of encodings.
class ElementType {
public:
  enum class Kind : uint8_t { Signed, Unsigned, Float };

  // The type of that name, e.g. "s4"; none when there is no such type.
  static std::optional<ElementType> fromName(std::string_view name);
  // All names, for messages and completion.
  static std::vector<std::string_view> allNames();
  // For names known at compile time: get("f32").
  static ElementType get(std::string_view name);

  std::string_view name() const;
  Kind kind() const;
  int bits() const;
  bool isInteger() const { return kind() != Kind::Float; }
  bool isFloat() const { return kind() == Kind::Float; }
  // Float only: exponent bits and explicitly stored mantissa bits.
  int exponentBits() const;
  int mantissaBits() const;
  // Largest and smallest finite value.
  double maxFinite() const;
  double minFinite() const;

  // The number that a code stands for. Only the low bits() bits of `code` are read.
  double decode(uint32_t code) const;
  // The code nearest to `value`: ties to even, beyond the range saturated to the largest finite
  // value. NaN gives the type's NaN, and 0 where it has none. Infinity stays infinity where the
  // type has one and *value* is infinite (f16, bf16, f32); otherwise it saturates.
  uint32_t encode(double value) const;

  friend bool operator==(ElementType, ElementType) = default;

private:
  explicit ElementType(uint8_t index) : index(index) {}
  uint8_t index;
};

} // namespace rho::dsl
