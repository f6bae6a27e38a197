// Clusters: their special registers, barrier, addresses in other CTAs and multicast.
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

namespace rho::emulator::test {
namespace {

using testing::HasSubstr;

const std::string clusterBuffers = ".shared .align 16 .b8 data[1024]; .shared .align 8 .b64 full;"
                                   ".shared .align 8 .b64 empty;";
const std::string barrier = "barrier.cluster.arrive.release.aligned;\n"
                            "barrier.cluster.wait.acquire.aligned;\n";
// %r20: rank, %r21: the other of two CTAs; %p1: thread 0; data lies at 0.
const std::string ranks = "mov.b32 %r22, data;\nmov.u32 %r20, %cluster_ctarank;\n"
                          "xor.b32 %r21, %r20, 1;\nsetp.eq.u32 %p1, %tid32, 0;\n";

Ran runCluster(const std::string &body, Dim3 cluster = {2, 1, 1}, Dim3 grid = {4, 1, 1}) {
  Config config;
  config.grid = grid;
  config.cluster = cluster;
  config.in.resize(4096);
  for (size_t i = 0; i < config.in.size(); ++i)
    config.in[i] = uint8_t(i * 5 + i / 256);
  config.outBytes = 8192;
  return runKernel(kernel(body, clusterBuffers), config);
}

TEST(Cluster, SpecialRegisters) {
  std::vector<std::string> names = {"cluster_ctarank", "cluster_nctarank"};
  for (const char *group : {"ctaid", "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid"})
    for (const char *axis : {".x", ".y", ".z"})
      names.push_back(group + std::string(axis));
  std::string body = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %ctaid.z;\n"
                     "mad.lo.u32 %r3, %r3, 6, %r2;\nmad.lo.u32 %r3, %r3, 4, %r1;\n"
                     "mad.wide.u32 %d9, %r3, 128, %dout;\n";
  for (size_t i = 0; i < names.size(); ++i)
    body += "mov.u32 %r1, %" + names[i] + ";\nst.global.b32 [%d9+" + std::to_string(4 * i) +
            "], %r1;\n";
  Ran ran = runCluster(body, {2, 3, 1}, {4, 6, 2});
  ASSERT_EQ(ran.error, "");
  std::vector<uint32_t> out = ran.as<uint32_t>();
  for (uint32_t z = 0; z < 2; ++z)
    for (uint32_t y = 0; y < 6; ++y)
      for (uint32_t x = 0; x < 4; ++x) {
        std::vector<uint32_t> expected = {
            x % 2 + 2 * (y % 3), 6, x, y, z, x % 2, y % 3, 0, 2, 3, 1, x / 2, y / 3, z, 2, 2, 2};
        for (size_t i = 0; i < names.size(); ++i)
          EXPECT_EQ(out[size_t((z * 6 + y) * 4 + x) * 32 + i], expected[i]) << names[i];
      }
}

TEST(Cluster, ExchangeThroughOtherCtas) {
  // Each thread stores its number into the other CTA and adds 100 there; shared and generic.
  std::string store = ranks + "shl.b32 %r1, %tid32, 2;\nmapa.shared::cluster.u32 %r2, %r1, %r21;\n"
                              "mad.lo.u32 %r3, %r20, 32, %tid32;\n";
  std::string remote = "st.shared::cluster.b32 [%r2], %r3;\n"
                       "red.relaxed.cluster.shared::cluster.add.u32 [%r2], 100;\n";
  std::string load = "ld.shared.b32 %r4, [%r1];\ncvt.u64.u32 %d1, %r1;\n"
                     "cvta.shared.u64 %d1, %d1;\nmapa.u64 %d2, %d1, %r21;\nld.b32 %r5, [%d2];\n"
                     "getctarank.u64 %r7, %d2;\n"
                     "mov.u32 %r6, %ctaid.x;\nmad.lo.u32 %r6, %r6, 32, %tid32;\n"
                     "mad.wide.u32 %d9, %r6, 16, %dout;\n"
                     "st.global.v4.b32 [%d9], {%r4, %r5, %r7, 0};\n";
  Ran ran = runCluster(store + remote + barrier + load + barrier);
  ASSERT_EQ(ran.error, "");
  std::vector<uint32_t> out = ran.as<uint32_t>();
  for (uint32_t cta = 0; cta < 4; ++cta)
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint32_t rank = cta % 2, at = (cta * 32 + lane) * 4;
      EXPECT_EQ(out[at], (1 - rank) * 32 + lane + 100);
      EXPECT_EQ(out[at + 1], rank * 32 + lane + 100);
      EXPECT_EQ(out[at + 2], 1 - rank);
    }
  EXPECT_THAT(runCluster(store + remote + "nanosleep.u32 10;\n" + load + barrier).error,
              HasSubstr("warp 0 of cta 1 of the cluster has written it"));
  EXPECT_THAT(runCluster(store + remote +
                         "barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n" + load +
                         barrier)
                  .error,
              HasSubstr("[emulator_race_"));
  EXPECT_EQ(runCluster(store + remote +
                       "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed;\n"
                       "barrier.cluster.wait;\n" +
                       load + barrier)
                .error,
            "");
  // CTA 1 reads the memory of CTA 0 when that has exited.
  EXPECT_THAT(runCluster(store + remote + barrier +
                         "setp.eq.u32 %p2, %r20, 0;\n@%p2 exit;\nnanosleep.u32 10;\n" + load)
                  .error,
              HasSubstr("[emulator_cluster_address]"));
  EXPECT_EQ(runCluster("mov.u32 %r1, 2;\nmapa.shared::cluster.u32 %r2, %r1, %r1;").error,
            "error: cluster address 0x2: rank 2 of the cluster's 2 ctas: ptx line 22 "
            "`mapa.shared::cluster.u32 %r2, %r1, %r1` in cta (0,0,0), thread (0,0,0) "
            "[emulator_cluster_address]\n");
  EXPECT_THAT(runCluster("mov.u32 %r1, 0x4000000;\nld.shared::cluster.b32 %r2, [%r1];").error,
              HasSubstr("[emulator_cluster_address]"));
  // The window of the own CTA ends where its memory does.
  EXPECT_THAT(runCluster("mov.u32 %r1, 0x1000000;\nld.shared.b32 %r2, [%r1];").error,
              HasSubstr("[emulator_shared_bounds]"));
}

TEST(Cluster, BarrierInTurn) {
  EXPECT_THAT(runCluster("barrier.cluster.wait;").error, HasSubstr("[emulator_barrier_operand]"));
  EXPECT_THAT(runCluster("barrier.cluster.arrive;\nbarrier.cluster.arrive;").error,
              HasSubstr("[emulator_barrier_operand]"));
  EXPECT_THAT(runCluster("setp.lt.u32 %p2, %tid32, 5;\n@%p2 barrier.cluster.arrive.aligned;").error,
              HasSubstr("[emulator_divergent_barrier]"));
  // Warps that have exited are not waited for, others are.
  EXPECT_EQ(runCluster(ranks + "setp.eq.u32 %p2, %r20, 0;\n@%p2 exit;\n" + barrier).error, "");
  EXPECT_THAT(runCluster(ranks + "setp.eq.u32 %p2, %r20, 0;\n@%p2 barrier.cluster.arrive;\n"
                                 "@%p2 barrier.cluster.wait;\n"
                                 "@!%p2 mbarrier.init.shared.b64 [full], 32;\n"
                                 "W: @!%p2 mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;\n"
                                 "@!%p2 bra W;\n")
                  .error,
              HasSubstr("[emulator_deadlock]"));
}

// CTA 0 waits for all of the cluster's threads at its mbarrier.
TEST(Cluster, ArrivalsAtAnotherCta) {
  std::string body = ranks + R"(
  @%p1 mbarrier.init.shared::cta.b64 [full], 2;
  fence.mbarrier_init.release.cluster;
)" + barrier + R"(
  setp.eq.u32 %p2, %r20, 0;
  @%p2 bra ZERO;
  @%p1 st.shared.b32 [data], 77;
  mov.b32 %r1, full;
  mapa.shared::cluster.u32 %r1, %r1, 0;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];
  bra END;
ZERO:
  @%p1 mbarrier.arrive.shared.b64 _, [full];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [full], 0;
  @!%p7 bra W;
  mov.b32 %r1, data;
  mapa.shared::cluster.u32 %r1, %r1, 1;
  ld.shared::cluster.b32 %r2, [%r1];
  mov.u32 %r6, %ctaid.x;
  mad.wide.u32 %d9, %r6, 4, %dout;
  st.global.b32 [%d9], %r2;
END:
)";
  Ran ran = runCluster(body + barrier);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>()[0], 77u);
  EXPECT_EQ(ran.as<uint32_t>()[2], 77u);
}

