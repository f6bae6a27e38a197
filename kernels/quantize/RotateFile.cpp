#include "kernels/quantize/RotateFile.h"

#include "dsl/Findings.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/TensorChoice.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rho::kernels {

namespace {

using Type = dsl::MatrixView::Type;

// What is done to one tensor.
struct Task {
  const TensorEntry *gains = nullptr; // columns are multiplied by them
  bool inputs = false, outputs = false;
  bool isBias = false, becomesOnes = false;

  bool changes() const { return gains != nullptr || inputs || outputs || isBias || becomesOnes; }
};

// A vector of numbers as a matrix of one row; none for all other tensors.
std::optional<dsl::MatrixView> vectorOf(const SafetensorsFile &file, const TensorEntry &tensor) {
  if (tensor.shape.size() != 1)
    return std::nullopt;
  TensorEntry row = tensor;
  row.shape.insert(row.shape.begin(), 1);
  return file.matrix(row);
}

// The bias beside a tensor: X.bias of X.weight, X.beta of X.gamma, else X.bias of X. Null: there is
// none.
const TensorEntry *biasBeside(const SafetensorsFile &file, const TensorEntry &tensor) {
  for (const auto &[own, bias] : {std::pair<std::string_view, std::string_view>{"weight", "bias"},
                                  {"gamma", "beta"},
                                  {"", ".bias"}})
    if (tensor.name.ends_with(own))
      return file.find(tensor.name.substr(0, tensor.name.size() - own.size()).append(bias));
  return nullptr;
}

// What is done to each of file.tensors(), and by which rotation.
class Plan {
public:
  Plan(const SafetensorsFile &file, const RotateFileOptions &options)
      : file(file), options(options), tasks(file.tensors().size()) {}

  Result<Rotation> make() {
    for (const NormFusion &fusion : options.fusions)
      if (Status fused = fuse(fusion); !fused)
        return fused.error();
    if (Status found = choose(options.inputs, &Task::inputs); !found)
      return found.error();
    if (Status found = choose(options.outputs, &Task::outputs); !found)
      return found.error();
    if (Status found = findBiases(); !found)
      return found.error();
    Result<int64_t> size = sizeOfAll();
    if (!size)
      return size.error();
    return Rotation::ofSize(*size, options.seed);
  }

  const Task &operator[](size_t tensor) const { return tasks[tensor]; }

private:
  const SafetensorsFile &file;
  const RotateFileOptions &options;
  std::vector<Task> tasks;

  Task &taskOf(const TensorEntry &tensor) { // one of file.tensors()
    return tasks[static_cast<size_t>(&tensor - file.tensors().data())];
  }

  Status choose(const std::vector<std::string> &patterns, bool Task::*what) {
    Result<std::vector<bool>> chosen = chooseTensors(file, {.only = patterns, .wholly = true});
    if (!chosen)
      return chosen.error();
    for (size_t i = 0; i < tasks.size(); ++i)
      tasks[i].*what = (*chosen)[i];
    return Done{};
  }

  Status fuse(const NormFusion &fusion) {
    Result<std::vector<NamedTensor>> norms = namedTensors(file, fusion.norms, fusion.weights);
    if (!norms)
      return norms.error();
    for (const NamedTensor &norm : *norms) {
      const std::optional<dsl::MatrixView> gains = vectorOf(file, *norm.tensor);
      if (!gains)
        return makeError(DiagId::fusion_gains,
                         {norm.tensor->name, printExtents(*norm.tensor), "a vector of numbers"});
      if (const TensorEntry *bias = biasBeside(file, *norm.tensor))
        return makeError(DiagId::fusion_bias, {norm.tensor->name, bias->name});
      Result<std::vector<bool>> weights =
          chooseTensors(file, {.only = {norm.others}, .wholly = true});
      if (!weights)
        return weights.error();
      for (size_t i = 0; i < tasks.size(); ++i) {
        if (!(*weights)[i])
          continue;
        const TensorEntry &weight = file.tensors()[i];
        if (weight.shape[1] != gains->k)
          return makeError(DiagId::fusion_gains,
                           {norm.tensor->name, printExtents(*norm.tensor),
                            std::to_string(weight.shape[1]) + " of '" + weight.name + "'"});
        if (tasks[i].gains != nullptr && tasks[i].gains != norm.tensor)
          return makeError(DiagId::fused_twice,
                           {weight.name, tasks[i].gains->name, norm.tensor->name});
        tasks[i].gains = norm.tensor;
      }
      taskOf(*norm.tensor).becomesOnes = true;
    }
    return Done{};
  }

