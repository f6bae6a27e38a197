// The kernels of rho probe do what they are counted for: on the emulator, and through ptxas.
#include "runtime/tool/Probe.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/tool/ProbeKernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace rho::tool {
namespace {

using Class = dsl::InstructionClass;

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

// The instructions from a label to the branch back to it.
std::vector<std::string> loopOf(const std::string &ptx, const std::string &label) {
  std::vector<std::string> loop;
  bool inside = false;
  for (const std::string &line : linesOf(ptx)) {
    if (inside)
      loop.push_back(line);
    if (line == label + ":")
      inside = true;
    if (line.find("bra " + label) != std::string::npos)
      break;
  }
  return loop;
}

double countOf(const std::vector<std::string> &lines, const std::string &opcode) {
  double count = 0;
  for (const std::string &line : lines)
    count += line.starts_with("  " + opcode) ? 1 : 0;
  return count;
}

struct Ran {
  uint64_t instructions = 0, cycles = 0;
  std::vector<uint32_t> results; // of the threads
};

Ran runProbe(const ProbeKernel &probe, uint32_t turns) {
  Result<emulator::Program> program = emulator::Program::parse(probe.ptx);
  EXPECT_TRUE(program.ok()) << (program.ok() ? "" : program.error().str());
  Ran ran;
  if (!program)
    return ran;
  emulator::Memory memory;
  std::vector<uint8_t> out(8 + size_t{4} * static_cast<size_t>(probe.threads));
  uint64_t address = memory.allocate(static_cast<int64_t>(out.size()));
  emulator::Launch launch;
  launch.entry = ProbeKernel::entry;
  launch.block.x = static_cast<uint32_t>(probe.threads);
  launch.sharedBytes = probe.sharedBytes;
  launch.parameters.resize(16);
  const uint32_t seed = 3;
  std::memcpy(launch.parameters.data(), &address, 8);
  std::memcpy(launch.parameters.data() + 8, &turns, 4);
  std::memcpy(launch.parameters.data() + 12, &seed, 4);
  Result<emulator::LaunchStats> stats = emulator::run(*program, memory, launch);
  EXPECT_TRUE(stats.ok()) << (stats.ok() ? "" : stats.error().str());
  if (!stats)
    return ran;
  EXPECT_TRUE(memory.read(address, out.data(), static_cast<int64_t>(out.size())).ok());
  std::memcpy(&ran.cycles, out.data(), 8);
  ran.instructions = stats->threadInstructions;
  ran.results.resize(static_cast<size_t>(probe.threads));
  std::memcpy(ran.results.data(), out.data() + 8, 4 * ran.results.size());
  return ran;
}

// One more turn is one more body of the loop in every thread.
void expectTurns(const ProbeKernel &probe, const std::string &what) {
  Ran once = runProbe(probe, 1), twice = runProbe(probe, 2);
  size_t body = loopOf(probe.ptx, "$loop").size();
  EXPECT_EQ(twice.instructions - once.instructions, body * static_cast<uint64_t>(probe.threads))
      << what;
  EXPECT_GT(once.cycles, 0U) << what;
}

TEST(ProbeKernels, instructionsAreThoseThatAreCounted) {
  const std::pair<Class, std::vector<std::string>> opcodes[] = {
      {Class::Ffma, {"fma.rn.f32 "}},
      {Class::Hfma2, {"fma.rn.f16x2 "}},
      {Class::Bfma2, {"fma.rn.bf16x2 "}},
      {Class::Iadd, {"add.s32 "}},
      {Class::Imad, {"mad.lo.s32 "}},
      {Class::Lop3, {"lop3.b32 "}},
      {Class::Prmt, {"prmt.b32 "}},
      {Class::Shf, {"shf.l.wrap.b32 "}},
      {Class::Dp4a, {"dp4a.s32.s32 "}},
      {Class::I2f, {"cvt.rn.f32.s32 "}},
      {Class::F2f, {"cvt.rn.f16.f32 ", "cvt.f32.f16 "}},
      {Class::Lds, {"ld.shared.b32 "}}};
  EXPECT_EQ(std::size(opcodes), dsl::instructionClasses);
  for (const auto &[which, names] : opcodes) {
    ProbeKernel probe = instructionProbe(which, "sm_80");
    double count = 0;
    for (const std::string &name : names)
      count += countOf(loopOf(probe.ptx, "$loop"), name);
    EXPECT_EQ(probe.perTurn, count) << dsl::name(which);
    expectTurns(probe, std::string(dsl::name(which)));
  }
}

// y += next, sixteen times around, on the host.
TEST(ProbeKernels, chainsAreComputed) {
  ProbeKernel probe = instructionProbe(Class::Iadd, "sm_80");
  Ran ran = runProbe(probe, 1);
  for (uint32_t thread : {0U, 5U, 1023U}) {
    uint32_t chain[8], result = 0;
    for (uint32_t i = 0; i < 8; ++i)
      chain[i] = 3 + thread + i;
    uint32_t reals = 0;
    for (uint32_t each : chain) {
      auto real = static_cast<float>(each);
      uint32_t bits = 0;
      std::memcpy(&bits, &real, 4);
      reals ^= bits;
    }
    for (int round = 0; round < 16; ++round)
      for (int i = 0; i < 8; ++i)
        chain[i] += chain[(i + 1) % 8];
    for (uint32_t each : chain)
      result ^= each;
    EXPECT_EQ(ran.results.at(thread), result ^ reals) << thread;
  }
}

TEST(ProbeKernels, productsAreThoseThatAreCounted) {
  const std::pair<const char *, int> types[] = {
      {"f16", 16}, {"bf16", 16}, {"e4m3", 32}, {"s8", 32}, {"s4", 64}};
  for (const auto &[type, k] : types) {
    std::optional<ProbeKernel> probe = mmaProbe(type, "sm_89");
    ASSERT_TRUE(probe);
    std::string opcode = "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col.";
    EXPECT_EQ(probe->perTurn * 32, countOf(loopOf(probe->ptx, "$loop"), opcode) * 16 * 8 * k);
    expectTurns(*probe, type);
  }
  EXPECT_FALSE(mmaProbe("e4m3", "sm_80"));
  EXPECT_FALSE(mmaProbe("e2m1", "sm_89"));
  EXPECT_FALSE(wgmmaProbe("f16", "sm_89"));
  EXPECT_FALSE(wgmmaProbe("s4", "sm_90a"));
  for (const char *type : {"f16", "s8"}) {
    std::optional<ProbeKernel> probe = wgmmaProbe(type, "sm_90a");
    ASSERT_TRUE(probe);
    std::string k = type == std::string("s8") ? "32" : "16";
    double instructions = countOf(loopOf(probe->ptx, "$loop"), "wgmma.mma_async.");
    EXPECT_EQ(probe->perTurn * 128, instructions * 64 * 256 * std::stoi(k));
    EXPECT_NE(probe->ptx.find(".m64n256k" + k + "."), std::string::npos);
    expectTurns(*probe, type);
  }
}

// The sum over all threads is that of what lies in memory, once for each turn: xor, so odd turns.
TEST(ProbeKernels, readingReadsEveryByteOnce) {
  Result<emulator::Program> program = emulator::Program::parse(readProbe("sm_80").ptx);
  ASSERT_TRUE(program.ok()) << program.error().str();
  const uint32_t ctas = 2, steps = 3, turns = 1;
  std::vector<uint32_t> words(size_t{ctas} * ProbeReadKernel::threads * steps *
                              ProbeReadKernel::bytesPerStep / 4);
  uint32_t expected = 0;
  for (size_t i = 0; i < words.size(); ++i)
    expected ^= words[i] = static_cast<uint32_t>(i * 2654435761U);
  emulator::Memory memory;
  auto bytes = static_cast<int64_t>(4 * words.size());
  uint64_t from = memory.allocate(bytes),
           out = memory.allocate(int64_t{4} * ctas * ProbeReadKernel::threads);
  ASSERT_TRUE(memory.write(from, words.data(), bytes).ok());
  emulator::Launch launch;
  launch.entry = ProbeKernel::entry;
  launch.grid.x = ctas;
  launch.block.x = ProbeReadKernel::threads;
  launch.parameters.resize(24);
  std::memcpy(launch.parameters.data(), &out, 8);
  std::memcpy(launch.parameters.data() + 8, &turns, 4);
  std::memcpy(launch.parameters.data() + 12, &steps, 4);
  std::memcpy(launch.parameters.data() + 16, &from, 8);
  Result<emulator::LaunchStats> stats = emulator::run(*program, memory, launch);
  ASSERT_TRUE(stats.ok()) << stats.error().str();
  std::vector<uint32_t> sums(size_t{ctas} * ProbeReadKernel::threads);
  ASSERT_TRUE(memory.read(out, sums.data(), static_cast<int64_t>(4 * sums.size())).ok());
  uint32_t all = 0;
  for (uint32_t sum : sums)
    all ^= sum;
  EXPECT_EQ(all, expected);
}

// One module of many: their headers once, their entries numbered.
std::string joined(const std::vector<std::string> &modules) {
  std::string all;
  bool shared = false;
  for (size_t i = 0; i < modules.size(); ++i)
    for (const std::string &line : linesOf(modules[i])) {
      bool declares = line.starts_with(".extern .shared"), entry = line.starts_with(".visible");
      bool heads = line.starts_with(".version") || line.starts_with(".target") ||
                   line.starts_with(".address_size");
      if ((heads && i > 0) || (declares && shared))
        continue;
      shared = shared || declares;
      size_t name = line.find("probe(");
      all += entry ? line.substr(0, name + 5) + std::to_string(i) + line.substr(name + 5) : line;
      all += "\n";
    }
  return all;
}

TEST(ProbeKernels, ptxasTakesThem) {
  // NOLINTNEXTLINE(bugprone-command-processor): a fixed command
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas";
  std::string file = (std::filesystem::temp_directory_path() /
                      ("rho-probe-" + std::to_string(::getpid()) + ".ptx"))
                         .string();
  for (const std::string target : {"sm_80", "sm_90a"}) {
    std::vector<std::string> modules = {readProbe(target).ptx};
    for (size_t i = 0; i < dsl::instructionClasses; ++i)
      modules.push_back(instructionProbe(static_cast<Class>(i), target).ptx);
    for (const char *type : {"f16", "bf16", "e4m3", "s8", "s4"}) {
      // On sm_90a each s4 instruction becomes dozens, which takes ptxas long.
      std::optional<ProbeKernel> mma = mmaProbe(type, target), wgmma = wgmmaProbe(type, target);
      if (mma && (type != std::string("s4") || target == "sm_80"))
        modules.push_back(mma->ptx);
      if (wgmma)
        modules.push_back(wgmma->ptx);
    }
    std::ofstream(file) << joined(modules);
    std::string command = "ptxas -O1 -arch=" + target + " " + file + " -o " + file + ".cubin";
    // NOLINTNEXTLINE(bugprone-command-processor): the test's own file names
    EXPECT_EQ(std::system(command.c_str()), 0) << target;
  }
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".cubin");
}

TEST(Probe, theLargestCachedSetIsWhereTheRateFalls) {
  EXPECT_EQ(largestCached({{1, 9}, {2, 10}, {4, 9.5}, {8, 4}, {16, 3}}), 4);
  EXPECT_EQ(largestCached({{1, 5}}), 1);
}

} // namespace
} // namespace rho::tool
