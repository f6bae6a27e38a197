// The public API to files that `rho quantize` wrote: from a name to a weight that a Gemm launches
// with. As runtime/Rho.h free of MLIR, LLVM and CUDA headers; docs/CLI.md, rho quantize, states the
// layout of the files.
#pragma once

#include "runtime/InputTransform.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rho {

// A quantized .safetensors file, or the .safetensors.index.json of several. Mapped, not read: it
// may be larger than memory, and must not be cut short while it is open. Cheap to copy; its
// functions may be called from several threads.
class WeightFile {
public:
  // Errors: safetensors_needed, file_not_readable, tensor_file_invalid, quantized_file_invalid
  // where nothing in it is quantized.
  static Result<WeightFile> open(const std::string &path);

  std::vector<std::string> names() const; // of its quantized weights, sorted
  struct Weight {
    std::string format; // f16, bf16 and f32 are declared nowhere
    // A .rho text that declares it: with `gemm g { weight: FORMAT ... }` behind it one for
    // Module::parse.
    std::string declarations;
    int64_t n = 0, k = 0;
    bool transformsInputs = false; // see inputTransform()
  };
  // Errors of this and what follows: not_quantized for a name that is none of names(),
  // quantized_file_invalid, out_of_memory.
  Result<Weight> describe(std::string_view name) const;
  // The codes of a weight, packed for a gemm whose weight has this format, n and k, in memory of
  // its device. Where transformsInputs the products are those of the layer only for activations of
  // makeActivations(inputTransform()): no launch can tell. Other errors: those of
  // docs/GRAMMAR.md where the declaration in the file cannot be read, those of Gemm::packQuantized.
  Result<Buffer> pack(std::string_view name, const Gemm &gemm) const;
  // Rows and columns of a weight; 0 of them: all from the first on.
  struct Slice {
    std::string name;
    int64_t firstRow = 0, rows = 0, firstColumn = 0, columns = 0;
  };
  // The same of slices, each below the one before: the share of one of several devices, layers with
  // the same inputs in one launch (q, k and v), or both. Columns are counted behind what
  // inputTransform() does, which is for whole rows: where a weight has one, whoever launches some
  // of its columns transforms the inputs and quantizes their columns himself. Other errors:
  // no_slices, slice_out_of_range, slice_divides_block for one that begins inside numbers which
  // share a scale, slices_differ where their formats, columns, input transforms or numbers per
  // tensor do, as of weights that are smoothed or have such numbers and were not encoded as one;
  // layout_mismatch where a slice has more blocks of a residual than the budget of the gemm's
  // weight lets it have: a gemm for slices declares a larger one, which is no other format.
  Result<Buffer> pack(std::span<const Slice> slices, const Gemm &gemm) const;
  // What `--smooth`, `--permute` and `--rotate` ask of the inputs of the layer, for
  // Gemm::makeActivations; without steps where !transformsInputs. Errors of InputTransform::create.
  Result<InputTransform> inputTransform(std::string_view name, const Engine &engine) const;
  bool valid() const { return pimpl != nullptr; }

private:
  struct Impl;
  std::shared_ptr<const Impl> pimpl;
};

} // namespace rho
