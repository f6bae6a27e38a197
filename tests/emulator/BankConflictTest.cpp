#include "runtime/emulator/BankConflicts.h"

#include "tests/emulator/Harness.h"

#include <gtest/gtest.h>

#include <functional>

namespace rho::emulator {
namespace {

uint32_t conflicts(uint32_t bytes, const std::function<uint64_t(uint32_t)> &address,
                   uint32_t mask = 0xffffffff) {
  uint64_t addresses[32];
  for (uint32_t lane = 0; lane < 32; ++lane)
    addresses[lane] = address(lane);
  return bankConflicts(addresses, mask, bytes);
}

TEST(BankConflicts, ConsecutiveAccessesHaveNone) {
  for (uint32_t bytes : {1, 2, 4, 8, 16})
    EXPECT_EQ(conflicts(bytes, [&](uint32_t lane) { return lane * bytes; }), 0u) << bytes;
}

TEST(BankConflicts, OneWordForAllIsABroadcast) {
  EXPECT_EQ(conflicts(4, [](uint32_t) { return 64; }), 0u);
  EXPECT_EQ(conflicts(2, [](uint32_t lane) { return lane % 2 * 2; }), 0u);
}

TEST(BankConflicts, StridesCount) {
  EXPECT_EQ(conflicts(4, [](uint32_t lane) { return lane * 8; }), 1u);    // two words a bank
  EXPECT_EQ(conflicts(4, [](uint32_t lane) { return lane * 128; }), 31u); // one bank for all
  EXPECT_EQ(conflicts(4, [](uint32_t lane) { return lane * 132; }), 0u);  // padded rows
  // 16 bytes a lane: four passes of eight lanes, each in rows of 128 bytes.
  EXPECT_EQ(conflicts(16, [](uint32_t lane) { return lane * 128; }), 4u * 7u);
  EXPECT_EQ(conflicts(16, [](uint32_t lane) { return lane * 128 + lane % 8 * 16; }), 0u);
}

TEST(BankConflicts, OnlyActiveLanesCount) {
  EXPECT_EQ(conflicts(4, [](uint32_t lane) { return lane * 128; }, 0x3), 1u);
  EXPECT_EQ(conflicts(4, [](uint32_t lane) { return lane * 128; }, 0x0), 0u);
}

TEST(BankConflicts, AreCountedForALaunch) {
  auto conflictsOf = [](const char *shift) {
    test::Config config;
    config.shared = 8192;
    test::Ran ran = test::runKernel(
        test::kernel(std::string("shl.b32 %a32, %tid32, ") + shift +
                     ";\nst.shared.b32 [%a32], %tid32;\nld.shared.b32 %b32, [%a32];\n"),
        config);
    EXPECT_EQ(ran.error, "");
    return ran.stats.bankConflicts;
  };
  EXPECT_EQ(conflictsOf("2"), 0u);
  EXPECT_EQ(conflictsOf("7"), 2u * 31u);
}

} // namespace
} // namespace rho::emulator
