#include "runtime/tool/ProbeKernels.h"

#include "compiler/Targets.h"

#include <functional>

namespace rho::tool {

// Source: PTX ISA, release notes.
std::string ptxHeader(const std::string &target) {
  const char *version = target.starts_with("sm_8") && target != "sm_89" ? "7.1"
                        : target.starts_with("sm_12")                   ? "8.7"
                                                                        : "8.4";
  return ".version " + std::string(version) + "\n.target " + target + "\n.address_size 64\n";
}

namespace {

using Class = dsl::InstructionClass;

// Independent chains of a thread, each as long as the loop's body has rounds.
constexpr int chains = 8, rounds = 16;

std::string str(int value) { return std::to_string(value); }

std::string list(const std::string &prefix, int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i)
    text += (text.empty() ? "" : ", ") + prefix + str(i);
  return "{" + text + "}";
}

// Registers that all bodies may use: chains in %r0.. and %f0.., %a and %b made of the seed.
const char *const declarations = R"(
  .reg .b64 %out, %at, %start, %end, %wide;
  .reg .b32 %turns, %seed, %thread, %cta, %grid, %a, %b, %t, %r<140>;
  .reg .f32 %fa, %fb, %f<8>;
  .reg .b16 %h<8>;
  .reg .pred %more, %first;
)";

// The whole kernel of a body that is repeated `turns` times. `before` prepares, `results` are the
// 32-bit registers that every thread stores.
std::string kernel(const std::string &target, int threads, int64_t sharedBytes,
                   const std::string &before, const std::string &body, const std::string &results) {
  std::string text = ptxHeader(target);
  if (sharedBytes > 0)
    text += ".extern .shared .align 1024 .b8 shared[];\n";
  text += ".visible .entry probe(.param .u64 out, .param .u32 turns, .param .u32 seed)\n.maxntid " +
          str(threads) + ", 1, 1\n{" + declarations;
  text += R"(  ld.param.u64 %out, [out];
  ld.param.u32 %turns, [turns];
  ld.param.u32 %seed, [seed];
  mov.u32 %thread, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  add.s32 %a, %seed, %thread;
  xor.b32 %b, %seed, 1;
  cvt.rn.f32.u32 %fa, %seed;
  cvt.rn.f32.u32 %fb, %b;
)";
  for (int i = 0; i < chains; ++i)
    text += "  add.s32 %r" + str(i) + ", %a, " + str(i) + ";\n  cvt.rn.f32.s32 %f" + str(i) +
            ", %r" + str(i) + ";\n";
  text += before + "  bar.sync 0;\n  mov.u64 %start, %clock64;\n$loop:\n" + body +
          "  sub.s32 %turns, %turns, 1;\n  setp.ne.s32 %more, %turns, 0;\n  @%more bra $loop;\n"
          "  bar.sync 0;\n  mov.u64 %end, %clock64;\n";
  text += results;
  text += R"(  sub.s64 %end, %end, %start;
  setp.eq.s32 %first, %thread, 0;
  mul.wide.u32 %wide, %cta, 8;
  add.s64 %at, %out, %wide;
  @%first st.global.u64 [%at], %end;
  mul.wide.u32 %wide, %grid, 8;
  add.s64 %at, %out, %wide;
  mad.lo.s32 %t, %cta, )" +
          str(threads) + R"(, %thread;
  mul.wide.u32 %wide, %t, 4;
  add.s64 %at, %at, %wide;
  st.global.u32 [%at], %r0;
  ret;
}
)";
  return text;
}

// Everything that was computed, in %r0, which must not cancel itself.
std::string combine(const std::string &prefix, int count) {
  std::string text;
  for (int i = prefix == "%r" ? 1 : 0; i < count; ++i)
    text += "  mov.b32 %t, " + prefix + str(i) + ";\n  xor.b32 %r0, %r0, %t;\n";
  return text;
}

