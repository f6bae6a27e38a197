#include "runtime/tool/ModelPlan.h"

#include "compiler/Explain.h"
#include "compiler/OnTarget.h"
#include "dsl/Findings.h"
#include "dsl/Parallel.h"
#include "kernels/quantize/TensorChoice.h"
#include "runtime/tool/Report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace rho::tool {

namespace {

constexpr const char *f16Text = "gemm plain { weight: f16 activation: f16 output: f16 }";

// A name, or a pattern of names.
bool names(const std::string &layer, const std::string &name) {
  return layer == name || kernels::matches(layer, name);
}

// Predictions for every layer and m, of equal shapes one.
void predictAll(ModelPlan &plan, const Model &model, const std::vector<PlanCandidate> &candidates,
                const compiler::DeviceModel &device) {
  Result<dsl::Module> f16 =
      dsl::parseModule(f16Text, "f16.rho", [](const std::string &) { return std::nullopt; });
  auto perLayer = static_cast<int64_t>(model.m.size());
  std::map<std::pair<int64_t, int64_t>, size_t> firstOf; // n and k: the layer that is predicted
  std::vector<size_t> firsts;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    LayerPlan &each = plan.layers[i];
    if (!firstOf.try_emplace({each.layer.n, each.layer.k}, i).second)
      continue;
    firsts.push_back(i);
    each.predictions.resize(model.m.size());
  }
  std::vector<dsl::Gemm> onTarget;
  for (const PlanCandidate &candidate : candidates)
    onTarget.push_back(compiler::onTarget(*candidate.gemm, device.target).gemm);
  const int64_t problems = perLayer * static_cast<int64_t>(firsts.size());
  dsl::parallel(problems, 0, [&](auto next) {
    for (int64_t i = next(); i < problems; i = next()) {
      LayerPlan &each = plan.layers[firsts[static_cast<size_t>(i / perLayer)]];
      auto at = static_cast<size_t>(i % perLayer);
      compiler::Problem problem{model.m[at], each.layer.n, each.layer.k};
      LayerPrediction &prediction = each.predictions[at];
      for (size_t j = 0; j < candidates.size(); ++j)
        prediction.plans.push_back(
            compiler::plan(onTarget[j], problem, device, candidates[j].sources));
      Result<compiler::Plan> kernel = compiler::plan(f16->gemms[0], problem, device, nullptr);
      if (kernel && device.rates.tensor.contains("f16"))
        prediction.f16Kernel = kernel->predictedMicroseconds;
      prediction.f16Library = compiler::predictLibraryMicroseconds(problem, "f16", device);
    }
  });
  for (LayerPlan &each : plan.layers)
    each.predictions = plan.layers[firstOf.at({each.layer.n, each.layer.k})].predictions;
}

std::string firstMessage(const Error &error) { return error.diagnostics[0].message; }

Error noCandidate(const LayerPlan &each, int64_t m, const Error &why) {
  return makeError(DiagId::plan_no_candidate,
                   {dsl::shown(each.layer.name), std::to_string(each.layer.n),
                    std::to_string(each.layer.k), std::to_string(m), firstMessage(why)});
}

class Decision {
public:
  Decision(const Model &model, const std::vector<PlanRule> &rules, const ModelPlan &plan,
           const compiler::DeviceModel &device)
      : model(model), rules(rules), plan(plan), device(device) {}

  std::optional<Error> decide(LayerPlan &each) const {
    if (rules.empty())
      return takeFastest(each);
    for (const PlanRule &rule : rules) {
      Result<std::string> why = reasonOf(rule, each);
      if (!why)
        return why.error();
      if (why->empty())
        continue;
      each.chosen = candidateOf(rule);
      each.reason = dsl::visible(rule.name) + ": " + *why;
      for (size_t i = 0; i < model.m.size(); ++i)
        if (const Result<compiler::Plan> &found = each.predictions[i].plans[each.chosen]; !found)
          return noCandidate(each, model.m[i], found.error());
      return std::nullopt;
    }
    return makeError(DiagId::plan_no_rule, {dsl::shown(each.layer.name)});
  }

private:
  const Model &model;
  const std::vector<PlanRule> &rules;
  const ModelPlan &plan;
  const compiler::DeviceModel &device;

  size_t candidateOf(const PlanRule &rule) const {
    return static_cast<size_t>(std::find(plan.gemms.begin(), plan.gemms.end(), rule.gemm) -
                               plan.gemms.begin());
  }