std::string multicast(const std::string &mask) {
  std::string initialised = "barrier.cluster.arrive.relaxed.aligned;\n"
                            "barrier.cluster.wait.acquire.aligned;\n";
  return ranks +
         "@%p1 mbarrier.init.shared::cta.b64 [full], 1;\n"
         "fence.mbarrier_init.release.cluster;\n" +
         initialised +
         "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;\n"
         "mov.b16 %h1, " +
         mask +
         ";\nmad.wide.u32 %d1, %r20, 256, %din;\nmad.lo.u32 %r1, %r20, 256, %r22;\n"
         "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
         ".multicast::cluster [%r1], [%d1], 256, [full], %h1;\n"
         "W: mbarrier.try_wait.parity.shared.b64 %p7, [full], 0;\n@!%p7 bra W;\n"
         "mad.lo.u32 %r2, %tid32, 16, %r22;\nld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2];\n"
         "mov.u32 %r8, %ctaid.x;\nmad.lo.u32 %r8, %r8, 32, %tid32;\n"
         "mad.wide.u32 %d9, %r8, 16, %dout;\nst.global.v4.b32 [%d9], {%r4, %r5, %r6, %r7};\n" +
         barrier;
}

TEST(Cluster, MulticastFillsAllCtas) {
  Ran ran = runCluster(multicast("3"));
  ASSERT_EQ(ran.error, "");
  for (size_t cta = 0; cta < 4; ++cta)
    for (size_t i = 0; i < 512; ++i)
      ASSERT_EQ(ran.out[cta * 512 + i], uint8_t(i * 5 + i / 256));
  EXPECT_THAT(runCluster(multicast("4")).error, HasSubstr("[emulator_bulk_operand]"));
  // Only its own half comes: nobody completes the transaction.
  EXPECT_THAT(runCluster(multicast("1")).error, HasSubstr("[emulator_deadlock]"));
}

