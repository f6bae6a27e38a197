// Models in JSON, and which gemm each of their layers gets.
#include "runtime/tool/ModelPlan.h"
#include "compiler/Devices.h"
#include "compiler/Explain.h"

#include <gtest/gtest.h>

#include <utility>

#include <fstream>
#include <iterator>
#include <map>

namespace rho::tool {
namespace {

std::string sourceText(const std::string &path) {
  std::ifstream file(std::string(RHO_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string modelError(const std::string &text) {
  Result<Model> model = readModel(text, "m.json");
  return model ? "accepted" : model.error().str();
}
std::string policyError(const std::string &text) {
  Result<PlanPolicy> policy = readPolicy(text, "p.json");
  return policy ? "accepted" : policy.error().str();
}

constexpr const char *small =
    R"({"name": "small", "m": [1, 64], "layers": [{"name": "a", "n": 512, "k": 256, "count": 3},
                                                  {"name": "b", "n": 256, "k": 1024}]})";

TEST(ModelFile, IsRead) {
  Result<Model> model = readModel(small, "m.json");
  ASSERT_TRUE(model.ok()) << model.error().str();
  EXPECT_EQ(model->name, "small");
  EXPECT_EQ(model->m, (std::vector<int64_t>{1, 64}));
  ASSERT_EQ(model->layers.size(), 2U);
  EXPECT_EQ(model->layers[0].n, 512);
  EXPECT_EQ(model->layers[0].k, 256);
  EXPECT_EQ(model->layers[0].count, 3);
  EXPECT_EQ(model->layers[1].count, 1);
}

TEST(ModelFile, OfTheExamplesAreRead) {
  for (const char *name : {"llama2_7b", "llama3_8b"}) {
    std::string path = std::string("examples/models/") + name + ".json";
    Result<Model> model = readModel(sourceText(path), path);
    ASSERT_TRUE(model.ok()) << model.error().str();
    int64_t parameters = 0; // of the layers: 6.5e9 and 7.0e9 without embeddings
    for (const ModelLayer &layer : model->layers)
      parameters += layer.n * layer.k * layer.count;
    EXPECT_EQ(parameters, std::string(name) == "llama2_7b" ? 6476005376 : 6979321856);
  }
}

TEST(ModelFile, SyntaxErrorsHaveTheirPlace) {
  EXPECT_EQ(modelError("{\n  \"name\": \"x\",\n  \"m\": [1,]\n}"),
            "m.json:3:11: error: malformed JSON, while parsing value - unexpected ']'; expected "
            "'[', '{', or a literal [json_syntax]\n"
            "  \"m\": [1,]\n"
            "          ^\n");
  EXPECT_NE(modelError("").find("m.json:1:1: error: malformed JSON, while parsing value - "
                                "unexpected end of input"),
            std::string::npos);
  for (const char *text : {"{", "[1", "nul", "{\"name\": \"\xff\"}", "{} {}", "{\"m\": [1e999]}"})
    EXPECT_NE(modelError(text).find("[json_syntax]"), std::string::npos) << text;
}

TEST(ModelFile, NestingHasALimit) {
  const std::string deep(100000, '['), closed(100000, ']');
  EXPECT_EQ(modelError("{\"name\": " + deep + closed + "}"),
            "error: 'm.json': values are nested more than 64 deep [json_too_deep]\n");
}

TEST(ModelFile, ErrorsNameTheValue) {
  auto layers = [](const std::string &layer) {
    return R"({"name": "x", "m": [1], "layers": [{"name": "a", "n": 8, "k": 8}, )" + layer + "]}";
  };
  EXPECT_EQ(modelError(R"({"name": "x", "name": "y"})"),
            "error: 'm.json': key 'name' stands twice in one object, once is allowed "
            "[json_key_twice]\n");
  EXPECT_EQ(modelError(R"({"name": "x", "layers": []})"),
            "error: 'm.json': the file has no 'm' [json_missing_key]\n");
  EXPECT_EQ(modelError(layers(R"({"name": "b", "n": 8})")),
            "error: 'm.json': layers[1] has no 'k' [json_missing_key]\n");
  EXPECT_EQ(modelError(layers(R"({"name": "b", "n": 8, "k": 8, "cuont": 2})")),
            "error: 'm.json': layers[1] has unknown key 'cuont', valid are name, n, k, count, did "
            "you mean 'count' [json_unknown_key]\n");
  EXPECT_EQ(modelError("[]"),
            "error: 'm.json': the file is [], an object is needed [json_value]\n");
  struct Case {
    std::string layer, message;
  };
  const std::string whole = ", a whole number from 1 to 16777216 is needed";
  for (const auto &[layer, message] :
       {Case{R"({"name": "b", "n": "8", "k": 8})", "layers[1].n is \"8\"" + whole},
        Case{R"({"name": "b", "n": 0, "k": 8})", "layers[1].n is 0" + whole},
        Case{R"({"name": "b", "n": 8, "k": -1})", "layers[1].k is -1" + whole},
        Case{R"({"name": "b", "n": 8, "k": 8.5})", "layers[1].k is 8.5" + whole},
        Case{R"({"name": "b", "n": 18446744073709551615, "k": 8})",
             "layers[1].n is 18446744073709551615" + whole},
        Case{R"({"name": "b", "n": 8, "k": 16777217})", "layers[1].k is 16777217" + whole},
        Case{R"({"name": "b", "n": 16777216, "k": 8, "count": 2147483648})",
             "layers[1].count is 2147483648, a whole number from 1 to 2147483647 is needed"},
        Case{R"({"name": "b", "n": 8, "k": 8, "count": null})",
             "layers[1].count is null, a whole number from 1 to 2147483647 is needed"},
        Case{R"({"name": "", "n": 8, "k": 8})", "layers[1].name is \"\", a text is needed"},
        Case{R"({"name": "a", "n": 8, "k": 8})",
             "layers[1].name is \"a\", a name that no layer before it has is needed"},
        Case{"7", "layers[1] is 7, an object is needed"}})
    EXPECT_EQ(modelError(layers(layer)), "error: 'm.json': " + message + " [json_value]\n");
  EXPECT_EQ(modelError(R"({"name": "x", "m": [2, 2], "layers": [{}]})"),
            "error: 'm.json': m[1] is 2, more than the number before it is needed [json_value]\n");
  EXPECT_EQ(modelError(R"({"name": "x", "m": [524288, 524289], "layers": [{}]})"),
            "error: 'm.json': m[1] is 524289, a whole number from 1 to 524288 is needed "
            "[json_value]\n");
  EXPECT_EQ(modelError(R"({"name": "x", "m": [], "layers": []})"),
            "error: 'm.json': m is [], a list of at least one is needed [json_value]\n");
  EXPECT_EQ(policyError(R"({"gemms": ["g.rho"], "rules": [{"rho_at_most": "16", "gemm": "g"}]})"),
            "error: 'p.json': rules[0].rho_at_most is \"16\", a number above 0 is needed "
            "[json_value]\n");
  for (const char *above : {"20", "10"}) // such a rule never holds
    EXPECT_EQ(policyError(R"({"gemms": ["g.rho"], "rules": [{"rho_at_most": 10, "rho_above": )" +
                          std::string(above) + R"(, "gemm": "g"}]})"),
              "error: 'p.json': rules[0].rho_above is " + std::string(above) +
                  ", a number below rho_at_most is needed [json_value]\n");
  EXPECT_EQ(policyError(R"({"gemms": ["g.rho"], "rules": [{"layers": [1], "gemm": "g"}]})"),
            "error: 'p.json': rules[0].layers[0] is 1, a text is needed [json_value]\n");
  EXPECT_EQ(policyError(R"({"gemms": ["g.rho"], "rules": [{}]})"),
            "error: 'p.json': rules[0] has no 'gemm' [json_missing_key]\n");
}

// The shipped W4A4 gemms with the shipped policy.
class Planned : public testing::Test {
protected:
  dsl::Module module = dsl::loadModule(RHO_SOURCE_DIR "/kernels/gemms/w4a4.rho").value();
  PlanPolicy policy = readPolicy(sourceText("examples/models/apex4.json"), "apex4.json").value();
  Model model = readModel(sourceText("examples/models/llama2_7b.json"), "llama2_7b.json").value();

