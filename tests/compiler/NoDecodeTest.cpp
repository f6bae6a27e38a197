// Why a gemm has no kernel as it is declared, or another one than it says.
#include "compiler/Devices.h"
#include "compiler/OnTarget.h"
#include "tests/compiler/Plans.h"

namespace rho::compiler {
namespace {

std::string problemOf(const std::string &text, const std::string &target) {
  const dsl::Module module = parse(text);
  const TargetGemm own = onTarget(module.gemms.at(0), target);
  Result<Plan> planned = plan(own.gemm, {1, 512, 4096}, *modelOfTarget(target), nullptr);
  return planned.ok() ? "planned" : planned.error().diagnostics[0].message;
}

TEST(NoDecode, SaysWhatIsInTheWay) {
  struct Refusal {
    std::string format, gemm, message;
  };
  const std::string decode = "no decode from '";
  for (const Refusal &each :
       {// With scales as numbers it is the element that has none.
        Refusal{"element: u5 sc: bf16 per k[64] value = (element & 21) * (sc + 0.25) encode { "
                "sc = absmax(x) }",
                "activation: f16 output: f32",
                decode + "element & 0x15' of 'w' to f16 operands, which activation 'f16' needs: no "
                         "short sequence makes them of its bits, a codebook of the same numbers "
                         "may have one"},
        // Numbers that a requirement excludes need not be ones of the operand.
        Refusal{
            "element: u6 scale: f16 per k[64] value = (5 * element + 4) * scale require element "
            "<= 50 encode { scale = absmax(x) / 63 }",
            "activation: bf16 output: f32",
            decode + "5 * element + 4' of 'w' to bf16 operands, which activation 'bf16' needs: "
                     "no short sequence makes them of its bits, a codebook of the same numbers "
                     "may have one"},
        // f16 scales have products that f16 does not hold.
        Refusal{
            "element: s4 scale: f16 per k[64] value = e4m3(element * scale) encode { scale = 1 } "
            "} format a8 { element: e4m3 s: f32 per token value = element * s",
            "activation: a8 output: f32",
            decode + "e4m3(element * scale)' of 'w' to bf16 operands, which activation 'a8' "
                     "needs: of what is rounded only e4m3(element * scale) has one, for operands "
                     "of e4m3, of elements of up to 7 bits, no codebooks, where f16 holds every "
                     "product and groups are of 16 or more"},
        Refusal{"element: s4 inv: f16 per k[64] value = element / inv encode { inv = 7 / absmax(x) "
                "}",
                "activation: bf16 output: f32 schedule { tables: mixed }",
                "tables: mixed does not fit 'g': the decode in registers wants codes in other "
                "places, or scales times other powers of two, than tables"},
        Refusal{"element: codebook [-1, -0.7, -0.5, 0, 0.25, 0.5, 0.75, 1] remap 3 to [2, a] by "
                "sel scale: ue4m3 per k[16] sel: u1 per k[32] a: f16 per tensor value = element * "
                "scale encode { a = 1.5 }",
                "activation: f16 output: f32",
                decode + "element' of 'w' to f16 operands, which activation 'f16' needs: beside a "
                         "remapped code its numbers must be ones of f16, -0.7 is none"},
        Refusal{"element: codebook [1, -1, 2, 0.5] remap 1 to [7, -7] by sel scale: ue4m3 per "
                "k[64] sel: u1 in scale value = element * scale",
                "activation: f16 output: f32",
                decode + "element' of 'w' to f16 operands, which activation 'f16' needs: of "
                         "codebooks with a remapped code those of 16 values have one"},
        Refusal{"element: u4 scale: f16 per k[24] zero: u4 per k[24] value = (element - zero) * "
                "scale",
                "activation: f16 output: f32",
                "'zero' of 'w' stands beside the element per k[24], no multiple of 16 of k, for "
                "which there are no kernels yet"},
        // Zeros at the end of an integer are no digits.
        Refusal{"element: s4 sh: u3 per k[32] scale: f32 per channel value = (element << sh) * "
                "scale encode { scale = absmax(x) / 7 / 128 sh = 3 }",
                "activation: bf16 output: f32",
                decode + "element << sh' of 'w' to bf16 operands, which activation 'bf16' needs: "
                         "none is known for such expressions of what numbers share, element - zero "
                         "and element * step + origin have one"},
        // With its factor as numbers the weight has a decode.
        Refusal{"element: s4 sh: u3 per k[64] c: f32 per channel value = element * (1 << sh) * c "
                "encode { c = absmax(x) / 448 sh = 3 } } format a8 { element: s8 s: f32 per token "
                "value = "
                "element * s",
                "activation: a8 output: f32 schedule { tables: mixed }",
                "tables: mixed does not fit 'g': codes of 4 bits are looked up there, alone in "
                "their factor, for operands of f16 and bf16 that hold each of their numbers"}})
    EXPECT_EQ(problemOf("format w { " + each.format + " } gemm g { weight: w " + each.gemm + " }",
                        "sm_80"),
              each.message);
}

// All activations of a CTA of roles gemv lie in shared memory; no split of k was asked for.
TEST(NoPlan, BlamesTheLengthOfAGemv) {
  EXPECT_EQ(planOf("gemm g { weight: int4 activation: f16 output: f16 schedule { roles: gemv } }",
                   {1, 64, 200000}, "sm_80")
                .error()
                .diagnostics[0]
                .message,
            "tile 1 x 16 x 64 with pipeline 2 needs 401536 bytes of shared memory; sm_80 has "
            "166912");
}

// Of a residual that no kernel adds: its selectors have a place of their own, and nobody asked for
// a place of scales.
TEST(NoDecode, ResidualsSayWhatIsInTheWay) {
  auto expect = [](const std::string &formats, const std::string &message) {
    EXPECT_EQ(problemOf(formats + " gemm g { weight: w activation: f16 output: f16 }", "sm_90a"),
              message);
  };
  expect("format res { element: e2m1 remap 8 to [5, -5] by selector block: ue4m3 per k[24] "
         "selector: u1 in block t: f32 per channel value = element * block * t } format w { "
         "element: s4 scale: f16 per channel value = element * scale residual fix: res per n[64] "
         "k[192] budget 10% }",
         "no kernel adds the residual 'fix' of 'w': 'block' of 'res' is per k[24], a kernel "
         "takes powers of two");
  expect("format res { element: s4 s: f16 per k[192] value = element * s } format w { element: s4 "
         "f: e4m3 per k[8] c: f32 per channel value = element * f * c residual fix: res per n[16] "
         "k[192] budget 50% }",
         "no kernel adds the residual 'fix' of 'w': 's' of 'res' is per k[192], a kernel takes "
         "powers of two");
}

// Not what an activation of another type would lack.
TEST(NoDecode, NumbersAreNotTakenForOthers) {
  const std::string message =
      problemOf("format w { element: u6 step: u3 per k[8] origin: u6 per k[8] ch: f32 per channel "
                "value = (element * step + origin) * ch encode { ch = absmax(x) / 100 step = "
                "max((max(x / ch) - min(x / ch)) / 63, 1) origin = -min(x / ch) } } "
                "gemm g { weight: w activation: f16 output: f32 }",
                "sm_80");
  EXPECT_NE(message.find("stands beside the element per k[8], no multiple of 16 of k"),
            std::string::npos)
      << message;
}

// Roles that the planner would choose may be declared: parts whose blocks are shorter than these
// roles' tiles are stored as numbers either way.
TEST(OnTarget, DeclaredRolesAreThoseThatWouldBeChosen) {
  const std::string formats =
      "format t4 { element: s4 scale: f16 per token value = element * scale }\n"
      "format t8 { element: s8 scale: f16 per token value = element * scale }\n"
      "format parts { partition per tensor k[64] { lo: t4 hi: t8 budget 30% } }\n"
      "format w { element: s4 scale: f16 per k[32] value = (element + 0.5) * scale encode { scale "
      "= absmax(x) / 7.5 } }\n";
  for (const std::string schedule : {"", "schedule { roles: imfp }"}) {
    const dsl::Module module =
        parse(formats + "gemm g { weight: w activation: parts output: f16 " + schedule + " }");
    const TargetGemm own = onTarget(module.gemms[0], "sm_90a");
    Result<Plan> planned = plan(own.gemm, {1, 512, 4096}, *modelOfTarget("sm_90a"), nullptr);
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    EXPECT_EQ(planned->schedule.roles, dsl::ScheduleDecl::Roles::ImFP);
  }
  // A tile is the user's.
  EXPECT_EQ(problemOf(formats +
                          "gemm g { weight: w activation: parts output: f16 schedule { roles: "
                          "imfp tile: 16 x 64 x 128 } }",
                      "sm_90a"),
            "tile k = 128 does not fit: it must divide the blocks of 64, each of which is stored "
            "in one format");
}

// Rounded numbers have all digits of their type.
TEST(OnTarget, NumbersThatWouldVanishAreNotStoredAsF16) {
  auto storedAs = [&](const std::string &special) {
    const dsl::Module module =
        parse("format w { element: s4 s: f16 per channel value = element * s } format a { element: "
              "s4 remap 8 to [" +
              special +
              ", 3] by sel s: f32 per token sel: u1 per k[64] value = element * s } gemm "
              "g { weight: w activation: a output: f32 }");
    return compiler::storedAs(onTarget(module.gemms[0], "sm_80"));
  };
  EXPECT_EQ(storedAs("0.3"), "f16");
  EXPECT_EQ(storedAs("1e-30"), "bf16");
}

// Scales that each instruction's sums would take go into operands of 16 bits where CUDA cores are
// too slow for them, as the cost model says of devices of these targets, and nothing is rounded.
TEST(OnTarget, FineGroupsBesideCodesAreMultipliedAsNumbersWhereThatIsFaster) {
  const std::string formats =
      "format nv { element: e2m1 block: e4m3 per k[16] tensor: f32 per tensor value = element * "
      "block * tensor }\n"
      "format coarse { element: e2m1 block: e4m3 per k[64] value = element * block }\n"
      "format wide { element: s4 block: f16 per k[16] value = element * block }\n"
      "format mx { element: e2m1 block: e8m0 per k[32] value = element * block }\n"
      "format mx8 { element: e4m3 scale: e8m0 per k[32] value = element * scale }\n"
      "format fp8 { element: e4m3 scale: f32 per token value = element * scale }\n"
      "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
      "format grouped { element: s8 scale: f16 per k[128] value = element * scale }\n";
  auto storedAs = [&](const std::string &weight, const std::string &activation,
                      const std::string &target, const std::string &schedule = "") {
    const dsl::Module module =
        parse(formats + "gemm g { weight: " + weight + " activation: " + activation +
              " output: f16 " + schedule + " }");
    const TargetGemm own = onTarget(module.gemms[0], target);
    EXPECT_EQ(own.roundoff, 0);
    EXPECT_EQ(own.reason.empty(),
              own.gemm.activation.element().type == module.gemms[0].activation.element().type);
    return std::string(own.gemm.activation.element().type.name());
  };
  for (const char *target : {"sm_80", "sm_90a"})
    EXPECT_EQ(storedAs("nv", "int8", target), "f16");
  for (const char *target : {"sm_86", "sm_89", "sm_120a"})
    EXPECT_EQ(storedAs("nv", "int8", target), "s8");
  EXPECT_EQ(storedAs("coarse", "int8", "sm_90a"), "s8");
  EXPECT_EQ(storedAs("mx", "int8", "sm_90a"), "bf16");
  EXPECT_EQ(storedAs("nv", "fp8", "sm_90a"), "f16");
  EXPECT_EQ(storedAs("mx", "fp8", "sm_90a"), "e4m3");   // sums are floats
  EXPECT_EQ(storedAs("mx", "fp8", "sm_80"), "bf16");    // which has no such instruction
  EXPECT_EQ(storedAs("wide", "int8", "sm_80"), "s8");   // products are rounded
  EXPECT_EQ(storedAs("wide", "int8", "sm_90a"), "f16"); // and wgmma takes no 16 of k in codes
  EXPECT_EQ(storedAs("wide", "int8", "sm_90a", "schedule { scales: accumulator }"), "s8");
  EXPECT_EQ(storedAs("wide", "int8", "sm_90a", "schedule { roles: uniform }"), "s8");
  EXPECT_EQ(storedAs("nv", "grouped", "sm_90a"), "s8"); // not exact without its scales
  // Numbers beyond those of bf16 stay codes, and saturate where codes have no kernel.
  EXPECT_EQ(storedAs("nv", "mx8", "sm_90a"), "e4m3");
  const dsl::Module blocks = parse(formats + "gemm g { weight: mx activation: mx8 output: f16 }");
  EXPECT_EQ(onTarget(blocks.gemms[0], "sm_80").gemm.activation.element().type.name(), "bf16");
  EXPECT_TRUE(onTarget(blocks.gemms[0], "sm_80").saturates);
  EXPECT_EQ(storedAs("nv", "int8", "sm_90a", "schedule { scales: accumulator }"), "s8");
  const dsl::Module module = parse(formats + "gemm g { weight: nv activation: int8 output: f16 }\n"
                                             "gemm h { weight: mx activation: int8 output: f16 }");
  EXPECT_EQ(onTarget(module.gemms[0], "sm_90a").reason,
            "beside codes the sums of every 16 of k would be scaled, by CUDA cores with 1/16 of "
            "the throughput of tensor cores, which is slower");
  for (const char *name : {"a100_80g", "h200"})
    for (int64_t m : {1, 16, 256, 4096}) {
      const DeviceModel device = modelOf(*shippedDevice(name));
      const Problem problem{m, 8192, 8192};
      for (const dsl::Gemm &codes : module.gemms)
        EXPECT_LT(plan(onTarget(codes, device.target).gemm, problem, device, nullptr)
                      ->predictedMicroseconds,
                  plan(codes, problem, device, nullptr)->predictedMicroseconds)
            << name << " m = " << m;
    }
}

} // namespace
} // namespace rho::compiler
