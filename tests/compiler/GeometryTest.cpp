// The packed order of codes against the fragment layouts of the PTX ISA, and its bank conflicts.
#include "compiler/plan/Geometry.h"
#include "compiler/plan/Resources.h"

#include "dsl/Module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace rho::compiler {
namespace {

struct Coordinates {
  int64_t n = 0, k = 0;
};

Coordinates coordinatesOf(const LayoutSection &section, int64_t position) {
  Coordinates result;
  for (size_t bit = 0; bit < section.order.size(); ++bit)
    if (position >> bit & 1)
      (section.order[bit].axis == AxisBit::Axis::N ? result.n : result.k) |=
          int64_t(1) << section.order[bit].bit;
  return result;
}

// The code `code` of word `word` that a lane loads of a row tile of a warp and of a chunk. Each
// panel has the chunks one after the other, each chunk is a tile of the section.
Coordinates codeOf(const LayoutSection &section, const Geometry &g, int64_t warp, int64_t chunk,
                   int64_t rowTile, int64_t lane, int64_t word, int64_t code) {
  int64_t block = warp % g.panelWarps * g.rowTiles() + rowTile;
  int64_t position =
      ((block * 32 + lane) * g.planeWords(g.weightBits) + word) * (32 / g.weightBits) + code;
  Coordinates at = coordinatesOf(section, position);
  return {warp / g.panelWarps * section.tileN + at.n, chunk * section.tileK + at.k};
}

Result<PlacedGemm> placedBy(const dsl::Gemm &gemm, dsl::ScheduleDecl::Roles roles,
                            const char *target) {
  return place(gemm, dsl::ScheduleDecl::Scales::Accumulator, roles,
               dsl::ScheduleDecl::Tables::Registers, target, nullptr);
}

dsl::Gemm gemmWith(const std::string &activation, const std::string &weight = "w") {
  std::string text =
      "format w { element: s4 scale: f16 per k[128] value = element * scale }\n"
      "format s8_token { element: s8 scale: f32 per token value = element * scale }\n";
  for (const char *bits : {"2", "3", "4", "5", "6", "7", "8"})
    text += std::string("format w") + bits + " { element: s" + bits +
            " scale: f16 per channel value = element * scale }\n";
  text += "gemm g { weight: " + weight + " activation: " + activation + " output: f16 }";
  Result<dsl::Module> module =
      dsl::parseModule(text, "test.rho", [](const std::string &) { return std::nullopt; });
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return module->gemms.at(0);
}

// Row and column of element i of operand A in one thread: PTX ISA, section 9.7.14.5, figures for
// m16n8k16 (.f16, .bf16), m16n8k32 (.s8) and m16n8k64 (.s4).
Coordinates fragmentElement(int elementsPerRegister, int lane, int i) {
  int half = 2 * elementsPerRegister; // elements per k half
  int row = lane / 4 + ((i / elementsPerRegister) % 2) * 8;
  int column = lane % 4 * elementsPerRegister + i % elementsPerRegister +
               (i / half) * 4 * elementsPerRegister;
  return {row, column};
}

struct OrderCase {
  std::string activation;
  Schedule schedule;
  std::string weight = "w";
};

class CodeOrder : public testing::TestWithParam<OrderCase> {};

TEST_P(CodeOrder, IsTheFragmentOrderOfThePtxIsa) {
  auto [activation, schedule, weight] = GetParam();
  dsl::Gemm gemm = gemmWith(activation, weight);
  Result<PlacedGemm> placed = placedBy(gemm, dsl::ScheduleDecl::Roles::Uniform, "sm_80");
  ASSERT_TRUE(placed.ok());
  Geometry g = makeGeometry(*placed, schedule);
  WeightLayout layout = makeWeightLayout(gemm, *placed, g, {8, 2 * g.tileN, 2 * g.tileK});
  const LayoutSection &codes = layout.sections[0];
  int perRegister = elementsPerRegister(placed->mmaType);
  int codesPerWord = 32 / g.weightBits;
  int registersPerWord = codesPerWord / perRegister;
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t warp = 0; warp < g.warpsN; ++warp)
    for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        for (int lane = 0; lane < 32; ++lane)
          for (int step = 0; step < g.stepsPerChunk(); ++step)
            for (int i = 0; i < 4 * perRegister; ++i) {
              int reg = i / perRegister, sub = i % perRegister;
              int word = step * (4 / registersPerWord) + reg / registersPerWord;
              int code = placed->decode.position(static_cast<size_t>(reg % registersPerWord),
                                                 static_cast<size_t>(sub));
              Coordinates at = codeOf(codes, g, warp, chunk, t, lane, word, code);
              Coordinates fragment = fragmentElement(perRegister, lane, i);
              EXPECT_EQ(at.n, warp * g.warpN() + fragment.n % 8 * g.rowsPerThread() + 2 * t +
                                  fragment.n / 8);
              EXPECT_EQ(at.k, chunk * g.chunkK() + int64_t{step} * g.mmaK + fragment.k);
              EXPECT_TRUE(seen.insert({at.n, at.k}).second);
            }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), g.tileN * g.tileK);
}

