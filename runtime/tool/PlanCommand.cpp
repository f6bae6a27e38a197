#include "dsl/Findings.h"
#include "runtime/EngineImpl.h"
#include "runtime/tool/Csv.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/FormatOption.h"
#include "runtime/tool/LineChart.h"
#include "runtime/tool/ModelPlan.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Table.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

namespace rho::tool {

namespace {

namespace fs = std::filesystem;

// Candidates, with the modules that they belong to.
struct Candidates {
  std::vector<std::unique_ptr<dsl::Module>> modules;
  std::vector<PlanCandidate> all;

  // All gemms of FILE.rho, or of FILE.rho:NAME that one.
  Status add(const std::string &spec) {
    size_t colon = spec.ends_with(".rho") ? std::string::npos : spec.rfind(':');
    Result<dsl::Module> loaded = dsl::loadModule(spec.substr(0, colon));
    if (!loaded)
      return loaded.error();
    modules.push_back(std::make_unique<dsl::Module>(*std::move(loaded)));
    const dsl::Module &module = *modules.back();
    if (colon != std::string::npos) {
      Result<const dsl::Gemm *> gemm = findGemm(module, spec.substr(colon + 1));
      if (!gemm)
        return gemm.error();
      all.push_back({*gemm, module.sources.get()});
      return Done{};
    }
    if (module.gemms.empty())
      return module.whyNoneOf("gemm", "").value_or(makeError(DiagId::no_gemm, {"the module"}));
    for (const dsl::Gemm &gemm : module.gemms)
      all.push_back({&gemm, module.sources.get()});
    return Done{};
  }
};

// What decides: the candidates of the command line, else of the policy, and the policy's rules.
struct Choice {
  Candidates candidates;
  std::vector<PlanRule> rules;
};

std::string besides(const std::string &file, const std::string &path) {
  return (fs::path(file).parent_path() / path).string();
}

Result<Choice> readChoice(const Options &options, const std::string &path, const Model &model) {
  Choice choice;
  std::vector<std::string> files(options.files().begin() + 1, options.files().end());
  std::string policyPath = options.text("--policy");
  if (policyPath.empty() && files.empty() && !model.policy.empty())
    policyPath = besides(path, model.policy);
  if (!policyPath.empty()) {
    if (Status kept = options.keeps({policyPath}); !kept)
      return kept.error();
    Result<std::string> text = readText(policyPath);
    if (!text)
      return text.error();
    Result<PlanPolicy> policy = readPolicy(*text, policyPath);
    if (!policy)
      return policy.error();
    choice.rules = policy->rules;
    if (files.empty())
      for (const std::string &file : policy->gemms)
        files.push_back(besides(policyPath, file));
    if (Status kept = options.keeps(files); !kept)
      return kept.error();
  }
  for (const std::string &file : files)
    if (Status added = choice.candidates.add(file); !added)
      return added.error();
  if (options.has("--gemm"))
    choice.rules = {{{}, {}, {}, options.text("--gemm"), "--gemm"}};
  return choice;
}

std::string ratio(double value) { return fixedNumber(value, 2); }
std::string fixedOrNone(const std::optional<double> &value) {
  return value ? fixedNumber(*value, 3) : "";
}
// How many times as fast something is as f16, which a device may not have.
std::optional<double> over(const std::optional<double> &f16, double time) {
  return f16 ? std::optional(*f16 / time) : std::nullopt;
}

// One row for each candidate of each layer and m.
struct CandidateRow {
  const Model *model;
  const compiler::DeviceModel *device;
  const LayerPlan *layer;
  const LayerPrediction *prediction;
  int64_t m;
  std::string gemm;
  size_t candidate;

