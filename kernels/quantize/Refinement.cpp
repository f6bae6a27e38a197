#include "kernels/quantize/Refinement.h"

#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/Parallel.h"
#include "dsl/ValueSearch.h"
#include "kernels/quantize/Dot.h"

#include <algorithm>
#include <cmath>

namespace rho::kernels {

namespace {

using dsl::Component;
using dsl::Extent;

// Numbers that share the code of a component.
struct Block {
  int64_t rowBegin, rowEnd, begin, end;
  int64_t columns() const { return end - begin; }
};

// sums += factor * x
void add(double factor, const float *x, int64_t count, double *sums) {
  for (int64_t i = 0; i < count; ++i)
    sums[i] += factor * static_cast<double>(x[i]);
}

// What all bands share.
struct Problem {
  const Matrix &weight;
  int64_t tokens;
  std::vector<float> inputs;    // [k][m], what the kernel sees
  std::vector<double> diagonal; // of the Hessian, its sums over m
  std::vector<double> outputs;  // [m][n], to be met
  double damping = 0;

  const float *input(int64_t column) const { return inputs.data() + column * tokens; }
};

// Rows that share components.
class Band {
public:
  Band(const Problem &problem, dsl::QuantizedMatrix &matrix, int64_t rowBegin, int64_t rowEnd)
      : problem(problem), matrix(matrix), format(*matrix.format), rowBegin(rowBegin),
        rowEnd(rowEnd), k(matrix.k), run(dsl::finestGroup(format, k)), search(format),
        codes(format.components.size()) {
    int64_t n = matrix.rows, m = problem.tokens;
    for (int64_t row = rowBegin; row < rowEnd; ++row) {
      std::vector<double> ofRow = matrix.rowValues(row);
      values.insert(values.end(), ofRow.begin(), ofRow.end());
      for (int64_t token = 0; token < m; ++token)
        errors.push_back(-problem.outputs[static_cast<size_t>(token * n + row)]);
      for (int64_t column = 0; column < k; ++column)
        add(value(row, column), problem.input(column), m, errorsOf(row));
    }
  }

  double squaredError() const { return dot(errors.data(), errors.data(), ssize(errors)); }

  // Whether anything changed.
  bool sweep() {
    bool changed = false;
    for (int index : format.encodeOrder)
      if (format.component(index).extent != Extent::Tensor)
        for (const Block &block : blocksOf(format.component(index)))
          changed |= improveComponent(index, block);
    for (int64_t row = rowBegin; row < rowEnd; ++row)
      for (int64_t begin = 0; begin < k; begin += run)
        changed |= improveElements({row, row + 1, begin, std::min(k, begin + run)});
    return changed;
  }

private:
  // Codes and values of the elements of a block under another code of a component.
  struct Trial {
    uint32_t code = 0;
    std::vector<uint32_t> elements;
    std::vector<double> values, outputs; // outputs: [rows of the block][m], by how much they change
    double change = 0;                   // of what is minimised
  };

  double &value(int64_t row, int64_t column) {
    return values[static_cast<size_t>((row - rowBegin) * k + column)];
  }
  double *errorsOf(int64_t row) { return errors.data() + (row - rowBegin) * problem.tokens; }

  std::vector<Block> blocksOf(const Component &component) const {
    int64_t high = component.rows, wide = component.extent == Extent::Group ? component.group : k;
    std::vector<Block> blocks;
    for (int64_t row = rowBegin; row < rowEnd; row += high)
      for (int64_t begin = 0; begin < k; begin += wide)
        blocks.push_back({row, std::min(rowEnd, row + high), begin, std::min(k, begin + wide)});
    return blocks;
  }

  // The values of all codes of the elements of a run. False where none may be chosen.
  bool prepare(int64_t row, int64_t begin) {
    for (size_t c = 1; c < codes.size(); ++c)
      codes[c] = matrix.components[c].get(dsl::codeIndex(format.components[c], k, row, begin));
    return search.prepare(codes);
  }

  bool allowed(uint32_t element) {
    codes[0] = element;
    return format.requirements.empty() || dsl::fulfils(format, codes.data());
  }

  // Zeros stay zeros.
  bool isZero(const Block &block) const {
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      const auto *numbers = problem.weight.row(row);
      if (std::any_of(numbers + block.begin, numbers + block.end, [](auto w) { return w != 0; }))
        return false;
    }
    return true;
  }

