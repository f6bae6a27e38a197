// Every shipped weight format with every kind of activation on every target: what is legal, how
// exact it is, and why not. docs/MATRIX.md is that table; RHO_BLESS=1 rewrites it. What is legal is
// executed on the emulator.
#include "compiler/OnTarget.h"
#include "compiler/plan/Placement.h"
#include "runtime/Kernel.h"
#include "tests/compiler/ShippedWeights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace rho::test {
namespace {

const char *const activations[] = {"f16",       "bf16",      "int8_token",  "int4_token",
                                   "int4_g128", "fp8_token", "nvfp4_token", "mxfp4"};
constexpr GemmShape shape{3, 64, 256};

// One kernel for each family of instructions, the same on all targets that have it. With tiles of
// few batch rows warps with roles multiply by mma.sync, too.
constexpr const char *mmaSync = "roles: uniform tile: 8 x 64 x 128 warps: 1 x 4 pipeline: 2";
constexpr const char *wgmma = "roles: imfp tile: 32 x 64 x 128 warps: 1 x 4 pipeline: 2";
constexpr const char *apartWgmma = "roles: excp tile: 32 x 64 x 128 warps: 1 x 4 pipeline: 2";

struct Cell {
  bool legal = false;
  std::string text;   // how exact, or why not
  std::string reason; // why activations are stored as numbers
};

Cell cellOf(const Case &test) {
  Result<dsl::Module> module = dsl::parseModule(declaration(test), "cell.rho",
                                                [](const std::string &) { return std::nullopt; });
  if (!module)
    return {false, module.error().diagnostics[0].message, ""};
  const compiler::TargetGemm target = compiler::onTarget(module->gemms[0], test.target);
  const dsl::Gemm &gemm = target.gemm;
  Result<compiler::DeviceModel> device = compiler::modelOfTarget(test.target);
  Result<compiler::Plan> plan =
      compiler::plan(gemm, {test.shape.m, test.shape.n, test.shape.k}, *device, nullptr);
  if (!plan)
    return {false, plan.error().diagnostics[0].message, ""};
  Result<compiler::PlacedGemm> placed = compiler::place(gemm, *plan, nullptr);
  if (!target.reason.empty())
    return {true, plan->mmaType + (target.roundoff > 0 ? " rounded" : ""), target.reason};
  return {true,
          placed->integerAccumulator     ? "integer"
          : placed->operandRoundings > 0 ? "rounded"
                                         : "float",
          ""};
}

// By wgmma where that is possible, and as codes where that is possible; else by mma.sync.
Case caseOf(const std::string &weight, const std::string &activation, const std::string &target) {
  Case byWarps{weight, activation, "f32", mmaSync, target, shape};
  if (target != "sm_90a")
    return byWarps;
  Case byWarpgroups = byWarps;
  byWarpgroups.schedule = wgmma;
  const Cell cell = cellOf(byWarpgroups);
  const bool needsNumbers = !cell.legal || !cell.reason.empty();
  return needsNumbers && cellOf(byWarps).reason.empty() ? byWarps : byWarpgroups;
}

// The same reason for all that have it: the cell's row and column say which they are.
std::string withoutNames(const Case &test, std::string reason) {
  auto replace = [&](const std::string &name, const std::string &kind) {
    for (size_t at; (at = reason.find(name)) != std::string::npos;)
      reason.replace(at, name.size(), kind);
  };
  replace("activation '" + test.activation + "'", "the activation");
  replace("weight '" + test.weight + "'", "the weight");
  replace("'" + test.weight + "'", "the weight");
  replace(", " + test.target + " has", ", the target has");
  return reason;
}

std::string table() {
  std::vector<std::string> reasons;
  std::ostringstream rows;
  bool complete = true;
  std::vector<std::string> targets = compiler::allTargets();
  for (const std::string &weight : shippedWeights())
    for (const char *activation : activations) {
      rows << "| " << weight << " | " << activation << " |";
      for (const std::string &target : targets) {
        Case test = caseOf(weight, activation, target);
        Cell cell = cellOf(test);
        if (cell.legal && cell.reason.empty()) {
          rows << ' ' << cell.text << " |";
          continue;
        }
        std::string reason = withoutNames(test, cell.legal ? cell.reason : cell.text);
        auto known = std::find(reasons.begin(), reasons.end(), reason);
        complete = complete && cell.legal;
        rows << ' ' << (cell.legal ? cell.text : "no") << " [" << known - reasons.begin() + 1
             << "] |";
        if (known == reasons.end())
          reasons.push_back(reason);
      }
      rows << '\n';
    }
  std::ostringstream out;
  out << "# What meets what\n\n"
         "Every shipped weight format with every kind of activation on every target, generated "
         "and\n"
         "checked by tests/compiler/MatrixTest.cpp.\n\n"
         "- integer: operands are integers and their sums exact; rounding begins with the scales;\n"
         "- float: operands hold exactly what the codes stand for, sums are those of the tensor "
         "cores;\n"
         "- rounded: operands are rounded to their type as well;\n"
         "- f16, bf16: activations are stored as numbers of that type, not as codes, exactly or "
         "rounded"
      << (complete ? ".\n\n" : ";\n- no: there is no kernel.\n\n")
      << "The number in brackets is that of the reason below, which calls weight, activation and "
         "target\n"
         "of the row and the column so.\n\n"
         "Each pair that is legal on a target is executed on that target's emulator, on sm_90a by\n"
         "wgmma where that is possible, with decodes beside the products and apart from them, and "
         "else by\n"
         "mma.sync, and is within its computed error bound.\n\n"
         "| weight | activation |";
  for (const std::string &target : targets)
    out << ' ' << target << " |";
  out << "\n|---|---|";
  for (size_t i = 0; i < targets.size(); ++i)
    out << "---|";
  out << '\n' << rows.str() << "\nReasons:\n\n";
  for (size_t i = 0; i < reasons.size(); ++i)
    out << i + 1 << ". " << reasons[i] << '\n';
  return out.str();
}

TEST(Matrix, IsPublished) {
  std::filesystem::path path = RHO_SOURCE_DIR "/docs/MATRIX.md";
  std::string now = table();
  if (const char *bless = std::getenv("RHO_BLESS"); bless && *bless)
    std::ofstream(path, std::ios::binary) << now;
  EXPECT_EQ(now, textOf(path)) << "RHO_BLESS=1 rewrites it";
}

class MatrixCells : public testing::TestWithParam<std::string> {};

TEST_P(MatrixCells, ThatAreLegalAreWithinTheBound) {
  auto expectByWarpgroups = [](const Case &test) {
    Outcome result;
    expectWithinBound(test, result);
    if (!HasFatalFailure())
      EXPECT_NE(result.gemm.impl().image().ptx.find("wgmma.mma_async"), std::string::npos)
          << describe(test);
  };
  for (const char *activation : activations)
    for (const std::string &target : compiler::allTargets()) {
      Case test = caseOf(GetParam(), activation, target);
      if (!cellOf(test).legal)
        continue;
      if (test.schedule != wgmma) {
        expectWithinBound(test);
        continue;
      }
      expectByWarpgroups(test);
      test.schedule = apartWgmma;
      if (cellOf(test).legal)
        expectByWarpgroups(test);
    }
}

INSTANTIATE_TEST_SUITE_P(Shipped, MatrixCells, testing::ValuesIn(shippedWeights()),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace rho::test
