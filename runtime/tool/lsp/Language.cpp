#include "runtime/tool/lsp/Language.h"

#include "runtime/tool/Report.h"
#include "runtime/tool/lsp/Describe.h"
#include "runtime/tool/lsp/Resolve.h"

#include <algorithm>
#include <utility>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;
using TargetKind = Target::Kind;

class Describer {
public:
  Describer(const View &view, size_t at, const Target &target)
      : view(view), at(at), target(target) {}

  std::string run() const {
    switch (target.kind) {
    case TargetKind::None:
      return {};
    case TargetKind::Declaration:
      return declaration();
    case TargetKind::Component:
      return component();
    case TargetKind::Part:
      return part();
    case TargetKind::Parameter:
      return fenced(source(target.file, target.token, endOfParameter(target.file, target.token)) +
                    "\n");
    case TargetKind::Type:
      return target.type ? describe(*target.type) : std::string();
    case TargetKind::Word:
      return code(target.word->text) + ": " + std::string(target.word->meaning);
    case TargetKind::File:
      return file();
    }
    return {};
  }

private:
  const Outline &outline() const { return view.outline(target.file); }
  std::string_view name() const { return outline().tokens[target.token].text; }
  // As written, from one token to the one before `end`.
  std::string source(uint32_t file, size_t begin, size_t end) const {
    const std::vector<dsl::Token> &tokens = view.outline(file).tokens;
    const uint32_t first = tokens[begin].span.begin;
    return view.sources()->text(file).substr(first, tokens[end - 1].span.end - first);
  }

  bool isUse() const {
    return target.declaration != view.outline(0).declarationOf(at) || at != target.token;
  }

  // The format that a use makes, with its arguments, whatever is wrong elsewhere: the text's
  // imports and formats are checked again, beside a copy of it.
  std::string use() const {
    const Outline &own = view.outline(0);
    constexpr const char *copied = "copied__"; // no format of the file hides it: the first counts
    const size_t end = own.endOfUse(at);
    std::string text = std::string("format ") + copied;
    text += parametersOf(at, end) + " = " + source(0, at, end) + "\n";
    for (const Declaration &one : own.declarations)
      if (own.keyword(one) == "import" || own.keyword(one) == "format")
        text += source(0, one.begin, one.end) + "\n";
    const View beside = view.withText(text);
    const dsl::Format *copy = beside.module().findFormat(copied);
    return copy ? describe(originalOf(*copy, beside.module())) : "";
  }

  // Those of the declaration around that tokens of it use, as it declares them; empty: none.
  std::string parametersOf(size_t begin, size_t end) const {
    const Outline &own = view.outline(0);
    std::string list;
    for (size_t parameter : own.declarationOf(begin)->parameters)
      for (size_t i = begin; i < end; ++i)
        if (own.tokens[i].text == own.tokens[parameter].text &&
            own.tokens[i + 1].kind != TokenKind::Equal) {
          list += (list.empty() ? "(" : ", ") + source(0, parameter, endOfParameter(0, parameter));
          break;
        }
    return list.empty() ? "" : list + ")";
  }

  // The instance of the target that a format is a copy of, under its own name.
  dsl::Format originalOf(const dsl::Format &copy, const dsl::Module &module) const {
    const std::string instances = std::string(name()) + "__";
    dsl::Format renamed = copy;
    for (const dsl::Format &one : module.formats) {
      renamed.name = one.name;
      if ((one.name == name() || one.name.starts_with(instances)) && renamed == one)
        return one;
    }
    renamed.name = name();
    return renamed;
  }

  std::string declaration() const {
    std::string_view keyword = outline().keyword(*target.declaration);
    if (keyword == "gemm") {
      if (const dsl::Gemm *gemm = view.module().findGemm(name()))
        return describe(*gemm);
    } else if (keyword == "format" && isUse()) {
      if (std::string used = use(); !used.empty())
        return used;
    } else if (const dsl::Format *found = view.module().findFormat(name());
               found && keyword == "format") {
      return describe(*found);
    }
    return fenced(source(target.file, target.declaration->begin, target.declaration->end) + "\n");
  }

