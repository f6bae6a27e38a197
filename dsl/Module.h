// The whole front end as a few calls: text -> tokens -> syntax -> checked declarations.
#pragma once

#include "dsl/Device.h"
#include "dsl/Error.h"
#include "dsl/Format.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

// A checked .rho file with everything that it imports.
struct Module {
  std::shared_ptr<const SourceMap> sources;
  std::vector<Format> formats; // of this file and its imports, in order of declaration
  std::vector<Gemm> gemms;     // of this file only
  std::vector<Device> devices; // as formats
  // Declared as formats and gemms are, with a parameter that has no value: instances of them alone
  // are among those.
  struct WithoutValue {
    std::string_view kind; // "format", "gemm"
    std::string name, parameter;
    Span span;
  };
  std::vector<WithoutValue> withoutValue;
  // By file of `sources`: the import that led to it; none of the first.
  std::vector<Span> importedAt;

  const Format *findFormat(std::string_view name) const;
  const Gemm *findGemm(std::string_view name) const;
  // That a format or gemm of that name, or the first where none is named, has a parameter without a
  // value; none where it is not declared at all.
  std::optional<Error> whyNoneOf(std::string_view kind, std::string_view name) const;
};

// Reads an imported file that is not of the standard library: path as written, resolved against the
// importing file's folder. Returns none when there is no such file.
using FileReader = std::function<std::optional<std::string>(const std::string &path)>;

// Checks `text`; `name` is shown in messages and is the path that imports are relative to. All
// errors of the file are reported together: any of Diagnostics.def that names a place in a text.
Result<Module> parseModule(std::string_view text, std::string_view name, const FileReader &reader);
// The same from the file system. Error module_not_found, where it cannot be read.
Result<Module> loadModule(const std::string &path);
// The text of a file, cut one byte past maxFileBytes so that what is too large is seen to be.
std::optional<std::string> readSource(const std::string &path);

// What an editor shows of a text with errors: the declarations that have none.
struct Checked {
  Module module;
  std::vector<Diagnostic> diagnostics;
};
Checked checkModule(std::string_view text, std::string_view name, const FileReader &reader);

// The syntax tree as an indented text (`--emit=ast`). Errors: those that parsing has.
Result<std::string> printAst(std::string_view text, std::string_view name);
// Canonical text of the whole module: formats, gemms, then devices. Parses back to an equal module.
std::string print(const Module &module);
// The declarations of several formats and of their parts, each once, as one module; none of plain
// formats. Errors: formats_share_name.
Result<std::string> printModule(const std::vector<std::shared_ptr<const Format>> &formats);

} // namespace rho::dsl