constexpr auto imfp = dsl::ScheduleDecl::Roles::ImFP;

Schedule panels(Schedule schedule) {
  schedule.packing = dsl::ScheduleDecl::Packing::Panels;
  return schedule;
}

INSTANTIATE_TEST_SUITE_P(
    Families, CodeOrder,
    testing::Values(OrderCase{"f16", {16, 128, 128, 1, 4, 1, 4, 1}},
                    OrderCase{"bf16", {8, 64, 64, 1, 4, 1, 4, 1}},
                    OrderCase{"s8_token", {32, 256, 128, 2, 4, 1, 4, 1}},
                    OrderCase{"w", {16, 64, 256, 1, 2, 1, 4, 1}},
                    OrderCase{"f16", {8, 16, 64, 1, 1, 1, 2, 1}},
                    OrderCase{"s8_token", {16, 128, 128, 1, 4, 1, 4, 1}, "w8"},
                    OrderCase{"f16", {256, 64, 64, 1, 4, 1, 4, 1, imfp}},
                    OrderCase{"bf16", {16, 256, 128, 1, 8, 2, 4, 1, imfp}},
                    OrderCase{"s8_token", {64, 64, 128, 1, 4, 2, 4, 1, imfp}},
                    OrderCase{"s8_token", {64, 192, 128, 1, 12, 1, 4, 1, imfp}},
                    OrderCase{"f16", {8, 96, 128, 1, 3, 4, 8, 1, imfp}},
                    OrderCase{"f16", panels({16, 256, 64, 1, 8, 1, 4, 1, imfp})},
                    OrderCase{"f16", panels({8, 96, 256, 1, 6, 2, 8, 1, imfp})},
                    OrderCase{"s8_token", {8, 128, 256, 1, 4, 1, 4, 1, imfp}}),
    [](const auto &info) {
      const Schedule &s = info.param.schedule;
      return std::string(s.roles == imfp ? "imfp_" : "") +
             (s.packing == dsl::ScheduleDecl::Packing::Panels ? "panels_" : "") +
             info.param.weight + "_" + info.param.activation + "_" + std::to_string(s.tileN) + "x" +
             std::to_string(s.tileK);
    });

