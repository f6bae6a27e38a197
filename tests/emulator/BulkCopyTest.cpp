// cp.async.bulk and cp.async.bulk.tensor against plain loops, and what may not be done with them.
#include "tests/emulator/Harness.h"

#include <gmock/gmock.h>

namespace rho::emulator::test {
namespace {

using testing::HasSubstr;

const std::string bulkBuffers = ".shared .align 1024 .b8 tile[16384]; .shared .align 8 .b64 full;";

// %p1: thread 0, %p0: warp 0.
const std::string initFull = "setp.lt.u32 %p0, %tid32, 32;\nsetp.eq.u32 %p1, %tid32, 0;\n"
                             "@%p1 mbarrier.init.shared.b64 [full], 1;\n"
                             "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n";

std::string expectBytes(size_t bytes) {
  return "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], " + std::to_string(bytes) + ";\n";
}
const std::string waitFull = "W: mbarrier.try_wait.parity.shared.b64 %p7, [full], 0;\n"
                             "@!%p7 bra W;\n";
const std::string load = "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                         " [tile], [%din], 512, [full];\n";
// Thread t writes the tile's bytes from 16 t on to out.
const std::string copyOut = "mad.wide.u32 %d9, %tid32, 16, %dout;\nshl.b32 %r10, %tid32, 4;\n"
                            "mov.b32 %r11, tile;\nadd.u32 %r10, %r10, %r11;\n"
                            "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r10];\n"
                            "st.global.v4.b32 [%d9], {%r1, %r2, %r3, %r4};\n";

std::vector<uint8_t> numbers(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = uint8_t(i * 7 + i / 256);
  return bytes;
}

Ran runBulk(const std::string &body, Config config = {}) {
  if (config.in.empty())
    config.in = numbers(16384);
  if (config.outBytes == 0)
    config.outBytes = 16384;
  return runKernel(kernel(body, bulkBuffers, config.maps.size()), config);
}

TEST(BulkCopy, LoadsWhatTheMbarrierAnnounces) {
  Ran ran = runBulk(initFull + expectBytes(512) + load + waitFull + copyOut);
  ASSERT_EQ(ran.error, "");
  std::vector<uint8_t> expected = numbers(512);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ran.out.begin()));
}

TEST(BulkCopy, QualifiersThatChangeNothing) {
  Ran ran = runBulk("createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;\n" + initFull +
                    expectBytes(512) +
                    "@%p1 cp.async.bulk.prefetch.L2.global [%din], 512;\n"
                    "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
                    ".L2::cache_hint [tile], [%din], 512, [full], %d5;\n" +
                    waitFull + copyOut);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.out[511], numbers(512)[511]);
}

TEST(BulkCopy, ReadBeforeItsMbarrierIsWaitedFor) {
  EXPECT_EQ(runBulk(initFull + expectBytes(512) + load + copyOut).error,
            "error: shared address 0x400 is read, a bulk copy has written it and its mbarrier must "
            "be waited for first: ptx line 32 `ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r10]` in "
            "cta (0,0,0), thread (0,0,0) [emulator_bulk_not_waited]\n");
  // Another copy's mbarrier is no help; a barrier behind the right wait is.
  std::string two = "setp.eq.u32 %p1, %tid32, 0;\n"
                    "@%p1 mbarrier.init.shared.b64 [full2], 1;\n" +
                    initFull + expectBytes(512) + load +
                    "@%p1 mbarrier.arrive.shared.b64 _, [full2];\n";
  auto run = [](const std::string &body) {
    Config config;
    config.block.x = 64;
    config.in = numbers(1024);
    config.outBytes = 1024;
    return runKernel(kernel(body, bulkBuffers + ".shared .align 8 .b64 full2;"), config).error;
  };
  std::string other = waitFull;
  other.replace(other.find("[full]"), 6, "[full2]");
  EXPECT_THAT(run(two + other + "@%p0 ld.shared.b32 %r1, [tile];"),
              HasSubstr("[emulator_bulk_not_waited]"));
  EXPECT_EQ(run(two + "@!%p0 bra B;\n" + waitFull + "B: bar.sync 0;\nld.shared.b32 %r1, [tile];"),
            "");
}

