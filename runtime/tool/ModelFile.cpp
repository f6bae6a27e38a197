#include "runtime/tool/ModelFile.h"

#include "compiler/Plan.h"
#include "dsl/Findings.h"
#include "kernels/RepeatedKeys.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace rho::tool {

namespace {

using Json = nlohmann::json;

constexpr int64_t largestCount = 2147483647; // of layers with one shape

// One file, with the first thing that is wrong with it.
struct Reading {
  std::string path;
  std::optional<Error> error;

  void refuse(Error found) {
    if (!error)
      error = std::move(found);
  }
};

// "while parsing value - unexpected end of input; ..." of what nlohmann's parser says.
std::string reasonOf(const std::string &what) {
  for (const char *before : {"syntax error ", "] "})
    if (size_t at = what.find(before); at != std::string::npos)
      return what.substr(at + std::string_view(before).size());
  return what;
}

Json parse(std::string_view text, Reading &reading) {
  kernels::RepeatedKeys keys;
  constexpr int deepest = 64; // what is printed of a value is printed by recursion
  bool tooDeep = false;
  auto keysAreNew = [&](int depth, Json::parse_event_t event, Json &parsed) {
    tooDeep |= depth > deepest;
    if (keys.repeats(depth, event, parsed))
      reading.refuse(makeError(DiagId::json_key_twice,
                               {dsl::shown(reading.path), dsl::shown(parsed.get<std::string>())}));
    return true;
  };
  try {
    Json parsed = Json::parse(text, keysAreNew);
    if (!tooDeep)
      return parsed;
    reading.refuse(
        makeError(DiagId::json_too_deep, {dsl::shown(reading.path), std::to_string(deepest)}));
  } catch (const Json::parse_error &error) {
    SourceMap sources;
    uint32_t file = sources.add(reading.path, std::string(text));
    auto at = static_cast<uint32_t>(std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()));
    reading.refuse(Error{{makeDiagnostic(DiagId::json_syntax, {reasonOf(error.what())},
                                         {file, at, at + 1}, sources)}});
  } catch (const Json::exception &error) { // a number that no double holds
    reading.refuse(makeError(DiagId::json_syntax,
                             {reasonOf(error.what()) + ", in " + dsl::shown(reading.path)}));
  }
  return {};
}

// A value of a file, with its path. What is not as it should be is said to the reading, and read as
// something that is.
class Value {
public:
  Value(const Json &json, Reading &reading, std::string path)
      : json(json), reading(reading), path(std::move(path)) {}

  void refuse(const std::string &needed) const {
    reading.refuse(
        makeError(DiagId::json_value,
                  {dsl::shown(reading.path), shownPath(),
                   dsl::shown(json.dump(-1, ' ', true, Json::error_handler_t::replace)), needed}));
  }

  void expectKeys(const std::vector<std::string> &valid) const {
    if (!json.is_object())
      return refuse("an object");
    for (const auto &[key, value] : json.items())
      if (std::find(valid.begin(), valid.end(), key) == valid.end())
        reading.refuse(
            makeError(DiagId::json_unknown_key, {dsl::shown(reading.path), shownPath(),
                                                 dsl::shown(key), dsl::listed(key, valid)}));
  }
  bool has(const std::string &key) const { return json.contains(key); }
  Value at(const std::string &key) const {
    static const Json nothing;
    if (!has(key))
      reading.refuse(
          makeError(DiagId::json_missing_key, {dsl::shown(reading.path), shownPath(), key}));
    return {has(key) ? json[key] : nothing, reading, path.empty() ? key : path + "." + key};
  }
  std::vector<Value> list() const {
    if (!json.is_array() || json.empty()) {
      refuse("a list of at least one");
      return {};
    }
    std::vector<Value> values;
    for (size_t i = 0; i < json.size(); ++i)
      values.emplace_back(json[i], reading, path + "[" + std::to_string(i) + "]");
    return values;
  }

  std::string text() const {
    if (json.is_string() && !json.get_ref<const std::string &>().empty())
      return json.get<std::string>();
    refuse("a text");
    return {};
  }
  int64_t count(int64_t limit) const {
    bool tooLarge =
        json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(limit);
    if (json.is_number_integer() && !tooLarge && json.get<int64_t>() >= 1)
      return json.get<int64_t>();
    refuse("a whole number from 1 to " + std::to_string(limit));
    return 1;
  }
  double positive() const {
    if (json.is_number() && json.get<double>() > 0)
      return json.get<double>();
    refuse("a number above 0");
    return 1;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> result;
    for (const Value &value : list())
      result.push_back(value.text());
    return result;
  }

private:
  const Json &json;
  Reading &reading;
  std::string path;

  std::string shownPath() const { return path.empty() ? "the file" : path; }
};

ModelLayer readLayer(const Value &value, const std::vector<ModelLayer> &before) {
  value.expectKeys({"name", "n", "k", "count"});
  ModelLayer layer{value.at("name").text(), value.at("n").count(compiler::largestExtent),
                   value.at("k").count(compiler::largestExtent), 1};
  if (value.has("count"))
    layer.count = value.at("count").count(largestCount);
  for (const ModelLayer &other : before)
    if (other.name == layer.name)
      value.at("name").refuse("a name that no layer before it has");
  return layer;
}

Model modelOf(const Value &file) {
  file.expectKeys({"name", "m", "layers", "policy"});
  Model model;
  model.name = file.at("name").text();
  for (const Value &value : file.at("m").list()) {
    const int64_t m = value.count(compiler::largestBatch);
    if (!model.m.empty() && m <= model.m.back())
      value.refuse("more than the number before it");
    model.m.push_back(m);
  }
  for (const Value &value : file.at("layers").list())
    model.layers.push_back(readLayer(value, model.layers));
  if (file.has("policy"))
    model.policy = file.at("policy").text();
  return model;
}

PlanRule readRule(const Value &value) {
  value.expectKeys({"layers", "rho_at_most", "rho_above", "gemm"});
  PlanRule rule;
  if (value.has("layers"))
    rule.layers = value.at("layers").texts();
  if (value.has("rho_at_most"))
    rule.rhoAtMost = value.at("rho_at_most").positive();
  if (value.has("rho_above"))
    rule.rhoAbove = value.at("rho_above").positive();
  if (rule.rhoAtMost && rule.rhoAbove && *rule.rhoAbove >= *rule.rhoAtMost)
    value.at("rho_above").refuse("a number below rho_at_most");
  rule.gemm = value.at("gemm").text();
  return rule;
}

PlanPolicy policyOf(const Value &file) {
  file.expectKeys({"gemms", "rules"});
  PlanPolicy policy;
  policy.gemms = file.at("gemms").texts();
  if (file.has("rules"))
    for (const Value &value : file.at("rules").list()) {
      policy.rules.push_back(readRule(value));
      policy.rules.back().name = "rule " + std::to_string(policy.rules.size());
    }
  return policy;
}

template <class T>
Result<T> read(std::string_view text, const std::string &path, T (*reader)(const Value &)) {
  Reading reading{path, std::nullopt};
  Json json = parse(text, reading);
  if (reading.error)
    return *std::move(reading.error);
  T result = reader(Value(json, reading, ""));
  if (reading.error)
    return *std::move(reading.error);
  return result;
}

} // namespace

Result<Model> readModel(std::string_view text, const std::string &path) {
  return read(text, path, modelOf);
}

Result<PlanPolicy> readPolicy(std::string_view text, const std::string &path) {
  return read(text, path, policyOf);
}

} // namespace rho::tool
