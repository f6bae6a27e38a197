// What decodes of shipped formats take: the table of docs/DECODE.md, which RHO_BLESS=1 rewrites.
#include "compiler/Devices.h"
#include "compiler/OnTarget.h"
#include "compiler/plan/Placement.h"
#include "tests/compiler/Published.h"
#include "tests/compiler/ShippedWeights.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

namespace rho::test {
namespace {

struct Column {
  const char *mmaType, *activation;
};
constexpr Column columns[] = {
    {"f16", "f16"}, {"bf16", "bf16"}, {"s8", "int8_token"}, {"e4m3", "fp8_token"}};

// Instructions for 8 codes of the kernel that is planned for an H200; of operands that stand in
// for those of the column, which.
std::string cellOf(const std::string &weight, const Column &column) {
  const GemmShape shape{16, 8192, 8192};
  const Case test{weight, column.activation, "f16", "", "sm_90a", shape};
  const Result<dsl::Module> module = dsl::parseModule(
      declaration(test), "cell.rho", [](const std::string &) { return std::nullopt; });
  EXPECT_TRUE(module.ok());
  const dsl::Gemm gemm = compiler::onTarget(module->gemms[0], test.target).gemm;
  const Result<compiler::Plan> plan =
      compiler::plan(gemm, {shape.m, shape.n, shape.k},
                     compiler::modelOf(*compiler::shippedDevice("h200")), nullptr);
  EXPECT_TRUE(plan.ok()) << weight << " to " << column.mmaType;
  const Result<compiler::PlacedGemm> placed = compiler::place(gemm, *plan, nullptr);
  const compiler::DecodeSequence &decode = placed->decode;
  constexpr int codes = 8;
  const int instructions = (decode.instructions() * codes + decode.codes - 1) / decode.codes;
  return (placed->mmaType == column.mmaType ? "" : placed->mmaType + ": ") +
         std::to_string(instructions) + (placed->scalesOperand ? " s" : "");
}

std::string publishedOf(const std::string &element) {
  std::string text, last;
  for (const Published &known : published) {
    if (known.element != element || known.instructions == 0 || known.mmaType == last)
      continue; // with another factor
    last = known.mmaType;
    text += (text.empty() ? "" : ", ") + last + " " + std::to_string(known.instructions);
  }
  return text;
}

// Of the part whose codes the kernel decodes.
std::string elementOf(const std::string &weight) {
  const Result<dsl::Module> module =
      dsl::parseModule(declaration({weight, "f16", "f16", "", "", {}}), "cell.rho",
                       [](const std::string &) { return std::nullopt; });
  return std::string(module->findFormat(weight)->element().type.name());
}

constexpr const char *head = "| format | element | f16 | bf16 | s8 | e4m3 | published |\n"
                             "|---|---|---|---|---|---|---|\n";

std::string decodeTable() {
  std::ostringstream out;
  out << head;
  for (const std::string &weight : shippedWeights()) {
    const std::string element = elementOf(weight);
    out << "| " << weight << " | " << (element.starts_with("codebook") ? "codebook" : element);
    for (const Column &column : columns)
      out << " | " << cellOf(weight, column);
    out << " | " << publishedOf(element) << " |\n";
  }
  return out.str();
}

TEST(DecodeTable, IsPublished) {
  const std::filesystem::path path = RHO_SOURCE_DIR "/docs/DECODE.md";
  const std::string now = decodeTable();
  std::string text = textOf(path);
  const size_t begin = text.find(head);
  ASSERT_NE(begin, std::string::npos);
  const size_t length = text.find("\n\n", begin) + 1 - begin;
  if (const char *bless = std::getenv("RHO_BLESS"); bless && *bless)
    std::ofstream(path, std::ios::binary) << text.replace(begin, length, now);
  EXPECT_EQ(now, textOf(path).substr(begin, now.size())) << "RHO_BLESS=1 rewrites it";
}

} // namespace
} // namespace rho::test