  Status findBiases() {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const TensorEntry &weight = file.tensors()[i];
      const TensorEntry *bias = tasks[i].outputs ? biasBeside(file, weight) : nullptr;
      if (bias == nullptr)
        continue;
      if (std::optional<dsl::MatrixView> numbers = vectorOf(file, *bias);
          !numbers || numbers->k != weight.shape[0])
        return makeError(DiagId::rotated_bias, {bias->name, printExtents(*bias), weight.name,
                                                std::to_string(weight.shape[0])});
      taskOf(*bias).isBias = true;
    }
    return Done{};
  }

  // Rotations cancel where all are of one size.
  Result<int64_t> sizeOfAll() const {
    std::string first; // the tensor that says so
    int64_t size = options.block.value_or(0);
    for (size_t i = 0; i < tasks.size(); ++i)
      for (bool ofInputs : {true, false}) {
        if (!(ofInputs ? tasks[i].inputs : tasks[i].outputs))
          continue;
        const TensorEntry &weight = file.tensors()[i];
        const int64_t extent = weight.shape[ofInputs ? 1 : 0];
        const std::string what = "'" + weight.name + "' has " + std::to_string(extent) +
                                 (ofInputs ? " inputs" : " outputs");
        if (size == 0) {
          size = extent;
          first = what;
        } else if (options.block ? extent % size != 0 : extent != size) {
          return makeError(
              DiagId::rotation_sizes,
              {what, options.block ? "no multiple of " + std::to_string(size) : first});
        }
      }
    return size;
  }
};

dsl::ElementType elementOf(Type type) {
  return dsl::ElementType::get(type == Type::F32 ? "f32" : type == Type::F16 ? "f16" : "bf16");
}

// Numbers that a tensor's type holds, row after row of k, in that type.
std::string encoded(std::span<const double> numbers, int64_t k, Type type, unsigned threads) {
  const dsl::ElementType element = elementOf(type);
  const auto size = static_cast<size_t>(element.bits() / 8), width = static_cast<size_t>(k);
  std::string bytes(numbers.size() * size, '\0');
  dsl::parallelFor(std::ssize(numbers) / k, threads, [&](int64_t row) {
    const size_t begin = static_cast<size_t>(row) * width;
    for (size_t i = begin; i < begin + width; ++i) {
      const uint32_t code = element.encode(numbers[i]);
      std::memcpy(bytes.data() + size * i, &code, size); // little-endian, as the file
    }
  });
  return bytes;
}

class FileRotator {
public:
  FileRotator(const SafetensorsFile &file, const Plan &plan, const Rotation &rotation,
              const RotateFileOptions &options)
      : file(file), plan(plan), rotation(rotation), options(options) {
    summary.size = rotation.size();
    summary.inputBytes = file.size();
  }

