#include "dsl/QuantizeParts.h"

#include "dsl/EncodeRule.h"
#include "dsl/Parallel.h"

#include <algorithm>
#include <cmath>

namespace rho::dsl {

namespace {

// One number for each block, row by row of blocks.
using PerBlock = std::vector<double>;

class PartQuantizer {
public:
  PartQuantizer(const MatrixView &input, const Blocks &blocks, const QuantizeOptions &options)
      : rows(input.rows), k(input.k), blocks(blocks), options(options),
        grid(blockGrid(blocks, rows, k)) {
    x.resize(static_cast<size_t>(rows * k));
    everyRow([&](int64_t row) {
      for (int64_t column = 0; column < k; ++column)
        x[place(row, column)] = static_cast<float>(input.at(row, column));
    });
  }

  Result<QuantizedMatrix> partition(const Format &format) {
    const std::vector<Part> &parts = format.partition->parts;
    Result<std::vector<uint32_t>> choice =
        std::vector<uint32_t>(options.choice.begin(), options.choice.end());
    if (choice->empty())
      choice = chosenParts(parts);
    if (!choice)
      return choice.error();
    QuantizedMatrix out = result(format, *choice);
    for (size_t i = 0; i < parts.size(); ++i) {
      Result<QuantizedMatrix> part =
          encode(parts[i].format, masked(x, *choice, static_cast<uint32_t>(i)));
      if (!part)
        return part;
      out.parts.push_back(std::move(*part));
    }
    return out;
  }

  Result<QuantizedMatrix> residual(const Format &format) {
    Result<QuantizedMatrix> base =
        encode(std::make_shared<const Format>(withoutResidual(format)), x, options.given);
    if (!base)
      return base;
    const Part &part = format.residual->part;
    std::vector<float> left = difference(*base);
    Result<PerBlock> scores = residualScores(part, *base, left);
    if (!scores)
      return scores.error();
    std::vector<uint32_t> choice(count(), 0);
    for (size_t block : chosen(part, *scores, false))
      choice[block] = 1;
    Result<QuantizedMatrix> fix = encodeResidual(part, *base, masked(left, choice, 1));
    if (!fix)
      return fix;
    QuantizedMatrix out = result(format, choice);
    out.parts.push_back(std::move(*base));
    out.parts.push_back(std::move(*fix));
    return out;
  }

private:
  // The part of each block, by the rules, errors and budgets of all parts.
  Result<std::vector<uint32_t>> chosenParts(const std::vector<Part> &parts) {
    std::vector<uint32_t> choice(count(), 0);
    PerBlock current;
    for (size_t i = 0; i < parts.size(); ++i) {
      Result<QuantizedMatrix> whole =
          encode(std::make_shared<const Format>(measuredPart(parts, i, blocks.k)), x);
      if (!whole)
        return whole.error();
      PerBlock errors = squaredErrors(*whole);
      if (i == 0) {
        current = std::move(errors);
        continue;
      }
      PerBlock gains(count());
      for (size_t block = 0; block < count(); ++block)
        gains[block] = current[block] - errors[block];
      for (size_t block : chosen(parts[i], gains, parts[i].left != nullptr)) {
        choice[block] = static_cast<uint32_t>(i);
        current[block] = errors[block];
      }
    }
    return choice;
  }

  size_t count() const { return static_cast<size_t>(grid.size()); }
  size_t place(int64_t row, int64_t column) const { return static_cast<size_t>(row * k + column); }
  size_t blockOf(int64_t row, int64_t column) const {
    return static_cast<size_t>(blockIndex(blocks, k, row, column));
  }

  template <class Work> void everyRow(const Work &work) const {
    parallelFor(rows, options.threads, work);
  }

  Result<QuantizedMatrix> encode(std::shared_ptr<const Format> format,
                                 const std::vector<float> &numbers,
                                 const std::map<int, uint32_t> &given = {}) const {
    MatrixView view{numbers.data(), MatrixView::Type::F32, rows, k, k};
    QuantizeOptions all = options;
    all.residualScores = {};
    all.choice = {};
    all.given = given;
    return quantize(std::move(format), view, all);
  }

