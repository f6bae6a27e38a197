#include "kernels/quantize/WeightGroups.h"

#include "dsl/Findings.h"

#include <set>

namespace rho::kernels {

namespace {

using FormatPtr = std::shared_ptr<const dsl::Format>;

class Grouping {
public:
  Grouping(const SafetensorsFile &file, const std::vector<FormatPtr> &formats,
           const SafetensorsFile *activations)
      : file(file), formats(formats), activations(activations) {}

  Status add(const NamedTensor &named) {
    std::vector<size_t> group;
    for (size_t i = 0; i < formats.size(); ++i) {
      const TensorEntry &tensor = file.tensors()[i];
      if (&tensor != named.tensor && !matches(named.others, tensor.name))
        continue;
      if (!formats[i] && file.matrix(tensor))
        return apart(*named.tensor, tensor, "'" + dsl::shown(tensor.name) + "' is not chosen");
      if (formats[i])
        group.push_back(i);
    }
    if (group.size() < 2)
      return makeError(DiagId::pattern_matches_nothing,
                       {dsl::shown(named.others), file.path(), printNames(file.tensors())});
    if (Status one = check(group); !one)
      return one;
    groups.push_back(std::move(group));
    return Done{};
  }

  std::vector<std::vector<size_t>> groups;

private:
  static Error apart(const TensorEntry &one, const TensorEntry &other, const std::string &why) {
    return makeError(DiagId::weights_apart, {dsl::shown(one.name), dsl::shown(other.name), why});
  }

  Status check(const std::vector<size_t> &group) {
    const TensorEntry &first = file.tensors()[group[0]];
    const dsl::Format &format = *formats[group[0]];
    if (format.hasParts())
      return apart(first, file.tensors()[group[1]], "format '" + format.name + "' has parts");
    int64_t above = 0; // rows of the weights before
    for (size_t i : group) {
      const TensorEntry &tensor = file.tensors()[i];
      if (!taken.insert(i).second)
        return apart(first, file.tensors()[group[1]],
                     "'" + dsl::shown(tensor.name) + "' is one with others already");
      if (tensor.shape[1] != first.shape[1])
        return apart(first, tensor,
                     "they have " + std::to_string(first.shape[1]) + " and " +
                         std::to_string(tensor.shape[1]) + " columns");
      if (*formats[i] != format)
        return apart(first, tensor, "they have different formats");
      for (const dsl::Component &component : format.components)
        if (const int64_t rows = dsl::blocksOf(component).rows; rows > 0 && above % rows != 0)
          return apart(first, tensor,
                       "the " + std::to_string(above) + " rows above end inside " +
                           std::to_string(rows) + " rows that share a number of component '" +
                           component.name + "'");
      if (activations && inputsOf(tensor) != inputsOf(first))
        return apart(first, tensor, "their activations are not the same numbers");
      above += tensor.shape[0];
    }
    return Done{};
  }

  // Bytes and type of a weight's activations; empty where there are none.
  std::pair<std::string_view, std::string> inputsOf(const TensorEntry &weight) const {
    const TensorEntry *inputs = activations->find(weight.name);
    return inputs ? std::pair(activations->bytes(*inputs), inputs->type)
                  : std::pair(std::string_view(), std::string());
  }

  const SafetensorsFile &file;
  const std::vector<FormatPtr> &formats;
  const SafetensorsFile *const activations; // null: none
  std::set<size_t> taken;                   // weights that are in a group
};

} // namespace

Result<std::vector<std::vector<size_t>>> weightGroups(const SafetensorsFile &file,
                                                      const std::vector<FormatPtr> &formats,
                                                      const QuantizeFileOptions &options) {
  Grouping grouping(file, formats, options.activations.get());
  for (const WeightsTogether &each : options.together) {
    Result<std::vector<NamedTensor>> named = namedTensors(file, each.name, each.others);
    if (!named)
      return std::move(named.error());
    for (const NamedTensor &one : *named)
      if (Status added = grouping.add(one); !added)
        return std::move(added.error());
  }
  return std::move(grouping.groups);
}

} // namespace rho::kernels
