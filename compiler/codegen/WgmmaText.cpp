#include "compiler/codegen/WgmmaText.h"

#include "compiler/plan/Geometry.h"
#include "dsl/ElementType.h"

namespace rho::compiler {

namespace {

std::string listOf(const std::vector<std::string> &names, int64_t first, int64_t count) {
  std::string text = "{";
  for (int64_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : ",") + names[first + i];
  return text + "}";
}

} // namespace

int64_t columnOffset(int64_t rows, int64_t column) {
  return column / Geometry::swizzleBytes * rows * Geometry::swizzleBytes +
         column % Geometry::swizzleBytes;
}

std::string WgmmaBatch::print() const {
  const bool apart = !rows.empty();
  const bool mayTranspose = element == "f16" || element == "bf16";
  const int64_t perTile = static_cast<int64_t>(sums.size()) / rowTiles;
  const int64_t k = mmaRowBits / dsl::ElementType::get(element).bits();
  const std::string instruction = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(tileM) +
                                  "k" + std::to_string(k) + (isInteger() ? ".s32." : ".f32.") +
                                  element + "." + element;
  std::string flags = isInteger() ? "" : ", 1, 1"; // neither operand is negated
  if (mayTranspose)
    flags += apart ? ", 0, 0" : ", 0"; // nor transposed, of those in shared memory

  // One 64-bit addition to what all steps have makes a descriptor: ptxas keeps the halves of one
  // that is put together apart, and moves both for each instruction.
  std::string text = "{\n.reg .pred add;\n.reg .b64 columns;\n" +
                     std::string(apart ? ".reg .b64 rows;\n" : "") + "setp.ne.b32 add, " +
                     (fresh ? "0" : "1") + ", 0;\nwgmma.fence.sync.aligned;\n";
  for (int64_t step = 0; step < steps; ++step) {
    if (fresh && step == 1)
      text += "setp.ne.b32 add, 1, 0;\n";
    text += "add.s64 columns, " + columns + ", " +
            std::to_string(columnOffset(tileM, columnOf(step)) / 16) + ";\n";
    for (int64_t t = 0; t < rowTiles; ++t) {
      const int64_t offset = columnOffset(tileN, columnOf(step)) + t * 64 * Geometry::swizzleBytes;
      if (apart)
        text += "add.s64 rows, " + rows + ", " + std::to_string(offset / 16) + ";\n";
      const std::string a = apart ? "rows" : listOf(registers, 4 * (step * rowTiles + t), 4);
      text += instruction + " " + listOf(sums, t * perTile, perTile) + ", " + a + ", " +
              "columns, add" + flags + ";\n";
    }
  }
  return text + "wgmma.commit_group.sync.aligned;\n}";
}

} // namespace rho::compiler