  // What `base` leaves over, or a part of it.
  Result<QuantizedMatrix> encodeResidual(const Part &part, const QuantizedMatrix &base,
                                         const std::vector<float> &numbers) const {
    if (part.divisor == 0)
      return encode(part.format, numbers);
    MatrixView view{numbers.data(), MatrixView::Type::F32, rows, k, k};
    QuantizedMatrix shared = base;
    shared.format = part.format;
    Result<QuantizedMatrix> fix =
        quantizeElements(std::move(shared), view, 1 / static_cast<double>(part.divisor), options);
    if (!fix)
      return fix;
    const CodeArray &codes = base.components[0];
    ElementType element = base.format->element().type, type = part.format->element().type;
    uint32_t lowest = element.encode(element.minFinite());
    everyRow([&](int64_t row) {
      for (int64_t i = row * k; i < (row + 1) * k; ++i)
        if (codes.get(i) == lowest && type.decode(fix->components[0].get(i)) < 0)
          fix->components[0].set(i, 0);
    });
    return fix;
  }

  // What `matrix` leaves over of each number of x.
  std::vector<float> difference(const QuantizedMatrix &matrix) const {
    std::vector<float> left(x.size());
    everyRow([&](int64_t row) {
      std::vector<double> values = matrix.rowValues(row);
      for (int64_t column = 0; column < k; ++column)
        left[place(row, column)] =
            static_cast<float>(x[place(row, column)] - values[static_cast<size_t>(column)]);
    });
    return left;
  }

  // How much the part lowers the squared error of each block of `left`.
  Result<PerBlock> residualScores(const Part &part, const QuantizedMatrix &base,
                                  const std::vector<float> &left) const {
    std::span<const double> given = options.residualScores;
    if (!given.empty()) {
      if (given.size() != count())
        return makeError(DiagId::bad_block_scores,
                         {std::to_string(given.size()) + " scores",
                          "there are " + std::to_string(count()) + " blocks"});
      for (size_t block = 0; block < count(); ++block)
        if (std::isnan(given[block]))
          return makeError(DiagId::bad_block_scores,
                           {"NaN for block " + std::to_string(block), "scores are numbers"});
      return PerBlock(given.begin(), given.end());
    }
    Result<QuantizedMatrix> whole = encodeResidual(part, base, left);
    if (!whole)
      return whole.error();
    return sums(left, *whole, [](double r, double value) { return r * r - square(r - value); });
  }

  static double square(double x) { return x * x; }

  PerBlock squaredErrors(const QuantizedMatrix &matrix) const {
    return sums(x, matrix, [](double number, double value) { return square(number - value); });
  }

  // Of each block the weighted sum of term(number, value).
  template <class Term>
  PerBlock sums(const std::vector<float> &numbers, const QuantizedMatrix &matrix,
                const Term &term) const {
    std::vector<double> ofRows(static_cast<size_t>(rows * grid.columns), 0);
    everyRow([&](int64_t row) {
      std::vector<double> values = matrix.rowValues(row);
      for (int64_t column = 0; column < k; ++column) {
        auto at = static_cast<size_t>(column);
        double weight = options.columnWeights.empty() ? 1 : options.columnWeights[at];
        ofRows[static_cast<size_t>(row * grid.columns + column / blocks.k)] +=
            weight * term(numbers[place(row, column)], values[at]);
      }
    });
    PerBlock sums(count(), 0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block < grid.columns; ++block)
        sums[blockOf(row, block * blocks.k)] +=
            ofRows[static_cast<size_t>(row * grid.columns + block)];
    return sums;
  }

