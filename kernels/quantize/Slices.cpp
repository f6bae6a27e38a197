#include "kernels/quantize/Slices.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

namespace rho::kernels {

using dsl::Blocks;
using dsl::CodeArray;
using dsl::QuantizedMatrix;
using Slice = WeightFile::Slice;

namespace {

// Calls `visit(blocks, name, array)` for the arrays of codes of a format's matrices but those of
// their parts, until one gives an error: array(matrix) is that of a matrix.
template <class Visit> Status forEachCodes(const dsl::Format &format, const Visit &visit) {
  if (format.hasParts())
    return visit(format.choiceBlocks(), format.residual ? "the residual" : "the partition",
                 [](auto &matrix) -> auto & { return matrix.choice; });
  for (size_t i = 0; i < format.components.size(); ++i) {
    const dsl::Component &component = format.components[i];
    auto array = [i](auto &matrix) -> auto & { return matrix.components[i]; };
    if (Status done = visit(dsl::blocksOf(component), "component '" + component.name + "'", array);
        !done)
      return done;
  }
  return Done{};
}

// Without codes yet.
QuantizedMatrix matrixLike(const QuantizedMatrix &like, int64_t rows, int64_t k) {
  QuantizedMatrix result;
  result.format = like.format;
  result.rows = rows;
  result.k = k;
  result.components.resize(like.components.size());
  return result;
}

// Room for the codes of a matrix, each as wide as in `like`.
CodeArray codesFor(const CodeArray &like, const Blocks &blocks, const QuantizedMatrix &of) {
  return {8 * like.width(), dsl::blockGrid(blocks, of.rows, of.k).size()};
}

Error outOfRange(const Slice &slice, const char *what, int64_t first, int64_t count, int64_t all) {
  return makeError(DiagId::slice_out_of_range, {slice.name, what, std::to_string(first),
                                                std::to_string(count), std::to_string(all)});
}

Error differ(std::span<const Slice> slices, size_t with, const std::string &why) {
  return makeError(DiagId::slices_differ, {slices[0].name, slices[with].name, why});
}

// `slice` is inside of the matrix, and has its numbers of rows and columns.
Result<QuantizedMatrix> cut(const QuantizedMatrix &matrix, const Slice &slice) {
  QuantizedMatrix result = matrixLike(matrix, slice.rows, slice.columns);
  Status done = forEachCodes(
      *matrix.format,
      [&](const Blocks &blocks, const std::string &name, const auto &array) -> Status {
        for (auto [first, size, what] : {std::tuple(slice.firstRow, blocks.rows, "rows"),
                                         std::tuple(slice.firstColumn, blocks.k, "columns")})
          if (size != 0 && first % size != 0)
            return makeError(DiagId::slice_divides_block,
                             {slice.name, std::to_string(first), name, std::to_string(size), what});
        const CodeArray &from = array(matrix);
        CodeArray &to = array(result) = codesFor(from, blocks, result);
        const int64_t firstRow = blocks.rows == 0 ? 0 : slice.firstRow / blocks.rows;
        const int64_t firstColumn = blocks.k == 0 ? 0 : slice.firstColumn / blocks.k;
        const int64_t columns =
            dsl::blockGrid(blocks, matrix.rows, matrix.k).columns * from.width();
        const dsl::BlockGrid grid = dsl::blockGrid(blocks, result.rows, result.k);
        const int64_t copied = grid.columns * from.width();
        for (int64_t row = 0; row < grid.rows; ++row)
          std::memcpy(to.data() + row * copied,
                      from.data() + (firstRow + row) * columns + firstColumn * from.width(),
                      static_cast<size_t>(copied));
        return Done{};
      });
  if (!done)
    return std::move(done.error());
  for (const QuantizedMatrix &part : matrix.parts) {
    Result<QuantizedMatrix> own = cut(part, slice);
    if (!own)
      return own;
    result.parts.push_back(std::move(*own));
  }
  return result;
}

// Matrices of one format and k.
class Stack {
public:
  Stack(std::vector<const QuantizedMatrix *> matrices, std::span<const Slice> slices)
      : matrices(std::move(matrices)), slices(slices) {}

