#include "dsl/Instances.h"

#include "dsl/Codebook.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace rho::dsl {

namespace {

// Words that an entry may begin with or contain where a parameter could stand.
constexpr std::array<std::string_view, 16> entryWords = {
    "k",     "n",      "m",        "channel", "token", "tensor", "residual", "partition",
    "where", "budget", "codebook", "best",    "in",    "remap",  "to",       "by"};

bool isWord(const std::string &name) {
  return isReserved(name, true) ||
         std::find(entryWords.begin(), entryWords.end(), name) != entryWords.end();
}

std::string article(const std::string &kind) { return (kind == "int" ? "an " : "a ") + kind; }

std::string joined(const std::vector<Token> &tokens) {
  std::string text;
  for (const Token &token : tokens)
    text += token.text;
  return text;
}

// A parameter's value: the same text and tokens for the same value, however it is written, but for
// the numbers of a codebook.
struct Value {
  std::string text;
  std::vector<Token> tokens;
};

class Binder {
public:
  Binder(const ast::Declared &declared, Findings &findings)
      : declared(declared), findings(findings) {}

  // A value of that kind; formats are looked up where there is a `lookup`.
  std::optional<Value> value(const ast::Parameter &parameter, const ast::Argument &argument,
                             const FormatLookup *lookup) {
    const std::string &kind = parameter.kind.text;
    Value value{joined(argument.tokens), argument.tokens};
    bool fits =
        (kind == "int") == argument.integer && !(kind == "type" && argument.use.parentheses);
    if (!fits) {
      report(DiagId::wrong_argument, {shown(value.text), parameter.name.text, article(kind)},
             argument.span);
      return std::nullopt;
    }
    if (kind == "int") {
      int64_t number = argument.tokens.back().integer;
      bool negative = argument.tokens.size() % 2 == 0 && number != 0; // a sign for each other token
      value.text = std::to_string(negative ? -number : number);
      value.tokens.erase(value.tokens.begin(), value.tokens.end() - (negative ? 2 : 1));
    }
    if (kind == "type" && !argument.codebook.empty()) {
      value.text = codebookText(argument.codebook);
    } else if (kind == "type") {
      std::optional<ElementType> type = ElementType::fromName(argument.use.name.text);
      if (!type)
        return unknownType(argument);
      value.text = type->name();
      value.tokens[0].text = type->name();
    }
    if (kind == "format" && lookup) {
      std::shared_ptr<const Format> format = (*lookup)(argument.use);
      if (!format)
        return std::nullopt;
      value.text = format->name;
    }
    return value;
  }

  void report(DiagId id, const std::vector<std::string> &args, Span span) {
    Findings::Context context(findings, "'" + declared.name.text + "' is declared here",
                              declared.name.span);
    findings.add(id, args, span);
  }

  // The argument of each parameter, null where there is none.
  std::optional<std::vector<const ast::Argument *>> arguments(const ast::Use &use) {
    const std::vector<ast::Parameter> &parameters = declared.parameters;
    if (use.arguments.size() > parameters.size()) {
      report(DiagId::too_many_arguments,
             {declared.name.text, std::to_string(use.arguments.size()),
              std::to_string(parameters.size())},
             use.span);
      return std::nullopt;
    }
    std::vector<const ast::Argument *> given(parameters.size(), nullptr);
    bool named = false;
    for (size_t i = 0; i < use.arguments.size(); ++i) {
      const ast::Argument &argument = use.arguments[i];
      std::optional<size_t> index = argument.parameter ? find(*argument.parameter) : i;
      if (!index)
        return std::nullopt;
      if (named && !argument.parameter) {
        report(DiagId::argument_order, {joined(argument.tokens)}, argument.span);
        return std::nullopt;
      }
      named = named || argument.parameter;
      if (given[*index]) {
        report(DiagId::duplicate_entry,
               {parameters[*index].name.text, "the arguments of '" + declared.name.text + "'"},
               argument.parameter ? argument.parameter->span : argument.span);
        return std::nullopt;
      }
      given[*index] = &argument;
    }
    return given;
  }

private:
  std::nullopt_t unknownType(const ast::Argument &argument) {
    const std::string &name = argument.use.name.text;
    report(DiagId::unknown_name, {"type", shown(name), hint(name, ElementType::allNames())},
           argument.span);
    return std::nullopt;
  }

  std::optional<size_t> find(const ast::Name &name) {
    std::vector<std::string> known;
    for (size_t i = 0; i < declared.parameters.size(); ++i) {
      if (declared.parameters[i].name.text == name.text)
        return i;
      known.push_back(declared.parameters[i].name.text);
    }
    report(DiagId::unknown_name, {"parameter", shown(name.text), hint(name.text, known)},
           name.span);
    return std::nullopt;
  }

