// Encoding derived from a format: real matrices to codes and back, on the CPU. Deterministic for
// any number of threads.
#pragma once

#include "dsl/Error.h"
#include "dsl/Format.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace rho::dsl {

// Codes of one component in natural order, one code per 1, 2 or 4 bytes (type.bits() <= 8, 16, 32):
//   Element [rows][k]   Group [ceil(rows/R)][ceil(k/G)]   Row [rows]   Tensor [1]
class CodeArray {
public:
  CodeArray() = default;
  CodeArray(int bits, int64_t count);
  int64_t size() const { return count; }
  int width() const { return bytesPerCode; }
  uint32_t get(int64_t i) const;
  void set(int64_t i, uint32_t code);
  const uint8_t *data() const { return bytes.data(); }
  uint8_t *data() { return bytes.data(); }

private:
  int bytesPerCode = 1;
  int64_t count = 0;
  std::vector<uint8_t> bytes;
};

// A matrix in a format: rows x k (rows are n of a weight, m of an activation).
struct QuantizedMatrix {
  std::shared_ptr<const Format> format;
  int64_t rows = 0, k = 0;
  std::vector<CodeArray> components; // as Format::components; none of a format with parts

  // Of a partition its parts; of a format with a residual that without it, then the residual. Each
  // has codes for all numbers, of which those count whose block is stored in it.
  std::vector<QuantizedMatrix> parts;
  // For each block, row by row of blocks: of a partition the part that stores it, of a residual 1
  // where it is stored.
  CodeArray choice;

  double value(int64_t row, int64_t column) const; // the value expression at one place
  std::vector<double> rowValues(int64_t row) const;
  std::vector<double> rowMagnitudes(int64_t row) const; // see magnitude()
  // Those of the columns [begin, end).
  void valuesOf(int64_t row, int64_t begin, int64_t end, double *values) const;
};

// With all codes 0, and all blocks of a partition in its first part, those of a residual in none.
QuantizedMatrix emptyMatrix(std::shared_ptr<const Format> format, int64_t rows, int64_t k);

// How many blocks cover a rows x k matrix, and the place of that of the number at (row, column)
// among them, row by row of blocks (QuantizedMatrix::choice).
struct BlockGrid {
  int64_t rows, columns;
  int64_t size() const { return rows * columns; }
};
BlockGrid blockGrid(const Blocks &blocks, int64_t rows, int64_t k);
int64_t blockIndex(const Blocks &blocks, int64_t k, int64_t row, int64_t column);
// The numbers that share a code of a component, and its codes in natural order.
Blocks blocksOf(const Component &component);
BlockGrid codeGrid(const Component &component, int64_t rows, int64_t k);
int64_t codeIndex(const Component &component, int64_t k, int64_t row, int64_t column);

// Numbers along k that share the codes of all components but the element, k without k[G]; rows that
// share codes, 1 without n[R] and m[R]. Of a format without parts.
int64_t finestGroup(const Format &format, int64_t k);
int64_t bandRows(const Format &format);

// Input numbers, row-major with `stride` elements between rows.
struct MatrixView {
  enum class Type : uint8_t { F32, F16, BF16 };
  const void *data = nullptr;
  Type type = Type::F32;
  int64_t rows = 0, k = 0, stride = 0;
  double at(int64_t row, int64_t column) const;
  void readRow(int64_t row, double *values) const; // all k of them
};

