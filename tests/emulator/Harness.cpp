#include "tests/emulator/Harness.h"

namespace rho::emulator::test {

std::string kernel(const std::string &body, const std::string &declarations, size_t maps) {
  std::string mapParameters;
  for (size_t m = 0; m < maps; ++m)
    mapParameters += ", .param .align 64 .b8 map" + std::to_string(m) + "[128]";
  std::string text = R"(.version 8.0
.target sm_90a
.address_size 64
)" + (declarations.empty() ? "//" : declarations) +
                     R"(
.visible .entry k(
  .param .u64 .ptr .global .align 16 in,
  .param .u64 .ptr .global .align 16 out)" +
                     mapParameters + R"(
)
.maxntid 1024
{
  .reg .pred %p<8>, %q;
  .reg .b16 %h<32>, %a16, %b16, %c16, %x16;
  .reg .b32 %r<64>, %tid32, %a32, %b32, %c32, %x32;
  .reg .b64 %d<32>, %din, %dout, %a64, %b64, %c64, %x64;
  ld.param.u64 %din, [in];
  ld.param.b64 %dout, [out];
  mov.u32 %tid32, %tid.x;

  // Line 20; the body starts on the next.

)" + body + "\n  ret;\n}\n";
  return text;
}

std::string forTarget(std::string ptx, const std::string &target) {
  return ptx.replace(ptx.find("sm_90a"), 6, target);
}

Ran runKernel(const std::string &ptx, const Config &config) {
  Ran ran;
  Result<Program> program = Program::parse(ptx);
  if (!program) {
    ran.error = program.error().str();
    return ran;
  }
  Memory memory;
  uint64_t in = memory.allocate(int64_t(config.in.size()));
  uint64_t out = memory.allocate(config.outBytes);
  EXPECT_TRUE(memory.write(in, config.in.data(), int64_t(config.in.size())));
  Launch launch;
  launch.entry = "k";
  launch.grid = config.grid;
  launch.block = config.block;
  launch.sharedBytes = config.shared;
  launch.origins = config.origins;
  launch.maxWarpInstructions = config.maxWarpInstructions;
  launch.cluster = config.cluster;
  if (config.dependent)
    launch.ahead = {in, config.in.size()};
  launch.parameters.resize(config.maps.empty() ? 16 : 64 + tensorMapBytes * config.maps.size());
  for (size_t m = 0; m < config.maps.size(); ++m) {
    TensorMap map = config.maps[m];
    map.address = map.address >= inOut ? map.address - inOut + out : map.address + in;
    auto bytes = encodeTensorMap(map);
    if (!bytes) {
      ran.error = bytes.error().str();
      return ran;
    }
    std::copy(bytes->begin(), bytes->end(),
              launch.parameters.begin() + ptrdiff_t(64 + tensorMapBytes * m));
  }
  std::memcpy(launch.parameters.data(), &in, 8);
  std::memcpy(launch.parameters.data() + 8, &out, 8);
  Result<LaunchStats> stats = run(*program, memory, launch, config.threads);
  if (!stats) {
    ran.error = stats.error().str();
    return ran;
  }
  ran.stats = *stats;
  ran.out.resize(size_t(config.outBytes));
  EXPECT_TRUE(memory.read(out, ran.out.data(), config.outBytes));
  return ran;
}

std::vector<uint64_t> evaluate(const std::string &code, int width, const std::vector<Case> &cases,
                               const std::string &target) {
  // %d8 = in + 24 * index, %d9 = out + 8 * index
  std::string body = R"(
  mov.u32 %r60, %ctaid.x;
  mad.lo.u32 %r61, %r60, 32, %tid32;
  mad.wide.u32 %d8, %r61, 24, %din;
  mad.wide.u32 %d9, %r61, 8, %dout;
  ld.global.b64 %a64, [%d8];
  ld.global.b64 %b64, [%d8+8];
  ld.global.b64 %c64, [%d8+16];
  cvt.u32.u64 %a32, %a64;
  cvt.u32.u64 %b32, %b64;
  cvt.u32.u64 %c32, %c64;
  cvt.u16.u64 %a16, %a64;
  cvt.u16.u64 %b16, %b64;
  cvt.u16.u64 %c16, %c64;
)" + code + "\n";
  if (width == 1)
    body += "selp.b64 %x64, 1, 0, %q;\n";
  else if (width < 64)
    body += "cvt.u64.u" + std::to_string(width) + " %x64, %x" + std::to_string(width) + ";\n";
  body += "st.global.b64 [%d9], %x64;\n";
  std::vector<Case> padded = cases;
  padded.resize((cases.size() + 31) / 32 * 32);
  Config config;
  config.grid.x = uint32_t(padded.size() / 32);
  config.in = bytesOf(padded);
  config.outBytes = int64_t(padded.size()) * 8;
  Ran ran = runKernel(forTarget(kernel(body), target), config);
  EXPECT_EQ(ran.error, "") << code;
  std::vector<uint64_t> results = ran.as<uint64_t>();
  results.resize(cases.size());
  return results;
}

std::vector<Case> integerCases(int width, int count) {
  uint64_t ones = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
  uint64_t top = uint64_t(1) << (width - 1);
  std::vector<uint64_t> special = {0,  1,       2,   3,       7,        31,  32,
                                   33, top - 1, top, top + 1, ones - 1, ones};
  std::vector<Case> cases;
  for (uint64_t a : special)
    for (uint64_t b : special)
      cases.push_back({a, b, special[(a ^ b) % special.size()]});
  std::mt19937_64 random = repeatable(width);
  for (int i = 0; i < count; ++i)
    cases.push_back({random() & ones, random() & ones, random() & ones});
  return cases;
}

std::string parseError(const std::string &ptx) {
  Result<Program> program = Program::parse(ptx);
  return program ? "" : program.error().str();
}

std::string withDInReversedC(std::string mma) {
  const std::string d = "{%r12, %r13, %r14, %r15}";
  mma.replace(mma.find(d), d.size(), "{%r11, %r10, %r9, %r8}");  // the instruction's
  mma.replace(mma.rfind(d), d.size(), "{%r8, %r9, %r10, %r11}"); // what is stored
  return mma;
}

} // namespace rho::emulator::test