// The instruction of chain i. Chains feed each other, which keeps the assembler from merging two of
// their steps into one instruction.
std::string step(Class which, int i) {
  std::string own = "%r" + str(i), next = "%r" + str((i + 1) % chains),
              third = "%r" + str((i + 2) % chains), real = "%f" + str(i), half = "%h" + str(i);
  switch (which) {
  case Class::Ffma:
    return "fma.rn.f32 " + real + ", " + real + ", %fa, %fb";
  case Class::Hfma2:
    return "fma.rn.f16x2 " + own + ", " + own + ", %a, %b";
  case Class::Bfma2:
    return "fma.rn.bf16x2 " + own + ", " + own + ", %a, %b";
  case Class::Iadd:
    return "add.s32 " + own + ", " + own + ", " + next;
  case Class::Imad:
    return "mad.lo.s32 " + own + ", " + own + ", %a, " + next;
  case Class::Lop3:
    return "lop3.b32 " + own + ", " + own + ", " + next + ", " + third + ", 0x96";
  case Class::Prmt:
    return "prmt.b32 " + own + ", " + own + ", " + next + ", %a";
  case Class::Shf:
    return "shf.l.wrap.b32 " + own + ", " + own + ", " + next + ", %a";
  case Class::Dp4a:
    return "dp4a.s32.s32 " + own + ", " + own + ", %a, " + next;
  case Class::I2f:
    return "cvt.rn.f32.s32 " + real + ", " + own + ";\n  mov.b32 " + own + ", " + real;
  case Class::F2f:
    return "cvt.rn.f16.f32 " + half + ", " + real + ";\n  cvt.f32.f16 " + real + ", " + half;
  case Class::Lds:
    break;
  }
  return "ld.shared.b32 " + own + ", [" + own + "]";
}

std::string repeated(int times, int each, const std::function<std::string(int)> &line) {
  std::string text;
  for (int round = 0; round < times; ++round)
    for (int i = 0; i < each; ++i)
      text += "  " + line(i) + ";\n";
  return text;
}

// k of the instruction; 0: none.
int mmaK(const std::string &type, const std::string &target) {
  if (type == "f16" || type == "bf16")
    return 16;
  if (type == "s8")
    return 32;
  if (type == "s4")
    return 64;
  bool hasE4m3 = compiler::targetOf(target).hasE4m3;
  return type == "e4m3" && hasE4m3 ? 32 : 0;
}

} // namespace

ProbeKernel instructionProbe(Class which, const std::string &target) {
  ProbeKernel probe;
  probe.threads = 1024;
  std::string before;
  if (which == Class::Lds) { // each chain reads the address that it reads, in a bank of its own
    probe.sharedBytes = int64_t{4} * chains * probe.threads;
    before = "  shl.b32 %a, %thread, 2;\n  mov.u32 %b, shared;\n  add.s32 %a, %a, %b;\n";
    for (int i = 0; i < chains; ++i)
      before += "  add.s32 %r" + str(i) + ", %a, " + str(4 * i * probe.threads) +
                ";\n  st.shared.b32 [%r" + str(i) + "], %r" + str(i) + ";\n";
  }
  std::string body = repeated(rounds, chains, [&](int i) { return step(which, i); });
  probe.ptx = kernel(target, probe.threads, probe.sharedBytes, before, body,
                     combine("%r", chains) + combine("%f", chains));
  probe.perTurn = rounds * chains * (which == Class::F2f ? 2 : 1);
  return probe;
}

std::optional<ProbeKernel> mmaProbe(const std::string &type, const std::string &target) {
  int k = mmaK(type, target);
  if (k == 0)
    return std::nullopt;
  bool integer = type[0] == 's';
  std::string sum = integer ? "s32" : "f32";
  ProbeKernel probe;
  probe.threads = 512;
  std::string instruction = "mma.sync.aligned.m16n8k" + str(k) + ".row.col." + sum + "." + type +
                            "." + type + "." + sum + " ";
  // Operands of zeros and ones, sums in %r0 to %r31 or as many f32. No two instructions of a turn
  // have both operands in common: where the assembler makes an instruction of others, it would
  // compute that product only once.
  int turns = rounds / 2, firstA = 32, firstB = firstA + 4 * turns;
  std::string sums = integer ? "%r" : "%s", before = "  .reg .f32 %s<32>;\n";
  for (int i = firstA; i < firstB + 2 * chains; ++i)
    before += "  add.s32 %t, %a, " + str(i) + ";\n  and.b32 %r" + str(i) + ", %t, 0x01010101;\n";
  for (int i = 0; i < 4 * chains; ++i)
    before += integer ? "  mov.b32 %r" + str(i) + ", %b;\n" : "  mov.f32 %s" + str(i) + ", %fb;\n";
  int made = 0;
  std::string body = repeated(turns, chains, [&](int i) {
    std::string own = list(sums, 4 * i, 4);
    int a = firstA + 4 * (made++ / chains), b = firstB + 2 * i;
    return instruction + own + ", " + list("%r", a, 4) + ", " + list("%r", b, 2) + ", " + own;
  });
  std::string results = integer ? "" : "  mov.b32 %r0, %seed;\n";
  probe.ptx = kernel(target, probe.threads, 0, before, body, results + combine(sums, 4 * chains));
  probe.perTurn = turns * chains * 16.0 * 8 * k / 32;
  return probe;
}

