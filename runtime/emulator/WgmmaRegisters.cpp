#include "runtime/emulator/WgmmaRegisters.h"

namespace rho::emulator {

namespace {

RegisterUse &useOf(Warp &w, uint32_t offset) { return w.uses[offset / 64]; }

bool pending(Warp &w, const Inst &i, const RegisterUse &use) {
  const StatementText &at = w.cta->entry->statements[use.statement];
  w.fail(i, w.firstLane(w.active), DiagId::emulator_wgmma_pending, {std::to_string(at.line)});
  return false;
}

} // namespace

bool claimRegisters(Warp &w, const Inst &i, const WgmmaRegisters &registers) {
  auto fenced = [&](const RegisterUse &use) {
    if (use.touched)
      w.fail(i, w.firstLane(w.active), DiagId::emulator_wgmma_fence, {});
    return !use.touched;
  };
  for (uint32_t offset : registers.results) {
    RegisterUse &use = useOf(w, offset);
    if (!fenced(use))
      return false;
    if (use.fragments > 0 || (use.results > 0 && use.shape != registers.shape))
      return pending(w, i, use);
  }
  for (uint32_t offset : registers.fragments) {
    RegisterUse &use = useOf(w, offset);
    if (!fenced(use))
      return false;
    if (use.results > 0)
      return pending(w, i, use);
  }
  for (uint32_t offset : registers.results) {
    RegisterUse &use = useOf(w, offset);
    ++use.results;
    use.shape = registers.shape;
    use.statement = i.statement;
  }
  for (uint32_t offset : registers.fragments) {
    RegisterUse &use = useOf(w, offset);
    ++use.fragments;
    use.statement = i.statement;
  }
  return true;
}

void releaseRegisters(Warp &w, const WgmmaRegisters &registers) {
  for (uint32_t offset : registers.results)
    --useOf(w, offset).results;
  for (uint32_t offset : registers.fragments)
    --useOf(w, offset).fragments;
}

Flow runChecked(Warp &w, const Inst &i, uint32_t mask) {
  const CheckedInst &checked = w.cta->entry->checked[i.aux];
  auto touch = [&](uint32_t offset, bool writes) {
    RegisterUse &use = useOf(w, offset);
    use.touched = true;
    if (use.results > 0 || (writes && use.fragments > 0))
      return pending(w, i, use);
    return true;
  };
  for (uint32_t offset : checked.reads)
    if (!touch(offset, false))
      return Flow::Leave;
  for (uint32_t offset : checked.writes)
    if (!touch(offset, true))
      return Flow::Leave;
  return checked.inst.run(w, checked.inst, mask);
}

} // namespace rho::emulator