// Without matrix instructions each thread of a quad has a run of k of its own, in order.
TEST(GemvOrder, GivesEachThreadARun) {
  for (const OrderCase &test :
       {OrderCase{"f16", {1, 16, 64, 1, 1, 1, 2}}, OrderCase{"bf16", {4, 64, 128, 1, 2, 4, 2}},
        OrderCase{"s8_token", {2, 64, 256, 1, 1, 8, 2}},
        OrderCase{"s8_token", {1, 32, 64, 1, 1, 1, 2}, "w8"}}) {
    dsl::Gemm gemm = gemmWith(test.activation, test.weight);
    Schedule schedule = test.schedule;
    schedule.roles = dsl::ScheduleDecl::Roles::Gemv;
    Result<PlacedGemm> placed = placedBy(gemm, schedule.roles, "sm_90a");
    ASSERT_TRUE(placed.ok());
    Geometry g = makeGeometry(*placed, schedule);
    WeightLayout layout = makeWeightLayout(gemm, *placed, g, {1, 2 * g.tileN, 2 * g.tileK});
    int perRegister = elementsPerRegister(placed->mmaType);
    int codesPerWord = 32 / g.weightBits;
    int registersPerWord = codesPerWord / perRegister;
    for (int64_t warp = 0; warp < g.warpsN; ++warp)
      for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
        for (int64_t t = 0; t < g.rowTiles(); ++t)
          for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < g.planeWords(g.weightBits) * codesPerWord; ++i) {
              int reg = i / perRegister, sub = i % perRegister;
              int code = placed->decode.position(static_cast<size_t>(reg % registersPerWord),
                                                 static_cast<size_t>(sub));
              Coordinates at =
                  codeOf(layout.sections[0], g, warp, chunk, t, lane, reg / registersPerWord, code);
              EXPECT_EQ(at.n, warp * g.warpN() + lane / 4 * g.rowsPerThread() + 2 * t + reg % 2);
              EXPECT_EQ(at.k, chunk * g.chunkK() + lane % 4 * g.chunkK() / 4 +
                                  int64_t{reg / 2} * perRegister + sub);
            }
  }
}

// Operand A of wgmma in registers: PTX ISA, section 9.7.15.5.1, figures for .m64nNk16 (.f16, .bf16)
// and .m64nNk32 (.s8). Warp w of the warpgroup has rows 16 w .. 16 w + 15.
Coordinates warpgroupElement(int elementsPerRegister, int thread, int i) {
  Coordinates inWarp = fragmentElement(elementsPerRegister, thread % 32, i);
  return {int64_t{thread / 32} * 16 + inWarp.n, inWarp.k};
}

// What wgmma multiplies is the weight with its rows in another order, the same for every k: the
// order in which the epilogue stores them.
TEST(WarpgroupOrder, FeedsConsecutiveInstructionsFromOneLoad) {
  for (const OrderCase &test : {OrderCase{"s8_token", {16, 128, 128, 1, 4, 1, 4, 1, imfp}},
                                OrderCase{"s8_token", {16, 192, 128, 1, 12, 1, 4, 1, imfp}},
                                OrderCase{"s8_token", panels({16, 192, 128, 1, 12, 1, 4, 1, imfp})},
                                OrderCase{"f16", {16, 128, 128, 1, 8, 1, 4, 1, imfp}}}) {
    dsl::Gemm gemm = gemmWith(test.activation);
    Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
    ASSERT_TRUE(placed.ok());
    Geometry g = makeGeometry(*placed, test.schedule);
    WeightLayout layout = makeWeightLayout(gemm, *placed, g, {8, g.tileN, g.tileK});
    int perRegister = elementsPerRegister(placed->mmaType), registersPerWord = 8 / perRegister;
    // Two instructions of s8, four of f16 for each load of 16 bytes, 32 codes.
    EXPECT_EQ(g.stepsPerChunk() * 4 * perRegister, 32);
    EXPECT_EQ(g.stepsPerChunk(), test.activation == "f16" ? 4 : 2);
    std::map<int64_t, int64_t> rowOf; // fragment row of the CTA tile -> weight row
    for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
      for (int64_t t = 0; t < g.rowTiles(); ++t)
        for (int thread = 0; thread < g.groupThreads(); ++thread) {
          int64_t warp = thread / 32;
          for (int i = 0; i < 32; ++i) { // step by step, each in the fragment's own order
            int step = i / (4 * perRegister), inStep = i % (4 * perRegister);
            int reg = inStep / perRegister, sub = inStep % perRegister;
            int word = step * (4 / registersPerWord) + reg / registersPerWord;
            int nibble = placed->decode.position(static_cast<size_t>(reg % registersPerWord),
                                                 static_cast<size_t>(sub));
            Coordinates at =
                codeOf(layout.sections[0], g, warp, chunk, t, thread % 32, word, nibble);
            Coordinates fragment = warpgroupElement(perRegister, thread % 128, inStep);
            EXPECT_EQ(at.k, chunk * g.chunkK() + int64_t{step} * g.mmaK + fragment.k);
            // Of row tile t, warpgroup by warpgroup.
            int64_t row = (t * g.warpsN + int64_t{thread / 128} * 4) * 16 + fragment.n;
            auto [entry, isNew] = rowOf.emplace(row, at.n);
            EXPECT_EQ(entry->second, at.n) << "fragment row " << row;
          }
        }
    std::set<int64_t> rows;
    for (auto [row, weightRow] : rowOf)
      rows.insert(weightRow);
    EXPECT_EQ(static_cast<int64_t>(rows.size()), g.tileN);
  }
}

