#include "compiler/inputs/InputPasses.h"

#include "dsl/Division.h"

#include <algorithm>

namespace rho::compiler {

namespace {

// Numbers that meet in a thread's registers at most: in shared memory, and in memory, where a pass
// is one round.
constexpr int64_t mostOfRound = 8, mostOfPass = 16;
// What a CTA takes at least, where its numbers meet no others.
constexpr int64_t inputsAtOnce = 1024;

} // namespace

std::vector<InputPass> inputPasses(const InputTransform &transform, int64_t mostShared) {
  const int64_t core = transform.core, size = std::max(core, transform.size);
  InputPass pass{true, core, core};
  while (pass.end < size && pass.end * 2 <= mostShared)
    pass.end *= 2;
  std::vector<InputPass> passes{pass};
  for (int64_t begin = pass.end; begin < size; begin = passes.back().end)
    passes.push_back({false, begin, std::min(size, begin * mostOfPass)});
  return passes;
}

int64_t inputsOfCta(const InputPass &pass) {
  return pass.isFirst ? pass.end * std::max<int64_t>(1, inputsAtOnce / pass.end)
                      : inputThreads * (pass.end / pass.begin);
}

std::vector<int64_t> inputRounds(const InputPass &pass) {
  const int64_t all = pass.end / pass.begin;
  std::vector<int64_t> rounds;
  for (int64_t left = all; left > 1; left /= rounds.back())
    rounds.push_back(std::min(left, mostOfRound));
  std::reverse(rounds.begin(), rounds.end()); // the small one where numbers lie close together
  return rounds;
}

Dim3 inputGrid(const InputTransform &transform, const InputPass &pass, int64_t m) {
  const int64_t own = inputsOfCta(pass);
  return {static_cast<uint32_t>(m), static_cast<uint32_t>(divideUp(transform.k, own)), 1};
}

std::vector<uint32_t> coreSigns(const std::vector<int8_t> &entries, int64_t core) {
  std::vector<uint32_t> signs(static_cast<size_t>(divideUp(core, columnsOfWord) * core));
  for (int64_t row = 0; row < core; ++row)
    for (int64_t column = 0; column < core; ++column)
      if (entries[static_cast<size_t>(row * core + column)] < 0)
        signs[static_cast<size_t>(column / columnsOfWord * core + row)] |=
            uint32_t{1} << column % columnsOfWord;
  return signs;
}

} // namespace rho::compiler
