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
        return makeError(
            DiagId::pattern_matches_other,
            {dsl::shown(pattern), file.path(), dsl::shown(tensor.name), printExtents(tensor)});
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

// As a pattern that stands for these characters alone.
static std::string literally(std::string_view text) {
  std::string pattern;
  for (char letter : text) {
    if (std::string_view("*?[]\\").find(letter) != std::string_view::npos)
      pattern += '\\';
    pattern += letter;
  }
  return pattern;
}

Result<std::vector<NamedTensor>> namedTensors(const SafetensorsFile &file, const std::string &name,
                                              const std::string &others) {
  const size_t star = name.find('*');
  const bool one = star != std::string::npos;
  const std::string begin = name.substr(0, star), end = one ? name.substr(star + 1) : "";
  if (name.empty() || others.empty() || (begin + end).find_first_of("*?[") != std::string::npos)
    return makeError(DiagId::name_and_pattern, {dsl::shown(name + "=" + others)});
  std::vector<NamedTensor> found;
  for (const TensorEntry &tensor : file.tensors()) {
    const std::string &own = tensor.name;
    if (one ? own.size() < begin.size() + end.size() || !own.starts_with(begin) ||
                  !own.ends_with(end)
            : own != begin)
      continue;
    NamedTensor named{&tensor, others};
    if (const size_t place = others.find('*'); one && place != std::string::npos)
      named.others.replace(
          place, 1, literally(own.substr(begin.size(), own.size() - begin.size() - end.size())));
    found.push_back(std::move(named));
  }
  if (found.empty())
    return makeError(DiagId::pattern_matches_nothing,
                     {dsl::shown(name), file.path(), printNames(file.tensors())});
  return found;
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