// CTA 0 fills both CTAs twice; `arrivals` empty its barrier, `rank` says at whose one arrives.
std::string refill(int arrivals, const std::string &rank) {
  std::string copy = "@%p2 mov.b16 %h1, 3;\n"
                     "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [data], [%din], 512, [full], %h1;\n";
  std::string expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;\n";
  auto use = [](const std::string &parity) {
    std::string label = "W" + parity;
    return label + ": mbarrier.try_wait.parity.shared.b64 %p7, [full], " + parity +
           ";\n@!%p7 bra " + label + ";\nld.shared.b32 %r4, [data];\n";
  };
  return ranks + "setp.eq.u32 %p2, %r20, 0;\nand.pred %p2, %p2, %p1;\n" +
         "@%p1 mbarrier.init.shared::cta.b64 [full], 1;\n"
         "@%p1 mbarrier.init.shared::cta.b64 [empty], " +
         std::to_string(arrivals) + ";\nfence.mbarrier_init.release.cluster;\n" + barrier + expect +
         copy + use("0") + "bar.warp.sync 0xffffffff;\n" + expect +
         "mov.b32 %r1, empty;\nmapa.shared::cluster.u32 %r1, %r1, " + rank +
         ";\n@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r1];\n"
         "setp.ne.u32 %p3, %r20, 0;\n@%p3 bra FILLED;\n"
         "E: mbarrier.try_wait.parity.shared.b64 %p7, [empty], 0;\n@!%p7 bra E;\n" +
         copy + "FILLED:\n" + use("1") + barrier;
}

TEST(Cluster, MulticastWaitsForTheReadersOfAllCtas) {
  EXPECT_EQ(runCluster(refill(2, "0")).error, "");
  // Each CTA tells only itself: CTA 0 does not know that CTA 1 has waited for its copy and read.
  EXPECT_THAT(runCluster(refill(1, "%r20")).error, HasSubstr("[emulator_bulk_not_waited]"));
}

