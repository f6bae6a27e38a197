// The rules of docs/ARCHITECTURE.md, held on the sources themselves. Each rule is also shown to
// fail, on files made up for it.
#include "tests/house/House.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace rho::house {
namespace {

using testing::ElementsAre;

std::string lines(const Violations &violations) {
  std::string text;
  for (const std::string &violation : violations)
    text += violation + "\n";
  return text;
}

const Sources &ourSources() {
  static const Sources sources = readSources(RHO_SOURCE_DIR);
  return sources;
}

TEST(House, SourcesAreFound) { EXPECT_GT(ourSources().size(), 20U); }

TEST(House, IncludesGoOneWay) { EXPECT_EQ(lines(includesAgainstTheDirection(ourSources())), ""); }

TEST(House, MlirAndLlvmLiveInTheCompilerOnly) {
  EXPECT_EQ(lines(mlirOutsideTheCompiler(ourSources())), "");
}

TEST(House, NoCudaHeaderIsNeeded) { EXPECT_EQ(lines(cudaHeaders(ourSources())), ""); }

TEST(House, PublicHeadersReachNoForeignHeader) {
  EXPECT_EQ(lines(foreignHeadersInPublicOnes(ourSources())), "");
}

TEST(House, SourcesAreNotIncluded) { EXPECT_EQ(lines(includedSources(ourSources())), ""); }

TEST(House, UsingsAreUsed) { EXPECT_EQ(lines(unusedUsings(ourSources())), ""); }

TEST(House, FilesAreReadInOneSitting) { EXPECT_EQ(lines(longFiles(ourSources(), 600)), ""); }

TEST(House, TopLevelIsAsAgreed) {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(RHO_SOURCE_DIR))
    names.push_back(entry.path().filename().string());
  EXPECT_EQ(lines(strangersAtTheTop(names)), "");
}

TEST(HouseRules, IncludesAreReadFromDirectivesOnly) {
  EXPECT_THAT(includesOf({"dsl/A.h", "#include \"dsl/B.h\"\n#  include <vector>\n"
                                     "// #include \"runtime/C.h\"\nint x; // #include <y>\n"}),
              ElementsAre("dsl/B.h", "vector"));
}

TEST(HouseRules, AnIncludeAgainstTheDirectionIsNamed) {
  EXPECT_THAT(includesAgainstTheDirection({{"dsl/A.h", "#include \"compiler/Plan.h\"\n"},
                                           {"compiler/B.cpp", "#include \"dsl/A.h\"\n"},
                                           {"runtime/C.cpp", "#include \"kernels/Reference.h\"\n"},
                                           {"kernels/D.cpp", "#include \"runtime/Rho.h\"\n"},
                                           {"tests/dsl/E.cpp", "#include \"kernels/D.h\"\n"}}),
              ElementsAre("dsl/A.h includes compiler/Plan.h: "
                          "includes go dsl <- compiler <- runtime <- kernels",
                          "runtime/C.cpp includes kernels/Reference.h: "
                          "includes go dsl <- compiler <- runtime <- kernels"));
}

TEST(HouseRules, TheToolIsALeaf) {
  EXPECT_THAT(
      includesAgainstTheDirection({{"runtime/tool/Main.cpp", "#include \"kernels/Reference.h\"\n"},
                                   {"runtime/tool/Run.cpp", "#include \"runtime/tool/Run.h\"\n"},
                                   {"examples/A.cpp", "#include \"runtime/tool/Run.h\"\n"},
                                   {"tests/tool/RunTest.cpp", "#include \"runtime/tool/Run.h\"\n"},
                                   {"dsl/B.cpp", "#include \"tests/house/House.h\"\n"}}),
      ElementsAre("examples/A.cpp includes runtime/tool/Run.h: runtime/tool is a leaf",
                  "dsl/B.cpp includes tests/house/House.h: tests are for tests"));
}

TEST(HouseRules, MlirOutsideTheCompilerIsNamed) {
  EXPECT_THAT(mlirOutsideTheCompiler({{"compiler/A.cpp", "#include \"mlir/IR/Builders.h\"\n"},
                                      {"runtime/B.cpp", "#include <llvm/ADT/Twine.h>\n"},
                                      {"tests/compiler/C.cpp", "#include \"llvm/IR/Module.h\"\n"}}),
              ElementsAre("runtime/B.cpp includes llvm/ADT/Twine.h"));
}

TEST(HouseRules, CudaHeadersAreNamedAndOursAreNot) {
  EXPECT_THAT(cudaHeaders({{"runtime/A.cpp", "#include <cuda.h>\n#include <cuda_fp16.h>\n"
                                             "#include \"runtime/cuda/Driver.h\"\n"},
                           {"kernels/B.cu", "#include <nvrtc.h>\n"}}),
              ElementsAre("runtime/A.cpp includes cuda.h", "runtime/A.cpp includes cuda_fp16.h",
                          "kernels/B.cu includes nvrtc.h"));
}

TEST(HouseRules, AForeignHeaderReachedFromAPublicOneIsNamedWithTheWay) {
  EXPECT_THAT(foreignHeadersInPublicOnes({{"runtime/Rho.h", "#include \"compiler/Inner.h\"\n"},
                                          {"compiler/Inner.h", "#include \"mlir/IR/Types.h\"\n"},
                                          {"dsl/Format.h", "#include <vector>\n"},
                                          {"runtime/Private.h", "#include <cuda.h>\n"}}),
              ElementsAre("runtime/Rho.h -> compiler/Inner.h -> mlir/IR/Types.h"));
}

TEST(HouseRules, AnIncludedSourceIsNamed) {
  EXPECT_THAT(includedSources({{"dsl/A.cpp", "#include \"dsl/B.cpp\"\n#include \"dsl/C.h\"\n"}}),
              ElementsAre("dsl/A.cpp includes dsl/B.cpp"));
}

TEST(HouseRules, AUsingThatNothingUsesIsNamed) {
  EXPECT_THAT(unusedUsings({{"dsl/A.cpp", "#include \"b/One.h\"\n"
                                          "using b::One, b::c::Two;\n"
                                          "using b::Three; // and Three\n"
                                          "using Four = b::Four;\nusing namespace b;\nTwo x;\n"},
                            {"dsl/A.h", "using b::One;\n"}}),
              ElementsAre("dsl/A.cpp: nothing uses One", "dsl/A.cpp: nothing uses Three"));
}

TEST(HouseRules, ALongFileIsNamed) {
  EXPECT_THAT(longFiles({{"dsl/A.h", "\n\n\n"}, {"tests/a.txt", "\n\n\n"}, {"dsl/B.h", "\n\n"}}, 2),
              ElementsAre("dsl/A.h has 3 lines, the limit is 2"));
}

TEST(HouseRules, AStrangerAtTheTopIsNamed) {
  EXPECT_THAT(strangersAtTheTop({"dsl", ".ci", "build", "build-debug", "scripts"}),
              ElementsAre("scripts"));
}

} // namespace
} // namespace rho::house
