#include "runtime/emulator/Faults.h"

#include "dsl/Numbers.h"
#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Machine.h"

namespace rho::emulator {

std::string hex(uint64_t value) { return "0x" + dsl::hexadecimal(value); }

std::string range(uint64_t begin, uint64_t bytes) {
  return "[" + hex(begin) + ", " + hex(begin + bytes) + ")";
}

namespace {
std::string triple(const Dim3 &d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}
} // namespace

Flow Warp::fail(const Inst &inst, int lane, DiagId id, std::vector<std::string> args) {
  const Launch &launch = *cta->launch;
  const StatementText &at = cta->entry->statements[inst.statement];
  std::string text = statementText(cta->state->program.text, at.begin, at.end);
  uint32_t thread = index * 32 + uint32_t(lane);
  Dim3 where{thread % launch.block.x, thread / launch.block.x % launch.block.y,
             thread / launch.block.x / launch.block.y};
  std::string place = "ptx line " + std::to_string(at.line) + " `" + (text.empty() ? "}" : text) +
                      "` in cta " + triple(cta->index) + ", thread " + triple(where);
  if (at.originLine > 0 && at.originLine <= launch.origins.size())
    place += ", from " + launch.origins[at.originLine - 1];
  args.push_back(std::move(place));
  cta->error = makeError(id, args);
  state = State::Done;
  return Flow::Leave;
}

bool Warp::converged(const Inst &inst, uint32_t mask) {
  if (mask == allLanes) [[likely]]
    return true;
  fail(inst, firstLane(mask), DiagId::emulator_divergent_instruction,
       {std::to_string(std::popcount(mask))});
  return false;
}

} // namespace rho::emulator