// Each CTA's 32 threads store 8 bytes into the other's.
TEST(Cluster, AsynchronousStores) {
  std::string body = ranks + R"(
  @%p1 mbarrier.init.shared::cta.b64 [full], 1;
  fence.mbarrier_init.release.cluster;
)" + barrier + R"(
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 256;
  mov.b32 %r1, full;
  mapa.shared::cluster.u32 %r1, %r1, %r21;
  shl.b32 %r3, %tid32, 3;
  mapa.shared::cluster.u32 %r2, %r3, %r21;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r2], {%r20, %tid32}, [%r1];
)";
  std::string wait = "W: mbarrier.try_wait.parity.shared.b64 %p7, [full], 0;\n@!%p7 bra W;\n";
  std::string after = "ld.shared.v2.b32 {%r4, %r5}, [%r3];\n"
                      "mad.wide.u32 %d9, %r20, 256, %dout;\n"
                      "mad.wide.u32 %d9, %tid32, 8, %d9;\n"
                      "st.global.v2.b32 [%d9], {%r4, %r5};\n" +
                      barrier;
  Ran ran = runCluster(body + wait + after, {2, 1, 1}, {2, 1, 1});
  ASSERT_EQ(ran.error, "");
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(ran.as<uint32_t>()[size_t(2) * i], i < 32 ? 1u : 0u);
    EXPECT_EQ(ran.as<uint32_t>()[size_t(2) * i + 1], i % 32);
  }
  EXPECT_THAT(runCluster(body + "nanosleep.u32 1;\n" + after).error,
              HasSubstr("[emulator_bulk_not_waited]"));
}

TEST(Cluster, LaunchesThatDoNotFit) {
  auto expect = [](Dim3 cluster, Dim3 grid, const std::string &what) {
    std::string error = runCluster("", cluster, grid).error;
    EXPECT_THAT(error, HasSubstr(what));
    EXPECT_THAT(error, HasSubstr("[emulator_bad_launch]"));
  };
  expect({3, 1, 1}, {4, 1, 1}, "clusters 3x1x1 in grid 4x1x1");
  expect({0, 1, 1}, {4, 1, 1}, "clusters 0x1x1");
  expect({4, 4, 1}, {4, 4, 1}, "clusters 4x4x1, a cluster has at most 8 ctas");
  std::string text = kernel("");
  text.insert(text.find(".maxntid"), ".explicitcluster\n.reqnctapercluster 2, 1, 1\n"
                                     ".minnctapersm 1\n.maxnreg 168\n");
  Config config;
  config.grid.x = 4;
  EXPECT_THAT(runKernel(text, config).error, HasSubstr(".reqnctapercluster asks for 2x1x1"));
  config.cluster.x = 2;
  EXPECT_EQ(runKernel(text, config).error, "");
}

TEST(Cluster, DependentGridsWaitForNothing) {
  EXPECT_EQ(runCluster("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;").error, "");
}

// Until a griddepcontrol.wait is known to have happened only what no grid before writes is read.
TEST(Cluster, DependentGridsTouchNothingBeforeTheyWait) {
  auto errorOf = [](const std::string &body) {
    Config config;
    config.block.x = 64;
    config.in.resize(256);
    config.outBytes = 256;
    config.dependent = true;
    return runKernel(kernel(body), config).error;
  };
  const std::string read = "ld.global.b32 %r1, [%din];\n", write = "st.global.b32 [%dout], 7;\n",
                    readBack = "ld.global.b32 %r1, [%dout];\n", wait = "griddepcontrol.wait;\n",
                    one = "setp.lt.u32 %p1, %tid32, 32;\n@%p1 griddepcontrol.wait;\n";
  EXPECT_EQ(errorOf(read + wait + readBack + write), "");
  EXPECT_EQ(errorOf(one + "bar.sync 0;\n" + write), ""); // the other warp knows
  for (const std::string &body : {write, readBack, "griddepcontrol.launch_dependents;\n" + write,
                                  std::string("st.global.b32 [%din], 7;\n"), one + write})
    EXPECT_THAT(errorOf(body), HasSubstr("[emulator_before_wait]")) << body;
  // Addresses are those of the host.
  EXPECT_THAT(
      errorOf(write),
      testing::MatchesRegex(
          "error: global address 0x[0-9a-f]+ of 4 bytes is written before griddepcontrol.wait, "
          "only \\[0x[0-9a-f]+, 0x[0-9a-f]+\\) may be read: ptx line 21 `st.global.b32 "
          "\\[%dout\\], 7` in "
          "cta \\(0,0,0\\), thread \\(0,0,0\\) \\[emulator_before_wait\\]\n"));
}

} // namespace
} // namespace rho::emulator::test
