// What tests of plans share: gemms of three formats, and what becomes of them.
#pragma once

#include "compiler/Plan.h"
#include "dsl/Module.h"

#include <gtest/gtest.h>

namespace rho::compiler {

inline dsl::Module parse(const std::string &text) {
  Result<dsl::Module> module =
      dsl::parseModule(text, "t.rho", [](const std::string &) { return std::nullopt; });
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  return *module;
}

inline const std::string formats =
    R"(format int4 { element: s4 scale: f16 per k[128] value = element * scale }
format channel4 { element: s4 scale: f16 per channel value = element * scale }
format int8 { element: s8 scale: f32 per token value = element * scale }
)";

inline Result<Plan> planOf(const std::string &gemm, Problem problem = {16, 4096, 4096},
                           const std::string &target = "sm_80") {
  dsl::Module module = parse(formats + gemm);
  return plan(module.gemms.at(0), problem, *modelOfTarget(target), module.sources.get());
}

inline std::string messageOf(const std::string &gemm, Problem problem = {16, 4096, 4096}) {
  Result<Plan> result = planOf(gemm, problem);
  return result.ok() ? "planned\n" + result->print() : result.error().str();
}

inline Placement placementOf(const Plan &plan, const std::string &factor) {
  for (const FactorPlacement &placement : plan.placements)
    if (placement.factor == factor)
      return placement.placement;
  ADD_FAILURE() << "no placement of " << factor;
  return Placement::Operand;
}

} // namespace rho::compiler