  const ast::Declared &declared;
  Findings &findings;
};

// Legal, and different for different values: by their text where that is a word, else by its
// fingerprint.
std::string instanceName(const ast::Declared &declared, const std::vector<Value> &values,
                         const std::string &text) {
  std::string name = declared.name.text + "_";
  bool spelled = true;
  for (size_t i = 0; i < values.size(); ++i) {
    std::string value = values[i].text;
    if (value[0] == '-')
      value[0] = 'm';
    bool word =
        std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isalnum(c); });
    spelled = spelled && word && declared.parameters[i].kind.text != "format";
    name += "_" + value;
  }
  constexpr size_t kept = 40;
  if (spelled && name.size() <= maxNameLength)
    return name;
  return declared.name.text.substr(0, kept) + "__" + fingerprint(text);
}

void checkParameter(const ast::Declared &declared, size_t index, const std::vector<Token> &tokens,
                    Findings &findings, bool &good) {
  const ast::Parameter &parameter = declared.parameters[index];
  const std::string &name = parameter.name.text;
  auto error = [&](DiagId id, const std::vector<std::string> &args, Span span) {
    findings.add(id, args, span);
    good = false;
  };
  for (size_t i = 0; i < index; ++i)
    if (declared.parameters[i].name.text == name)
      return error(DiagId::duplicate_name,
                   {"parameter", name, findings.place(declared.parameters[i].name.span)},
                   parameter.name.span);
  if (isWord(name))
    error(DiagId::reserved_name, {name, "parameter"}, parameter.name.span);
  if (!parameter.isOfKnownKind())
    return error(
        DiagId::unknown_name,
        {"kind of parameter", shown(parameter.kind.text),
         hint(parameter.kind.text, {ast::parameterKinds.begin(), ast::parameterKinds.end()})},
        parameter.kind.span);
  if (parameter.fallback &&
      !Binder(declared, findings).value(parameter, *parameter.fallback, nullptr))
    good = false;
  bool used = false;
  for (size_t i = declared.bodyBegin; i < declared.bodyEnd; ++i) {
    if (tokens[i].kind != TokenKind::Name || tokens[i].text != name)
      continue;
    if (tokens[i + 1].kind == TokenKind::Colon)
      error(DiagId::duplicate_name, {"parameter", name, findings.place(parameter.name.span)},
            tokens[i].span);
    used = used || tokens[i + 1].kind != TokenKind::Equal;
  }
  if (!used && declared.bodyEnd > 0)
    error(DiagId::unused_parameter, {name, declared.name.text}, parameter.name.span);
}

} // namespace

bool checkParameters(const ast::Declared &declared, const std::vector<Token> &tokens,
                     Findings &findings) {
  if (declared.parameters.size() > maxParameters) {
    findings.add(DiagId::too_many_parameters,
                 {declared.name.text, std::to_string(declared.parameters.size()),
                  std::to_string(maxParameters)},
                 declared.name.span);
    return false;
  }
  bool good = true;
  for (size_t i = 0; i < declared.parameters.size(); ++i)
    checkParameter(declared, i, tokens, findings, good);
  return good;
}

std::optional<Binding> bindArguments(const ast::Declared &declared, const ast::Use *use,
                                     const FormatLookup &lookup, const FormatLookup &defaults,
                                     Findings &findings) {
  Binder binder(declared, findings);
  std::vector<const ast::Argument *> given(declared.parameters.size(), nullptr);
  if (use) {
    auto arguments = binder.arguments(*use);
    if (!arguments)
      return std::nullopt;
    given = *arguments;
  }
  Binding binding;
  std::vector<Value> values;
  for (size_t i = 0; i < given.size(); ++i) {
    const ast::Parameter &parameter = declared.parameters[i];
    if (!given[i] && !parameter.fallback) {
      if (use)
        binder.report(DiagId::missing_argument, {parameter.name.text}, use->span);
      return std::nullopt;
    }
    const ast::Argument &chosen = given[i] ? *given[i] : *parameter.fallback;
    std::optional<Value> value = binder.value(parameter, chosen, given[i] ? &lookup : &defaults);
    if (!value)
      return std::nullopt;
    if (given[i] && parameter.fallback) {
      std::optional<Value> usual = binder.value(parameter, *parameter.fallback, &defaults);
      binding.isDefault = binding.isDefault && usual && usual->text == value->text;
    }
    binding.isDefault = binding.isDefault && parameter.fallback;
    binding.text += (i ? ", " : "") + value->text;
    binding.tokens[parameter.name.text] = value->tokens;
    values.push_back(std::move(*value));
  }
  if (!values.empty())
    binding.text = declared.name.text + "(" + binding.text + ")";
  else
    binding.text = declared.name.text;
  binding.name =
      binding.isDefault ? declared.name.text : instanceName(declared, values, binding.text);
  return binding;
}

} // namespace rho::dsl