// Encodes a matrix. The steps, which a GPU kernel can repeat bit for bit:
//
// 1. Components in the order Format::encodeOrder, coarse to fine. All arithmetic of a rule is in
//    double, in the order that the rule is written; the components that it reads are the decoded
//    codes; a number over 0 is 0 (what a scale that is 0 multiplies); a reduction gives NaN when
//    one of its numbers is NaN and never -0. The result becomes a code by ElementType::encode. Of
//    the candidates of a rule best(...) the code is that with which the numbers that share it,
//    after all that is encoded later, have the least squared error (in double, number by number in
//    each row, row by row; NaN is infinite); of equal ones the first. A candidate for which a
//    requirement cannot be fulfilled is as far off as can be.
// 2. The element of a product (isProduct) without requirements, or with such as bound the element
//    alone, from below, from above or both: S is the product in double, in the
//    order of declaration, of the other components' decoded codes (1 where there are none). The
//    code is ElementType::encode(0) when S is 0, else ElementType::encode(x / S) with x / S in
//    double: to nearest, ties to even, saturated, also by the bounds, and that of 0 for NaN where
//    the type has no NaN.
//    So is one of more than 8 bits beside literal factors, which S begins with.
// 3. The element of any other format: of the codes that fulfil the requirements and have a finite
//    value, that whose value is nearest to x; of two equally near values that with the even code;
//    of equal values the even code, then the lower. The lowest code that fulfils the requirements
//    where no value is finite or x is NaN. Error requirement_unfulfilled where no code fulfils
//    them.
//
// A residual: the format without it is encoded as ever. r = x - its value, in double and rounded to
// f32, is encoded in the residual's format as a matrix. The score of a block is by how much that
// lowers its squared error: the sum of h * (r^2 - (r - value of r)^2). Of the blocks where the rule
// holds and the score is above 0, those with the largest are stored, the first of equal ones, at
// most mostBlocks(). r, with 0 in place of all other blocks, is then encoded once
// more. With h = mean(x_k^2) of the layer's inputs this is the H-score of MosaicQuant (section 4.1,
// algorithm 1, appendix A), the sum over a block of H_kk * (R^2 - (R - Q4(R))^2), clipped at 0.
//
// A residual `s4 / 16` has the components of the format without it, whose codes it shares: only its
// element is encoded, with S / 16 in place of S; where the format's element is the lowest of its
// type, at least 0, so that the two are the halves of one number of 8 bits.
//
// A partition: x is encoded in each part, in the first as measuredPart() has it. A block belongs to
// the first part; each other part, in order of declaration, takes from those before it the blocks
// where its rule holds (without a rule: where its squared error is less than that of the part that
// has the block), with a budget those that lower the error most, the first of equal ones, at most
// mostBlocks(). Then each part encodes x once more, with 0 in place of all blocks that others
// store: what rows and the tensor share comes from its own numbers.
//
// Squared errors are summed in double along the columns of each row of a block, then over its rows,
// each times the weight h of its column.
// A rule's reductions run over the numbers of x in a block.
//
// Errors: bad_matrix for a view without numbers, requirement_unfulfilled where no code is allowed,
// those below.
struct QuantizeOptions {
  // Weights: a NaN or infinity in the input is the error non_finite_input with its row and column.
  // Without (activations) it goes through the rules: the integer element of a product gets code 0
  // and its scale, where the scale's type has infinity and NaN, is not finite, so that every output
  // that it touches is NaN.
  bool rejectNonFinite = false;
  unsigned threads = 0; // 0 is one for each core; the result does not depend on it
  // The weights h of columns, k finite numbers >= 0, else error bad_column_weights. None: all 1.
  std::span<const double> columnWeights = {};
  // Scores of the blocks of the format's residual, as QuantizedMatrix::choice, in place of those
  // above. Error bad_block_scores for a format without residual, another number of them, or NaN.
  std::span<const double> residualScores = {};
  // The part of each block of the format's partition, as QuantizedMatrix::choice, in place of
  // rules, errors and budgets. Error bad_block_choice for a format without partition, another
  // number of blocks, or a part that is none.
  std::span<const uint8_t> choice = {};
  // Codes of components per tensor, by their index, in place of what their rules say; beside a
  // residual, those of the format itself. Error bad_fixed_component for what is no such component,
  // and for a format with a partition, whose numbers have other formats.
  std::map<int, uint32_t> given = {};
};
// Whether it is such a choice, for numbers of that size. Error bad_block_choice.
Status checkChoice(const Format &format, std::span<const uint8_t> choice, int64_t rows, int64_t k);
Result<QuantizedMatrix> quantize(std::shared_ptr<const Format> format, const MatrixView &input,
                                 const QuantizeOptions &options);
inline Result<QuantizedMatrix> quantize(std::shared_ptr<const Format> format,
                                        const MatrixView &input, bool rejectNonFinite,
                                        unsigned threads = 0) {
  return quantize(std::move(format), input,
                  QuantizeOptions{.rejectNonFinite = rejectNonFinite, .threads = threads});
}

} // namespace rho::dsl
