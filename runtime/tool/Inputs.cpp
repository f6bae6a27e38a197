#include "runtime/tool/Inputs.h"

#include "kernels/Synthetic.h"
#include "kernels/quantize/QuantizedFile.h"
#include "kernels/quantize/StoredTransform.h"

#include <unistd.h>

namespace rho::tool {

using Type = dsl::MatrixView::Type;

ScalarType scalarType(Type type) {
  return type == Type::F32   ? ScalarType::F32
         : type == Type::F16 ? ScalarType::F16
                             : ScalarType::BF16;
}

namespace {

// One extent of the shape and who said so.
class Extent {
public:
  explicit Extent(const char *name) : name(name) {}

  Status set(int64_t newValue, const std::string &newOrigin) {
    if (value != 0 && value != newValue)
      return makeError(DiagId::shape_conflict,
                       {name, std::to_string(value), origin, std::to_string(newValue), newOrigin});
    value = newValue;
    origin = newOrigin;
    return Done{};
  }
  Status needed(const std::string &whereElse) const {
    if (value == 0)
      return makeError(DiagId::option_missing,
                       {std::string("--") + name, "it can also come from " + whereElse});
    return Done{};
  }
  int64_t get() const { return value; }

private:
  const char *name;
  int64_t value = 0;
  std::string origin;
};

HostMatrix synthetic(std::vector<float> values, int64_t rows, int64_t k, int64_t seed) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return {{owner->data(), Type::F32, rows, k, k}, owner, "synthetic, seed " + std::to_string(seed)};
}

// The codes of a quantized weight and what its file says of the inputs, where there are any.
Status readWeightCodes(const std::string &from, Sources &sources) {
  Result<std::optional<kernels::QuantizedReference>> found = kernels::findQuantized(from);
  if (!found)
    return found.error();
  if (!*found)
    return Done{};
  const auto &[file, name] = **found;
  Result<dsl::QuantizedMatrix> codes = kernels::readQuantized(file, name);
  if (!codes)
    return codes.error();
  Result<kernels::LayerTransform> transform = kernels::readTransform(file, name);
  if (!transform)
    return transform.error();
  sources.codes = std::move(*codes);
  sources.transform = std::move(*transform);
  return Done{};
}

HostMatrix untransformed(const Sources &sources) {
  if (sources.activation)
    return {sources.activation->view, sources.activation->owner, "from a file"};
  const GemmShape &shape = sources.shape;
  auto seed = static_cast<uint64_t>(sources.seed);
  HostMatrix matrix = synthetic(kernels::syntheticActivation(shape.m, shape.k, seed), shape.m,
                                shape.k, sources.seed);
  size_t outliers = kernels::outlierChannels(shape.k, seed).size();
  matrix.description +=
      ", " + std::to_string(outliers) + (outliers == 1 ? " outlier channel" : " outlier channels");
  return matrix;
}

} // namespace

Result<Sources> openSources(const Options &options) {
  Sources sources;
  sources.seed = options.count("--seed").value_or(1);
  Extent m("m");
  Extent n("n");
  Extent k("k");
  for (auto [option, extent] : {std::pair{"--m", &m}, std::pair{"--n", &n}, std::pair{"--k", &k}})
    if (std::optional<int64_t> value = options.count(option))
      if (Status set = extent->set(*value, option); !set)
        return set.error();
  auto open = [&](const char *option, std::optional<kernels::Tensor> &tensor,
                  Extent &rows) -> Status {
    if (!options.has(option))
      return Done{};
    Result<kernels::Tensor> read = kernels::readTensor(options.text(option));
    if (!read)
      return read.error();
    tensor = std::move(*read);
    if (Status set = rows.set(tensor->view.rows, options.text(option)); !set)
      return set;
    return k.set(tensor->view.k, options.text(option));
  };
  if (Status read = readWeightCodes(options.text("--weights"), sources); !read)
    return read.error();
  if (sources.codes) {
    Status set = n.set(sources.codes->rows, options.text("--weights"));
    if (set)
      set = k.set(sources.codes->k, options.text("--weights"));
    if (!set)
      return set.error();
  } else if (Status opened = open("--weights", sources.weight, n); !opened) {
    return opened.error();
  }
  if (Status opened = open("--activations", sources.activation, m); !opened)
    return opened.error();
  if (Status there = m.needed("--activations"); !there)
    return there.error();
  if (Status there = n.needed("--weights"); !there)
    return there.error();
  if (Status there = k.needed("--weights or --activations"); !there)
    return there.error();
  sources.shape = {m.get(), n.get(), k.get()};
  return sources;
}

HostMatrix weightOf(const Sources &sources) {
  if (sources.weight)
    return {sources.weight->view, sources.weight->owner, "from a file"};
  const GemmShape &shape = sources.shape;
  auto seed = static_cast<uint64_t>(sources.seed);
  return synthetic(kernels::syntheticWeight(shape.n, shape.k, seed), shape.n, shape.k,
                   sources.seed);
}

Result<HostMatrix> activationOf(const Sources &sources) {
  HostMatrix matrix = untransformed(sources);
  const kernels::LayerTransform &transform = sources.transform;
  if (transform.isIdentity())
    return matrix;
  Result<kernels::Matrix> changed =
      kernels::transformActivation(kernels::matrixOf(matrix.view), transform);
  if (!changed)
    return changed.error();
  auto owner = std::make_shared<const kernels::Matrix>(std::move(*changed));
  for (auto [taken, word] : {std::pair(transform.smoothing.has_value(), ", smoothed"),
                             {transform.order.has_value(), ", channels in the weight's order"},
                             {transform.rotation.has_value(), ", rotated"}})
    matrix.description += taken ? word : "";
  return HostMatrix{owner->view(), owner, matrix.description};
}

Status checkHostMemory(const GemmShape &shape) {
  // Numbers, codes, scales and packed codes of an operand; of an output the number, its copy on an
  // emulated device, and the exact value with its magnitude.
  constexpr double perOperand = 4 + 4 + 4;
  constexpr double perOutput = 4 + 4 + 16;
  auto m = static_cast<double>(shape.m);
  auto n = static_cast<double>(shape.n);
  auto k = static_cast<double>(shape.k);
  double needed = (m * k + n * k) * perOperand + m * n * perOutput;
  double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (needed <= there)
    return Done{};
  auto megabytes = [](double bytes) {
    double value = bytes / 1e6;
    return value < 1e15 ? std::to_string(static_cast<int64_t>(value)) : std::string("1e15");
  };
  return makeError(DiagId::problem_too_large, {megabytes(needed), megabytes(there)});
}

} // namespace rho::tool
