#include "runtime/tool/lsp/Offers.h"

#include "compiler/Devices.h"
#include "dsl/DeviceFields.h"
#include "dsl/StandardLibrary.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/lsp/Describe.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace rho::tool::lsp {

using dsl::WordPlace;

void Offers::add(Completion::Kind kind, std::string_view label, std::string detail) {
  found.push_back({kind, std::string(label), std::move(detail), {}});
}

void Offers::words(WordPlace place, const std::optional<std::vector<std::string>> &only) {
  auto kind = place == WordPlace::Function ? Completion::Kind::Function : Completion::Kind::Word;
  for (const dsl::Word &word : dsl::allWords())
    if (word.place == place &&
        (!only || std::find(only->begin(), only->end(), word.text) != only->end()))
      add(kind, word.text, std::string(word.meaning));
}

void Offers::components(size_t from, size_t before) {
  for (size_t i = from; i < declaration->components.size(); ++i)
    if (declaration->components[i] < before)
      add(Completion::Kind::Component, outline.tokens[declaration->components[i]].text,
          "component");
}

void Offers::parameters(const std::vector<std::string_view> &kinds) {
  for (size_t parameter : declaration->parameters)
    if (std::find(kinds.begin(), kinds.end(), outline.tokens[parameter + 2].text) != kinds.end())
      add(Completion::Kind::Word, outline.tokens[parameter].text, "parameter");
}

void Offers::parameterOf(const Target &callee, size_t parameter) {
  const std::vector<dsl::Token> &tokens = view.outline(callee.file).tokens;
  add(Completion::Kind::Word, tokens[parameter].text,
      "parameter of " + std::string(tokens[callee.token].text));
}

void Offers::given(std::string_view kind, bool withParameters) {
  if (kind == "int" && withParameters)
    parameters({"int"});
  else if (kind == "type")
    types(withParameters);
  else if (kind == "format")
    formats(withParameters);
}

void Offers::valueOperands() {
  components(0);
  parameters({"int", "type"});
  for (std::string_view name : dsl::ElementType::allNames())
    type(name);
}

void Offers::ruleOperands(std::string_view component, bool isWhole) {
  for (size_t i = 1; i < declaration->components.size(); ++i)
    if (std::string_view name = outline.tokens[declaration->components[i]].text; name != component)
      add(Completion::Kind::Component, name, "component");
  parameters({"type"});
  for (std::string_view name : dsl::ElementType::allNames())
    if (dsl::ElementType::get(name).kind() == dsl::ElementType::Kind::Float)
      type(name);
  std::vector<std::string> functions = {"absmax", "min", "max", "bit_floor"};
  if (isWhole)
    functions.emplace_back("best");
  reductions(functions);
}

void Offers::reductions(const std::vector<std::string> &functions) {
  words(WordPlace::Function, functions);
  words(WordPlace::Input);
  parameters({"int"});
}

void Offers::types(bool withParameters) {
  if (withParameters)
    parameters({"type"});
  words(WordPlace::Type, {{"codebook"}});
  for (std::string_view name : dsl::ElementType::allNames())
    type(name);
}

void Offers::type(std::string_view name) {
  add(Completion::Kind::Type, name, describe(dsl::ElementType::get(name)));
}

void Offers::rates() {
  for (std::string_view name : dsl::tensorTypes)
    if (dsl::ElementType::fromName(name))
      type(name);
  words(WordPlace::TensorRate);
}

void Offers::targets() {
  std::vector<std::string> names = compiler::allTargets();
  for (const dsl::Device &device : compiler::shippedDevices())
    names.push_back(device.target);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string &name : names)
    add(Completion::Kind::Word, name, "architecture");
}

void Offers::residualTypes() {
  if (declaration->components.empty())
    return;
  const std::string_view written = outline.tokens[declaration->components[0] + 2].text;
  const std::optional<dsl::ElementType> element = dsl::ElementType::fromName(written);
  if (!element || element->kind() != dsl::ElementType::Kind::Signed)
    return;
  for (std::string_view name : dsl::ElementType::allNames()) {
    const dsl::ElementType one = dsl::ElementType::get(name);
    if (one.kind() == dsl::ElementType::Kind::Signed && element->bits() + one.bits() <= 8)
      type(name);
  }
}

void Offers::plainTypes() {
  for (const std::string &plain : dsl::plainTypes())
    type(plain);
}

void Offers::formats(bool withParameters) {
  plainTypes();
  if (withParameters)
    parameters({"type", "format"});
  for (uint32_t file = 0; file < view.sources()->size(); ++file) {
    const Outline &of = view.outline(file);
    for (const Declaration &one : of.declarations) {
      if (!isOther(of, one, "format"))
        continue;
      const std::string_view name = of.tokens[one.name].text;
      const dsl::Format *checked = view.module().findFormat(name);
      add(Completion::Kind::Format, name, checked ? bitCount(checked->bitsPerElement()) : "format");
    }
  }
}

void Offers::gemms() {
  for (const Declaration &one : outline.declarations)
    if (isOther(outline, one, "gemm"))
      add(Completion::Kind::Format, outline.tokens[one.name].text, "gemm");
}

bool Offers::isOther(const Outline &of, const Declaration &one, std::string_view wanted) const {
  return of.keyword(one) == wanted && one.name != one.begin && &one != declaration;
}

void Offers::paths(const dsl::Token &string, size_t offset) {
  const auto length = static_cast<uint32_t>(string.text.size());
  const Span inside{0, string.span.begin + 1, string.span.begin + 1 + length};
  auto path = [&](const std::string &name, const char *what) {
    found.push_back({Completion::Kind::File, name, what, inside});
  };
  for (const std::string &name : dsl::libraryNames())
    path(std::string(dsl::libraryPrefix) + name, "of the standard library");
  if (!view.readsFiles())
    return;
  namespace fs = std::filesystem;
  const std::string_view written = string.text.substr(0, offset - inside.begin);
  const std::string folder(written.substr(0, written.rfind('/') + 1));
  const fs::path own(view.sources()->name(0));
  std::error_code none;
  for (fs::directory_iterator entry(own.parent_path() / folder, none), end; !none && entry != end;
       entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (name[0] == '.')
      continue;
    if (entry->is_directory(unknown))
      path(folder + name + "/", "folder");
    else if (name.ends_with(".rho") && entry->path() != own)
      path(folder + name, "file");
  }
}

} // namespace rho::tool::lsp