  bool improveComponent(int index, const Block &block) {
    if (isZero(block))
      return false;
    dsl::CodeArray &all = matrix.components[static_cast<size_t>(index)];
    int64_t at = dsl::codeIndex(format.component(index), k, block.rowBegin, block.begin);
    dsl::ElementType type = format.component(index).type;
    const uint32_t before = all.get(at);
    const double current = type.decode(before);
    Trial best;
    auto consider = [&](double candidate, bool round) {
      Trial trial;
      trial.code = type.encode(candidate);
      if (trial.code == before)
        return;
      all.set(at, trial.code);
      if (!elementsOf(block, round, trial))
        return;
      outputsOf(block, trial);
      if (trial.change < best.change)
        best = std::move(trial);
    };
    if (type.isInteger()) {
      consider(current - 1, true);
      consider(current + 1, true);
    } else {
      for (int step = 12; step <= 23; ++step)
        consider(current * step / 20, true);
      consider(current * bestFactor(block), false);
    }
    all.set(at, best.change < 0 ? best.code : before);
    if (best.change < 0)
      take(block, best);
    return best.change < 0;
  }

  // The factor of the block's values as they are with which the error is least.
  double bestFactor(const Block &block) {
    double slope = 0, curvature = 0;
    std::vector<double> outputs(static_cast<size_t>(problem.tokens));
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      std::fill(outputs.begin(), outputs.end(), 0.0);
      for (int64_t column = block.begin; column < block.end; ++column) {
        double v = value(row, column);
        add(v, problem.input(column), problem.tokens, outputs.data());
        slope += problem.damping * v * (v - problem.weight.row(row)[column]);
        curvature += problem.damping * v * v;
      }
      slope += dot(outputs.data(), errorsOf(row), problem.tokens);
      curvature += dot(outputs.data(), outputs.data(), problem.tokens);
    }
    return curvature > 0 ? 1 - slope / curvature : 1;
  }

  // False where an element has no code or a value is not finite.
  bool elementsOf(const Block &block, bool round, Trial &trial) {
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row)
      for (int64_t begin = block.begin; begin < block.end; begin += run) {
        if (!prepare(row, begin))
          return false;
        for (int64_t column = begin; column < std::min(block.end, begin + run); ++column) {
          uint32_t element = round ? search.nearest(problem.weight.row(row)[column])
                                   : matrix.components[0].get(row * k + column);
          if (!allowed(element) || !std::isfinite(search.valueOf(element)))
            return false;
          trial.elements.push_back(element);
          trial.values.push_back(search.valueOf(element));
        }
      }
    return true;
  }

  void outputsOf(const Block &block, Trial &trial) {
    const int64_t m = problem.tokens;
    trial.outputs.assign(static_cast<size_t>((block.rowEnd - block.rowBegin) * m), 0);
    size_t i = 0;
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      double *outputs = trial.outputs.data() + (row - block.rowBegin) * m;
      for (int64_t column = block.begin; column < block.end; ++column, ++i) {
        double w = problem.weight.row(row)[column], v = value(row, column), now = trial.values[i];
        if (now == v)
          continue;
        add(now - v, problem.input(column), m, outputs);
        trial.change += problem.damping * ((now - w) * (now - w) - (v - w) * (v - w));
      }
      trial.change += 2 * dot(outputs, errorsOf(row), m) + dot(outputs, outputs, m);
    }
  }

  void take(const Block &block, const Trial &trial) {
    size_t i = 0;
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      const double *outputs = trial.outputs.data() + (row - block.rowBegin) * problem.tokens;
      for (int64_t token = 0; token < problem.tokens; ++token)
        errorsOf(row)[token] += outputs[token];
      for (int64_t column = block.begin; column < block.end; ++column, ++i) {
        matrix.components[0].set(row * k + column, trial.elements[i]);
        value(row, column) = trial.values[i];
      }
    }
  }

  // Of a run of one row.
  bool improveElements(const Block &part) {
    const int64_t row = part.rowBegin, m = problem.tokens;
    if (isZero(part) || !prepare(row, part.begin))
      return false;
    bool changed = false;
    for (int64_t column = part.begin; column < part.end; ++column) {
      double curvature = problem.diagonal[static_cast<size_t>(column)] + problem.damping;
      if (!(curvature > 0))
        continue;
      double v = value(row, column);
      double slope = dot(problem.input(column), errorsOf(row), m) +
                     problem.damping * (v - problem.weight.row(row)[column]);
      uint32_t element = search.nearest(v - slope / curvature);
      double step = search.valueOf(element) - v;
      if (!(2 * step * slope + step * step * curvature < 0))
        continue;
      matrix.components[0].set(row * k + column, element);
      value(row, column) = search.valueOf(element);
      add(step, problem.input(column), m, errorsOf(row));
      changed = true;
    }
    return changed;
  }

  const Problem &problem;
  dsl::QuantizedMatrix &matrix;
  const dsl::Format &format;
  const int64_t rowBegin, rowEnd, k;
  const int64_t run; // numbers that share all but the element
  dsl::ValueSearch search;
  std::vector<uint32_t> codes;
  std::vector<double> values; // [rows of the band][k]
  std::vector<double> errors; // [rows of the band][m], outputs less those to be met
};