std::optional<ProbeKernel> wgmmaProbe(const std::string &type, const std::string &target) {
  int k = mmaK(type, target);
  if (!compiler::targetOf(target).hasWgmma || k == 0 || type == "s4")
    return std::nullopt;
  bool integer = type == "s8";
  constexpr int batch = 8, columns = 256, sums = columns / 2, bytesOfK = 32;
  ProbeKernel probe;
  probe.threads = 256; // two warpgroups
  probe.sharedBytes = (64 + columns) * bytesOfK;
  // Zeros, without swizzle: 8 rows of 16 bytes follow each other along k, then along the rows (PTX
  // ISA, "matrix descriptor"): 128 and 256 bytes apart.
  std::string before = "  .reg .f32 %s<128>;\n  .reg .b64 %da, %db, %strides;\n"
                       "  mov.u32 %b, shared;\n  shl.b32 %t, %thread, 2;\n  add.s32 %t, %t, %b;\n"
                       "  mov.b32 %r0, 0;\n";
  for (int64_t at = 0; at < probe.sharedBytes; at += int64_t{4} * probe.threads)
    before += "  st.shared.b32 [%t+" + std::to_string(at) + "], %r0;\n";
  before += "  fence.proxy.async;\n  shr.u32 %b, %b, 4;\n  cvt.u64.u32 %da, %b;\n"
            "  mov.b64 %strides, 0x0000001000080000;\n  or.b64 %da, %da, %strides;\n"
            "  add.s64 %db, %da, " +
            str(64 * bytesOfK / 16) + ";\n";
  std::string prefix = integer ? "%r" : "%s";
  for (int i = 0; i < sums; ++i)
    before += integer ? "  mov.b32 %r" + str(i) + ", 0;\n" : "  mov.f32 %s" + str(i) + ", %fb;\n";
  std::string own = list(prefix, 0, sums);
  std::string instruction = "wgmma.mma_async.sync.aligned.m64n256k" + str(k) + "." +
                            (integer ? "s32" : "f32") + "." + type + "." + type + " " + own +
                            ", %da, %db, 1" + (integer ? "" : ", 1, 1");
  if (type == "f16" || type == "bf16")
    instruction += ", 0, 0";
  std::string body = "  wgmma.fence.sync.aligned;\n" +
                     repeated(1, batch, [&](int) { return instruction; }) +
                     "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";
  std::string results = integer ? "" : "  mov.b32 %r0, %seed;\n";
  probe.ptx = kernel(target, probe.threads, probe.sharedBytes, before, body,
                     results + combine(prefix, sums));
  probe.perTurn = batch * 64.0 * columns * k / 128;
  return probe;
}

ProbeReadKernel readProbe(const std::string &target) {
  std::string text = ptxHeader(target) +
                     ".visible .entry probe(.param .u64 out, .param .u32 turns, .param .u32 steps, "
                     ".param .u64 from)\n.maxntid " +
                     str(ProbeReadKernel::threads) + R"(, 1, 1
{
  .reg .b64 %out, %from, %at, %wide, %stride;
  .reg .b32 %turns, %steps, %step, %thread, %cta, %grid, %all, %id, %sum, %r<16>;
  .reg .pred %more;
  ld.param.u64 %out, [out];
  ld.param.u32 %turns, [turns];
  ld.param.u32 %steps, [steps];
  ld.param.u64 %from, [from];
  mov.u32 %thread, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %grid, %nctaid.x;
  mov.u32 %all, %ntid.x;
  mad.lo.s32 %id, %cta, %all, %thread;
  mul.lo.s32 %all, %all, %grid;
  mul.wide.u32 %wide, %id, 16;
  add.s64 %from, %from, %wide;
  mul.wide.u32 %stride, %all, 16;
  mov.b32 %sum, 0;
$turn:
  mov.u64 %at, %from;
  mov.u32 %step, %steps;
$step:
)";
  for (int i = 0; i < 4; ++i)
    text += "  ld.global.cg.v4.b32 " + list("%r", 4 * i, 4) +
            ", [%at];\n  add.s64 %at, %at, %stride;\n";
  for (int i = 0; i < 16; ++i)
    text += "  xor.b32 %sum, %sum, %r" + str(i) + ";\n";
  text += R"(  sub.s32 %step, %step, 1;
  setp.ne.s32 %more, %step, 0;
  @%more bra $step;
  sub.s32 %turns, %turns, 1;
  setp.ne.s32 %more, %turns, 0;
  @%more bra $turn;
  mul.wide.u32 %wide, %id, 4;
  add.s64 %at, %out, %wide;
  st.global.b32 [%at], %sum;
  ret;
}
)";
  return {text};
}

} // namespace rho::tool