  Result<RotateFileSummary> write(const std::string &to) {
    const bool keepsShards = isShardIndex(to);
    std::vector<CheckpointWriter::Shard> shards(keepsShards ? file.shards() : 1);
    for (size_t i = 0; i < shards.size(); ++i)
      shards[i].metadata = keepsShards ? file.metadata(i) : file.metadata();
    const std::vector<TensorEntry> &tensors = file.tensors();
    for (const TensorEntry &tensor : tensors)
      shards[keepsShards ? tensor.shard : 0].tensors.push_back(tensor);
    Result<int64_t> size = writeTensors(
        file, to, std::move(shards), options.progress, [&](size_t i, SafetensorsWriter &writer) {
          Status done =
              plan[i].changes() ? change(tensors[i], plan[i], writer) : copy(tensors[i], writer);
          if (done)
            writer.endTensor();
          return done;
        });
    if (!size)
      return size.error();
    summary.outputBytes = *size;
    return summary;
  }

private:
  const SafetensorsFile &file;
  const Plan &plan;
  const Rotation &rotation;
  const RotateFileOptions &options;
  RotateFileSummary summary;

  Status copy(const TensorEntry &tensor, SafetensorsWriter &writer) {
    ++summary.copied;
    return writer.append(file.bytes(tensor).data(), tensor.bytes);
  }

  Status change(const TensorEntry &tensor, const Task &task, SafetensorsWriter &writer) {
    const std::optional<dsl::MatrixView> vector = vectorOf(file, tensor);
    const dsl::MatrixView view = vector ? *vector : *file.matrix(tensor);
    const dsl::ThreadLimit threads(dsl::threadsWorth(view.rows * view.k));
    const Matrix stored = matrixOf(view, options.threads);
    if (Status finite = checkNumbers(stored, DiagId::non_finite_input); !finite)
      return refused(tensor, finite.error().diagnostics[0].message);
    std::vector<double> numbers(stored.values.begin(), stored.values.end());
    if (task.becomesOnes)
      std::fill(numbers.begin(), numbers.end(), 1.0);
    if (task.gains != nullptr) {
      const Matrix gains = matrixOf(*vectorOf(file, *task.gains));
      if (Status finite = checkNumbers(gains, DiagId::non_finite_input); !finite)
        return refused(*task.gains, finite.error().diagnostics[0].message);
      for (auto row = numbers.begin(); row != numbers.end(); row += gains.k)
        std::transform(gains.row(0), gains.row(0) + gains.k, row, row, std::multiplies<double>());
    }
    Status rotated = Done{};
    if (task.inputs || task.isBias)
      rotated = rotateInputsInPlace(numbers, stored.k, rotation, options.threads);
    if (rotated && task.outputs)
      rotated = rotateOutputsInPlace(numbers, stored.k, rotation, options.threads);
    if (!rotated)
      return rotated;
    summary.norms += task.becomesOnes ? 1 : 0;
    summary.biases += task.isBias ? 1 : 0;
    summary.inputs += task.inputs ? 1 : 0;
    summary.outputs += task.outputs ? 1 : 0;
    const double most = elementOf(view.type).maxFinite();
    const auto beyond = std::find_if(numbers.begin(), numbers.end(),
                                     [&](double value) { return !(std::abs(value) <= most); });
    if (beyond != numbers.end()) {
      const int64_t at = beyond - numbers.begin();
      return refused(tensor, "row " + std::to_string(at / stored.k) + ", column " +
                                 std::to_string(at % stored.k) + " would be " +
                                 dsl::printNumber(*beyond) + ", beyond " + tensor.type);
    }
    const std::string bytes = encoded(numbers, stored.k, view.type, options.threads);
    return writer.append(bytes.data(), static_cast<int64_t>(bytes.size()));
  }

  Error refused(const TensorEntry &tensor, const std::string &why) const {
    return makeError(DiagId::tensor_not_rotated, {tensor.name, file.path(), why});
  }
};

} // namespace

Result<RotateFileSummary> rotateFile(const std::string &from, const std::string &to,
                                     const RotateFileOptions &options) {
  Result<SafetensorsFile> file = SafetensorsFile::open(from);
  if (!file)
    return file.error();
  if (Status free = checkOutput(to, *file); !free)
    return free.error();
  Plan plan(*file, options);
  Result<Rotation> rotation = plan.make();
  if (!rotation)
    return rotation.error();
  return FileRotator(*file, plan, *rotation, options).write(to);
}

} // namespace rho::kernels
