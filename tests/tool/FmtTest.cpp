// `rho fmt` on files.
#include "tests/tool/RunTool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sys/stat.h>

using namespace rho;
using namespace rho::test;

namespace {

constexpr char odd[] = "gemm g{ // what\nweight:f16}";
constexpr char canonical[] = "gemm g { // what\n  weight: f16\n}\n";

TEST(FmtCommandTest, RewritesWhatDiffersAndNothingElse) {
  std::string changed = put("changed.rho", odd), same = put("same.rho", canonical);
  std::filesystem::permissions(changed, std::filesystem::perms(0604));
  auto before = std::filesystem::last_write_time(same);
  ToolResult result = runTool({"fmt", changed, same});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_EQ(contentOf(changed), canonical);
  EXPECT_EQ(std::filesystem::status(changed).permissions(), std::filesystem::perms(0604));
  EXPECT_EQ(std::filesystem::last_write_time(same), before);
}

TEST(FmtCommandTest, CheckListsAndWritesNothing) {
  std::string changed = put("changed.rho", odd), same = put("same.rho", canonical);
  ToolResult result = runTool({"fmt", "--check", same, changed});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, changed + "\n");
  EXPECT_EQ(contentOf(changed), odd);
  EXPECT_EQ(runTool({"fmt", "--check", same}).code, 0);
}

TEST(FmtCommandTest, DashIsAFilter) {
  std::string changed = put("changed.rho", odd), same = put("same.rho", canonical);
  for (const std::string &input : {changed, same}) {
    ToolResult result = runTool({"fmt", "-"}, input);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, canonical);
  }
  EXPECT_EQ(runTool({"fmt", "--check", "-"}, changed).out, "-\n");
  EXPECT_EQ(runTool({"fmt", "-"}, "-").err,
            "error: '-' cannot be read: Bad file descriptor [file_not_readable]\n");
  ToolResult lost = runTool({"fmt", "-"}, changed, "-");
  EXPECT_EQ(lost.code, 1);
  EXPECT_EQ(lost.err, "error: 'standard output' cannot be written: Bad file descriptor "
                      "[file_not_writable]\n");
}

TEST(FmtCommandTest, AWrongFileStaysAndTheOthersAreFormatted) {
  std::string wrong = put("wrong.rho", "gemm {"), changed = put("changed.rho", odd);
  ToolResult result = runTool({"fmt", wrong, scratchFolder() + "none.rho", changed});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, wrong +
                            ":1:6: error: found '{', expected the name of the gemm "
                            "[unexpected_token]\ngemm {\n     ^\nerror: '" +
                            scratchFolder() +
                            "none.rho' cannot be read: No such file or directory "
                            "[file_not_readable]\n");
  EXPECT_EQ(contentOf(wrong), "gemm {");
  EXPECT_EQ(contentOf(changed), canonical);
}

// Reading it to its end and then writing to it would lose the text, or wait for ever.
TEST(FmtCommandTest, WritesToNothingButFiles) {
  std::string pipe = scratchFolder() + "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ToolResult result = runTool({"fmt", pipe});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: '" + pipe +
                            "' cannot be written: it is no regular file; '-' formats standard "
                            "input [file_not_writable]\n");
}

TEST(FmtCommandTest, NeedsAFile) {
  ToolResult result = runTool({"fmt"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "error: FILE.rho is missing, 'rho fmt' needs a file or - "
                        "[option_missing]\n");
}

} // namespace