TEST(BulkCopy, WritesOverWhatIsStillRead) {
  std::string body = initFull + "@%p0 bra B;\nst.shared.b32 [tile], %tid32;\nB:\n";
  Config config;
  config.block.x = 64;
  EXPECT_THAT(runBulk(body + expectBytes(512) + load, config).error,
              HasSubstr("[emulator_race_write]"));
  EXPECT_EQ(runBulk(body + "bar.sync 0;\n" + expectBytes(512) + load, config).error, "");
}

std::string storeBody(const std::string &fence, const std::string &after) {
  return initFull +
         "shl.b32 %r1, %tid32, 2;\nmov.b32 %r2, tile;\nadd.u32 %r1, %r1, %r2;\n"
         "cvt.rn.f32.u32 %r3, %tid32;\nst.shared.b32 [%r1], %r3;\n" +
         fence +
         "bar.sync 0;\n"
         "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%dout], [tile], 128;\n"
         "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%dout], [tile], 64;\n"
         "@%p1 cp.async.bulk.commit_group;\n" +
         after;
}

TEST(BulkCopy, StoresAndAdds) {
  Ran ran = runBulk(storeBody("fence.proxy.async.shared::cta;\n",
                              "@%p1 cp.async.bulk.wait_group.read 0;\nbar.sync 0;\n"
                              "st.shared.b32 [%r1], %r3;\n"));
  ASSERT_EQ(ran.error, "");
  for (size_t i = 0; i < 32; ++i)
    EXPECT_EQ(ran.as<float>()[i], float(i < 16 ? 2 * i : i));
}

TEST(BulkCopy, StoresNeedAFenceAndAWait) {
  EXPECT_EQ(runBulk(storeBody("", "")).error,
            "error: shared address 0x400 is read by a wgmma or bulk copy, warp 0 has written it "
            "with no fence.proxy.async before they synchronised: ptx line 32 `@%p1 "
            "cp.async.bulk.global.shared::cta.bulk_group [%dout], [tile], 128` in cta (0,0,0), "
            "thread (0,0,0) [emulator_proxy_fence]\n");
  EXPECT_THAT(runBulk(storeBody("fence.proxy.async.global;\n", "")).error,
              HasSubstr("[emulator_proxy_fence]"));
  EXPECT_EQ(runBulk(storeBody("fence.proxy.async;\n", "st.shared.b32 [%r1], %r3;\n")).error,
            "error: shared address 0x400 is written while a wgmma or bulk copy of warp 0 reads it, "
            "that warp must wait for its group first: ptx line 36 `st.shared.b32 [%r1], %r3` in "
            "cta (0,0,0), thread (0,0,0) [emulator_async_read]\n");
  EXPECT_THAT(runBulk(storeBody("fence.proxy.async;\n", "@%p1 cp.async.bulk.wait_group.read 1;\n"
                                                        "st.shared.b32 [%r1], %r3;\n"))
                  .error,
              HasSubstr("[emulator_async_read]"));
}

TEST(BulkCopy, SharedMemoryOutlivesItsReads) {
  EXPECT_EQ(runBulk(storeBody("fence.proxy.async;\n", "")).error,
            "error: a thread exits while its bulk copy reads shared memory [0x400, 0x480), it must "
            "wait for its group first: ptx line 37 `ret` in cta (0,0,0), thread (0,0,0) "
            "[emulator_bulk_exit]\n");
}

TEST(BulkCopy, OperandRules) {
  auto expect = [](const std::string &operands, const std::string &what) {
    std::string error = runBulk(initFull + expectBytes(512) +
                                "@%p1 cp.async.bulk.shared::cluster.global"
                                ".mbarrier::complete_tx::bytes " +
                                operands)
                            .error;
    EXPECT_THAT(error, HasSubstr(what)) << operands;
  };
  expect("[tile], [%din], 8, [full];",
         "error: bulk copy with 8 bytes, a bulk copy takes a multiple of 16: ptx line 27 `@%p1 "
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%din], 8, "
         "[full]` in cta (0,0,0), thread (0,0,0) [emulator_bulk_operand]\n");
  expect("[tile], [%din], 0, [full];", "[emulator_bulk_operand]");
  expect("[tile], [%din+8], 16, [full];", "[emulator_misaligned]");
  expect("[tile+8], [%din], 16, [full];", "[emulator_misaligned]");
  expect("[tile+16376], [%din], 32, [full];", "[emulator_shared_bounds]");
  expect("[tile], [%din+16376], 16, [full];", "[emulator_misaligned]");
  expect("[tile], [%din+16368], 32, [full];", "[emulator_global_bounds]");
  expect("[tile], [%din], 16, [tile+1024];",
         "error: mbarrier at 0x800: is not initialised: ptx line 27 `@%p1 "
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%din], 16, "
         "[tile+1024]` in cta (0,0,0), thread (0,0,0) [emulator_mbarrier]\n");
  std::string unfenced = initFull + expectBytes(512) + load;
  std::string fence = "fence.mbarrier_init.release.cluster;\n";
  unfenced.erase(unfenced.find(fence), fence.size());
  EXPECT_THAT(runBulk(unfenced).error, HasSubstr("behind its initialisation"));
}

