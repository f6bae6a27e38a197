#include "runtime/emulator/Types.h"

#include <cstddef>

namespace rho::emulator {

namespace {
struct TypeRow {
  std::string_view name;
  int bits;
  TypeKind kind;
};
constexpr TypeRow typeRows[] = {
#define RHO_PTX_TYPE(id, name, bits, kind) {name, bits, TypeKind::kind},
#include "runtime/emulator/Types.def"
#undef RHO_PTX_TYPE
};
} // namespace

std::string_view name(Type type) { return typeRows[size_t(type)].name; }
int bits(Type type) { return typeRows[size_t(type)].bits; }
TypeKind kind(Type type) { return typeRows[size_t(type)].kind; }

Type typeNamed(std::string_view name) {
  for (size_t i = 1; i < std::size(typeRows); ++i)
    if (typeRows[i].name == name)
      return Type(i);
  return Type::None;
}

} // namespace rho::emulator
