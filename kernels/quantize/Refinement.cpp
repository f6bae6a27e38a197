#include "kernels/quantize/Refinement.h"

#include "dsl/Division.h"
#include "dsl/Evaluate.h"
#include "dsl/Parallel.h"
#include "dsl/ValueSearch.h"
#include "kernels/quantize/Products.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rho::kernels {

namespace {

using dsl::Component;
using dsl::Extent;

// Numbers that share the code of a component.
struct Block {
  int64_t rowBegin, rowEnd, begin, end;
  int64_t columns() const { return end - begin; }
};

// What all bands share.
struct Problem {
  const Matrix &weight;
  int64_t tokens;
  std::vector<float> inputs;    // [k][m], what the kernel sees
  std::vector<double> diagonal; // of the Hessian, its sums over m
  std::vector<double> outputs;  // [m][n], to be met
  double damping = 0;
  // By a width of groups, where that is below m: of each group the part of the Hessian, sums over
  // m, [columns][columns].
  std::map<int64_t, std::vector<std::vector<double>>> hessians = {};

  const float *input(int64_t column) const { return inputs.data() + column * tokens; }
  // Of a whole group; null where there is none.
  const double *hessianOf(const Block &block, int64_t width) const {
    const auto found = hessians.find(width);
    return found == hessians.end() ? nullptr
                                   : found->second[static_cast<size_t>(block.begin / width)].data();
  }
};

std::vector<std::vector<double>> hessiansOfGroups(const Problem &problem, int64_t k, int64_t width,
                                                  unsigned threads) {
  std::vector<std::vector<double>> hessians(static_cast<size_t>(divideUp(k, width)));
  dsl::parallelFor(ssize(hessians), threads, [&](int64_t group) {
    const int64_t begin = group * width, columns = std::min(width, k - begin), m = problem.tokens;
    const std::vector<double> inputs(problem.input(begin), problem.input(begin + columns));
    std::vector<double> &hessian = hessians[static_cast<size_t>(group)];
    hessian.resize(static_cast<size_t>(columns * columns));
    products(inputs.data(), columns, inputs.data(), columns, m, hessian.data());
  });
  return hessians;
}

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
      addScaled(ofRow.data(), k, problem.input(0), m, errorsOf(row));
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
    std::vector<uint8_t> elements;
    std::vector<double> values;
    double change = 0; // of what is minimised
  };

  // What steps of the numbers of one row of a block make of the squared errors of its outputs: they
  // change by 2 * slope + curvature.
  struct Effect {
    double slope, curvature;
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
    const Component &component = format.component(index);
    dsl::CodeArray &all = matrix.components[static_cast<size_t>(index)];
    int64_t at = dsl::codeIndex(component, k, block.rowBegin, block.begin);
    dsl::ElementType type = component.type;
    const uint32_t before = all.get(at);
    const double current = type.decode(before);
    hessian =
        component.extent == Extent::Group ? problem.hessianOf(block, component.group) : nullptr;
    if (hessian)
      findSlopes(block);
    Trial best;
    auto consider = [&](double candidate, bool round) {
      Trial trial;
      trial.code = type.encode(candidate);
      if (trial.code == before)
        return;
      all.set(at, trial.code);
      if (!elementsOf(block, round, trial))
        return;
      trial.change = changeOf(block, trial.values);
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

  // Of each number of a block the inner product of its inputs with the errors of its row.
  void findSlopes(const Block &block) {
    slopes.clear();
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row)
      for (int64_t column = block.begin; column < block.end; ++column)
        slopes.push_back(dot(problem.input(column), errorsOf(row), problem.tokens));
  }

  Effect effectOf(const Block &block, int64_t row, const double *steps) {
    const int64_t columns = block.columns();
    if (!hessian) {
      outputs.assign(static_cast<size_t>(problem.tokens), 0);
      addScaled(steps, columns, problem.input(block.begin), problem.tokens, outputs.data());
      return {dot(outputs.data(), errorsOf(row), problem.tokens),
              dot(outputs.data(), outputs.data(), problem.tokens)};
    }
    double curvature = 0;
    for (int64_t i = 0; i < columns; ++i) {
      const double *ofColumn = hessian + i * columns;
      curvature += steps[i] * (2 * dot(ofColumn, steps, i) + ofColumn[i] * steps[i]);
    }
    return {dot(slopes.data() + (row - block.rowBegin) * columns, steps, columns), curvature};
  }

  // The factor of the block's values as they are with which the error is least.
  double bestFactor(const Block &block) {
    double slope = 0, curvature = 0;
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      for (int64_t column = block.begin; column < block.end; ++column) {
        double v = value(row, column);
        slope += problem.damping * v * (v - problem.weight.row(row)[column]);
        curvature += problem.damping * v * v;
      }
      const Effect effect = effectOf(block, row, &value(row, block.begin));
      slope += effect.slope;
      curvature += effect.curvature;
    }
    return curvature > 0 ? 1 - slope / curvature : 1;
  }

  // False where an element has no code or a value is not finite.
  bool elementsOf(const Block &block, bool round, Trial &trial) {
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row)
      for (int64_t begin = block.begin; begin < block.end; begin += run) {
        if (!prepare(row, begin))
          return false;
        const int64_t count = std::min(block.end, begin + run) - begin;
        const float *weight = problem.weight.row(row) + begin;
        const uint8_t *stored = matrix.components[0].data() + row * k + begin;
        std::vector<uint8_t> elements(stored, stored + count);
        if (round)
          search.nearest(std::vector<double>(weight, weight + count).data(), count,
                         elements.data());
        for (uint8_t element : elements) {
          if (!allowed(element) || !std::isfinite(search.valueOf(element)))
            return false;
          trial.values.push_back(search.valueOf(element));
        }
        trial.elements.insert(trial.elements.end(), elements.begin(), elements.end());
      }
    return true;
  }

  // By how much what is minimised changes with these values of a block.
  double changeOf(const Block &block, const std::vector<double> &changed) {
    double change = 0;
    const double *now = changed.data();
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row, now += block.columns()) {
      const float *weight = problem.weight.row(row) + block.begin;
      const double *before = &value(row, block.begin);
      steps.assign(now, now + block.columns());
      for (int64_t i = 0; i < block.columns(); ++i) {
        const double w = weight[i], v = before[i];
        steps[static_cast<size_t>(i)] -= v;
        change += problem.damping * ((now[i] - w) * (now[i] - w) - (v - w) * (v - w));
      }
      const Effect effect = effectOf(block, row, steps.data());
      change += 2 * effect.slope + effect.curvature;
    }
    return change;
  }

  void take(const Block &block, const Trial &trial) {
    const int64_t columns = block.columns();
    for (int64_t row = block.rowBegin; row < block.rowEnd; ++row) {
      const int64_t first = (row - block.rowBegin) * columns;
      steps.resize(static_cast<size_t>(columns));
      for (int64_t i = 0; i < columns; ++i) {
        const auto at = static_cast<size_t>(first + i);
        double &v = value(row, block.begin + i);
        steps[static_cast<size_t>(i)] = trial.values[at] - v;
        v = trial.values[at];
        matrix.components[0].set(row * k + block.begin + i, trial.elements[at]);
      }
      addScaled(steps.data(), columns, problem.input(block.begin), problem.tokens, errorsOf(row));
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
      addScaled(&step, 1, problem.input(column), m, errorsOf(row));
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
  // Of the block that is looked at.
  const double *hessian = nullptr;
  std::vector<double> slopes; // [rows][columns], where there is a Hessian
  std::vector<double> steps, outputs;
};

Problem problemOf(const dsl::Format &format, const Matrix &weight, const Matrix &activation,
                  const Matrix &quantized, const RefineOptions &options) {
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
  for (const Component &component : format.components)
    if (component.extent == Extent::Group && component.group < problem.tokens)
      if (auto [place, isNew] = problem.hessians.try_emplace(component.group); isNew)
        place->second = hessiansOfGroups(problem, quantized.k, component.group, options.threads);
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

  const Problem problem = problemOf(format, weight, activation, quantized, options);
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
