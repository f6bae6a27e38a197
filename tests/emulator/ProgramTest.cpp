// PTX texts: what is read, what is refused, and that no text does harm.
#include "tests/emulator/Harness.h"

#include <fstream>
#include <sstream>

namespace rho::emulator::test {
namespace {

std::string fileText(const std::string &name) {
  std::ifstream file(std::string(RHO_SOURCE_DIR) + "/tests/emulator/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Program, UnknownInstructionsAreRefusedByName) {
  EXPECT_EQ(parseError(kernel("clusterlaunchcontrol.query;")),
            "error: ptx line 21: `clusterlaunchcontrol.query` is no instruction that the emulator "
            "knows [emulator_unknown_instruction]\n");
  for (const char *refused :
       {"call foo;",
        "add.rz.f32 %r1, %r2, %r3;",
        "mad.lo.cc.u32 %r1, %r2, %r3, %r4;",
        "ld.foo.b32 %r1, [%d1];",
        "cp.async.bulk.commit_groups;",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r0}, {%r4}, {%r8}, {%r0};",
        "mma.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%r0}, {%r4}, {%r8}, {%r0};",
        "shl.b32.foo %r1, %r2, 3;",
        "mbarrier.pending_count.b64 %r1, %d1;",
        "setp.foo.u32 %p1, 1, 2;",
        "setp.ltu.u32 %p1, %r1, %r2;",
        "atom.global.and.f32 %r1, [%d1], %r2;",
        "ret.foo;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.lo.s32 %p1, %r1, %r2;",
        "set.ge.u32.b32 %r1, %r2, %r3;",
        "setp.lt.ftz.s32 %p1, 1, 2;",
        "setp.lt.f16 %p1|%p2, %h1, %h2;",
        "add.rn.ftz.bf16 %h1, %h2, %h3;",
        "fma.rn.sat.bf16x2 %r1, %r2, %r3, %r4;",
        "slct.ftz.b32.s32 %r1, %r2, %r3, %r4;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, "
        "%r7}, {%r8, %r9}, {%r10, %r11};"})
    EXPECT_NE(parseError(kernel(refused)).find("[emulator_unknown_instruction]"), std::string::npos)
        << refused << ": " << parseError(kernel(refused));
}

// Modifiers that ptxas 13.0 refuses, of which some would say what is not done.
TEST(Program, ConversionsHaveTheirModifiersOnly) {
  for (const char *refused : {"cvt.rz.satfinite.e4m3x2.f32 %h1, %r1, %r2;",
                              "cvt.rn.e4m3x2.f32 %h1, %r1, %r2;",
                              "cvt.rn.relu.e5m2x2.f32 %h1, %r1, %r2;",
                              "cvt.satfinite.e5m2x2.f32 %h1, %r1, %r2;",
                              "cvt.rn.sat.e4m3x2.f32 %h1, %r1, %r2;",
                              "cvt.rn.sat.f16x2.f32 %r1, %r2, %r3;",
                              "cvt.rn.ftz.f16x2.f32 %r1, %r2, %r3;",
                              "cvt.f16x2.f32 %r1, %r2, %r3;",
                              "cvt.rp.bf16x2.f32 %r1, %r2, %r3;",
                              "cvt.rn.satfinite.f16x2.e4m3x2 %r1, %h1;",
                              "cvt.rna.f16x2.f32 %r1, %r2, %r3;",
                              "cvt.relu.s32.s32 %r1, %r2;",
                              "cvt.rn.s32.s16 %r1, %h1;",
                              "cvt.ftz.s32.s16 %r1, %h1;",
                              "cvt.s32.f32 %r1, %r2;",
                              "cvt.rz.s32.f32 %r1, %r2;",
                              "cvt.f32.s32 %r1, %r2;",
                              "cvt.rni.f32.s32 %r1, %r2;",
                              "cvt.f16.f32 %h1, %r1;",
                              "cvt.rni.f16.f32 %h1, %r1;",
                              "cvt.rn.f32.f16 %r1, %h1;",
                              "cvt.rn.f32.f32 %r1, %r2;",
                              "cvt.rn.ftz.relu.f16.f32 %h1, %r1;",
                              "cvt.rm.relu.f16.f32 %h1, %r1;",
                              "cvt.rn.relu.f32.f64 %r1, %d1;",
                              "cvt.rn.sat.bf16.f32 %h1, %r1;",
                              "cvt.rzi.sat.s32.bf16 %r1, %h1;",
                              "cvt.rna.f32.f64 %r1, %d1;",
                              "cvt.rzi.ftz.s32.f16 %r1, %h1;",
                              "cvt.rzi.s8.bf16 %h1, %h2;"})
    EXPECT_NE(parseError(kernel(refused)).find("[emulator_unknown_instruction]"), std::string::npos)
        << refused << ": " << parseError(kernel(refused));
}

TEST(Program, OperandsThatDoNotFit) {
  auto expect = [](const std::string &code, const std::string &explanation) {
    std::string shown = code.substr(0, code.size() - 1);
    EXPECT_EQ(parseError(kernel(code)),
              "error: ptx line 21: `" + shown + "`: " + explanation + " [emulator_operand]\n");
  };
  expect("add.u32 %r1, %r2;", "2 operands where 3 belong");
  expect("add.u32 %r1, %r2, %d1;", "`%d1` has 64 bits where 32 belong");
  expect("add.u32 %d1, %r2, %r1;", "`%d1` has 64 bits where 32 belong");
  expect("add.u32 %r1, %r2, %nowhere;", "`%nowhere` is not declared");
  expect("add.u32 %r1, %r2, nowhere;", "`nowhere` is no register or number here");
  expect("add.f32 %r1, %r2, 1;", "an integer where f32 belongs");
  expect("add.u32 5, %r2, %r3;", "the result goes to no register of 32 bits");
  expect("mov.u32 %r1, %tid.w;", "`%tid.w` is not declared");
  expect("bra NOWHERE;", "`NOWHERE` is no label");
  expect("ld.global.b32 %r1, %d1;", "operand 2 must be an address");
  expect("ld.global.v4.b32 {%r1, %r2}, [%d1];", "2 registers where 4 belong");
  expect("lop3.b32 %r1, %r2, %r3, %r4, 300;", "a lookup table has values from 0 to 255");
  expect("setp.eq.u32 %r1, %r2, %r3;", "the result goes to no predicate");
  expect("selp.b32 %r1, %r2, %r3, %r4;", "`%r4` is no predicate");
  expect("cp.async.cg.shared.global [%r1], [%d1], 8;", "8 bytes are copied, .cg copies 16");
  expect("ld.global.b32 %r1, [%h1];", "`%h1` is too narrow for an address");
}

TEST(Program, SyntaxErrorsNameWhatWasExpected) {
  EXPECT_EQ(parseError(kernel("add.u32 %r1 %r2;")),
            "error: ptx line 21: found `%r2`, expected `,` [emulator_syntax]\n");
  EXPECT_EQ(parseError("garbage"),
            "error: ptx line 1: found `garbage`, expected a directive [emulator_syntax]\n");
  EXPECT_EQ(parseError("/* open"), "error: ptx line 1: found a comment without its end, expected "
                                   "`*/` [emulator_syntax]\n");
  EXPECT_EQ(parseError(kernel("mov.u32 %r1, 0xzz;")),
            "error: ptx line 21: found `0xzz`, expected a number [emulator_syntax]\n");
  EXPECT_EQ(parseError(kernel(".reg .b32 %huge<99999999>;")),
            "error: ptx line 21: found `99999999`, expected a number of registers up to 1048576 "
            "[emulator_syntax]\n");
  const std::string begin = ".version 8.0\n.target sm_80\n", entry = ".entry k() { ret; }\n";
  EXPECT_EQ(parseError(entry), "error: ptx line 1: found `.entry`, expected `.version` before "
                               "anything else [emulator_syntax]\n");
  EXPECT_EQ(parseError(".version 8.0\n" + entry),
            "error: ptx line 2: found `.entry`, expected `.target` before anything else "
            "[emulator_syntax]\n");
  EXPECT_EQ(parseError(begin + ".address_size 32\n"),
            "error: ptx line 3: found `32`, expected 64 [emulator_syntax]\n");
  EXPECT_EQ(parseError(begin + entry + entry),
            "error: ptx line 4: found entry `k` again, expected each entry once per module "
            "[emulator_syntax]\n");
  EXPECT_EQ(parseError(begin + entry), "");
  EXPECT_EQ(parseError(kernel("A:\nA:")),
            "error: ptx line 22: found label `A` again, expected each "
            "label once per scope [emulator_syntax]\n");
  EXPECT_EQ(parseError(kernel("@%r1 ret;")),
            "error: ptx line 21: found a guard that is no predicate register, expected a predicate "
            "register after `@` [emulator_syntax]\n");
}

TEST(Program, OperandsDoNotNestWithoutEnd) {
  for (const std::string part : {"[%d1,{", "{[%d1,{", "{", "["}) {
    std::string deep;
    for (int i = 0; i < 50000; ++i)
      deep += part;
    EXPECT_NE(parseError(kernel("ld.global.b32 %r1, " + deep)).find("[emulator_syntax]"),
              std::string::npos)
        << part;
  }
  EXPECT_EQ(parseError(kernel("ld.global.b32 %r1, [%d1, {[%d1, {%r1}]}];")),
            "error: ptx line 21: found `[`, expected a register [emulator_syntax]\n");
}

TEST(Program, LaunchesThatCannotBe) {
  Result<Program> program = Program::parse(
      ".version 8.0\n.target sm_80\n.visible .entry a(.param .u64 p) .reqntid 64 { ret; }\n"
      ".visible .entry b() .maxntid 128 { ret; }\n");
  ASSERT_TRUE(program) << program.error().str();
  EXPECT_EQ(program->entries(), (std::vector<std::string>{"a", "b"}));
  Memory memory;
  auto errorOf = [&](const std::string &entry, Dim3 grid, Dim3 block, int64_t shared,
                     size_t bytes) {
    Launch launch;
    launch.entry = entry;
    launch.grid = grid;
    launch.block = block;
    launch.sharedBytes = shared;
    launch.parameters.resize(bytes);
    Result<LaunchStats> stats = run(*program, memory, launch);
    return stats ? std::string() : stats.error().str();
  };
  EXPECT_EQ(errorOf("a", {}, {64, 1, 1}, 0, 8), "");
  EXPECT_EQ(errorOf("c", {}, {64, 1, 1}, 0, 8),
            "error: no entry `c`, the module has `a`, `b` [emulator_unknown_entry]\n");
  EXPECT_EQ(errorOf("a", {}, {64, 1, 1}, 0, 4),
            "error: launch of `a` with 4 bytes of parameters, the entry takes 8 "
            "[emulator_bad_launch]\n");
  EXPECT_EQ(errorOf("a", {}, {32, 1, 1}, 0, 8),
            "error: launch of `a` with block 32x1x1, .reqntid asks for 64x1x1 "
            "[emulator_bad_launch]\n");
  EXPECT_EQ(errorOf("b", {}, {129, 1, 1}, 0, 0),
            "error: launch of `b` with block 129x1x1, .maxntid allows 128 threads "
            "[emulator_bad_launch]\n");
  EXPECT_EQ(
      errorOf("b", {}, {0, 1, 1}, 0, 0),
      "error: launch of `b` with block 0x1x1, a block has 1 to 1024 threads and at most 64 in "
      "z [emulator_bad_launch]\n");
  EXPECT_EQ(errorOf("b", {1, 0, 1}, {1, 1, 1}, 0, 0),
            "error: launch of `b` with grid 1x0x1, a grid has at least 1 and at most "
            "2147483647x65535x65535 [emulator_bad_launch]\n");
  EXPECT_EQ(
      errorOf("b", {}, {1, 1, 1}, 200000, 0),
      "error: launch of `b` with 200000 bytes of dynamic and 0 of static shared memory, a block "
      "may have 166912 [emulator_bad_launch]\n");
  EXPECT_NE(errorOf("b", {}, {1, 1, 1}, -1, 0), "");
  Config config;
  EXPECT_EQ(
      runKernel(kernel(".local .align 4 .b8 l[1073741824];\nst.local.b32 [l], 1;"), config).error,
      "error: launch of `k` with 1073741824 bytes of local memory, a thread may have 524288 "
      "[emulator_bad_launch]\n");
}

TEST(Program, ScopesHideNamesAndKeepLabelsApart) {
  Config config;
  config.block.x = 1;
  config.outBytes = 8;
  Ran ran = runKernel(kernel(R"(
  .reg .b32 tmp;
  mov.b32 tmp, 1;
  { .reg .b32 tmp; mov.b32 tmp, 2; bra L; mov.b32 tmp, 3; L: st.global.b32 [%dout], tmp; }
  { .reg .b16 tmp; bra L; mov.b16 tmp, 3; L: mov.b32 %r1, {tmp, tmp}; }
  st.global.b32 [%dout+4], tmp;)"),
                      config);
  ASSERT_EQ(ran.error, "");
  EXPECT_EQ(ran.as<uint32_t>(), (std::vector<uint32_t>{2, 1}));
}

TEST(Program, OnlyLinesOfTheRhoFileAreOrigins) {
  auto errorWith = [](const std::string &files) {
    Config config;
    config.origins = {"gemm", "weight"};
    return runKernel(
               kernel(".loc 2 1 0\nadd.u32 %r1, %r1, 1;\n.loc 1 2 3, function_name $L__info0, "
                      "inlined_at 2 1 0\ntrap;",
                      files),
               config)
        .error;
  };
  EXPECT_NE(errorWith(".file 1 \"/a/rho\"\n.file 2 \"b.cu\", 12, 34").find(", from weight ["),
            std::string::npos);
  EXPECT_EQ(errorWith(".file 1 \"b.cu\"\n.file 2 \"rho\"").find(", from"), std::string::npos);
}

// What LLVM's NVPTX backend writes, with its debug sections.
TEST(Program, TextsOfTheNvptxBackendAreRead) {
  Result<Program> program = Program::parse(fileText("nvptx.ptx"));
  ASSERT_TRUE(program) << program.error().str();
  EXPECT_EQ(program->entries(), std::vector<std::string>{"k"});
}

// Every prefix of a valid text, by byte, and every text with one token missing.
TEST(Program, TruncatedTextsGiveErrors) {
  std::string text = fileText("nvptx.ptx");
  ASSERT_GT(text.size(), 1000u);
  size_t whole = text.find("\n}") + 2; // prefixes beyond the body are valid modules
  for (size_t length = text.find(".entry"); length < whole; ++length)
    ASSERT_NE(parseError(text.substr(0, length)), "") << length;
  for (size_t length = 0; length < text.size(); ++length)
    (void)parseError(text.substr(0, length));
}

TEST(Program, DamagedTextsDoNoHarm) {
  std::string text = fileText("nvptx.ptx");
  std::mt19937_64 random = repeatable(1);
  const std::string letters = "{}[](),;:.@!|+-<>%$_\"0f9xrdsb \n";
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      size_t at = random() % damaged.size();
      switch (random() % 3) {
      case 0:
        damaged[at] = letters[random() % letters.size()];
        break;
      case 1:
        damaged.erase(at, 1 + random() % 8);
        break;
      default:
        damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
        break;
      }
    }
    Result<Program> program = Program::parse(damaged);
    if (!program || program->entries().empty())
      continue;
    // What still parses also runs, or is stopped.
    Memory memory;
    uint64_t p = memory.allocate(4096), q = memory.allocate(4096);
    Launch launch;
    launch.entry = program->entries()[0];
    launch.block.x = 32;
    launch.sharedBytes = 4096;
    launch.maxWarpInstructions = 2000;
    launch.parameters.resize(64);
    std::memcpy(launch.parameters.data(), &p, 8);
    std::memcpy(launch.parameters.data() + 8, &q, 8);
    (void)run(*program, memory, launch, 1);
  }
}

} // namespace
} // namespace rho::emulator::test
