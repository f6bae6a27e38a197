// A matrix product as kernels for sm_90a are built: a producer warp that fills a ring of tiles by
// tensor copies, a warpgroup that multiplies them, and a tensor copy of the result.
#include "dsl/Division.h"
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

namespace rho::emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int rows = 64, columns = 128, depth = 1000, pitch = 1008; // halves
constexpr int blockDepth = 64, blocks = divideUp(depth, blockDepth), stages = 3;
constexpr int stageBytes = (rows + columns) * blockDepth * 2, offsetB = rows * blockDepth * 2;

// %r10: iteration, to %r11: stage, %r12: phase, %r13: 8 * stage, %r14: the stage's tiles.
const std::string stage = "rem.u32 %r11, %r10, 3;\ndiv.u32 %r12, %r10, 3;\nand.b32 %r12, %r12, 1;\n"
                          "shl.b32 %r13, %r11, 3;\n"
                          "mad.lo.u32 %r14, %r11, " +
                          std::to_string(stageBytes) + ", %r20;\n";

std::string waitOn(const std::string &label, const std::string &barrier,
                   const std::string &parity) {
  return "mov.b32 %r15, " + barrier + ";\nadd.u32 %r15, %r15, %r13;\n" + label +
         ": mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p7, [%r15], " + parity +
         ";\n@%p7 bra " + label + "_DONE;\nbra " + label + ";\n" + label + "_DONE:\n";
}

std::string prologue() {
  return "mov.b32 %r20, tiles;\nshr.u32 %r21, %tid32, 5;\nsetp.eq.u32 %p1, %tid32, 0;\n"
         "@!%p1 bra READY;\n"
         "mbarrier.init.shared::cta.b64 [full], 1;\nmbarrier.init.shared::cta.b64 [full+8], 1;\n"
         "mbarrier.init.shared::cta.b64 [full+16], 1;\n"
         "mbarrier.init.shared::cta.b64 [empty], 4;\nmbarrier.init.shared::cta.b64 [empty+8], 4;\n"
         "mbarrier.init.shared::cta.b64 [empty+16], 4;\n"
         "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n"
         "READY: bar.sync 0;\nsetp.lt.u32 %p2, %tid32, 128;\n@%p2 bra CONSUMER;\n";
}

const std::string giveBack = "setmaxnreg.dec.sync.aligned.u32 40;\n";

std::string producer(const std::string &registers) {
  auto load = [](const std::string &map, const std::string &to) {
    return "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [" +
           to + "], [" + map + ", {%r17, 0}], [%r16];\n";
  };
  return registers +
         "setp.ne.u32 %p2, %r21, 4;\n@%p2 bra END;\n"
         "mov.b64 %d1, map0;\ncvta.param.u64 %d1, %d1;\nmov.b64 %d2, map1;\n"
         "cvta.param.u64 %d2, %d2;\nelect.sync _|%p3, -1;\n@!%p3 bra END;\n"
         "mov.b32 %r10, 0;\nPRODUCE:\n" +
         stage + "xor.b32 %r18, %r12, 1;\n" + waitOn("WE", "empty", "%r18") +
         "mov.b32 %r16, full;\nadd.u32 %r16, %r16, %r13;\n"
         "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r16], " +
         std::to_string(stageBytes) + ";\nmul.lo.u32 %r17, %r10, 64;\n" + load("%d1", "%r14") +
         load("%d2", "%r14+" + std::to_string(offsetB)) +
         "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p4, %r10, " + std::to_string(blocks) +
         ";\n@%p4 bra PRODUCE;\nbra END;\n";
}

// The previous iteration's stage is free once its products are waited for.
std::string release() {
  return "setp.eq.u32 %p4, %r10, 0;\n@%p4 bra KEEP;\nsub.u32 %r16, %r10, 1;\n"
         "rem.u32 %r16, %r16, 3;\nshl.b32 %r16, %r16, 3;\nmov.b32 %r17, empty;\n"
         "add.u32 %r16, %r16, %r17;\nelect.sync _|%p5, 0xffffffff;\n"
         "@%p5 mbarrier.arrive.shared::cta.b64 _, [%r16];\nKEEP:\n";
}

