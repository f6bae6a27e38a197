#include "dsl/Module.h"

#include "dsl/Instances.h"
#include "dsl/Lexer.h"
#include "dsl/Parser.h"
#include "dsl/Sema.h"
#include "dsl/StandardLibrary.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>

namespace rho::dsl {

namespace {

constexpr size_t maxFiles = 256, maxChain = 32; // of files, and of one import in another

// One spelling per file: "a/../b.rho" and "b.rho" are the same.
std::string normalized(const std::filesystem::path &path) {
  return path.lexically_normal().generic_string();
}

// The same for every name of a file, links to it included.
std::string identityOf(const std::string &path) {
  std::error_code error;
  std::string identity = std::filesystem::weakly_canonical(path, error).generic_string();
  return error ? path : identity;
}

class Loader {
public:
  explicit Loader(const FileReader &reader)
      : reader(reader), sources(std::make_shared<SourceMap>()), findings(*sources) {}

  Checked run(std::string_view text, std::string_view name) {
    if (text.size() > maxFileBytes)
      return {
          {},
          {makeDiagnostic(DiagId::file_too_large, {shown(name), std::to_string(maxFileBytes)})}};
    add(std::string(text), std::string(name), normalized(std::string(name)), {}, false);
    Module module;
    module.sources = sources;
    module.importedAt = std::move(importedAt);
    checkFormats(module);
    for (const File &file : files)
      checkGemms(file, &file == &files.back(), module);
    for (const std::shared_ptr<const Format> &instance : formats.instances())
      module.formats.push_back(*instance);
    checkDevices(module);
    return {std::move(module), findings.takeSorted().diagnostics};
  }

private:
  struct File {
    std::vector<Token> tokens;
    ast::File syntax;
  };

  // Parses a file and, before it, what it imports: files end up in order of declaration.
  void add(std::string text, std::string name, const std::string &path, Span importing,
           bool isLibrary) {
    importedAt.push_back(importing);
    uint32_t index = sources->add(std::move(name), std::move(text));
    File file{lex(*sources, index, findings), {}};
    file.syntax = parse(file.tokens, findings);
    active.push_back({path, isLibrary ? path : identityOf(path), isLibrary});
    seen.insert(active.back().identity);
    std::set<std::string> own;
    for (const ast::Declaration &declaration : file.syntax.declarations)
      if (const auto *import = std::get_if<ast::Import>(&declaration))
        this->import(*import, own);
    active.pop_back();
    files.push_back(std::move(file));
  }

  // Of the standard library, or relative to the importing file. Files of the library import each
  // other by their file names.
  struct ImportTarget {
    std::string path;
    bool isLibrary;
  };
  ImportTarget targetOf(const ast::Import &import) const {
    const Active &importing = active.back();
    if (import.path.starts_with(libraryPrefix))
      return {import.path, true};
    if (importing.isLibrary)
      return {std::string(libraryPrefix) + std::filesystem::path(import.path).stem().string(),
              true};
    return {normalized(std::filesystem::path(importing.path).parent_path() / import.path), false};
  }

  std::optional<std::string> textOf(const std::string &path, bool isLibrary) const {
    if (!isLibrary)
      return reader ? reader(path) : std::nullopt;
    std::optional<std::string_view> text = libraryText(path.substr(libraryPrefix.size()));
    return text ? std::optional(std::string(*text)) : std::nullopt;
  }

  void import(const ast::Import &import, std::set<std::string> &own) {
    const auto [path, isLibrary] = targetOf(import);
    const std::string identity = isLibrary ? path : identityOf(path);
    if (!own.insert(identity).second)
      return findings.add(DiagId::duplicate_import, {shown(import.path)}, import.span);
    auto isIt = [&](const Active &file) { return file.identity == identity; };
    if (auto from = std::find_if(active.begin(), active.end(), isIt); from != active.end()) {
      std::string cycle;
      for (; from != active.end(); ++from)
        cycle += from->path + " -> ";
      return findings.add(DiagId::import_cycle, {shown(import.path), cycle + path}, import.span);
    }
    if (seen.count(identity))
      return;
    if (active.size() >= maxChain)
      return findings.add(DiagId::import_too_deep, {shown(import.path), std::to_string(maxChain)},
                          import.span);
    if (sources->size() >= maxFiles)
      return findings.add(DiagId::too_many_imports, {shown(import.path), std::to_string(maxFiles)},
                          import.span);
    std::optional<std::string> text = textOf(path, isLibrary);
    if (isLibrary && !text) {
      const std::string name = path.substr(libraryPrefix.size());
      return findings.add(DiagId::import_not_shipped, {shown(name), hint(name, libraryNames())},
                          import.span);
    }
    if (import.path.empty() || !text)
      return findings.add(DiagId::import_not_found, {shown(import.path.empty() ? "" : path)},
                          import.span);
    if (text->size() > maxFileBytes)
      return findings.add(DiagId::file_too_large,
                          {shown(import.path), std::to_string(maxFileBytes)}, import.span);
    add(std::move(*text), path, path, import.span, isLibrary);
  }

  void checkFormats(Module &module) {
    std::vector<const ast::Format *> declared;
    for (const File &file : files)
      for (const ast::Format *format : declarationsOf<ast::Format>(file)) {
        if (formats.declare(*format, file.tokens))
          declared.push_back(format);
        else if (format->parameters.empty() && !format->alias)
          checkFormat(*format, lookup, findings);
      }
    for (const ast::Format *format : declared)
      if (std::shared_ptr<const Format> checked = formats.defaults(format->name.text))
        module.formats.push_back(*checked);
      else
        noteValues("format", *format, module);
  }

