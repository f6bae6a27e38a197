// PTX fundamental types as instructions name them.
#pragma once

#include <cstdint>
#include <string_view>

namespace rho::emulator {

enum class Type : uint8_t {
#define RHO_PTX_TYPE(id, name, bits, kind) id,
#include "runtime/emulator/Types.def"
#undef RHO_PTX_TYPE
};

enum class TypeKind : uint8_t { None, Predicate, Bits, Unsigned, Signed, Float, Packed };

std::string_view name(Type type);
int bits(Type type);
TypeKind kind(Type type);
// The type that ".u32" without its dot names; Type::None when there is none.
Type typeNamed(std::string_view name);

inline bool isFloat(Type type) { return kind(type) == TypeKind::Float; }
inline bool isInteger(Type type) {
  return kind(type) == TypeKind::Bits || kind(type) == TypeKind::Unsigned ||
         kind(type) == TypeKind::Signed;
}
inline bool isSigned(Type type) { return kind(type) == TypeKind::Signed; }

} // namespace rho::emulator