std::string consumer(const std::string &wait, const std::string &fence) {
  std::string accumulators;
  for (int i = 0; i < columns / 2; ++i)
    accumulators += (i ? ", %acc" : "{%acc") + std::to_string(i);
  accumulators += "}";
  std::string body = "CONSUMER: setmaxnreg.inc.sync.aligned.u32 232;\nmov.b32 %r10, 0;\n"
                     "CONSUME:\n" +
                     stage + waitOn("WF", "full", "%r12") +
                     "shr.u32 %r16, %r14, 4;\ncvt.u64.u32 %d3, %r16;\n"
                     "or.b64 %d3, %d3, 0x4000004000010000;\nadd.u64 %d4, %d3, " +
                     std::to_string(offsetB / 16) + ";\nwgmma.fence.sync.aligned;\n";
  for (int k = 0; k < blockDepth / 16; ++k) {
    body += k == 0 ? "setp.ne.u32 %p6, %r10, 0;\n" : "add.u64 %d3, %d3, 2;\nadd.u64 %d4, %d4, 2;\n";
    body += "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " + accumulators + ", %d3, %d4, " +
            (k == 0 ? "%p6" : "1") + ", 1, 1, 0, 0;\n";
  }
  body += "wgmma.commit_group.sync.aligned;\n" + wait + release() +
          "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p4, %r10, " + std::to_string(blocks) +
          ";\n@%p4 bra CONSUME;\nwgmma.wait_group.sync.aligned 0;\n";
  // Lane l gives the address of row l % 8 of matrix l / 8.
  body += "and.b32 %r16, %tid32, 15;\nmad.lo.u32 %r16, %r21, 16, %r16;\nshl.b32 %r16, %r16, 8;\n"
          "and.b32 %r17, %tid32, 16;\nadd.u32 %r16, %r16, %r17;\nmov.b32 %r17, result;\n"
          "add.u32 %r16, %r16, %r17;\n";
  for (int j = 0; j < columns / 16; ++j) {
    for (int i = 0; i < 4; ++i) {
      int first = 8 * j + 2 * i;
      body += "cvt.rn.f16x2.f32 %r" + std::to_string(40 + i) + ", %acc" +
              std::to_string(first + 1) + ", %acc" + std::to_string(first) + ";\n";
    }
    body += "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%r16+" + std::to_string(32 * j) +
            "], {%r40, %r41, %r42, %r43};\n";
  }
  return body + fence +
         "barrier.sync.aligned 1, 128;\n@!%p1 bra END;\nmov.b64 %d1, map2;\n"
         "cvta.param.u64 %d1, %d1;\n"
         "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {0, 0}], [result];\n"
         "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nEND:\n";
}

TensorMap matrixMap(int height, uint64_t address) {
  TensorMap map;
  map.rank = 2;
  map.elementBytes = 2;
  map.address = address;
  map.dims[0] = depth;
  map.dims[1] = uint64_t(height);
  map.strides[1] = pitch * 2;
  map.box[0] = blockDepth;
  map.box[1] = uint32_t(height);
  map.swizzle = Swizzle::Span128;
  return map;
}

// A multiple of 1/8 up to 1, and its code.
double valueOf(size_t i) { return double(int(i * 7 % 17) - 8) / 8; }
uint16_t halfOf(double value) {
  int eighths = int(std::abs(value) * 8);
  if (eighths == 0)
    return 0;
  int exponent = std::ilogb(eighths);
  return uint16_t((value < 0 ? 0x8000 : 0) | (exponent - 3 + 15) << 10 |
                  ((eighths << 10 >> exponent) & 0x3ff));
}

