// A row per family of instructions that some target lacks ("Target ISA Notes" of the PTX ISA, each
// tried with ptxas 13.0). Not here: what operands ask for, such as a count of mbarrier.arrive.
#include "runtime/emulator/Targets.h"

#include <algorithm>
#include <charconv>

namespace rho::emulator {

namespace {

// Words of the opcode, of which the first is at its front; `a|b`: either. `least`: the target's
// number. `letter`: its name ends in `a` or `f`. `most`: the last that has the instruction; 0: all.
struct Requirement {
  std::string_view words;
  uint32_t least;
  bool letter = false;
  uint32_t most = 0;
};
constexpr Requirement requirements[] = {
    {"wgmma", 90, true, 90},
    {"setmaxnreg", 90, true},
    {"mma block_scale", 120, true},
    {"mma kind::f8f6f4", 100, true},
    {"add|sub|mul|fma f32x2", 100},
    {"add|sub|fma f32 f16|bf16", 100},
    {"ld|st v8", 100},
    {"ld|st v4 b64|u64|s64|f64", 100},
    {"cp bulk", 90},
    {"st async", 90},
    {"barrier cluster", 90},
    {"mapa|getctarank|elect|griddepcontrol|stmatrix", 90},
    {"mbarrier try_wait|expect_tx|complete_tx", 90},
    {"fence proxy|mbarrier_init", 90},
    {"prefetch tensormap", 90},
    {"ld|st|atom|red|fence|mbarrier cluster|shared::cluster", 90},
    {"add|sub|mul|ex2|tanh|set|setp|atom|red bf16|bf16x2", 90},
    {"cvt bf16 f16|f64|s8|s16|s32|s64|u8|u16|u32|u64", 90},
    {"mma e4m3|e5m2", 89},
    {"cvt e4m3x2|e5m2x2", 89},
    {"mma m16n8k16|m16n8k32|m16n8k64", 80},
    {"cp async", 80},
    {"mbarrier|redux|createpolicy", 80},
    {"fma|min|max|abs|neg|cvt|mma bf16|bf16x2|tf32", 80},
};

// Takes what stands before the first `by`.
std::string_view takeUntil(std::string_view &text, char by) {
  std::string_view part = text.substr(0, text.find(by));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

bool isOneOf(std::string_view word, std::string_view alternatives) {
  while (!alternatives.empty())
    if (takeUntil(alternatives, '|') == word)
      return true;
  return false;
}

bool concerns(const Requirement &requirement, const std::vector<std::string_view> &opcode) {
  std::string_view words = requirement.words;
  if (!isOneOf(opcode[0], takeUntil(words, ' ')))
    return false;
  while (!words.empty()) {
    std::string_view wanted = takeUntil(words, ' ');
    if (std::none_of(opcode.begin() + 1, opcode.end(),
                     [&](std::string_view word) { return isOneOf(word, wanted); }))
      return false;
  }
  return true;
}

std::string describe(const Requirement &requirement) {
  std::string name = "sm_" + std::to_string(requirement.least) + (requirement.letter ? "a" : "");
  if (requirement.most == requirement.least)
    return name;
  return name + (requirement.letter ? " or a later one with a letter" : " or later");
}

} // namespace

std::optional<std::string> missingTarget(const Statement &statement, std::string_view target) {
  uint32_t number = 0;
  if (target.starts_with("sm_"))
    std::from_chars(target.data() + 3, target.data() + target.size(), number);
  bool letter = target.ends_with('a') || target.ends_with('f');
  for (const Requirement &each : requirements)
    if ((number < each.least || (each.letter && !letter) || (each.most && number > each.most)) &&
        concerns(each, statement.opcode))
      return describe(each);
  return std::nullopt;
}

} // namespace rho::emulator