  // Why the rule decides for this layer; empty: it does not. Rho is that of the operands for the
  // most rows, where it matters.
  Result<std::string> reasonOf(const PlanRule &rule, const LayerPlan &each) const {
    std::vector<std::string> reasons;
    if (!rule.layers.empty()) {
      if (std::none_of(rule.layers.begin(), rule.layers.end(),
                       [&](const std::string &layer) { return names(layer, each.layer.name); }))
        return std::string();
      reasons.push_back("layer " + dsl::visible(each.layer.name));
    }
    if (rule.rhoAtMost || rule.rhoAbove) {
      auto most = std::max_element(model.m.begin(), model.m.end());
      const Result<compiler::Plan> &found =
          each.predictions[static_cast<size_t>(most - model.m.begin())].plans[candidateOf(rule)];
      if (!found)
        return noCandidate(each, *most, found.error());
      std::optional<double> rho = device.rates.rho(found->mmaType);
      if (!rho)
        return makeError(DiagId::plan_no_rho, {dsl::shown(rule.name), found->mmaType, device.name});
      if ((rule.rhoAtMost && *rho > *rule.rhoAtMost) || (rule.rhoAbove && *rho <= *rule.rhoAbove))
        return std::string();
      reasons.push_back("rho of " + found->mmaType + " is " + shortNumber(*rho));
    }
    return reasons.empty() ? std::string("all others") : dsl::join(reasons);
  }

  std::optional<Error> takeFastest(LayerPlan &each) const {
    double least = std::numeric_limits<double>::infinity();
    for (size_t candidate = 0; candidate < plan.gemms.size(); ++candidate) {
      double logarithms = 0;
      for (const LayerPrediction &prediction : each.predictions) {
        const Result<compiler::Plan> &found = prediction.plans[candidate];
        logarithms += found ? std::log(found->predictedMicroseconds)
                            : std::numeric_limits<double>::infinity();
      }
      if (logarithms < least) {
        least = logarithms;
        each.chosen = candidate;
      }
    }
    each.reason = "fastest";
    if (!std::isfinite(least))
      for (size_t i = 0; i < model.m.size(); ++i)
        if (const Result<compiler::Plan> &found = each.predictions[i].plans[0]; !found)
          return noCandidate(each, model.m[i], found.error());
    return std::nullopt;
  }
};

std::optional<Error> checkNames(const Model &model, const std::vector<PlanRule> &rules,
                                const std::vector<std::string> &gemms) {
  for (size_t i = 0; i < gemms.size(); ++i)
    if (std::find(gemms.begin(), gemms.begin() + static_cast<std::ptrdiff_t>(i), gemms[i]) !=
        gemms.begin() + static_cast<std::ptrdiff_t>(i))
      return makeError(DiagId::plan_gemm_twice, {gemms[i]});
  std::vector<std::string> layers;
  for (const ModelLayer &layer : model.layers)
    layers.push_back(layer.name);
  for (const PlanRule &rule : rules) {
    if (std::find(gemms.begin(), gemms.end(), rule.gemm) == gemms.end())
      return makeError(DiagId::plan_unknown_gemm, {dsl::shown(rule.name), dsl::shown(rule.gemm),
                                                   dsl::listed(rule.gemm, gemms)});
    for (const std::string &layer : rule.layers)
      if (std::none_of(layers.begin(), layers.end(),
                       [&](const std::string &name) { return names(layer, name); })) {
        std::transform(layers.begin(), layers.end(), layers.begin(), dsl::visible);
        return makeError(DiagId::plan_unknown_layer,
                         {dsl::shown(rule.name), dsl::shown(layer), dsl::listed(layer, layers)});
      }
  }
  return std::nullopt;
}

} // namespace

std::optional<double> ModelPlan::uniform(size_t candidate, size_t i) const {
  double sum = 0;
  for (const LayerPlan &each : layers) {
    const Result<compiler::Plan> &found = each.predictions[i].plans[candidate];
    if (!found)
      return std::nullopt;
    sum += static_cast<double>(each.layer.count) * found->predictedMicroseconds;
  }
  return sum;
}

double ModelPlan::chosen(size_t i) const {
  double sum = 0;
  for (const LayerPlan &each : layers)
    sum += static_cast<double>(each.layer.count) *
           each.predictions[i].plans[each.chosen]->predictedMicroseconds;
  return sum;
}

std::optional<double> ModelPlan::f16(size_t i) const {
  double sum = 0;
  for (const LayerPlan &each : layers) {
    std::optional<double> time = each.predictions[i].f16();
    if (!time)
      return std::nullopt;
    sum += static_cast<double>(each.layer.count) * *time;
  }
  return sum;
}

Result<ModelPlan> planModel(const Model &model, const std::vector<PlanRule> &rules,
                            const std::vector<PlanCandidate> &candidates,
                            const compiler::DeviceModel &device) {
  ModelPlan plan;
  for (const PlanCandidate &candidate : candidates)
    plan.gemms.push_back(candidate.gemm->name);
  if (plan.gemms.empty())
    return makeError(DiagId::plan_without_gemms);
  if (std::optional<Error> error = checkNames(model, rules, plan.gemms))
    return *std::move(error);
  for (const ModelLayer &layer : model.layers)
    plan.layers.push_back({layer, 0, "", {}});
  predictAll(plan, model, candidates, device);
  Decision decision(model, rules, plan, device);
  for (LayerPlan &each : plan.layers)
    if (std::optional<Error> error = decision.decide(each))
      return *std::move(error);
  return plan;
}

} // namespace rho::tool