// Which word of a k tile of a plane of codes has which of them, by the layout.
std::map<std::pair<int64_t, int64_t>, int64_t> wordsOf(const LayoutSection &plane,
                                                       const Geometry &g) {
  std::map<std::pair<int64_t, int64_t>, int64_t> words;
  const int64_t inTile = plane.tileN * plane.tileK;
  for (int64_t place = 0; place < g.tileN * g.tileK; ++place) {
    Coordinates at = coordinatesOf(plane, place % inTile);
    int64_t tile = place / inTile; // [panel][chunk]
    words[{tile / g.chunks() * plane.tileN + at.n, tile % g.chunks() * plane.tileK + at.k}] =
        place * plane.codeBits / 32;
  }
  return words;
}

// Words of a plane that a lane needs for the instructions of a chunk and row tile.
std::set<int64_t> wordsOfLane(const std::map<std::pair<int64_t, int64_t>, int64_t> &words,
                              const Geometry &g, int perRegister, int64_t warp, int64_t chunk,
                              int64_t rowTile, int lane) {
  std::set<int64_t> own;
  for (int64_t step = 0; step < g.stepsPerChunk(); ++step)
    for (int i = 0; i < 4 * perRegister; ++i) {
      Coordinates f = fragmentElement(perRegister, lane, i);
      int64_t n = warp * g.warpN() + f.n % 8 * g.rowsPerThread() + 2 * rowTile + f.n / 8;
      own.insert(words.at({n, chunk * g.chunkK() + step * g.mmaK + f.k}));
    }
  return own;
}

// A warp's loads go by as many lanes as have 128 bytes: those must be on different banks. Its lanes
// read consecutive words, of each plane, so they are.
void expectDifferentBanks(const LayoutSection &plane, const Geometry &g, int perRegister) {
  const auto words = wordsOf(plane, g);
  const int64_t each = g.planeWords(plane.codeBits);
  for (int64_t warp = 0; warp < g.warpsN; ++warp)
    for (int64_t chunk = 0; chunk < g.chunks(); ++chunk)
      for (int64_t rowTile = 0; rowTile < g.rowTiles(); ++rowTile) {
        std::set<int64_t> banks;
        int64_t base = 0;
        for (int lane = 0; lane < 32; ++lane) {
          const std::set<int64_t> own =
              wordsOfLane(words, g, perRegister, warp, chunk, rowTile, lane);
          ASSERT_EQ(static_cast<int64_t>(own.size()), each);
          EXPECT_EQ(*own.begin() % each, 0);
          EXPECT_EQ(*own.rbegin(), *own.begin() + each - 1);
          base = lane == 0 ? *own.begin() : base;
          EXPECT_EQ(*own.begin(), base + lane * each);
          for (int64_t word : own)
            EXPECT_TRUE(banks.insert(word % 32).second) << "lane " << lane;
          if (banks.size() == 32)
            banks.clear();
        }
      }
}

