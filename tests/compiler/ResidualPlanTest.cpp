// Which residuals no kernel adds, and why.
#include "compiler/OnTarget.h"
#include "compiler/Plan.h"
#include "dsl/Module.h"

#include <gtest/gtest.h>

namespace rho::compiler {
namespace {

std::string planOrMessage(const std::string &text) {
  Result<dsl::Module> module =
      dsl::parseModule(text, "t.rho", [](const std::string &) { return std::nullopt; });
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  Result<Plan> result = plan(onTarget(module->gemms.at(0), "sm_80").gemm, {16, 4096, 4096},
                             *modelOfTarget("sm_80"), module->sources.get());
  return result.ok() ? "planned\n" + result->print() : result.error().str();
}

// What the search for the setting that is in the way tries may be no geometry at all.
TEST(ResidualDiagnostics, NameSettingsBesideResidualsOfGroups) {
  for (auto [schedule, id] : {std::pair{"roles: imfp", "[schedule_roles]"},
                              {"tile: 16 x 16 x 128 warps: 1 x 4", "[schedule_"},
                              {"balance: cost split_k: stream", "[schedule_balance]"},
                              {"balance: tiles split_k: 2", "[schedule_balance]"}}) {
    const std::string message = planOrMessage(
        std::string("format rest { element: s4 s: f16 per k[64] value = element * s }\n"
                    "format w { element: s4 s: f16 per channel value = element * s "
                    "residual fix: rest per n[64] k[64] }\n"
                    "gemm g { weight: w activation: f16 output: f16 schedule { ") +
        schedule + " } }");
    EXPECT_NE(message.find(id), std::string::npos) << schedule << ": " << message;
  }
}

TEST(ResidualDiagnostics, SayWhyNoKernelAddsOne) {
  auto whyNot = [](const std::string &residual, const std::string &schedule,
                   const std::string &activation = "int8") {
    return planOrMessage(
        "format int8 { element: s8 scale: f32 per token value = element * scale }\n"
        "format fine { element: s8 scale: f16 per k[16] value = element * scale }\n"
        "format nested { element: s4 scale: f16 per channel value = element * scale "
        "residual more: rest per n[16] k[64] }\n"
        "format rest { element: s4 scale: f16 per channel value = element * scale }\n"
        "format g96 { element: s4 scale: f16 per k[96] value = element * scale }\n"
        "format w { element: s4 scale: f16 per channel value = element * scale "
        "residual fix: " +
        residual +
        " }\n"
        "gemm g { weight: w activation: " +
        activation + " output: f16 schedule { " + schedule + " } }");
  };
  struct Refusal {
    const char *residual, *schedule, *text;
  };
  for (const Refusal &refusal : {
           Refusal{
               "rest per n[8] k[64]", "",
               "no kernel adds the residual 'fix' of 'w': its blocks have 8 rows, a kernel takes "
               "multiples of 16 [no_residual_kernel]"},
           Refusal{
               "rest per tensor k[64]", "",
               "its blocks are of all rows, a kernel takes n[R] k[G] with a multiple of 16 rows "
               "[no_residual_kernel]"},
           Refusal{
               "rest per n[16] k[96]", "",
               "its blocks have 96 columns, a kernel takes multiples of 64 [no_residual_kernel]"},
           Refusal{"g96 per n[16] k[192]", "",
                   "'scale' of 'g96' is per k[96], a kernel takes powers of two "
                   "[no_residual_kernel]"},
           Refusal{"nested per n[16] k[64]", "",
                   "its format 'nested' has parts [no_residual_kernel]"},
           Refusal{"rest per n[16] k[64]", "roles: gemv",
                   "roles gemv add low bits of the weight's operands, it has products of its own "
                   "[no_residual_kernel]"},
           Refusal{"rest per n[16] k[64]", "roles: excp",
                   "roles excp have no residual, others have [no_residual_kernel]"},
           Refusal{"rest per n[16] k[64]", "tile: 16 x 64 x 128 warps: 1 x 2",
                   "a warp has 32 weight rows, which blocks of 16 rows of the residual are no "
                   "multiple of [schedule_warps]"},
           Refusal{"rest per n[16] k[64]", "tile: 8 x 64 x 1024 warps: 1 x 4",
                   "its warps have 16 pieces of a residual each, at most 8 [schedule_tile]"},
       })
    EXPECT_NE(whyNot(refusal.residual, refusal.schedule).find(refusal.text), std::string::npos)
        << refusal.residual << " {" << refusal.schedule
        << "}: " << whyNot(refusal.residual, refusal.schedule);
  // Not that the scales of the activation have no place: it is stored as numbers beside others.
  for (const char *roles : {"roles: gemv", "roles: excp"})
    EXPECT_NE(whyNot("rest per n[16] k[64]", roles, "fine").find("[no_residual_kernel]"),
              std::string::npos);
  // A residual whose numbers are no operands of s8: activations are numbers beside it.
  std::string reals = whyNot("bf16 per n[16] k[64]", "");
  EXPECT_NE(reals.find("\nmma bf16\n"), std::string::npos) << reals;
}

} // namespace
} // namespace rho::compiler
