#include "compiler/KernelImage.h"

#include <gtest/gtest.h>

using namespace rho;
using namespace rho::compiler;

namespace {

KernelImage sample() {
  KernelImage image;
  image.entry = "gemm_w4a16";
  image.ptx = "// ptx";
  image.target = "sm_80";
  image.threads = 128;
  image.sharedBytes = 65536;
  image.n = 100;
  image.k = 64;
  image.tileM = 16;
  image.tileN = 64;
  image.tileK = 64;
  image.pipeline = 4;
  image.splitK = 3;
  using Kind = KernelParameter::Kind;
  image.parameters = {{Kind::Weight, 0}, {Kind::Activation, 0}, {Kind::ActivationComponent, 1},
                      {Kind::Output, 0}, {Kind::Workspace, 0},  {Kind::M, 0}};
  image.activation = {64, 16, 128};
  image.origins = {"weight.scale", "schedule.pipeline"};
  image.operands = {{"f16", -3, {1, 2}}, {"f16", 0, {}}};
  image.weight.n = 100;
  image.weight.k = 64;
  image.weight.bytes = 4096;
  LayoutSection section;
  section.bytes = 4096;
  section.codeBits = 4;
  section.tileN = 64;
  section.tileK = 2;
  section.tilesN = 2;
  section.tilesK = 32;
  for (uint8_t bit = 0; bit < 6; ++bit)
    section.order.push_back({AxisBit::Axis::N, bit});
  section.order.push_back({AxisBit::Axis::K, 0});
  image.weight.sections = {section};
  return image;
}

void expectRoundTrip(const KernelImage &image) {
  Result<KernelImage> back = KernelImage::parse(image.printFacts(), image.ptx);
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_TRUE(*back == image) << back->printFacts() << "is not\n" << image.printFacts();
}

TEST(KernelImageTest, factsRoundTrip) {
  KernelImage image = sample();
  expectRoundTrip(image);
  image.dependentLaunch = image.wholeProgram = true;
  expectRoundTrip(image);
  image.activation.columnBits = {1, 0};
  image.activation.groupsPerWord = 4;
  image.activation.tileK = 64;
  image.activation.parts = {{64, 8, 64}, {64, 16, 128}};
  expectRoundTrip(image);
}

TEST(KernelImageTest, factsOfClustersAndTensorMapsRoundTrip) {
  KernelImage image = sample();
  using Kind = KernelParameter::Kind;
  image.clusterN = 2;
  image.clusterK = 3;
  image.dependentLaunch = true;
  image.parameters = {{Kind::Weight},
                      {Kind::Activation, 0, 128, 64, true},
                      {Kind::ActivationComponent, 1, 32, 1},
                      {Kind::Output, 0, 256, 256}};
  EXPECT_FALSE(image.parameters[0].isTensorMap());
  EXPECT_TRUE(image.parameters[1].isTensorMap());
  expectRoundTrip(image);
  image.clusterK = image.splitK = 1;
  image.residentCtas = 132;
  expectRoundTrip(image);
}

TEST(KernelImageTest, aKernelThatIsNoGemmHasLaunchFactsAlone) {
  KernelImage image;
  image.entry = "kv_attend";
  image.target = "sm_80";
  image.threads = 128;
  image.sharedBytes = 1024;
  const std::string facts = image.printFacts();
  Result<KernelImage> back = KernelImage::parse(facts, "// ptx");
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_FALSE(back->isGemm());
  EXPECT_EQ(back->entry, "kv_attend");
  EXPECT_EQ(back->target, "sm_80");
  EXPECT_EQ(back->threads, 128);
  EXPECT_EQ(back->sharedBytes, 1024);
  EXPECT_EQ(back->printFacts(), facts);
  EXPECT_TRUE(KernelImage::parse(sample().printFacts(), "")->isGemm());
  EXPECT_NE(KernelImage::parse(facts + "origin path=w\n", "").error().str().find("line 3"),
            std::string::npos);
}

TEST(KernelImageTest, gridCoversTheTiles) {
  KernelImage image = sample(); // 3 tiles along n
  image.n = 129;
  EXPECT_EQ(image.grid(40), (Dim3{3, 3, 3}));
  EXPECT_EQ(image.cluster(), (Dim3{1, 1, 1}));
  image.clusterN = 2;
  image.clusterK = 3;
  EXPECT_EQ(image.grid(40), (Dim3{4, 3, 3})); // whole clusters
  EXPECT_EQ(image.cluster(), (Dim3{2, 1, 3}));
  image.clusterK = image.splitK = 1;
  image.residentCtas = 10;
  EXPECT_EQ(image.grid(16), (Dim3{4, 1, 1}));
  EXPECT_EQ(image.grid(40), (Dim3{10, 1, 1})); // of 12
}

TEST(KernelImageTest, workspaceHoldsCountersAndPartialSums) {
  KernelImage image = sample();
  // m = 40: 3 tiles along m, 2 along n. Counters, then 6 * 3 tiles of 16 x 64 floats.
  constexpr int64_t counters = 65536 * 4;
  EXPECT_EQ(image.workspaceBytes(40), counters + 6 * 3 * 16 * 64 * 4);
  // m = 1024: 64 * 2 tiles have as much room for theirs.
  EXPECT_EQ(image.workspaceBytes(1024), counters + 128 * 3 * 16 * 64 * 4);
  image.clusterN = 4; // two more tiles along n have no output, only a place
  EXPECT_EQ(image.workspaceBytes(40), counters + 12 * 3 * 16 * 64 * 4);
  image.clusterK = image.splitK; // reduced in shared memory
  EXPECT_EQ(image.workspaceBytes(40), 0);
  image.clusterK = image.splitK = 1;
  EXPECT_EQ(image.workspaceBytes(40), 0);
}

std::string parseError(const std::string &facts) {
  Result<KernelImage> image = KernelImage::parse(facts, "");
  return image.ok() ? "parsed" : image.error().str();
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(KernelImageTest, namesTheLineAndWhatIsWrong) {
  std::string facts = sample().printFacts();
  auto expected = [](int line, const std::string &what) {
    return "error: line " + std::to_string(line) +
           " of the facts of a kernel cannot be read: " + what + " [kernel_facts_invalid]\n";
  };
  EXPECT_EQ(parseError(""), expected(1, "'rho kernel 2' is missing"));
  EXPECT_EQ(parseError("rho kernel 2\n"), expected(2, "'kernel' is missing"));
  EXPECT_EQ(parseError(replaced(facts, "threads=128", "threads=2048")),
            expected(2, "'threads' is not a number from 1 to 1024"));
  EXPECT_EQ(parseError(replaced(facts, "entry=gemm_w4a16", "entry=")),
            expected(2, "the entry or the target has no name"));
  EXPECT_EQ(parseError(replaced(facts, "kind=output", "kind=result")),
            expected(6, "there is no such kind of parameter"));
  EXPECT_EQ(parseError(replaced(facts, "activation k=64", "something k=64")),
            expected(9, "no line begins with 'something'"));
  EXPECT_EQ(parseError(replaced(facts, "origin path=weight.scale", "")),
            expected(10, "no line begins with ''"));
  const size_t activation = facts.find("activation k="), behind = facts.find("origin path=");
  const std::string line = facts.substr(activation, behind - activation);
  EXPECT_EQ(parseError(replaced(facts, line, line + line)),
            expected(10, "there is an 'activation' already"));
  EXPECT_EQ(parseError(replaced(facts, line, "")), expected(13, "'activation' is missing"));
  EXPECT_EQ(parseError(replaced(facts, "activation k=", "part k=")),
            expected(9, "'activation' is missing"));
  EXPECT_EQ(parseError(facts.substr(0, facts.find("weight n="))),
            expected(14, "'weight' is missing"));
  EXPECT_EQ(parseError(replaced(facts, "order=n0", "order=n7")),
            "error: line 2 of a weight layout cannot be read: the order does not name each bit of "
            "a 64 x 2 tile once [layout_text_invalid]\n");
}

TEST(KernelImageTest, refusesLaunchFactsThatDoNotFitTogether) {
  std::string facts = sample().printFacts();
  auto with = [&](const std::string &from, const std::string &to) {
    std::string text = parseError(replaced(facts, from, to));
    size_t what = text.find("read: ");
    return what == text.npos ? text : text.substr(what + 6, text.rfind(" [") - what - 6);
  };
  EXPECT_EQ(with("cluster_n=1", "cluster_n=17"), "'cluster_n' is not a number from 1 to 16");
  EXPECT_EQ(with("cluster_k=1", "cluster_k=0"), "'cluster_k' is not a number from 1 to 16");
  EXPECT_EQ(with("cluster_k=1", "cluster_k=2"), "'cluster_k' is neither 1 nor 'split_k'");
  EXPECT_EQ(with("cluster_n=1 cluster_k=1", "cluster_n=8 cluster_k=3"),
            "a cluster has more than 16 CTAs");
  EXPECT_EQ(
      with("cluster_n=1 cluster_k=1 resident_ctas=0", "cluster_n=2 cluster_k=1 resident_ctas=3"),
      "'resident_ctas' is not a multiple of 'cluster_n'");
  EXPECT_EQ(with("resident_ctas=0", "resident_ctas=4"), "a persistent kernel splits k");
  EXPECT_EQ(with("n=100", "n=0"), "of 'n', 'k' and the tile some are 0");
  EXPECT_EQ(with("tile_k=64", "tile_k=0"), "of 'n', 'k' and the tile some are 0");
  EXPECT_EQ(with("dependent=0", "dependent=2"), "'dependent' is not a number from 0 to 1");
  const std::string pointer = "kind=activation index=0 box_bytes=0 box_rows=0 swizzle=0";
  auto box = [&](const std::string &fields) {
    return with(pointer, "kind=activation index=0 " + fields);
  };
  EXPECT_EQ(box("box_bytes=128 box_rows=64 swizzle=1"), "parsed");
  EXPECT_EQ(box("box_bytes=512 box_rows=64 swizzle=0"),
            "'box_bytes' is not a number from 0 to 256");
  EXPECT_EQ(box("box_bytes=64 box_rows=257 swizzle=0"), "'box_rows' is not a number from 0 to 256");
  EXPECT_EQ(box("box_bytes=64 box_rows=0 swizzle=0"), "a box has bytes and rows or neither");
  EXPECT_EQ(box("box_bytes=0 box_rows=8 swizzle=0"), "a box has bytes and rows or neither");
  EXPECT_EQ(box("box_bytes=0 box_rows=0 swizzle=1"), "there is no box to swizzle");
  EXPECT_EQ(with(pointer + " trimmed=0", pointer + " trimmed=1"), "there is no box to trim");
  EXPECT_EQ(with("kind=output index=0 box_bytes=0 box_rows=0 swizzle=0 trimmed=0",
                 "kind=output index=0 box_bytes=64 box_rows=8 swizzle=0 trimmed=1"),
            "boxes of activations alone have rows of the batch to trim");
  EXPECT_EQ(box("box_bytes=24 box_rows=8 swizzle=0"),
            "the bytes of a box are not a multiple of 16");
  EXPECT_EQ(box("box_bytes=256 box_rows=8 swizzle=1"), "a swizzled box is wider than 128 bytes");
  EXPECT_EQ(with("kind=weight index=0 box_bytes=0 box_rows=0",
                 "kind=weight index=0 box_bytes=64 box_rows=8"),
            "no tensor map can be over this kind of parameter");
}

TEST(KernelImageTest, trimmedBoxesHaveNoMoreRowsThanTheBatch) {
  const KernelParameter whole{
      .kind = KernelParameter::Kind::Activation, .boxBytes = 128, .boxRows = 8, .swizzle = true};
  KernelParameter trimmed = whole;
  trimmed.trimmed = true;
  for (int64_t m : {1, 3, 8, 300}) {
    EXPECT_EQ(whole.boxRowsFor(m), 8);
    EXPECT_EQ(trimmed.boxRowsFor(m), std::min<int64_t>(m, 8));
  }
}

TEST(KernelImageTest, survivesEveryCutAndEveryChangedByte) {
  std::string facts = sample().printFacts();
  for (size_t length = 0; length < facts.size(); ++length)
    EXPECT_FALSE(KernelImage::parse(facts.substr(0, length), "").ok() &&
                 facts.substr(0, length).find("section") == std::string::npos &&
                 facts.substr(0, length).find("weight n") == std::string::npos);
  for (size_t at = 0; at < facts.size(); ++at)
    for (char byte : {'\0', '\n', '9', ' ', '\xff'}) {
      std::string changed = facts;
      changed[at] = byte;
      Result<KernelImage> image = KernelImage::parse(changed, "");
      if (image)
        EXPECT_TRUE(KernelImage::parse(image->printFacts(), "").ok());
    }
}

} // namespace