  std::string component() const {
    std::string_view owner = outline().tokens[target.declaration->name].text;
    if (const dsl::Format *format = view.module().findFormat(owner))
      for (size_t i = 0; i < format->components.size(); ++i)
        if (format->components[i].name == name())
          return describe(*format, i);
    return fenced(source(target.file, target.token, outline().endOfEntry(target.token)) + "\n");
  }

  std::string part() const {
    std::string_view owner = outline().tokens[target.declaration->name].text;
    if (const dsl::Format *format = view.module().findFormat(owner))
      if (std::string found = describePart(*format, name()); !found.empty())
        return found;
    return fenced(source(target.file, target.token, outline().endOfEntry(target.token)) + "\n");
  }

  size_t endOfParameter(uint32_t file, size_t parameter) const {
    const Outline &of = view.outline(file);
    const size_t open = of.around[parameter];
    size_t end = parameter + 1;
    while (end < of.declarationOf(parameter)->end && of.around[end] != of.around[open] &&
           (of.around[end] != open || of.tokens[end].kind != TokenKind::Comma))
      ++end;
    return end;
  }

  std::string file() const {
    std::string text = code(view.sources()->name(target.file)) + "\n\n";
    for (const Declaration &declaration : outline().declarations)
      if (declaration.name != declaration.begin)
        text += "- " + std::string(outline().keyword(declaration)) + " " +
                code(outline().tokens[declaration.name].text) + "\n";
    return text;
  }

  const View &view;
  size_t at;
  const Target &target;
};

// That of the open text at this place.
std::optional<size_t> tokenOf(const View &view, size_t offset) {
  return view.sources() ? tokenAt(view.outline(0), offset) : std::nullopt;
}

} // namespace

const Outline &View::outline(uint32_t file) const {
  auto [found, isNew] = outlines.try_emplace(file);
  if (isNew)
    found->second = outlineOf(*sources(), file);
  return found->second;
}

Span View::importOf(uint32_t file) const {
  Span span = module().importedAt[file];
  while (span.file != 0 && span.file != Span::none)
    span = module().importedAt[span.file];
  return span;
}

std::optional<Hover> hoverAt(const View &view, size_t offset) {
  std::optional<size_t> token = tokenOf(view, offset);
  if (!token)
    return std::nullopt;
  std::string markdown = Describer(view, *token, resolve(view, *token)).run();
  if (markdown.empty())
    return std::nullopt;
  return Hover{view.outline(0).tokens[*token].span, std::move(markdown)};
}

std::optional<Span> definitionAt(const View &view, size_t offset) {
  std::optional<size_t> token = tokenOf(view, offset);
  if (!token)
    return std::nullopt;
  Target target = resolve(view, *token);
  switch (target.kind) {
  case TargetKind::Declaration:
  case TargetKind::Component:
  case TargetKind::Part:
  case TargetKind::Parameter:
    return view.outline(target.file).tokens[target.token].span;
  case TargetKind::File:
    return Span{target.file, 0, 0};
  case TargetKind::None:
  case TargetKind::Type:
  case TargetKind::Word:
    break;
  }
  return std::nullopt;
}

std::vector<Symbol> symbolsOf(const View &view) {
  std::vector<Symbol> symbols;
  if (!view.sources())
    return symbols;
  const Outline &outline = view.outline(0);
  auto symbol = [&](Symbol::Kind kind, size_t begin, size_t name, size_t end) {
    const Span span{0, outline.tokens[begin].span.begin, outline.tokens[end - 1].span.end};
    return Symbol{
        kind, std::string(outline.tokens[name].text), span, outline.tokens[name].span, {}};
  };
  for (const Declaration &one : outline.declarations) {
    const std::string_view keyword = outline.keyword(one);
    if (one.name == one.begin || keyword == "import")
      continue;
    const bool isFormat = keyword == "format";
    symbols.push_back(symbol(isFormat            ? Symbol::Kind::Format
                             : keyword == "gemm" ? Symbol::Kind::Gemm
                                                 : Symbol::Kind::Device,
                             one.begin, one.name, one.end));
    std::vector<Symbol> &children = symbols.back().children;
    for (auto [kind, tokens] :
         {std::pair{Symbol::Kind::Component, &one.components}, {Symbol::Kind::Part, &one.parts}})
      for (size_t token : *tokens)
        if (isFormat)
          children.push_back(symbol(kind, token, token, outline.endOfEntry(token)));
  }
  return symbols;
}

} // namespace rho::tool::lsp
