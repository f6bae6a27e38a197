// How the work of a pass is divided among CTAs and threads.
#pragma once

#include "compiler/InputTransform.h"

namespace rho::compiler {

inline constexpr int inputThreads = 256;
inline constexpr int64_t columnsOfWord = 32; // of a core, whose signs are the word's bits

// Numbers of a row that a CTA takes; the last CTA of a row has what is left.
int64_t inputsOfCta(const InputPass &pass);
// Of a first pass: how many numbers meet in a thread's registers, round after round. Powers of two,
// whose product is end / begin.
std::vector<int64_t> inputRounds(const InputPass &pass);

} // namespace rho::compiler