TEST(WarpgroupOrder, LanesOfAWarpReadDifferentBanks) {
  for (const char *activation : {"s8_token", "f16", "bf16"})
    for (int bits = 2; bits <= 8; ++bits)
      for (const Schedule &schedule :
           {Schedule{64, 64, 128, 1, 4, 1, 4, 1, imfp}, Schedule{64, 128, 256, 1, 4, 1, 4, 1, imfp},
            panels({16, 192, 128, 1, 12, 1, 4, 1, imfp})}) {
        SCOPED_TRACE(std::string(activation) + ", " + std::to_string(bits) + " bits, " +
                     std::to_string(schedule.tileN) + " rows");
        dsl::Gemm gemm = gemmWith(activation, "w" + std::to_string(bits));
        Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
        ASSERT_TRUE(placed.ok()) << placed.error().str();
        Geometry g = makeGeometry(*placed, schedule);
        int planes = 0, planeBits = 0;
        for (const LayoutSection &section :
             makeWeightLayout(gemm, *placed, g, {8, g.tileN, g.tileK}).sections)
          if (section.component == 0) {
            ++planes;
            planeBits += section.codeBits;
            expectDifferentBanks(section, g, elementsPerRegister(placed->mmaType));
          }
        EXPECT_EQ(planeBits, bits);
        EXPECT_EQ(planes, std::popcount(static_cast<unsigned>(bits)));
      }
}

// One bulk copy brings a k tile of codes of a panel: it is contiguous, aligned and in the order of
// the tiles.
TEST(WarpgroupOrder, ATileOfCodesIsOneRun) {
  dsl::Gemm gemm = gemmWith("f16");
  Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
  ASSERT_TRUE(placed.ok());
  Geometry g = makeGeometry(*placed, {16, 64, 128, 1, 4, 2, 4, 1, imfp});
  WeightLayout layout = makeWeightLayout(gemm, *placed, g, {8, 3 * g.tileN, 5 * g.tileK});
  auto format = std::make_shared<const dsl::Format>(gemm.weight);
  for (const LayoutSection &section : layout.sections) {
    int64_t tileBytes = section.tileN * section.tileK * section.codeBits / 8;
    EXPECT_EQ(section.offset % 16, 0);
    EXPECT_EQ(tileBytes % 16, 0);
    EXPECT_EQ(section.bytes, section.tilesN * section.tilesK * tileBytes);
  }
  for (int64_t tileN = 0; tileN < 3; ++tileN)
    for (int64_t tileK = 0; tileK < 5; ++tileK) {
      // Only this tile's codes differ from zero: so do only the bytes of its run.
      dsl::QuantizedMatrix weight{format, layout.n, layout.k, {}, {}, {}};
      weight.components.emplace_back(4, layout.n * layout.k);
      weight.components.emplace_back(16, layout.n * (layout.k / 128));
      for (int64_t n = tileN * g.tileN; n < (tileN + 1) * g.tileN; ++n)
        for (int64_t k = tileK * g.tileK; k < (tileK + 1) * g.tileK; ++k)
          weight.components[0].set(n * layout.k + k, 5);
      std::vector<uint8_t> packed(static_cast<size_t>(layout.bytes));
      ASSERT_TRUE(pack(layout, weight, packed.data()).ok());
      uint8_t zero = static_cast<uint8_t>(layout.sections[0].codeXor * 0x11);
      int64_t run = (tileN * 5 + tileK) * g.codeBytes();
      for (int64_t byte = 0; byte < layout.sections[0].bytes; ++byte)
        ASSERT_EQ(packed[static_cast<size_t>(byte)] != zero,
                  byte >= run && byte < run + g.codeBytes())
            << byte;
    }
}