Ran runProduct(const std::string &wait, const std::string &fence,
               const std::string &registers = giveBack) {
  std::vector<uint16_t> in(size_t(rows + columns) * pitch, 0x7e00); // NaN behind each row
  for (size_t row = 0; row < rows + columns; ++row)
    for (size_t k = 0; k < depth; ++k)
      in[row * pitch + k] = halfOf(valueOf(row * depth + k));
  TensorMap out;
  out.rank = 2;
  out.elementBytes = 2;
  out.address = inOut;
  out.dims[0] = out.box[0] = columns;
  out.dims[1] = out.box[1] = rows;
  out.strides[1] = columns * 2;
  Config config;
  config.block.x = 256;
  config.in = bytesOf(in);
  config.outBytes = rows * columns * 2;
  config.maps = {matrixMap(rows, 0), matrixMap(columns, uint64_t(rows) * pitch * 2), out};
  std::string text = kernel("{ .reg .b32 %acc<64>;\n" + prologue() + producer(registers) +
                                consumer(wait, fence) + "}\n",
                            ".shared .align 1024 .b8 tiles[" + std::to_string(stages * stageBytes) +
                                "]; .shared .align 128 .b8 result[16384]; "
                                ".shared .align 8 .b64 full[3]; .shared .align 8 .b64 empty[3];",
                            config.maps.size());
  text.replace(text.find(".maxntid 1024"), 13, ".reqntid 256, 1, 1\n.maxnreg 136");
  return runKernel(text, config);
}

const std::string waitForOthers = "wgmma.wait_group.sync.aligned 1;\n";
const std::string proxyFence = "fence.proxy.async.shared::cta;\n";

TEST(WarpSpecialized, MultipliesMatrices) {
  Ran ran = runProduct(waitForOthers, proxyFence);
  ASSERT_EQ(ran.error, "");
  for (size_t m = 0; m < rows; ++m)
    for (size_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (size_t k = 0; k < depth; ++k)
        sum += valueOf(m * depth + k) * valueOf((rows + n) * depth + k);
      uint16_t bits = ran.as<uint16_t>()[m * columns + n];
      double magnitude = bits & 0x7c00 ? std::ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 31) - 25)
                                       : std::ldexp(bits & 0x3ff, -24);
      ASSERT_NEAR(bits & 0x8000 ? -magnitude : magnitude, sum, std::abs(sum) / 2048)
          << m << " " << n;
    }
}

TEST(WarpSpecialized, StagesAreFreedTooEarly) {
  EXPECT_THAT(runProduct("", proxyFence).error, HasSubstr("[emulator_async_read]"));
}

TEST(WarpSpecialized, RegistersAreTakenOfThoseGivenBack) {
  EXPECT_THAT(runProduct(waitForOthers, proxyFence, "").error,
              AllOf(HasSubstr("[emulator_deadlock]"),
                    HasSubstr("warps 0 to 3 want 232 registers a thread, they have 136 and 0 are "
                              "free")));
  EXPECT_THAT(runProduct(waitForOthers, proxyFence, "setmaxnreg.dec.sync.aligned.u32 48;\n").error,
              HasSubstr("and 11264 are free"));
}

TEST(WarpSpecialized, RegistersAreTakenUpwardsAndGivenBackDownwards) {
  EXPECT_THAT(runProduct(waitForOthers, proxyFence, "setmaxnreg.inc.sync.aligned.u32 40;\n").error,
              HasSubstr("error: an operand says 40 registers a thread where each has 136: "));
  EXPECT_THAT(runProduct(waitForOthers, proxyFence, "setmaxnreg.dec.sync.aligned.u32 168;\n").error,
              HasSubstr("error: an operand says 168 registers a thread where each has 136: "));
}

TEST(WarpSpecialized, ResultsAreNotFenced) {
  EXPECT_THAT(runProduct(waitForOthers, "").error, HasSubstr("[emulator_proxy_fence]"));
}

} // namespace
} // namespace rho::emulator::test
