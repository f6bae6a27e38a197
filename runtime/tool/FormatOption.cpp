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

// What NAME(ARGUMENTS) of an imported file stands for, under the name that gemms know it by.
static Result<FormatPtr> instanceOf(const std::string &import, const std::string &use) {
  constexpr const char *alias = "chosen_by_option";
  Result<dsl::Module> module =
      dsl::parseModule("import \"" + import + "\" format " + alias + " = " + use, "--format",
                       [](const std::string &path) { return dsl::readSource(path); });
  if (!module)
    return module.error();
  const std::string name = use.substr(0, use.find('('));
  const dsl::Format *chosen = module->findFormat(alias);
  for (const dsl::Format &format : module->formats) {
    dsl::Format renamed = format;
    renamed.name = alias;
    if (format.name.starts_with(name) &&
        dsl::printWithParts(renamed) == dsl::printWithParts(*chosen))
      return std::make_shared<const dsl::Format>(format);
  }
  return std::make_shared<const dsl::Format>(*chosen);
}

Result<FormatPtr> openFormat(const std::string &text) {
  if (dsl::isPlainType(text))
    return std::make_shared<const dsl::Format>(dsl::plainFormat(dsl::ElementType::get(text)));
  constexpr std::string_view ending = ".rho";
  if (text.ends_with(ending))
    return fromFile(text, "");
  if (size_t at = text.find(std::string(ending) + ":"); at != std::string::npos) {
    const std::string path = text.substr(0, at + ending.size());
    const std::string name = text.substr(at + ending.size() + 1);
    if (!name.ends_with(')'))
      return fromFile(path, name);
    if (Result<dsl::Module> file = dsl::loadModule(path); !file)
      return file.error();
    return instanceOf(path, name);
  }
  if (const size_t open = text.find('(');
      text.ends_with(')') && dsl::libraryText(text.substr(0, open)))
    return instanceOf(std::string(dsl::libraryPrefix) + text.substr(0, open), text);
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