Problem problemOf(const Matrix &weight, const Matrix &activation, const Matrix &quantized,
                  const RefineOptions &options) {
  Problem problem{weight,
                  activation.rows,
                  {},
                  hessianDiagonal(quantized),
                  layerOutputs(activation, weight, options.threads)};
  problem.inputs.resize(quantized.values.size());
  for (int64_t token = 0; token < quantized.rows; ++token)
    for (int64_t column = 0; column < quantized.k; ++column)
      problem.inputs[static_cast<size_t>(column * quantized.rows + token)] =
          quantized.row(token)[column];
  double sum = 0;
  for (double &entry : problem.diagonal) {
    entry *= static_cast<double>(quantized.rows);
    sum += entry;
  }
  problem.damping = options.damping * sum / static_cast<double>(quantized.k);
  return problem;
}

Status checkShape(const char *what, int64_t rows, int64_t k, const Matrix &of) {
  if (rows == of.rows && k == of.k)
    return Done();
  return makeError(DiagId::refine_shape, {what, std::to_string(rows), std::to_string(k),
                                          std::to_string(of.rows), std::to_string(of.k)});
}

// Codes of `rows` rows from `row` on, of every component that these rows alone have.
void copyRows(const dsl::QuantizedMatrix &from, int64_t row, int64_t rowEnd,
              dsl::QuantizedMatrix &to) {
  for (size_t c = 0; c < from.components.size(); ++c) {
    const Component &component = from.format->components[c];
    if (component.extent == Extent::Tensor)
      continue;
    int64_t begin = dsl::codeIndex(component, from.k, row, 0);
    int64_t end = dsl::codeIndex(component, from.k, rowEnd - 1, from.k - 1) + 1;
    for (int64_t i = begin; i < end; ++i)
      to.components[c].set(i, from.components[c].get(i));
  }
}

} // namespace

Status checkRefinable(const dsl::Format &format) {
  if (format.hasParts())
    return makeError(DiagId::refine_format, {"format '" + format.name + "' has parts"});
  if (const int bits = format.element().type.bits(); bits > 8)
    return makeError(DiagId::refine_format, {"format '" + format.name + "' has elements of " +
                                             std::to_string(bits) + " bits"});
  return Done{};
}

Result<Refinement> refine(const dsl::QuantizedMatrix &start, const Matrix &weight,
                          const Matrix &activation, const Matrix &quantized,
                          const RefineOptions &options) {
  const dsl::Format &format = *start.format;
  for (const Status &status :
       {checkRefinable(format), checkLayer(weight, activation), checkActivation(quantized),
        checkShape("codes", start.rows, start.k, weight),
        checkShape("quantized activations", quantized.rows, quantized.k, activation)})
    if (!status)
      return status.error();

  const Problem problem = problemOf(weight, activation, quantized, options);
  const int64_t bandRows = dsl::bandRows(format);
  const int64_t bands = divideUp(start.rows, bandRows);
  std::vector<double> before(static_cast<size_t>(bands)), after(before);
  Refinement out{start};
  dsl::parallelFor(bands, options.threads, [&](int64_t i) {
    int64_t row = i * bandRows, rowEnd = std::min(start.rows, row + bandRows);
    Band band(problem, out.matrix, row, rowEnd);
    double &least = before[static_cast<size_t>(i)], &now = after[static_cast<size_t>(i)];
    least = band.squaredError();
    for (int sweep = 0; sweep < options.sweeps && band.sweep(); ++sweep) {
    }
    now = band.squaredError();
    if (!(now <= least)) {
      now = least;
      copyRows(start, row, rowEnd, out.matrix);
    }
  });
  double all = dot(problem.outputs.data(), problem.outputs.data(), ssize(problem.outputs));
  for (size_t i = 0; i < before.size(); ++i) {
    out.before += before[i];
    out.after += after[i];
  }
  if (all > 0) {
    out.before /= all;
    out.after /= all;
  }
  return out;
}

} // namespace rho::kernels