struct Box {
  TensorMap map;
  std::array<int, 3> at;
};

// What a load of the box leaves in shared memory.
std::vector<uint8_t> expectedTile(const Box &box, const std::vector<uint8_t> &in) {
  const TensorMap &map = box.map;
  std::vector<uint8_t> tile(map.boxBytes());
  size_t place = 0;
  for (uint32_t z = 0; z < map.box[2]; ++z)
    for (uint32_t y = 0; y < map.box[1]; ++y)
      for (uint32_t x = 0; x < map.box[0]; ++x)
        for (uint32_t byte = 0; byte < map.elementBytes; ++byte, ++place) {
          int64_t i[3] = {box.at[0] + int64_t(x), box.at[1] + int64_t(y), box.at[2] + int64_t(z)};
          bool inside = true;
          for (int r = 0; r < 3; ++r)
            inside &= i[r] >= 0 && i[r] < int64_t(map.dims[r]);
          // 16-byte pieces within 8 rows of 128 bytes change places.
          size_t to = place;
          if (map.swizzle == Swizzle::Span128)
            to ^= (place / 128 % 8) * 16;
          else if (map.swizzle == Swizzle::Span64)
            to ^= (place / 128 % 4) * 16;
          else if (map.swizzle == Swizzle::Span32)
            to ^= (place / 128 % 2) * 16;
          if (inside)
            tile[to] = in[size_t(i[2]) * map.strides[2] + size_t(i[1]) * map.strides[1] +
                          size_t(i[0]) * map.elementBytes + byte];
        }
  return tile;
}

std::string coordinates(const Box &box) {
  std::string text = "{";
  for (uint32_t r = 0; r < box.map.rank; ++r)
    text += (r ? ", " : "") + std::to_string(box.at[r]);
  return text + "}";
}

std::string tensorLoad(const Box &box, const std::string &map) {
  return "@%p1 cp.async.bulk.tensor." + std::to_string(box.map.rank) +
         "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [" + map + ", " +
         coordinates(box) + "], [full];\n";
}

Box box2d(Swizzle swizzle, uint32_t columns, std::array<int, 3> at) {
  Box box{{}, at};
  box.map.rank = 2;
  box.map.elementBytes = 2;
  box.map.dims[0] = 100;
  box.map.dims[1] = 30;
  box.map.strides[1] = 208;
  box.map.box[0] = columns;
  box.map.box[1] = 16;
  box.map.swizzle = swizzle;
  return box;
}

TEST(BulkTensor, LoadsBoxesWithZerosOutside) {
  std::vector<Box> boxes;
  for (auto at : {std::array{0, 0, 0}, std::array{40, 20, 0}, std::array{-8, -3, 0},
                  std::array{96, 29, 0}, std::array{200, 0, 0}}) {
    boxes.push_back(box2d(Swizzle::None, 64, at));
    boxes.push_back(box2d(Swizzle::Span128, 64, at));
    boxes.push_back(box2d(Swizzle::Span64, 32, at));
    boxes.push_back(box2d(Swizzle::Span32, 16, at));
  }
  Box row{{}, {5, 0, 0}};
  row.map.elementBytes = 4;
  row.map.dims[0] = 1000;
  row.map.box[0] = 128;
  boxes.push_back(row);
  Box volume{{}, {3, -1, 1}};
  volume.map = TensorMap{3, 1, 0, {60, 10, 4}, {0, 64, 1024}, {32, 4, 3}, Swizzle::Span32};
  boxes.push_back(volume);
  for (const Box &box : boxes) {
    Config config;
    config.in = numbers(30 * 208);
    config.maps = {box.map};
    config.block.x = uint32_t(box.map.boxBytes() / 16);
    // The map's address as generated by compilers, in the space of parameters.
    Ran ran =
        runBulk(initFull + "mov.b64 %d1, map0;\n@%p1 prefetch.tensormap [%d1];\n" +
                    expectBytes(box.map.boxBytes()) + tensorLoad(box, "%d1") + waitFull + copyOut,
                config);
    ASSERT_EQ(ran.error, "");
    std::vector<uint8_t> expected = expectedTile(box, config.in);
    ran.out.resize(expected.size());
    EXPECT_EQ(ran.out, expected) << box.map.boxBytes() << " bytes at " << coordinates(box);
  }
}