TEST(Geometry, BatchesDivideATile) {
  dsl::Gemm gemm = gemmWith("s8_token", "w8");
  Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
  ASSERT_TRUE(placed.ok());
  for (int64_t tileM = 32; tileM <= Geometry::mostBatch; tileM += Geometry::batchUnit)
    for (int64_t tileK : {128, 256, 512}) {
      Geometry g = makeGeometry(*placed, {tileM, 128, tileK, 1, 8, 1, 4, 1, imfp});
      EXPECT_EQ(tileK / g.mmaK % batchSteps(g), 0) << tileM << " x " << tileK;
    }
}

// What the roles hold together is never more than what all threads started with, of which an SM has
// enough.
TEST(Geometry, RolesShareTheRegistersOfAnSm) {
  constexpr int64_t perSm = 65536, loaders = Geometry::warpgroup;
  for (int64_t math : {128, 256, 384, 512})
    for (int64_t decode : {int64_t{0}, Geometry::warpgroup})
      for (int64_t ctas : {1, 2}) {
        RegisterShares shares = divideRegisters(math, decode, ctas);
        int64_t all = shares.start * (math + decode + loaders);
        EXPECT_LE(all * ctas, perSm) << math << ' ' << decode << ' ' << ctas;
        EXPECT_LE(shares.math * math + shares.decode * decode + shares.loader * loaders, all)
            << math << ' ' << decode << ' ' << ctas;
      }
}

TEST(Geometry, EveryWorkspaceByteBelongsToOneThread) {
  dsl::Gemm gemm = gemmWith("f16");
  Result<PlacedGemm> placed = placedBy(gemm, dsl::ScheduleDecl::Roles::Uniform, "sm_80");
  ASSERT_TRUE(placed.ok());
  for (const Schedule &schedule :
       {Schedule{32, 128, 64, 2, 4, 1, 4, 3}, Schedule{64, 128, 64, 1, 4, 2, 4, 3, imfp}}) {
    Geometry g = makeGeometry(*placed, schedule);
    // Threads times accumulators is the tile: what split-K stores is what workspaceBytes counts.
    EXPECT_EQ(g.groupThreads() * g.rowTiles() * g.batchTiles() * 4, g.tileM * g.tileN);
  }
}

TEST(Outputs, GoInSlicesThatFitTheirBuffer) {
  dsl::Gemm gemm = gemmWith("f16");
  Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
  ASSERT_TRUE(placed.ok());
  auto slicesOf = [&](const Schedule &schedule, int64_t n) {
    return outputSlices(gemm, makeGeometry(*placed, schedule), {100, n, 64});
  };
  Schedule small{64, 128, 64, 1, 8, 1, 4, 1, imfp}, large{256, 128, 64, 1, 8, 1, 4, 1, imfp};
  // The whole of a small tile; of a large one halves of the buffer in turn.
  std::optional<OutputSlices> whole = slicesOf(small, 136), part = slicesOf(large, 136);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->rows, 64);
  EXPECT_EQ(whole->slots, 1);
  EXPECT_EQ(whole->bytes, 64 * 128 * 2);
  EXPECT_EQ(part->rows, 64);
  EXPECT_EQ(part->slots, 2);
  EXPECT_EQ(part->bytes, 64 * 128 * 2);
  Schedule wide{128, 192, 64, 1, 12, 1, 4, 1, imfp}; // of which 42 rows are half of the buffer
  std::optional<OutputSlices> ofWide = slicesOf(wide, 136);
  ASSERT_TRUE(ofWide);
  EXPECT_EQ(ofWide->rows, 32);
  EXPECT_EQ(ofWide->slots, 2);
  // Two slots take turns through all slices of a tile, whatever its rows.
  for (auto [tileM, rows] : {std::pair{144, 24}, {176, 8}, {192, 48}, {240, 40}}) {
    Schedule even{tileM, 128, 64, 1, 8, 1, 4, 1, imfp};
    EXPECT_EQ(slicesOf(even, 136)->rows, rows);
    EXPECT_EQ(slicesOf(even, 136)->slots, 2);
  }
  for (int64_t n : {129, 132}) // no pitch of a tensor map
    EXPECT_FALSE(slicesOf(small, n));
  gemm.output = dsl::ElementType::get("f32");
  EXPECT_TRUE(slicesOf(small, 132));
  small.tileM = 16;
  EXPECT_FALSE(slicesOf(small, 136));
  small.tileM = 64;
  small.roles = dsl::ScheduleDecl::Roles::Uniform;
  EXPECT_FALSE(slicesOf(small, 136));
}

