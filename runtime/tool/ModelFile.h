// What `rho plan` reads: the linear layers of a model, and the rules that give each its gemm.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rho::tool {

// y = x w^T, `count` times in the model; w is n x k.
struct ModelLayer {
  std::string name;
  int64_t n = 0, k = 0, count = 1;
};

// {"name": TEXT, "m": [M, ...], "layers": [{"name", "n", "k", "count"}, ...], "policy": FILE}
struct Model {
  std::string name;
  std::vector<int64_t> m; // rows of the activations, ascending
  std::vector<ModelLayer> layers;
  std::string policy; // file, as written; empty: none
};

// Gives a gemm to the layers that it names, or to all, where the device fulfils its condition on
// rho, for the operands that this gemm's matrix instruction takes there.
struct PlanRule {
  std::vector<std::string> layers; // empty: all
  std::optional<double> rhoAtMost, rhoAbove;
  std::string gemm;
  std::string name; // "rule 1" of a file's first
};

// {"gemms": [FILE.rho or FILE.rho:NAME, ...], "rules": [{"layers", "rho_at_most", "rho_above",
// "gemm"}, ...]}
struct PlanPolicy {
  std::vector<std::string> gemms; // files as written, or FILE.rho:NAME for one gemm of it
  std::vector<PlanRule> rules;    // the first that holds decides
};

// `path` is shown in messages. Errors: json_syntax with its place, json_key_twice,
// json_missing_key, json_unknown_key and json_value with the path of the value, such as
// layers[2].n.
Result<Model> readModel(std::string_view text, const std::string &path);
Result<PlanPolicy> readPolicy(std::string_view text, const std::string &path);

} // namespace rho::tool