  std::vector<PlanCandidate> candidates(const std::vector<std::string> &names) {
    std::vector<PlanCandidate> result;
    for (const std::string &name : names)
      result.push_back({module.findGemm(name), module.sources.get()});
    return result;
  }
  Result<ModelPlan> plan(const std::string &device) {
    return planModel(model, policy.rules, candidates({"w4a4_channel", "w4a4_g128", "w4a4_g32"}),
                     modelOf(device));
  }
  static compiler::DeviceModel modelOf(const std::string &device) {
    return compiler::modelOf(*compiler::shippedDevice(device));
  }
  std::string planError(const std::string &device = "a100_40g") {
    Result<ModelPlan> planned = plan(device);
    return planned ? "accepted" : planned.error().str();
  }
};

// APEX4, section 3.2.2 and 5: mixed granularity where rho is high, uniform groups of 128 elsewhere.
TEST_F(Planned, FollowsThePapersRule) {
  model.m = {64};
  for (auto [device, uniform] : {std::pair{"a100_40g", false},
                                 {"a100_80g", false},
                                 {"rtx_3090", true},
                                 {"a40", true},
                                 {"l40s", true}}) {
    Result<ModelPlan> planned = plan(device);
    ASSERT_TRUE(planned.ok()) << planned.error().str();
    std::map<std::string, std::string> gemms, reasons;
    for (const LayerPlan &each : planned->layers) {
      gemms[each.layer.name] = planned->gemms[each.chosen];
      reasons[each.layer.name] = each.reason;
    }
    for (const char *layer : {"q_proj", "k_proj", "o_proj", "gate_proj", "up_proj"})
      EXPECT_EQ(gemms[layer], uniform ? "w4a4_g128" : "w4a4_channel") << device;
    for (const char *layer : {"v_proj", "down_proj"})
      EXPECT_EQ(gemms[layer], uniform ? "w4a4_g128" : "w4a4_g32") << device;
    EXPECT_EQ(reasons["v_proj"], std::string(device) == "l40s" ? "rule 1: rho of s4 is 8.00"
                                 : uniform                     ? "rule 1: rho of s4 is 16.0"
                                                               : "rule 2: layer v_proj");
    EXPECT_EQ(reasons["q_proj"] == "rule 3: all others", !uniform);
  }
}

// The shipped policy knows layers by bare names, above, and as checkpoints name them.
TEST_F(Planned, FollowsThePapersRuleInACheckpoint) {
  model.m = {16};
  for (ModelLayer &layer : model.layers)
    layer.name = "model.layers.0.mlp." + layer.name;
  Result<ModelPlan> planned = plan("a100_40g");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  for (const LayerPlan &each : planned->layers) {
    const bool fine =
        each.layer.name.ends_with(".v_proj") || each.layer.name.ends_with("down_proj");
    EXPECT_EQ(planned->gemms[each.chosen], fine ? "w4a4_g32" : "w4a4_channel") << each.layer.name;
  }
}

// As checkpoints name layers; a name that reads as a pattern is itself as well.
TEST_F(Planned, RulesTakePatternsOfNames) {
  model.m = {16};
  for (ModelLayer &layer : model.layers)
    layer.name = "model.layers.0.self_attn." + layer.name;
  model.layers[0].name = "h[0].q_proj";
  policy.rules = {{{"h[0].q_proj"}, {}, {}, "w4a4_g128", "rule 1"},
                  {{"*.v_proj", "*.down_?roj"}, {}, {}, "w4a4_g32", "rule 2"},
                  {{}, {}, {}, "w4a4_channel", "rule 3"}};
  Result<ModelPlan> planned = plan("a100_40g");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  std::map<std::string, std::string> gemms;
  for (const LayerPlan &each : planned->layers)
    gemms[each.layer.name.substr(each.layer.name.rfind('.') + 1)] = planned->gemms[each.chosen];
  EXPECT_EQ(gemms["q_proj"], "w4a4_g128");
  EXPECT_EQ(gemms["v_proj"], "w4a4_g32");
  EXPECT_EQ(gemms["down_proj"], "w4a4_g32");
  EXPECT_EQ(gemms["k_proj"], "w4a4_channel");
  policy.rules[1].layers = {"*.x_proj"};
  EXPECT_NE(planError().find("rule 2 names layer '*.x_proj'"), std::string::npos);
}

// Sums over layers of what the planner and the library are predicted to take alone.
TEST_F(Planned, TotalsAreSums) {
  model = readModel(small, "m.json").value();
  policy.rules.clear();
  Result<ModelPlan> planned = plan("a40");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  auto alone = [&](const std::string &gemm, compiler::Problem problem) {
    return compiler::plan(*module.findGemm(gemm), problem, modelOf("a40"), nullptr)
        ->predictedMicroseconds;
  };
  for (size_t i = 0; i < 2; ++i) {
    int64_t m = model.m[i];
    std::array<double, 2> fastest{1e9, 1e9};
    for (size_t c = 0; c < planned->gemms.size(); ++c) {
      std::array times{alone(planned->gemms[c], {m, 512, 256}),
                       alone(planned->gemms[c], {m, 256, 1024})};
      EXPECT_DOUBLE_EQ(*planned->uniform(c, i), 3 * times[0] + times[1]);
      for (size_t layer = 0; layer < 2; ++layer)
        fastest[layer] = std::min(fastest[layer], times[layer]);
    }
    EXPECT_GE(planned->chosen(i), 3 * fastest[0] + fastest[1]);
    double f16 = 0;
    for (const LayerPlan &each : planned->layers) {
      compiler::Problem problem{m, each.layer.n, each.layer.k};
      const LayerPrediction &prediction = each.predictions[i];
      EXPECT_DOUBLE_EQ(*prediction.f16Library,
                       *compiler::predictLibraryMicroseconds(problem, "f16", modelOf("a40")));
      f16 += static_cast<double>(each.layer.count) *
             std::min(*prediction.f16Library, *prediction.f16Kernel);
    }
    EXPECT_DOUBLE_EQ(*planned->f16(i), f16);
  }
}

TEST_F(Planned, WithoutRulesTheFastestIsTaken) {
  policy.rules.clear();
  model.m = {8192};
  Result<ModelPlan> planned = plan("a100_40g");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  for (const LayerPlan &each : planned->layers) {
    EXPECT_EQ(each.reason, "fastest");
    for (const Result<compiler::Plan> &other : each.predictions[0].plans)
      EXPECT_LE(each.predictions[0].plans[each.chosen]->predictedMicroseconds,
                other->predictedMicroseconds);
  }
}

TEST_F(Planned, RulesAreChecked) {
  model.m = {16};
  policy.rules = {{{}, {}, {}, "w4a4_g23", "rule 1"}};
  EXPECT_EQ(planError(), "error: rule 1 names gemm 'w4a4_g23', the candidates are w4a4_channel, "
                         "w4a4_g128, w4a4_g32, did you mean 'w4a4_g32' [plan_unknown_gemm]\n");
  policy.rules = {{{"v_prj"}, {}, {}, "w4a4_g32", "rule 1"}};
  EXPECT_EQ(planError(),
            "error: rule 1 names layer 'v_prj', those of the model are q_proj, k_proj, v_proj, "
            "o_proj, gate_proj, up_proj, down_proj, did you mean 'v_proj' [plan_unknown_layer]\n");
  model.layers[0].name = "q\x01proj"; // any name can be a rule's
  policy.rules = {{{"q\x01proj"}, {}, {}, "w4a4_g32", "rule 1"}};
  EXPECT_EQ(planError(), "error: no rule decides for layer 'k_proj', a last rule without "
                         "conditions decides for all others [plan_no_rule]\n");
  model.layers[0].name = "q_proj";
  policy.rules = {{{"q_proj"}, {}, {}, "w4a4_g32", "rule 1"}};
  EXPECT_EQ(planError(), "error: no rule decides for layer 'k_proj', a last rule without "
                         "conditions decides for all others [plan_no_rule]\n");
  policy.rules = {{{}, {}, 16, "w4a4_g32", "rule 1"}};
  EXPECT_EQ(planError(), "accepted");
  EXPECT_NE(planError("l40s").find("[plan_no_rule]"), std::string::npos);
  Result<ModelPlan> twice =
      planModel(model, {}, candidates({"w4a4_g32", "w4a4_g32"}), modelOf("a40"));
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().str(), "error: candidate 'w4a4_g32' is given twice, names of candidates "
                                 "differ [plan_gemm_twice]\n");
  EXPECT_EQ(planModel(model, {}, {}, modelOf("a40")).error().diagnostics[0].id,
            DiagId::plan_without_gemms)
      << "[plan_without_gemms]";
  compiler::DeviceModel nameless = modelOf("a40");
  nameless.rates.mma = std::exchange(nameless.rates.tensor, {}); // by mma.sync alone
  Result<ModelPlan> noRho = planModel(model, policy.rules, candidates({"w4a4_g32"}), nameless);
  ASSERT_FALSE(noRho.ok());
  EXPECT_EQ(noRho.error().str(),
            "error: rule 1 has a condition on rho, of s4 operands device 'NVIDIA A40' "
            "declares no rate [plan_no_rho]\n");
}

// What moves the cursor of a terminal is shown by its number.
TEST_F(Planned, NamesAreShownAsTheyAre) {
  model.m = {16};
  model.layers.resize(1);
  model.layers[0].name = "a\x1b[31m\nROW";
  policy.rules = {{{"*"}, {}, {}, "w4a4_g32", "rule 1"}};
  Result<ModelPlan> planned = plan("a40");
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  EXPECT_EQ(planned->layers[0].reason, "rule 1: layer a\\x1b[31m\\x0aROW");
  policy.rules = {{{"b"}, {}, {}, "w4a4_g32", "rule 1"}};
  EXPECT_EQ(planError("a40").find('\x1b'), std::string::npos) << planError("a40");
}

TEST_F(Planned, GemmsThatAreNotPossibleAreSaid) {
  dsl::Module other =
      dsl::parseModule(
          "format coded { element: s4 zero: s4 per channel scale: f16 per channel value = "
          "(element - zero) * element * scale encode { scale = 1 zero = 1 } }\n"
          "format x { element: s8 scale: f32 per token value = element * scale }\n"
          "gemm squares { weight: coded activation: x output: f16 }",
          "t.rho", nullptr)
          .value();
  model.m = {16};
  std::vector<PlanCandidate> all = candidates({"w4a4_g32"});
  all.push_back({&other.gemms[0], other.sources.get()});
  Result<ModelPlan> planned = planModel(model, {}, all, modelOf("a40"));
  ASSERT_TRUE(planned.ok()) << planned.error().str();
  EXPECT_EQ(planned->layers[0].chosen, 0U);
  EXPECT_FALSE(planned->uniform(1, 0).has_value());
  Result<ModelPlan> none =
      planModel(model, {{{}, {}, {}, "squares", "rule 1"}}, all, modelOf("a40"));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(
      none.error().str(),
      "error: layer 'q_proj' of n = 4096, k = 4096 has no gemm at m = 16: no decode from "
      "'(element - zero) * element' of 'coded' to bf16 operands, which activation 'x' needs: none "
      "is known for such expressions of what numbers share, element - zero and element * step + "
      "origin have one [plan_no_candidate]\n");
}

} // namespace
} // namespace rho::tool
