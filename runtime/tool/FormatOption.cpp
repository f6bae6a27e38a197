#include "runtime/tool/FormatOption.h"

#include "dsl/Findings.h"
#include "dsl/Module.h"
#include "dsl/OperandRows.h"
#include "dsl/StandardLibrary.h"
#include "kernels/ShippedFormats.h"

namespace rho::tool {

using FormatPtr = std::shared_ptr<const dsl::Format>;

static Result<FormatPtr> fromFile(const std::string &path, const std::string &name) {
  Result<dsl::Module> module = dsl::loadModule(path);
  if (!module)
    return module.error();
  // Without a name: the one that the file itself declares, not its imports.
  std::vector<std::string> own, all;
  for (const dsl::Format &format : module->formats) {
    all.push_back(format.name);
    if (format.span.file == 0)
      own.push_back(format.name);
  }
  if (own.empty() && name.empty())
    if (std::optional<Error> why = module->whyNoneOf("format", name))
      return *std::move(why);
  if (name.empty() && own.size() != 1)
    return makeError(DiagId::format_name_needed,
                     {dsl::shown(path), std::to_string(own.size()),
                      all.empty() ? "there is none" : dsl::join(own.empty() ? all : own)});
  const dsl::Format *format = module->findFormat(name.empty() ? own[0] : name);
  if (!format)
    return module->whyNoneOf("format", name)
        .value_or(makeError(DiagId::unknown_name, {"format", name, dsl::hint(name, all)}));
  return std::make_shared<const dsl::Format>(*format);
}

// What NAME(ARGUMENTS) stands for behind a text: of a gemm, since an alias has a name of its own.
// It is a weight there, or an activation where its rows are tokens.
static Result<FormatPtr> instanceOf(const std::string &text, const std::string &path,
                                    const std::string &use) {
  std::optional<Error> first;
  for (const auto &[weight, activation] : {std::pair(use, std::string("f16")), {"f16", use}}) {
    constexpr const char *name = "of_the_command_line";
    Result<dsl::Module> module =
        dsl::parseModule(text + "\ngemm " + name + " { weight: " + weight +
                             " activation: " + activation + " output: f16 }",
                         path, [](const std::string &file) { return dsl::readSource(file); });
    if (!module && !first)
      first = module.error();
    if (!module)
      continue;
    const dsl::Gemm &gemm = *module->findGemm(name);
    return std::make_shared<const dsl::Format>(weight == use ? gemm.weight : gemm.activation);
  }
  return *std::move(first);
}

Result<FormatPtr> openFormat(const std::string &text) {
  if (dsl::isPlainType(text))
    return std::make_shared<const dsl::Format>(dsl::plainFormat(dsl::ElementType::get(text)));
  constexpr std::string_view ending = ".rho";
  if (text.ends_with(ending))
    return fromFile(text, "");
  const bool hasArguments = text.ends_with(')');
  if (size_t at = text.find(std::string(ending) + ":"); at != std::string::npos) {
    const std::string path = text.substr(0, at + ending.size());
    const std::string name = text.substr(at + ending.size() + 1);
    if (hasArguments)
      if (std::optional<std::string> source = dsl::readSource(path))
        return instanceOf(*source, path, name);
    return fromFile(path, name);
  }
  const std::string name = text.substr(0, text.find_first_of(" ("));
  if (hasArguments && dsl::libraryText(name))
    return instanceOf("import \"" + std::string(dsl::libraryPrefix) + name + "\"", "--format",
                      text);
  if (FormatPtr shipped = kernels::shippedFormat(text))
    return shipped;
  return makeError(DiagId::unknown_format,
                   {dsl::shown(text), dsl::listed(text, kernels::shippedFormatNames())});
}

static Result<FormatPtr> openOperandFormat(const std::string &text, bool weight) {
  Result<FormatPtr> format = openFormat(text);
  if (!format)
    return format;
  if (auto misplaced = dsl::extentsNotInOperand(**format, weight); !misplaced.empty())
    return makeError(DiagId::extent_not_in_operand, misplaced.front());
  return format;
}

Result<FormatPtr> openWeightFormat(const std::string &text) {
  return openOperandFormat(text, true);
}

Result<FormatPtr> activationFormatOf(const Options &options) {
  constexpr const char *option = "--activation-format";
  if (!options.has(option))
    return FormatPtr();
  if (!options.has("--activations"))
    return makeError(DiagId::option_missing,
                     {"--activations", std::string(option) + " needs inputs of the layers"});
  return openOperandFormat(options.text(option), false);
}

} // namespace rho::tool
