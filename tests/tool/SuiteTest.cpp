#include "runtime/tool/Suite.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/LineChart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

using namespace rho;
using namespace rho::tool;
using testing::HasSubstr;
using testing::Not;

namespace {

using Peer = SuiteRow::Peer;

SuiteRow row(const std::string &name, Peer peer, const GemmShape &shape, double microseconds) {
  SuiteRow row;
  row.name = name;
  row.peer = peer;
  row.device = "GPU, fast";
  row.mmaType = "s8";
  row.shape = shape;
  row.paddedM = shape.m;
  row.time = {microseconds, microseconds - 1, microseconds + 2, 20, 10};
  row.weightBytes = 1000;
  row.roofline = 2;
  if (peer == Peer::None || peer == Peer::Floor)
    row.launch = "serial";
  return row;
}

SuiteResults results() {
  SuiteResults results;
  results.add(row("lt_bf16", Peer::Half, {1, 64, 128}, 16));
  results.add(row("lt_fp8", Peer::Byte, {1, 64, 128}, 10));
  results.add(row("lt_int8", Peer::Byte, {1, 64, 128}, 12));
  results.add(row("lt_bf16", Peer::Half, {1, 256, 128}, 18));
  SuiteRow gemm = row("w4a8", Peer::None, {1, 64, 128}, 4);
  gemm.tile = "16 x 64 x 128";
  gemm.cluster = "2 x 1";
  gemm.pipeline = 3;
  gemm.splitK = 2;
  gemm.roles = "imfp";
  gemm.tables = "mixed";
  gemm.planSource = "tuned";
  gemm.predicted = 5;
  gemm.quantize = 1.5;
  results.add(gemm);
  results.add(row("w4a8", Peer::None, {1, 256, 128}, 18));
  results.add(row("w4a8", Peer::None, {8, 256, 128}, 20));
  return results;
}

// As results(), with what reads the weight of 1000 bytes of n = 64, and a gemm launched both ways.
SuiteResults resultsWithFloor() {
  SuiteResults results = ::results();
  results.add(row("floor_serial", Peer::Floor, {0, 64, 128}, 3.2));
  SuiteRow dependent = row("floor_dependent", Peer::Floor, {0, 64, 128}, 1.5);
  dependent.launch = "dependent";
  results.add(dependent);
  SuiteRow gemm = row("w4a8", Peer::None, {1, 64, 128}, 3);
  gemm.launch = "dependent";
  results.add(gemm);
  return results;
}

std::vector<std::string> linesOf(const std::string &text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TEST(SuiteTest, theShapesAreThoseOfTheModels) {
  EXPECT_EQ(llamaWeights().size(), 10U);
  EXPECT_EQ(llamaWeights().front(), (WeightShape{4096, 4096}));
  EXPECT_EQ(llamaWeights().back(), (WeightShape{8192, 28672}));
  EXPECT_EQ(suiteRows().size(), 14U);
  for (size_t i = 0; i < suiteRows().size(); ++i)
    EXPECT_EQ(suiteRows()[i], int64_t(1) << i);
}

TEST(SuiteTest, speedUpsAreOverTheFastestPeerOfTheShape) {
  SuiteResults all = results();
  EXPECT_EQ(all.speedUp(all.rows()[4], Peer::Half), 4);
  EXPECT_EQ(all.speedUp(all.rows()[4], Peer::Byte), 2.5);
  EXPECT_EQ(all.speedUp(all.rows()[5], Peer::Half), 1);
  EXPECT_EQ(all.speedUp(all.rows()[5], Peer::Byte), std::nullopt);
  EXPECT_EQ(all.speedUp(all.rows()[6], Peer::Half), std::nullopt);
  EXPECT_EQ(SuiteResults::rooflineShare(all.rows()[4]), 0.5);
}

TEST(SuiteTest, csvHasARowAMeasurementAndEmptyCellsForWhatIsNotKnown) {
  std::vector<std::string> lines = linesOf(results().csv());
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(
      lines[0],
      "kernel,device,mma_type,n,k,m,padded_m,launch,us,us_min,us_max,replays,launches,tops,"
      "weight_bytes,weight_gb_per_s,roofline_us,roofline_fraction,speedup_over_bf16,"
      "speedup_over_8bit,over_floor,quantize_us,rotate_quantize_us,tile,cluster,pipeline,split_k,"
      "roles,tables,plan_source,predicted_us,algorithm");
  EXPECT_EQ(lines[5],
            "w4a8,\"GPU, fast\",s8,64,128,1,1,serial,4.000,3.000,6.000,10,20,0.00410,1000,0.250,"
            "2.00,0.500,4.00,2.50,,1.50,,16 x 64 x 128,2 x 1,3,2,imfp,mixed,tuned,5.00,");
  EXPECT_THAT(lines[1], HasSubstr(",2.00,0.125,1.00,0.625,,,,,,,,,,,"));
}

TEST(SuiteTest, theFloorIsThatOfTheShapeTheBytesAndTheLaunch) {
  SuiteResults all = resultsWithFloor();
  EXPECT_EQ(all.overFloor(all.rows()[4]), 1.25);
  EXPECT_EQ(all.overFloor(all.rows()[9]), 2);
  EXPECT_EQ(all.overFloor(all.rows()[5]), std::nullopt) << "another shape";
  EXPECT_EQ(all.overFloor(all.rows()[0]), std::nullopt) << "a peer";
  EXPECT_EQ(all.overFloor(all.rows()[7]), std::nullopt) << "the floor itself";
  SuiteRow other = all.rows()[4];
  other.weightBytes = 1001;
  EXPECT_EQ(all.overFloor(other), std::nullopt);
  other = all.rows()[4];
  other.shape.m = 16;
  EXPECT_EQ(all.overFloor(other), 1.25);
  other.shape.m = 17;
  EXPECT_EQ(all.overFloor(other), std::nullopt);
}

TEST(SuiteTest, theFloorHasRowsWithoutM) {
  std::vector<std::string> lines = linesOf(resultsWithFloor().csv());
  ASSERT_EQ(lines.size(), 11U);
  EXPECT_EQ(lines[8], "floor_serial,\"GPU, fast\",s8,64,128,,,serial,3.200,2.200,5.200,10,20,,1000,"
                      "0.312,2.00,0.625,,,,,,,,,,,,,,");
  EXPECT_THAT(lines[5], HasSubstr(",4.00,2.50,1.25,1.50,"));
  EXPECT_THAT(lines[10], HasSubstr(",dependent,3.000,"));
}

TEST(SuiteTest, aGemmLaunchedBothWaysIsTwoInTablesAndPlots) {
  std::string tables = resultsWithFloor().tables();
  EXPECT_THAT(tables, HasSubstr("| m | lt_bf16 | lt_fp8 | lt_int8 | w4a8 | w4a8, dependent |\n"));
  EXPECT_THAT(tables, HasSubstr("reading the weight alone, geometric mean:\n\n"
                                "| m | w4a8 | w4a8, dependent |\n|--:|--:|--:|\n"
                                "| 1 | 1.25 | 2.00 |\n\n"));
  std::string svg = resultsWithFloor().plots();
  EXPECT_THAT(svg, HasSubstr(">w4a8, dependent<"));
  EXPECT_THAT(svg, Not(HasSubstr("floor")));
}

TEST(SuiteTest, tablesHoldGeometricMeans) {
  std::string tables = results().tables();
  EXPECT_THAT(tables, HasSubstr("bf16, geometric mean over the shapes:\n\n"
                                "| m | lt_bf16 | lt_fp8 | lt_int8 | w4a8 |\n"
                                "|--:|--:|--:|--:|--:|\n"
                                "| 1 | 1.00 | 1.60 | 1.33 | 2.00 |\n"
                                "| 8 | | | | |\n"));
  EXPECT_THAT(tables, HasSubstr("| 1 | 0.62 | 1.00 | 0.83 | 2.50 |\n"));
  EXPECT_EQ(geometricMean({}), 0);
}

TEST(SuiteTest, plotsHaveAPanelAShapeAndALineAKernel) {
  std::string svg = results().plots();
  for (const char *part :
       {"Speed-up over cuBLASLt bf16 on GPU, fast", "Share of the roofline on GPU, fast",
        ">n = 64, k = 128<", ">n = 256, k = 128<", ">w4a8<", ">lt_fp8<", "m (rows of the"})
    EXPECT_THAT(svg, HasSubstr(part));
  // A polyline each: 3 + 1 of the speed-ups, without bf16 itself, 4 + 2 of the shares.
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, 10U);
}

TEST(SuiteTest, theRooflineIsOfMemoryOrOfTheTensorCores) {
  Device device = Device::emulated("sm_80").value(); // 2039 GB/s, 312 TFLOP/s
  EXPECT_NEAR(*rooflineMicroseconds(device, {1, 8192, 8192}, 2039000, "bf16"), 1, 1e-9);
  double operations = 2.0 * 8192 * 8192 * 8192;
  EXPECT_NEAR(*rooflineMicroseconds(device, {8192, 8192, 8192}, 2039000, "bf16"),
              operations / 311.9e6, 5);
  EXPECT_NEAR(*rooflineMicroseconds(device, {8192, 8192, 8192}, 2039000, "s8"),
              operations / 623.7e6, 5);
}

TEST(CsvTest, cellsAreQuotedWhereTheyMust) {
  EXPECT_EQ(csvCell("plain"), "plain");
  EXPECT_EQ(csvCell("a,\"b\""), "\"a,\"\"b\"\"\"");
}

TEST(LineChartTest, axesSpanThePointsInPowersOfTwo) {
  LineFigure figure{"a < b", "m", "speed", 1, {{"panel", {{"one", {{1, 0.5}, {64, 4}}}}}}};
  std::string svg = lineCharts({figure});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr(">speed<"));
  for (const char *tick : {">1<", ">2<", ">64<", ">0<", ">4<"})
    EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, Not(HasSubstr(">128<")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LineChartTest, labelsHaveRoomBesideThePlot) {
  std::string svg = lineCharts({{"a", "m", "us", 0, {{"panel", {{"one", {{1, 2}, {2, 2.1e7}}}}}}}});
  EXPECT_THAT(svg, HasSubstr(">2e+07<"));
  EXPECT_THAT(svg, Not(HasSubstr(">20000000<")));
}

TEST(LineChartTest, linesDifferInColourAndMarker) {
  Panel panel{"p", {}};
  for (const char *name : {"a", "b", "c", "d"})
    panel.lines.push_back({name, {{1, 1}, {2, 2}}});
  std::string svg = lineCharts({{"t", "x", "y", 0, {panel}}});
  for (const char *colour :
       {"stroke=\"#4477aa\"", "stroke=\"#ee6677\"", "stroke=\"#228833\"", "stroke=\"#aa3377\""})
    EXPECT_THAT(svg, HasSubstr(colour));
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_THAT(svg, HasSubstr("<polygon"));
}

TEST(LineChartTest, aNameLooksTheSameInAllFigures) {
  LineFigure both{"t", "x", "y", 0, {{"p", {{"a", {{1, 1}}}, {"b", {{1, 2}}}}}}};
  LineFigure second{"u", "x", "y", 0, {{"p", {{"b", {{1, 2}}}}}}};
  std::string svg = lineCharts({both, second});
  std::string last = svg.substr(svg.find(">u<"));
  EXPECT_THAT(last, HasSubstr("#ee6677"));
  EXPECT_THAT(last, Not(HasSubstr("#4477aa")));
  EXPECT_THAT(last, Not(HasSubstr(">a<")));
}

TEST(LineChartTest, nothingMeasuredIsAnEmptyDrawing) {
  std::string svg = lineCharts({{"t", "x", "y", 1, {}}});
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

} // namespace
