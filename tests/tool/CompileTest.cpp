// Every printed stage can be fed back in, and leads to the same kernel.
#include "tests/tool/RunTool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

using namespace rho::test;
using testing::HasSubstr;

namespace {

// The arguments and a problem.
std::vector<std::string> withProblem(std::vector<std::string> arguments) {
  for (const char *argument : {"--m", "16", "--n", "128", "--k", "256"})
    arguments.emplace_back(argument);
  return arguments;
}

std::string gemm() { return shipped("kernels/gemms/int4_g128_f16.rho"); }

ToolResult compile(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "compile");
  return runTool(arguments);
}

// `rho compile` of the shipped gemm with a problem.
std::string stage(const std::string &name) {
  ToolResult result = compile(withProblem({gemm(), "--emit", name}));
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

// LLVM names a module that it reads after the file.
std::string withoutModuleName(const std::string &text) {
  return text.starts_with("; ModuleID") ? text.substr(text.find('\n')) : text;
}

TEST(CompileTest, everyPrintedStageGoesOnToTheSamePtx) {
  std::string ptx = stage("ptx");
  EXPECT_THAT(ptx, HasSubstr(".target sm_80"));
  for (const char *from : {"rho", "tile", "llvm"}) {
    std::string text = stage(from);
    std::string path = put(std::string("stage.") + from, text);
    EXPECT_TRUE(compile({path, "--from", from, "--emit", "ptx"}).out == ptx) << from;
    // A stage printed again is the same text.
    std::string again = compile({path, "--from", from, "--emit", from}).out;
    EXPECT_TRUE(withoutModuleName(again) == withoutModuleName(text)) << from;
  }
}

TEST(CompileTest, aPrintedPlanGivesTheSameKernel) {
  std::string path = put("plan.txt", stage("plan"));
  EXPECT_EQ(compile({gemm(), "--plan", path, "--emit", "ptx"}).out, stage("ptx"));
  EXPECT_EQ(compile({gemm(), "--plan", put("bad.txt", "nonsense 1\n"), "--emit", "ptx"}).code, 1);
}

TEST(CompileTest, theCanonicalTextIsADeclarationAgain) {
  ToolResult once = compile({gemm(), "--emit", "format"});
  ASSERT_EQ(once.code, 0) << once.err;
  std::string path = put("canonical.rho", once.out);
  EXPECT_EQ(compile({path, "--emit", "format"}).out, once.out);
  EXPECT_EQ(compile(withProblem({path, "--emit", "ptx"})).out, stage("ptx"));
}

TEST(CompileTest, theSyntaxTreeIsPrintedWithoutAProblem) {
  ToolResult result = compile({gemm(), "--emit=ast"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("int4_g128_f16"));
}

TEST(CompileTest, writesToAFile) {
  std::string path = scratchFolder() + "out.txt";
  ToolResult result = compile({gemm(), "--emit=format", "-o", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, compile({gemm(), "--emit=format"}).out);
}

TEST(CompileTest, mistakesAreErrors) {
  auto error = [](const std::vector<std::string> &arguments) {
    ToolResult result = compile(arguments);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(error({gemm()}),
            "error: --m is missing, a plan needs --m, --n and --k [option_missing]\n");
  EXPECT_EQ(error({gemm(), "--plan", "p", "--m", "1"}),
            "error: --plan and --m do not go together: the plan says it already "
            "[option_conflict]\n");
  EXPECT_EQ(error({"x", "--from", "tile", "--emit", "rho"}),
            "error: --from tile and --emit rho do not go together: compilation goes from rho to "
            "tile to llvm to ptx [option_conflict]\n");
  EXPECT_EQ(error({"x", "--from", "tile", "--gemm", "g"}),
            "error: --from and --gemm do not go together: the text says it already "
            "[option_conflict]\n");
  EXPECT_EQ(error({scratchFolder() + "none", "--from", "tile"}),
            "error: '" + scratchFolder() +
                "none' cannot be read: No such file or directory [file_not_readable]\n");
  EXPECT_THAT(error({gemm(), "--m=1", "--n=1", "--k=1", "--target=sm_1"}),
              HasSubstr("[unknown_target]"));
}

TEST(CompileTest, nonsenseInPlaceOfAStageIsAnError) {
  std::string text = stage("tile");
  for (const char *from : {"rho", "tile", "llvm"})
    for (const std::string &content : {std::string(), std::string("nonsense"),
                                       text.substr(0, text.size() / 2), std::string(3, '\0')}) {
      ToolResult result = compile({put("nonsense", content), "--from", from});
      EXPECT_EQ(result.code, 1) << from << content;
      EXPECT_THAT(result.err, HasSubstr("error: "));
    }
}

} // namespace