  Result<QuantizedMatrix> run() const {
    int64_t rows = 0;
    for (const QuantizedMatrix *matrix : matrices)
      rows += matrix->rows;
    QuantizedMatrix result = matrixLike(*matrices[0], rows, matrices[0]->k);
    Status done = forEachCodes(
        *result.format,
        [&](const Blocks &blocks, const std::string &name, const auto &array) -> Status {
          CodeArray &to = array(result) = codesFor(array(*matrices[0]), blocks, result);
          return blocks.rows == 0 ? share(name, array, to) : append(blocks, name, array, to);
        });
    if (!done)
      return std::move(done.error());
    for (size_t part = 0; part < matrices[0]->parts.size(); ++part) {
      std::vector<const QuantizedMatrix *> own;
      for (const QuantizedMatrix *matrix : matrices)
        own.push_back(&matrix->parts[part]);
      Result<QuantizedMatrix> stacked = Stack(std::move(own), slices).run();
      if (!stacked)
        return stacked;
      result.parts.push_back(std::move(*stacked));
    }
    return result;
  }

private:
  const std::vector<const QuantizedMatrix *> matrices;
  const std::span<const Slice> slices;

  static size_t bytesOf(const CodeArray &codes) {
    return static_cast<size_t>(codes.size()) * codes.width();
  }

  // Codes for all rows, which must be the same.
  template <class Array>
  Status share(const std::string &name, const Array &array, CodeArray &to) const {
    const CodeArray &first = array(*matrices[0]);
    for (size_t i = 1; i < matrices.size(); ++i)
      if (std::memcmp(first.data(), array(*matrices[i]).data(), bytesOf(first)) != 0)
        return differ(slices, i, name + " has other numbers, and one for all rows");
    to = first;
    return Done{};
  }

  template <class Array>
  Status append(const Blocks &blocks, const std::string &name, const Array &array,
                CodeArray &to) const {
    uint8_t *out = to.data();
    for (size_t i = 0; i < matrices.size(); ++i) {
      if (i + 1 < matrices.size() && matrices[i]->rows % blocks.rows != 0)
        return differ(slices, i + 1,
                      "the " + std::to_string(matrices[i]->rows) + " rows above end inside " +
                          std::to_string(blocks.rows) + " rows that share a number of " + name);
      const CodeArray &from = array(*matrices[i]);
      out = std::copy_n(from.data(), bytesOf(from), out);
    }
    return Done{};
  }
};

} // namespace

Result<QuantizedMatrix> sliceOf(const QuantizedMatrix &weight, const Slice &slice) {
  Slice all = slice;
  auto isInside = [](int64_t first, int64_t &count, int64_t size) {
    if (first < 0 || first >= size)
      return false;
    if (count == 0)
      count = size - first;
    return count >= 1 && count <= size - first;
  };
  if (!isInside(all.firstRow, all.rows, weight.rows))
    return outOfRange(slice, "rows", slice.firstRow, slice.rows, weight.rows);
  if (!isInside(all.firstColumn, all.columns, weight.k))
    return outOfRange(slice, "columns", slice.firstColumn, slice.columns, weight.k);
  return cut(weight, all);
}

Result<QuantizedMatrix> stackOf(std::span<const QuantizedMatrix> weights,
                                std::span<const Slice> slices) {
  std::vector<const QuantizedMatrix *> matrices;
  for (size_t i = 0; i < weights.size(); ++i) {
    const QuantizedMatrix &first = weights[0], &weight = weights[i];
    if (weight.k != first.k)
      return differ(slices, i,
                    "they have " + std::to_string(first.k) + " and " + std::to_string(weight.k) +
                        " columns");
    if (dsl::meaningOf(*weight.format) != dsl::meaningOf(*first.format))
      return differ(slices, i, "they have different formats");
    matrices.push_back(&weight);
  }
  return Stack(std::move(matrices), slices).run();
}

} // namespace rho::kernels
