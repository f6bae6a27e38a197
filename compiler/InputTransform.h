// What the inputs of a layer go through before they are quantized, as kernels. Free of MLIR and
// LLVM.
//
// A row of k numbers is divided by a number for each channel, put into another order, and rotated:
// each `size` of its numbers are multiplied by factors of their own, then by a Hadamard matrix, the
// Kronecker product of Sylvester's of order size / core and a core of +1 and -1. All in f32, in the
// order of kernels/quantize/LayerTransform.h: bit for bit what the host makes of it.
#pragma once

#include "compiler/KernelImage.h"

#include <vector>

namespace rho::compiler {

struct InputTransform {
  int64_t k = 0;
  bool divides = false, permutes = false;
  int64_t size = 0; // of a rotation, divides k; 0: there is none
  int64_t core = 1; // divides size
};

// Sylvester's matrix is log2(size / core) rounds of sums and differences of numbers core, 2 core,
// ... apart. A launch makes some of these, of numbers `begin` to `end` / 2 apart, in place; the
// first one all that comes before them as well.
struct InputPass {
  bool isFirst = false;
  int64_t begin = 1, end = 1;
};

// At least one. The first meets at most `mostShared` numbers (or one core's), in shared memory.
std::vector<InputPass> inputPasses(const InputTransform &transform, int64_t mostShared);
// Numbers that a CTA has in shared memory: with fewer a row is more CTAs' work, with more it is
// done in fewer passes.
inline constexpr int64_t fewSharedInputs = 1024, mostSharedInputs = 8192;

// Parameters of the first pass: the inputs; bytes from row to row (i64); their type, 0 for f32, 1
// for f16, 2 for bf16 (i32); the results, f32 [m][k]; divisors f32 [k]; channels i32 [k]; factors
// f32 [size]; the core's signs. Pointers to what the transform has not are not read. Of the others:
// the results. Errors: bad_ir.
Result<KernelImage> compileInputPass(const InputTransform &transform, const InputPass &pass,
                                     const std::string &target);
Dim3 inputGrid(const InputTransform &transform, const InputPass &pass, int64_t m);
// Bit c % 32 of word [c / 32][r] says that entry (r, c) of the core is -1. `entries` is
// [core][core].
std::vector<uint32_t> coreSigns(const std::vector<int8_t> &entries, int64_t core);

} // namespace rho::compiler