  void checkGemms(const File &file, bool keep, Module &module) {
    auto check = [&](const ast::Gemm &gemm) { return checkGemm(gemm, lookup, findings); };
    Library<ast::Gemm, Gemm> gemms("gemm", check, lookup, instanceTokens, findings);
    std::vector<const ast::Gemm *> declared;
    for (const ast::Gemm *gemm : declarationsOf<ast::Gemm>(file)) {
      if (gemms.declare(*gemm, file.tokens))
        declared.push_back(gemm);
      else if (gemm->parameters.empty() && !gemm->alias)
        check(*gemm);
    }
    for (const ast::Gemm *gemm : declared)
      if (std::shared_ptr<const Gemm> checked = gemms.defaults(gemm->name.text); checked && keep)
        module.gemms.push_back(*checked);
      else if (keep)
        noteValues("gemm", *gemm, module);
  }

  static void noteValues(std::string_view kind, const ast::Declared &declared, Module &module) {
    auto has = [](const ast::Parameter &parameter) { return parameter.fallback.has_value(); };
    auto found = std::find_if_not(declared.parameters.begin(), declared.parameters.end(), has);
    if (found != declared.parameters.end())
      module.withoutValue.push_back(
          {kind, declared.name.text, found->name.text, declared.name.span});
  }

  template <class Syntax> static std::vector<const Syntax *> declarationsOf(const File &file) {
    std::vector<const Syntax *> found;
    for (const ast::Declaration &declaration : file.syntax.declarations)
      if (const auto *one = std::get_if<Syntax>(&declaration); one && !one->name.text.empty())
        found.push_back(one);
    return found;
  }

  std::shared_ptr<const Format> resolve(const ast::Use &use) {
    const std::string &name = use.name.text;
    if (!isPlainType(name) || formats.declares(name))
      return formats.resolve(use, plainTypes());
    if (use.arguments.empty())
      return std::make_shared<const Format>(plainFormat(ElementType::get(name)));
    findings.add(DiagId::too_many_arguments, {name, std::to_string(use.arguments.size()), "0"},
                 use.span);
    return nullptr;
  }

  void checkDevices(Module &module) {
    std::map<std::string, Span> places;
    for (const File &file : files) {
      for (const ast::Device *device : declarationsOf<ast::Device>(file)) {
        auto [place, isNew] = places.try_emplace(device->name.text, device->name.span);
        if (!isNew)
          findings.add(DiagId::duplicate_name,
                       {"device", device->name.text, findings.place(place->second)},
                       device->name.span);
        if (std::optional<Device> checked = checkDevice(*device, findings); checked && isNew)
          module.devices.push_back(std::move(*checked));
      }
    }
  }

  const FileReader &reader;
  std::shared_ptr<SourceMap> sources;
  Findings findings;
  std::deque<File> files;       // imports first, the module's own file last
  std::vector<Span> importedAt; // as in Module
  struct Active {
    std::string path, identity;
    bool isLibrary;
  };
  std::vector<Active> active; // the chain of imports that is being read
  std::set<std::string> seen; // identities
  size_t instanceTokens = 0;
  FormatLookup lookup = [this](const ast::Use &use) { return resolve(use); };
  Library<ast::Format, Format> formats{
      "format", [this](const ast::Format &format) { return checkFormat(format, lookup, findings); },
      lookup, instanceTokens, findings};
};

template <class T> const T *findNamed(const std::vector<T> &all, std::string_view name) {
  auto found = std::find_if(all.begin(), all.end(), [&](const T &one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

} // namespace

const Format *Module::findFormat(std::string_view name) const { return findNamed(formats, name); }
const Gemm *Module::findGemm(std::string_view name) const { return findNamed(gemms, name); }

std::optional<Error> Module::whyNoneOf(std::string_view kind, std::string_view name) const {
  for (const WithoutValue &each : withoutValue)
    if (each.kind == kind && (name.empty() || each.name == name))
      return makeError(DiagId::parameter_without_value,
                       {std::string(kind), each.name, each.parameter});
  return std::nullopt;
}

// Where there is none, errno says why.
static std::optional<std::string> readText(const std::string &path) {
  errno = ENOENT;
  if (path.find('\0') != std::string::npos) // behind which the system reads nothing
    return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::string text(maxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad())
    return std::nullopt;
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

std::optional<std::string> readSource(const std::string &path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? readText(path) : std::nullopt;
}

Checked checkModule(std::string_view text, std::string_view name, const FileReader &reader) {
  return Loader(reader).run(text, name);
}

Result<Module> parseModule(std::string_view text, std::string_view name, const FileReader &reader) {
  Checked checked = checkModule(text, name, reader);
  if (!checked.diagnostics.empty())
    return Error{std::move(checked.diagnostics)};
  return std::move(checked.module);
}

Result<Module> loadModule(const std::string &path) {
  std::optional<std::string> text = readText(path); // of a file or of a pipe
  if (!text)
    return makeError(DiagId::module_not_found, {shown(path), std::strerror(errno)});
  return parseModule(*text, path, readSource);
}

Result<std::string> printAst(std::string_view text, std::string_view name) {
  if (text.size() > maxFileBytes)
    return makeError(DiagId::file_too_large, {shown(name), std::to_string(maxFileBytes)});
  SourceMap sources;
  uint32_t file = sources.add(std::string(name), std::string(text));
  Findings findings(sources);
  ast::File tree = parse(lex(sources, file, findings), findings);
  if (!findings.empty())
    return findings.takeSorted();
  return ast::print(tree);
}

} // namespace rho::dsl
