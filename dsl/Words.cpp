#include "dsl/Words.h"

namespace rho::dsl {

namespace {

constexpr Word wordTable[] = {
#define RHO_WORD(place, text, meaning) {WordPlace::place, text, meaning},
#include "dsl/Words.def"
#undef RHO_WORD
};

} // namespace

std::span<const Word> allWords() { return wordTable; }

} // namespace rho::dsl