// A cluster's CTAs each copy a share of the activations' rows; those along k need no workspace, but
// room for the sums of one of them.
TEST(Geometry, ClustersShareRowsAndSums) {
  dsl::Gemm gemm = gemmWith("s8_token");
  Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
  ASSERT_TRUE(placed.ok());
  Schedule schedule{32, 64, 128, 1, 4, 1, 4, 4, imfp};
  auto has = [&](KernelParameter::Kind kind) {
    auto all = kernelParameters(gemm, makeGeometry(*placed, schedule), schedule, {100, 130, 1000});
    return std::any_of(all.begin(), all.end(), [&](const auto &each) { return each.kind == kind; });
  };
  EXPECT_TRUE(has(KernelParameter::Kind::Workspace));
  EXPECT_EQ(sumsBytes(makeGeometry(*placed, schedule)), 0);
  schedule.clusterN = 2;
  schedule.clusterK = 4;
  EXPECT_FALSE(has(KernelParameter::Kind::Workspace));
  Geometry g = makeGeometry(*placed, schedule);
  EXPECT_EQ(kernelParameters(gemm, g, schedule, {100, 130, 1000})[1].boxRows, 16);
  EXPECT_EQ(sumsBytes(g), 32 * 64 * 4);
  schedule.warpsK = 3;
  EXPECT_EQ(sumsBytes(makeGeometry(*placed, schedule)), 2 * 32 * 64 * 4);
}

// Sums and slices of outputs take no room where a CTA has one tile and stages hold both.
TEST(Geometry, WhatComesBehindTheOnlyTileLiesOverItsStages) {
  dsl::Gemm gemm = gemmWith("s8_token");
  Result<PlacedGemm> placed = placedBy(gemm, imfp, "sm_90a");
  ASSERT_TRUE(placed.ok());
  Schedule schedule{32, 64, 128, 1, 4, 2, 4, 1, imfp};
  const Problem problem{100, 128, 1024};
  auto shared = [&] {
    const Geometry g = makeGeometry(*placed, schedule);
    return std::pair(sharedBuffers(gemm, *placed, g, schedule, problem),
                     sharedBytes(gemm, *placed, g, schedule, problem));
  };
  auto isBehind = [](const SharedBuffer &buffer) {
    return buffer.role == SharedBuffer::Role::Sums || buffer.role == SharedBuffer::Role::Slices;
  };
  schedule.residentCtas = 132;
  const auto [apart, most] = shared();
  for (const SharedBuffer &buffer : apart)
    EXPECT_FALSE(buffer.overStages);
  schedule.residentCtas = 0;
  const auto [buffers, bytes] = shared();
  for (const SharedBuffer &buffer : buffers)
    EXPECT_EQ(buffer.overStages, isBehind(buffer));
  EXPECT_EQ(std::count_if(buffers.begin(), buffers.end(), isBehind), 2);
  const int64_t slices = 4096, sums = 8192, stage = 8192;
  EXPECT_EQ(bytes, most - slices - sums);
  // One stage holds less than both; and 4096 bytes are not worth a barrier.
  schedule.pipeline = 1;
  EXPECT_EQ(shared().second, most - 3 * stage);
  schedule.pipeline = 4;
  schedule.warpsK = 1;
  EXPECT_EQ(shared().second, most - sums);
}

} // namespace
} // namespace rho::compiler