  // The blocks that a part takes, by what it gains there.
  std::vector<size_t> chosen(const Part &part, const PerBlock &gains, bool whateverTheGain) {
    std::vector<bool> allowed = fulfilling(part);
    std::vector<size_t> candidates;
    for (size_t block = 0; block < count(); ++block)
      if (allowed[block] && (whateverTheGain || gains[block] > 0))
        candidates.push_back(block);
    if (!part.budget)
      return candidates;
    auto gain = [&](size_t block) { return std::isnan(gains[block]) ? -HUGE_VAL : gains[block]; };
    std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
      double ga = gain(a), gb = gain(b);
      return ga != gb ? ga > gb : a < b;
    });
    auto most = static_cast<size_t>(mostBlocks(part, static_cast<int64_t>(count())));
    candidates.resize(std::min(candidates.size(), most));
    return candidates;
  }

  // Where a part's rule holds, which is everywhere without one.
  std::vector<bool> fulfilling(const Part &part) {
    std::vector<bool> allowed(count(), true);
    if (!part.left)
      return allowed;
    PerBlock left = evaluated(*part.left), right = evaluated(*part.right);
    for (size_t block = 0; block < count(); ++block)
      allowed[block] = part.atLeast ? left[block] >= right[block] : left[block] <= right[block];
    return allowed;
  }

  PerBlock evaluated(const Expr &expr) {
    EncodeRule rule(expr);
    std::vector<EncodeRule::Partial> partials(count(), rule.begin());
    std::vector<double> line(static_cast<size_t>(k));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < k; ++column)
        line[static_cast<size_t>(column)] = x[place(row, column)];
      for (int64_t begin = 0; begin < k; begin += blocks.k)
        rule.reduce(partials[blockOf(row, begin)], line.data() + begin,
                    std::min(blocks.k, k - begin), nullptr);
    }
    PerBlock values;
    for (const EncodeRule::Partial &partial : partials)
      values.push_back(rule.finish(partial, nullptr));
    return values;
  }

  std::vector<float> masked(const std::vector<float> &matrix, const std::vector<uint32_t> &choice,
                            uint32_t kept) const {
    std::vector<float> numbers(matrix.size(), 0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < k; ++column)
        if (choice[blockOf(row, column)] == kept)
          numbers[place(row, column)] = matrix[place(row, column)];
    return numbers;
  }

  QuantizedMatrix result(const Format &format, const std::vector<uint32_t> &choice) const {
    QuantizedMatrix out;
    out.format = std::make_shared<const Format>(format);
    out.rows = rows;
    out.k = k;
    out.choice = CodeArray(8, static_cast<int64_t>(count()));
    for (size_t block = 0; block < choice.size(); ++block)
      out.choice.set(static_cast<int64_t>(block), choice[block]);
    return out;
  }

  const int64_t rows, k;
  const Blocks &blocks;
  const QuantizeOptions options;
  const BlockGrid grid;
  std::vector<float> x;
};

} // namespace

Status checkChoice(const Format &format, std::span<const uint8_t> choice, int64_t rows, int64_t k) {
  if (choice.empty())
    return Done{};
  auto wrong = [&](const std::string &found, const std::string &rule) {
    return makeError(DiagId::bad_block_choice, {found, rule});
  };
  if (!format.partition)
    return wrong("parts of " + std::to_string(choice.size()) + " blocks",
                 "format '" + format.name + "' has no partition");
  const Blocks &blocks = format.partition->blocks;
  const int64_t count = blockGrid(blocks, rows, k).size();
  if (static_cast<int64_t>(choice.size()) != count)
    return wrong("parts of " + std::to_string(choice.size()) + " blocks",
                 "there are " + std::to_string(count));
  const size_t parts = format.partition->parts.size();
  for (size_t block = 0; block < choice.size(); ++block)
    if (choice[block] >= parts)
      return wrong("part " + std::to_string(choice[block]) + " for block " + std::to_string(block),
                   "format '" + format.name + "' has " + std::to_string(parts));
  return Done{};
}

Result<QuantizedMatrix> quantizeParts(const Format &format, const MatrixView &input,
                                      const QuantizeOptions &options) {
  if (format.residual)
    return PartQuantizer(input, format.residual->blocks, options).residual(format);
  return PartQuantizer(input, format.partition->blocks, options).partition(format);
}

} // namespace rho::dsl