TEST(BulkTensor, StoresWhatIsInside) {
  Box box = box2d(Swizzle::Span128, 64, {60, 20, 0});
  Config config;
  config.block.x = 128;
  config.in = numbers(2048);
  config.outBytes = 30 * 208;
  config.maps = {box.map};
  config.maps[0].address = inOut;
  // The tile is loaded as it is, then stored as a box.
  Ran ran =
      runBulk("mov.b64 %d2, map0;\ncvta.param.u64 %d1, %d2;\n" + initFull + expectBytes(2048) +
                  "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                  " [tile], [%din], 2048, [full];\n" +
                  waitFull +
                  "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                  " [%d1, " +
                  coordinates(box) + "], [tile];\n@%p1 cp.async.bulk.commit_group;\n" +
                  "@%p1 cp.async.bulk.wait_group 0;\n",
              config);
  ASSERT_EQ(ran.error, "");
  std::vector<uint8_t> expected(size_t(config.outBytes));
  for (size_t y = 0; y < 10; ++y)
    for (size_t x = 0; x < 80; ++x) // bytes of columns 60 to 99
      expected[(20 + y) * 208 + 120 + x] = config.in[(y * 128 + x) ^ (y % 8 * 16)];
  EXPECT_EQ(ran.out, expected);
}

// The threads write the tile, one of them stores it twice as a box.
std::string boxStoreBody(const std::string &fence, const std::string &between,
                         const std::string &after) {
  std::string write = "st.shared.v4.b32 [%r1], {%r3, %r3, %r3, %r3};\n";
  std::string store = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
                      " [%d1, {0, 0}], [tile];\n@%p1 cp.async.bulk.commit_group;\n";
  return "mov.b64 %d1, map0;\n" + initFull +
         "shl.b32 %r1, %tid32, 4;\nmov.b32 %r2, tile;\nadd.u32 %r1, %r1, %r2;\n"
         "mov.b32 %r3, %tid32;\n" +
         write + fence + "bar.sync 0;\n" + store + between + "bar.sync 0;\nadd.u32 %r3, %r3, 1;\n" +
         write + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + store + after;
}

Ran runBoxStores(const std::string &fence, const std::string &between, const std::string &after) {
  Config config;
  config.block.x = 128;
  config.outBytes = 30 * 208;
  config.maps = {box2d(Swizzle::Span128, 64, {}).map};
  config.maps[0].address = inOut;
  return runBulk(boxStoreBody(fence, between, after), config);
}

TEST(BulkTensor, StoresNeedAFenceAndWaits) {
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  const std::string read = "@%p1 cp.async.bulk.wait_group.read 0;\n";
  const std::string all = "@%p1 cp.async.bulk.wait_group 0;\n";
  Ran ran = runBoxStores(fence, read, all);
  ASSERT_EQ(ran.error, "");
  for (size_t y = 0; y < 16; ++y)
    for (size_t x = 0; x < 32; ++x) // words of a row
      EXPECT_EQ(ran.as<uint32_t>()[y * 52 + x], (y * 8 + (x / 4 ^ y % 8)) + 1);
  EXPECT_THAT(runBoxStores("", read, all).error, HasSubstr("[emulator_proxy_fence]"));
  EXPECT_THAT(runBoxStores("fence.proxy.async.global;\n", read, all).error,
              HasSubstr("[emulator_proxy_fence]"));
  EXPECT_THAT(runBoxStores(fence, "", all).error, HasSubstr("[emulator_async_read]"));
  EXPECT_THAT(runBoxStores(fence, "@%p1 cp.async.bulk.wait_group.read 1;\n", all).error,
              HasSubstr("[emulator_async_read]"));
  // Groups are a thread's own.
  EXPECT_THAT(runBoxStores(fence, "@!%p1 cp.async.bulk.wait_group.read 0;\n", all).error,
              HasSubstr("[emulator_async_read]"));
  EXPECT_THAT(runBoxStores(fence, read, "").error, HasSubstr("[emulator_bulk_exit]"));
}

TEST(BulkTensor, StoresOfBoxesOutsideWriteNothing) {
  for (auto at : {std::array{0, 30, 0}, std::array{100, 0, 0}, std::array{-64, 3, 0}}) {
    Config config;
    config.block.x = 128;
    config.outBytes = 30 * 208;
    config.maps = {box2d(Swizzle::Span128, 64, {}).map};
    config.maps[0].address = inOut;
    std::string body = boxStoreBody("fence.proxy.async;\n", "@%p1 cp.async.bulk.wait_group 0;\n",
                                    "@%p1 cp.async.bulk.wait_group 0;\n");
    std::string to = "{" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + "}";
    for (size_t found; (found = body.find("{0, 0}")) != std::string::npos;)
      body.replace(found, 6, to);
    Ran ran = runBulk(body, config);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.out, std::vector<uint8_t>(size_t(config.outBytes))) << to;
  }
}