  const Result<compiler::Plan> &plan() const { return prediction->plans[candidate]; }
  // Text made of the plan; empty without one.
  template <class Text> std::string ofPlan(const Text &text) const {
    return plan() ? text(*plan()) : std::string();
  }
};

std::string csvOf(const Model &model, const ModelPlan &plan, const compiler::DeviceModel &device) {
  using compiler::Plan;
  static const std::vector<CsvColumn<CandidateRow>> columns = {
      {"model", [](const CandidateRow &row) { return row.model->name; }},
      {"device", [](const CandidateRow &row) { return row.device->name; }},
      {"layer", [](const CandidateRow &row) { return row.layer->layer.name; }},
      {"n", [](const CandidateRow &row) { return std::to_string(row.layer->layer.n); }},
      {"k", [](const CandidateRow &row) { return std::to_string(row.layer->layer.k); }},
      {"count", [](const CandidateRow &row) { return std::to_string(row.layer->layer.count); }},
      {"m", [](const CandidateRow &row) { return std::to_string(row.m); }},
      {"gemm", [](const CandidateRow &row) { return row.gemm; }},
      {"chosen",
       [](const CandidateRow &row) {
         return std::string(row.layer->chosen == row.candidate ? "1" : "0");
       }},
      {"decided_by",
       [](const CandidateRow &row) {
         return row.layer->chosen == row.candidate ? row.layer->reason : std::string();
       }},
      {"predicted_us",
       [](const CandidateRow &row) {
         return row.ofPlan([](const Plan &p) { return fixedNumber(p.predictedMicroseconds, 3); });
       }},
      {"f16_kernel_us",
       [](const CandidateRow &row) { return fixedOrNone(row.prediction->f16Kernel); }},
      {"f16_library_us",
       [](const CandidateRow &row) { return fixedOrNone(row.prediction->f16Library); }},
      {"over_f16",
       [](const CandidateRow &row) {
         return row.ofPlan([&](const Plan &p) {
           return fixedOrNone(over(row.prediction->f16(), p.predictedMicroseconds));
         });
       }},
      {"mma_type",
       [](const CandidateRow &row) { return row.ofPlan([](const Plan &p) { return p.mmaType; }); }},
      {"rho",
       [](const CandidateRow &row) {
         return row.ofPlan([&](const Plan &p) {
           std::optional<double> rho = row.device->rates.rho(p.mmaType);
           return rho ? shortNumber(*rho) : std::string();
         });
       }},
      {"roles",
       [](const CandidateRow &row) {
         return row.ofPlan([](const Plan &p) { return std::string(dsl::name(p.schedule.roles)); });
       }},
      {"tile",
       [](const CandidateRow &row) {
         return row.ofPlan([](const Plan &p) {
           return extentsText({p.schedule.tileM, p.schedule.tileN, p.schedule.tileK});
         });
       }},
      {"split_k",
       [](const CandidateRow &row) {
         return row.ofPlan([](const Plan &p) {
           return p.schedule.streamsK() ? std::string("stream") : std::to_string(p.schedule.splitK);
         });
       }},
      {"sums",
       [](const CandidateRow &row) {
         return row.ofPlan([](const Plan &p) { return std::string(dsl::name(p.schedule.sums)); });
       }},
      {"why_not",
       [](const CandidateRow &row) {
         return row.plan() ? std::string() : row.plan().error().diagnostics[0].message;
       }},
  };
  std::vector<CandidateRow> rows;
  for (const LayerPlan &layer : plan.layers)
    for (size_t i = 0; i < model.m.size(); ++i)
      for (size_t candidate = 0; candidate < plan.gemms.size(); ++candidate)
        rows.push_back({&model, &device, &layer, &layer.predictions[i], model.m[i],
                        plan.gemms[candidate], candidate});
  return csv(columns, rows);
}

std::string layerTable(const ModelPlan &plan) {
  std::vector<std::vector<std::string>> rows = {{"layer", "n", "k", "count", "gemm", "decided by"}};
  for (const LayerPlan &each : plan.layers)
    rows.push_back({dsl::visible(each.layer.name), std::to_string(each.layer.n),
                    std::to_string(each.layer.k), std::to_string(each.layer.count),
                    plan.gemms[each.chosen], each.reason});
  return table(rows);
}

// Predicted time of one product with each candidate; that of the plan has a star.
std::string timeTable(const Model &model, const ModelPlan &plan) {
  std::vector<std::vector<std::string>> rows = {{"m", "layer"}};
  rows[0].insert(rows[0].end(), plan.gemms.begin(), plan.gemms.end());
  rows[0].insert(rows[0].end(), {"f16", "over f16"});
  for (size_t i = 0; i < model.m.size(); ++i)
    for (const LayerPlan &each : plan.layers) {
      const LayerPrediction &prediction = each.predictions[i];
      std::vector<std::string> row = {std::to_string(model.m[i]), dsl::visible(each.layer.name)};
      for (size_t candidate = 0; candidate < plan.gemms.size(); ++candidate) {
        const Result<compiler::Plan> &found = prediction.plans[candidate];
        row.push_back((candidate == each.chosen ? "*" : "") +
                      (found ? microseconds(found->predictedMicroseconds) : std::string("-")));
      }
      double time = prediction.plans[each.chosen]->predictedMicroseconds;
      std::optional<double> f16 = prediction.f16();
      row.insert(row.end(), {f16 ? microseconds(*f16) : "-", f16 ? ratio(*f16 / time) : "-"});
      rows.push_back(std::move(row));
    }
  return table(rows);
}

std::string totalTable(const Model &model, const ModelPlan &plan) {
  std::vector<std::vector<std::string>> rows = {{"m", "plan", "f16", "over f16"}};
  for (const std::string &gemm : plan.gemms)
    rows[0].push_back("all " + gemm);
  for (size_t i = 0; i < model.m.size(); ++i) {
    double all = plan.chosen(i);
    std::optional<double> f16 = plan.f16(i);
    rows.push_back({std::to_string(model.m[i]), microseconds(all), f16 ? microseconds(*f16) : "-",
                    f16 ? ratio(*f16 / all) : "-"});
    for (size_t candidate = 0; candidate < plan.gemms.size(); ++candidate) {
      std::optional<double> uniform = plan.uniform(candidate, i);
      rows.back().push_back(uniform ? microseconds(*uniform) +
                                          (f16 ? " (" + ratio(*f16 / *uniform) + ")" : "")
                                    : "-");
    }
  }
  return table(rows);
}

// A format as the command line names it; empty where it cannot.
std::string nameOfWeight(const PlanCandidate &candidate) {
  const dsl::Format &weight = candidate.gemm->weight;
  const std::string file = fs::path(candidate.sources->name(0)).lexically_normal().string();
  for (const std::string &name : {weight.name, file + ":" + weight.name})
    if (Result<std::shared_ptr<const dsl::Format>> opened = openWeightFormat(name);
        opened && dsl::print(**opened) == dsl::print(weight))
      return name;
  return "";
}

// What encodes the weights as planned: the format of most layers for all, for others those of
// theirs by name. Empty where the command line cannot name a format, or a pattern no such layer.
std::string quantizeLine(const ModelPlan &plan, const std::vector<PlanCandidate> &candidates) {
  std::vector<std::string> formats;
  for (const PlanCandidate &candidate : candidates)
    formats.push_back(nameOfWeight(candidate));
  std::map<std::string, int> layers;
  for (const LayerPlan &each : plan.layers)
    if (++layers[formats[each.chosen]]; formats[each.chosen].empty())
      return "";
  const std::string &most =
      std::max_element(layers.begin(), layers.end(), [](const auto &a, const auto &b) {
        return a.second < b.second;
      })->first;
  std::string line = "rho quantize IN.safetensors --format " + shellWord(most);
  for (const LayerPlan &each : plan.layers)
    if (const std::string &format = formats[each.chosen]; format != most) {
      const std::string &name = each.layer.name;
      if (name.find_first_of("*?[]\\=") != std::string::npos || dsl::visible(name) != name)
        return "";
      line += " --format-of " + shellWord("*" + name + "*=" + format);
    }
  return line + " -o OUT.safetensors";
}

// Speed-ups over f16 against m: of the whole model, then of each layer.
std::string plotOf(const Model &model, const ModelPlan &plan, const compiler::DeviceModel &device) {
  auto lineOf = [&](const std::string &name, const auto &speedUp) {
    Line line{name, {}};
    for (size_t i = 0; i < model.m.size(); ++i)
      if (std::optional<double> value = speedUp(i))
        line.points.emplace_back(static_cast<double>(model.m[i]), *value);
    return line;
  };
  Panel whole{"all layers", {}};
  for (size_t c = 0; c < plan.gemms.size(); ++c)
    whole.lines.push_back(lineOf(plan.gemms[c], [&](size_t i) -> std::optional<double> {
      std::optional<double> uniform = plan.uniform(c, i);
      return uniform ? over(plan.f16(i), *uniform) : std::nullopt;
    }));
  whole.lines.push_back(
      lineOf("the plan", [&](size_t i) { return over(plan.f16(i), plan.chosen(i)); }));
  LineFigure figure{model.name + " on " + device.name,
                    "m, rows of the activations",
                    "predicted speed-up over f16",
                    1,
                    {whole}};
  for (const LayerPlan &each : plan.layers) {
    Panel panel{each.layer.name + ": " + plan.gemms[each.chosen], {}};
    for (size_t c = 0; c < plan.gemms.size(); ++c)
      panel.lines.push_back(lineOf(plan.gemms[c], [&](size_t i) -> std::optional<double> {
        const LayerPrediction &prediction = each.predictions[i];
        const Result<compiler::Plan> &found = prediction.plans[c];
        return found ? over(prediction.f16(), found->predictedMicroseconds) : std::nullopt;
      }));
    figure.panels.push_back(std::move(panel));
  }
  return lineCharts({figure});
}

std::vector<int64_t> ascending(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

} // namespace

Result<int> planCommand(const Options &options) {
  if (options.files().empty())
    return makeError(DiagId::option_missing, {"MODEL.json", "'rho plan' needs layers"});
  const std::string &path = options.files()[0];
  Result<std::string> text = readText(path);
  if (!text)
    return text.error();
  Result<Model> model = readModel(*text, path);
  if (!model)
    return model.error();
  if (options.has("--m"))
    model->m = ascending(options.counts("--m"));
  Result<Choice> choice = readChoice(options, path, *model);
  if (!choice)
    return choice.error();
  Result<compiler::DeviceModel> device = plannedModel(options);
  if (!device)
    return device.error();
  Result<ModelPlan> plan = planModel(*model, choice->rules, choice->candidates.all, *device);
  if (!plan)
    return plan.error();
  printLine("model", dsl::visible(model->name));
  printLine("device", plannedFor(*device));
  std::printf(
      "\n%s\npredicted us of one product, * of the plan; f16 is the faster of a gemm of f16 "
      "matrices and a library's\n\n%s\npredicted us of all layers, and of all with one gemm "
      "(its speed-up over f16)\n\n%s",
      layerTable(*plan).c_str(), timeTable(*model, *plan).c_str(),
      totalTable(*model, *plan).c_str());
  if (const std::string line = quantizeLine(*plan, choice->candidates.all); !line.empty())
    std::printf("\nweights as planned, where their names have those of the layers in them\n\n%s\n",
                line.c_str());
  if (options.has("--csv"))
    if (Status written = writeText(options.text("--csv"), csvOf(*model, *plan, *device)); !written)
      return written.error();
  if (options.has("--plot"))
    if (Status written = writeText(options.text("--plot"), plotOf(*model, *plan, *device));
        !written)
      return written.error();
  return success;
}

} // namespace rho::tool
