#include "kernels/quantize/TensorChoice.h"

#include "dsl/Findings.h"
#include "kernels/quantize/QuantizedFile.h"

#include <algorithm>
#include <clocale>
#include <fnmatch.h>

namespace rho::kernels {

bool matches(const std::string &pattern, const std::string &name) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  locale_t own = utf8 ? uselocale(utf8) : nullptr;
  bool found = fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  if (own)
    uselocale(own);
  return found;
}

namespace {

bool matchesAny(const std::vector<std::string> &patterns, const std::string &name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string &pattern) { return matches(pattern, name); });
}

// Where none of what a pattern names can be quantized, all of it would stay as it is.
Status checkWeights(const SafetensorsFile &file, const TensorChoice &choice) {
  for (const std::string &pattern : choice.only) {
    auto noWeight = [&](const TensorEntry &tensor) {
      return makeError(DiagId::pattern_matches_no_weight,
                       {dsl::shown(pattern), file.path(),
                        "'" + dsl::shown(tensor.name) + "' is " + printExtents(tensor)});
    };
    const TensorEntry *other = nullptr;
    bool any = false;
    for (const TensorEntry &tensor : file.tensors()) {
      if (!matches(pattern, tensor.name))
        continue;
      if (file.matrix(tensor))
        any = true;
      else if (choice.wholly && tensor.shape.size() > 1)
        return noWeight(tensor);
      else if (!other)
        other = &tensor;
    }
    if (!any && other)
      return noWeight(*other);
  }
  return Done{};
}

} // namespace

Status checkPatterns(const SafetensorsFile &file, const std::vector<std::string> &patterns) {
  for (const std::string &pattern : patterns) {
    bool any =
        std::any_of(file.tensors().begin(), file.tensors().end(),
                    [&](const TensorEntry &tensor) { return matches(pattern, tensor.name); });
    if (!any)
      return makeError(DiagId::pattern_matches_nothing,
                       {dsl::shown(pattern), file.path(), printNames(file.tensors())});
  }
  return Done{};
}

Result<std::vector<bool>> chooseTensors(const SafetensorsFile &file, const TensorChoice &choice) {
  if (file.metadata().contains(formatKey))
    return makeError(DiagId::already_quantized, {file.path()});
  for (const auto *patterns : {&choice.only, &choice.skip})
    if (Status known = checkPatterns(file, *patterns); !known)
      return std::move(known.error());
  if (Status weights = checkWeights(file, choice); !weights)
    return std::move(weights.error());
  std::vector<bool> chosen;
  for (const TensorEntry &tensor : file.tensors())
    chosen.push_back(file.matrix(tensor) &&
                     (choice.only.empty() || matchesAny(choice.only, tensor.name)) &&
                     !matchesAny(choice.skip, tensor.name));
  if (std::none_of(chosen.begin(), chosen.end(), [](bool each) { return each; }))
    return makeError(DiagId::nothing_to_quantize, {file.path(), printNames(file.tensors())});
  return chosen;
}

} // namespace rho::kernels