TEST(BulkTensor, OperandRules) {
  auto expect = [](Box box, const std::string &text, const std::string &id) {
    Config config;
    config.maps = {box.map};
    Ran ran = runBulk("mov.b64 %d1, map0;\n" + initFull + expectBytes(2048) + text, config);
    EXPECT_THAT(ran.error, HasSubstr(id)) << text;
  };
  Box good = box2d(Swizzle::Span128, 64, {0, 0, 0});
  std::string load = tensorLoad(good, "%d1");
  std::string shifted = load, other = load;
  shifted.replace(shifted.find("[tile]"), 6, "[tile+64]");
  other.replace(other.find("%d1"), 3, "%din");
  expect(good, shifted, "[emulator_misaligned]");
  expect(good, other, "[emulator_bulk_operand]");
  Box wide = good;
  wide.map.dims[1] = 1000; // more rows than the allocation has
  wide.at[1] = 100;
  expect(wide, tensorLoad(wide, "%d1"), "[emulator_global_bounds]");
  Box line = good;
  line.map.rank = 1;
  expect(good, tensorLoad(line, "%d1"), "[emulator_bulk_operand]");
  EXPECT_THAT(parseError(kernel("cp.async.bulk.tensor.2d.shared::cluster.global"
                                ".mbarrier::complete_tx::bytes [%r1], [%d1], [%r2];")),
              HasSubstr("[emulator_operand]"));
}

TEST(TensorMap, RefusesWhatTheDriverRefuses) {
  auto expect = [](auto change, const std::string &what) {
    TensorMap map = box2d(Swizzle::Span128, 64, {}).map;
    change(map);
    auto bytes = encodeTensorMap(map);
    ASSERT_FALSE(bytes) << what;
    EXPECT_THAT(bytes.error().str(), HasSubstr(what));
    EXPECT_THAT(bytes.error().str(), HasSubstr("[emulator_tensor_map]"));
  };
  expect([](TensorMap &m) { m.rank = 4; }, "rank 4");
  expect([](TensorMap &m) { m.elementBytes = 3; }, "elements of 3 bytes");
  expect([](TensorMap &m) { m.address = 8; }, "address 0x8");
  expect([](TensorMap &m) { m.dims[1] = 0; }, "size 0 in dimension 1");
  expect([](TensorMap &m) { m.box[1] = 257; }, "box of 257 in dimension 1");
  expect([](TensorMap &m) { m.strides[1] = 200; }, "stride 200");
  expect([](TensorMap &m) { m.box[0] = 65; }, "box rows of 130 bytes, they are a multiple");
  expect([](TensorMap &m) { m.box[0] = 128; }, "box rows of 256 bytes, the swizzle takes 128");
  expect([](TensorMap &m) { m.rank = 1; }, "more than one element in dimension 1");
  TensorMap map = box2d(Swizzle::Span64, 32, {}).map;
  auto bytes = encodeTensorMap(map);
  ASSERT_TRUE(bytes);
  auto back = decodeTensorMap(*bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->dims[1], 30u);
  EXPECT_EQ(back->swizzle, Swizzle::Span64);
}

} // namespace
} // namespace rho::emulator::test
