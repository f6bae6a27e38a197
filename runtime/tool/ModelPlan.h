// Which gemm each layer of a model gets, by rules or by prediction, and what it is predicted to
// take.
#pragma once

#include "compiler/Plan.h"
#include "dsl/Module.h"
#include "runtime/tool/ModelFile.h"

namespace rho::tool {

struct PlanCandidate {
  const dsl::Gemm *gemm;
  const SourceMap *sources;
};

// One product of one layer, for one m.
struct LayerPrediction {
  std::vector<Result<compiler::Plan>> plans; // of each candidate
  // Microseconds of a gemm of plain f16 matrices, of a vendor library's, and of the faster of them;
  // none where the device has no such products.
  std::optional<double> f16Kernel, f16Library;
  std::optional<double> f16() const {
    return f16Kernel && f16Library ? std::min(f16Kernel, f16Library)
           : f16Kernel             ? f16Kernel
                                   : f16Library;
  }
};

struct LayerPlan {
  ModelLayer layer;
  size_t chosen = 0;                        // candidate
  std::string reason;                       // "rule 2: layer v_proj"
  std::vector<LayerPrediction> predictions; // for each m of the model
};

struct ModelPlan {
  std::vector<std::string> gemms; // names of the candidates
  std::vector<LayerPlan> layers;

  // Microseconds of all layers for the i-th m with one candidate for all of them; none where one
  // of them cannot have it.
  std::optional<double> uniform(size_t candidate, size_t i) const;
  double chosen(size_t i) const; // the same of what each layer gets
  std::optional<double> f16(size_t i) const;
};

// The first rule that holds decides; without rules the candidate with the least geometric mean of
// predictions over m. Errors: plan_gemm_twice, plan_unknown_gemm, plan_unknown_layer, plan_no_rule,
// plan_no_rho, plan_no_candidate.
Result<ModelPlan> planModel(const Model &model, const std::vector<PlanRule> &rules,
                            const std::vector<PlanCandidate> &candidates,
                            const compiler::DeviceModel &device);

} // namespace rho::tool
