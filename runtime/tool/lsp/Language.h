// What an editor asks about a place in a .rho text.
#pragma once

#include "dsl/Codebook.h"
#include "dsl/Module.h"
#include "runtime/tool/lsp/Outline.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rho::tool::lsp {

// A text as it was checked, with what it imports. The text itself is file 0 of the sources.
class View {
public:
  View(std::string_view text, std::string name, dsl::FileReader reader)
      : name(std::move(name)), reader(std::move(reader)) {
    const dsl::CodebookPool::Scope scope(codebooks);
    checked = dsl::checkModule(text, this->name, this->reader);
  }

  bool readsFiles() const { return reader != nullptr; }
  // Another text in its place.
  View withText(std::string_view text) const { return View(text, name, reader); }

  const std::vector<Diagnostic> &diagnostics() const { return checked.diagnostics; }
  const dsl::Module &module() const { return checked.module; }
  // No sources: the text is too large.
  const SourceMap *sources() const { return checked.module.sources.get(); }
  const Outline &outline(uint32_t file) const;
  // The import in file 0 that leads to a file.
  Span importOf(uint32_t file) const;

private:
  std::string name;
  dsl::FileReader reader;
  dsl::CodebookPool codebooks; // of `checked`: there is a check at each change of a text
  dsl::Checked checked;
  mutable std::map<uint32_t, Outline> outlines;
};

struct Hover {
  Span span;            // of what it is about
  std::string markdown; // never empty
};
std::optional<Hover> hoverAt(const View &view, size_t offset);

// Where the name at a place of file 0 is declared; for an import the beginning of the file.
std::optional<Span> definitionAt(const View &view, size_t offset);

struct Completion {
  enum class Kind { Word, Type, Format, Component, Function, File };
  Kind kind;
  std::string label, detail;
  std::optional<Span> replaced; // where it is more than the name at the place
};
std::vector<Completion> completionsAt(const View &view, size_t offset);

// A declaration of file 0, or a component or a part of one.
struct Symbol {
  enum class Kind { Format, Gemm, Device, Component, Part };
  Kind kind;
  std::string name;
  Span span, nameSpan;
  std::vector<Symbol> children;
};
std::vector<Symbol> symbolsOf(const View &view);

} // namespace rho::tool::lsp
