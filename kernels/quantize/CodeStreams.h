// The arrays of codes that a quantized matrix consists of, its parts' included, in one list.
// Internal to kernels/quantize.
#pragma once

#include "dsl/Quantize.h"
#include "kernels/TensorHeader.h"

#include <string>
#include <vector>

namespace rho::kernels {

// One array: a component, or what says which part stores each block.
struct CodeStream {
  std::string name; // of its tensor: "w.scale", of a part "w.high.scale", of blocks "w.choice"
  dsl::ElementType type;
  dsl::Extent extent = dsl::Extent::Element; // Group also for blocks
  dsl::BlockGrid grid{1, 1};
  int64_t rows = 1, columns = 1; // numbers from one code to the next, down and across
  std::vector<int> path;         // the parts, from the outside in, that it lies in
  int component = -1;            // of the innermost part's format, -1: its choice
  int choices = 0;               // of a choice: values that it may have
  bool selective = false;        // some blocks of its parts are stored elsewhere

  // Whether only codes of blocks that its parts store are kept.
  bool isSelective() const {
    return selective && (extent == dsl::Extent::Element || extent == dsl::Extent::Group);
  }
};

// Choices stand before the parts that depend on them.
std::vector<CodeStream> streamsOf(const std::string &name, const dsl::Format &format, int64_t rows,
                                  int64_t k);
// Its tensor, where all codes are kept: of the type of .safetensors that has the same numbers and
// as many bits, in rows, else packed (PackedCodes.h) in bytes, in rows where these end at a byte.
TensorEntry entryOf(const CodeStream &stream);

// The innermost part that has the stream.
const dsl::QuantizedMatrix &partOf(const dsl::QuantizedMatrix &matrix, const CodeStream &stream);

// Copies what a residual shares with the rest of its format.
void shareCodes(dsl::QuantizedMatrix &matrix);

dsl::CodeArray &codesOf(dsl::QuantizedMatrix &matrix, const CodeStream &stream);
const dsl::CodeArray &codesOf(const dsl::QuantizedMatrix &matrix, const CodeStream &stream);

// Whether the parts of a stream store the number at (row, column).
bool isStored(const CodeStream &stream, const dsl::QuantizedMatrix &matrix, int64_t row,
              int64_t column);

// Calls visit(index) for the codes of blocks that its parts store, in order.
template <class Visit>
void forEachStored(const CodeStream &stream, const dsl::QuantizedMatrix &matrix,
                   const Visit &visit) {
  for (int64_t row = 0; row < stream.grid.rows; ++row)
    for (int64_t column = 0; column < stream.grid.columns; ++column)
      if (isStored(stream, matrix, row * stream.rows, column * stream.columns))
        visit(row * stream.grid.columns + column);
}

// How many codes of a stream are kept.
int64_t storedCount(const CodeStream &stream, const dsl::QuantizedMatrix &matrix);

} // namespace rho::kernels
