#include "runtime/tool/lsp/Language.h"

#include "compiler/Devices.h"
#include "dsl/DeviceFields.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/lsp/Resolve.h"

#include <algorithm>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;
using dsl::WordPlace;
using TargetKind = Target::Kind;

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }
std::string fenced(const std::string &text) { return "```rho\n" + text + "```\n"; }

std::string number(double value) { return significantNumber(value, 9); }

std::string kindOf(dsl::ElementType type) {
  switch (type.kind()) {
  case dsl::ElementType::Kind::Signed:
    return "signed integer";
  case dsl::ElementType::Kind::Unsigned:
    return "unsigned integer";
  case dsl::ElementType::Kind::Codebook:
    return "codebook";
  case dsl::ElementType::Kind::Float:
    break;
  }
  return std::string(type.hasSign() ? "floating point" : "floating point without sign") + ", " +
         std::to_string(type.exponentBits()) + " bits of exponent, " +
         std::to_string(type.mantissaBits()) + " of mantissa";
}

std::string describe(dsl::ElementType type) {
  return code(type.name()) + ": " + kindOf(type) + ", " + std::to_string(type.bits()) + " bits, " +
         number(type.minFinite()) + " to " + number(type.maxFinite());
}

// The line that declares a component, its share of the bits and how it is encoded.
std::string describe(const dsl::Format &format, size_t index) {
  const dsl::Component &component = format.components[index];
  int number = static_cast<int>(index);
  std::string text =
      code(dsl::printComponent(format, number)) + ", " + bitCount(format.bitsPerElement(number));
  if (component.encode)
    text += std::string(component.encodeDeclared ? "; encoded as " : "; encoded, derived, as ") +
            code(dsl::print(*component.encode, format));
  return text;
}

std::string describe(const dsl::Format &format) {
  std::string text = fenced(dsl::print(format)) + "\n" + bitCount(format.bitsPerElement()) + "\n\n";
  for (size_t i = 0; i < format.components.size(); ++i)
    text += "- " + describe(format, i) + "\n";
  return text;
}

std::string describe(const dsl::Gemm &gemm) {
  std::string text = fenced(dsl::print(gemm)) + "\n";
  for (auto [role, format] : {std::pair{"weight", &gemm.weight}, {"activation", &gemm.activation}})
    text += std::string("- ") + role + " " + code(format->name) + ": " +
            bitCount(format->bitsPerElement()) + "\n";
  return text;
}

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
    case TargetKind::Parameter:
      return fenced(source(target.token, endOfParameter()) + "\n");
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
  std::string source(size_t begin, size_t end) const {
    uint32_t first = outline().tokens[begin].span.begin;
    return view.sources()
        ->text(target.file)
        .substr(first, outline().tokens[end - 1].span.end - first);
  }

  // The format that a use makes, with its arguments: of an operand, of a part or behind
  // `format NAME =`.
  const dsl::Format *used() const {
    const Outline &own = view.outline(0);
    const Declaration *around = own.around(at);
    if (!around || at < 2)
      return nullptr;
    const bool isBehindColon = own.tokens[at - 1].kind == TokenKind::Colon;
    const std::string_view declared = own.tokens[around->name].text;
    if (own.keyword(*around) == "format") {
      const dsl::Format *format = view.module().findFormat(declared);
      if (format && at == around->alias)
        return copied(*format);
      return format && isBehindColon ? partOf(*format) : nullptr;
    }
    const dsl::Gemm *gemm = view.module().findGemm(declared);
    if (!gemm || !isBehindColon)
      return nullptr;
    return own.tokens[at - 2].text == "weight" ? &gemm->weight : &gemm->activation;
  }

  // The instance of the target that a format is a copy of, under its own name.
  const dsl::Format *copied(const dsl::Format &copy) const {
    const std::string instances = std::string(name()) + "__";
    for (const dsl::Format &one : view.module().formats) {
      if (one.name != name() && !one.name.starts_with(instances))
        continue;
      dsl::Format renamed = one;
      renamed.name = copy.name;
      if (renamed == copy)
        return &one;
    }
    return &copy;
  }

  // That of the part which is named before the use.
  const dsl::Format *partOf(const dsl::Format &format) const {
    const std::string_view named = view.outline(0).tokens[at - 2].text;
    const dsl::Format *found = nullptr;
    dsl::forEachPart(format, [&](const dsl::Part &part, const dsl::Blocks &) {
      if (part.name == named)
        found = part.format.get();
    });
    return found;
  }

  std::string declaration() const {
    std::string_view keyword = outline().keyword(*target.declaration);
    if (keyword == "gemm") {
      if (const dsl::Gemm *gemm = view.module().findGemm(name()); gemm && target.file == 0)
        return describe(*gemm);
    } else if (const dsl::Format *format = used()) {
      return describe(*format);
    } else if (const dsl::Format *found = view.module().findFormat(name());
               found && keyword == "format") {
      return describe(*found);
    }
    return fenced(source(target.declaration->begin, target.declaration->end) + "\n");
  }

  std::string component() const {
    std::string_view owner = outline().tokens[target.declaration->name].text;
    if (const dsl::Format *format = view.module().findFormat(owner))
      for (size_t i = 0; i < format->components.size(); ++i)
        if (format->components[i].name == name())
          return describe(*format, i);
    size_t end = target.token + 1;
    while (end < target.declaration->end && !outline().isEntry(end) &&
           outline().tokens[end].kind != TokenKind::BraceClose)
      ++end;
    return fenced(source(target.token, end) + "\n");
  }

  size_t endOfParameter() const {
    size_t end = target.token;
    for (int depth = 0; end < target.declaration->end && depth >= 0; ++end) {
      TokenKind kind = outline().tokens[end].kind;
      depth += kind == TokenKind::ParenOpen;
      depth -= kind == TokenKind::ParenClose;
      if (depth < 0 || (depth == 0 && outline().tokens[end].text == ","))
        break;
    }
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

// --- completion

class Completer {
public:
  Completer(const View &view, size_t offset) : view(view), outline(view.outline(0)) {
    auto isBefore = [&](const dsl::Token &token) {
      // The name that is being written does not count.
      return token.span.end < offset || (token.span.end == offset && token.kind != TokenKind::Name);
    };
    while (at + 1 < outline.tokens.size() && isBefore(outline.tokens[at]))
      ++at;
    if (at == 0)
      return;
    declaration = outline.around(at - 1);
    depth = outline.depths[at - 1] + (outline.tokens[at - 1].kind == TokenKind::BraceOpen);
  }

  std::vector<Completion> run() {
    if (depth == 0)
      atTop();
    else if (before() == ":")
      behindColon();
    else if (before() == "per")
      words(WordPlace::Extent);
    else if (keyword() == "format")
      inFormat();
    else if (isOfTensorCores())
      operandTypes();
    else if (std::optional<WordPlace> place = entryPlace(keyword(), depth))
      words(*place);
    return std::move(found);
  }

private:
  std::string_view keyword() const { return declaration ? outline.keyword(*declaration) : ""; }
  std::string_view before(size_t tokens = 1) const {
    return at >= tokens ? outline.tokens[at - tokens].text : "";
  }

  void atTop() {
    if (!declaration || !findWord(keyword(), WordPlace::Declaration))
      return words(WordPlace::Declaration);
    if (at == declaration->alias)
      return keyword() == "gemm" ? gemms() : formats();
    // Behind the first word a name or a path comes, and then what is declared.
    if (at > declaration->name + 1 && !isInParentheses())
      words(WordPlace::Declaration);
  }

  bool isInParentheses() const {
    int open = 0;
    for (size_t i = declaration->begin; i < at; ++i)
      open += (outline.tokens[i].kind == TokenKind::ParenOpen) -
              (outline.tokens[i].kind == TokenKind::ParenClose);
    return open > 0;
  }

  void behindColon() {
    if (keyword() == "format" && isOfPart())
      parts();
    else if (keyword() == "format")
      types();
    else if (keyword() == "gemm" && depth == 1)
      operands();
    else if (keyword() == "gemm")
      words(WordPlace::ScheduleValue, dsl::scheduleWords(before(2)));
    else if (keyword() == "device" && before(2) == "target")
      for (const std::string &target : compiler::allTargets())
        found.push_back({Completion::Kind::Word, target, "architecture"});
  }

  // Whether the innermost open brace is that of a device's rates by operand type.
  bool isOfTensorCores() const {
    if (keyword() != "device" || depth != 2)
      return false;
    size_t open = at - 1;
    while (outline.tokens[open].kind != TokenKind::BraceOpen || outline.depths[open] >= depth)
      --open;
    const std::string_view block = outline.tokens[open - 1].text;
    return block == "tensor" || block == "mma";
  }

  // Those of a place, or of these the ones with such texts.
  void words(WordPlace place, const std::optional<std::vector<std::string>> &only = {}) {
    auto kind = place == WordPlace::Function ? Completion::Kind::Function : Completion::Kind::Word;
    for (const dsl::Word &word : dsl::allWords())
      if (word.place == place &&
          (!only || std::find(only->begin(), only->end(), word.text) != only->end()))
        found.push_back({kind, std::string(word.text), std::string(word.meaning)});
  }

  void names(Completion::Kind kind, const std::vector<size_t> &tokens, const char *what) {
    for (size_t token : tokens)
      found.push_back({kind, std::string(outline.tokens[token].text), what});
  }

  void types() {
    names(Completion::Kind::Word, declaration->parameters, "parameter");
    words(WordPlace::Type);
    for (std::string_view name : dsl::ElementType::allNames())
      type(name);
  }

  void type(std::string_view name) {
    const std::optional<dsl::ElementType> type = dsl::ElementType::fromName(name);
    found.push_back({Completion::Kind::Type, std::string(name), type ? describe(*type) : ""});
  }

  void operandTypes() {
    for (std::string_view name : dsl::tensorTypes)
      type(name);
  }

  void parts() {
    formats();
    if (before(3) == "residual")
      residualTypes();
  }

  // Those of a residual with the scales of its format: with the element at most 8 bits together.
  void residualTypes() {
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

  // Whether what is before is the `name:` of a part, of a partition or of a residual.
  bool isOfPart() const { return depth == 2 || before(3) == "residual"; }

  // Whether what is before is an extent `n[16]` or `m[16]`, which one along k may follow.
  bool isBehindRows() const {
    if (at < 4 || outline.tokens[at - 1].kind != TokenKind::BracketClose)
      return false;
    size_t open = at - 1;
    while (open > 1 && outline.tokens[open].kind != TokenKind::BracketOpen)
      --open;
    const std::string_view rows = outline.tokens[open - 1].text;
    return rows == "n" || rows == "m";
  }

  void inFormat() {
    if (isBehindRows())
      words(WordPlace::Extent);
    if (depth == 1)
      words(WordPlace::Entry);
    words(WordPlace::Part);
    names(Completion::Kind::Component, declaration->components, "component");
    names(Completion::Kind::Word, declaration->parameters, "parameter");
    words(WordPlace::Function);
    words(WordPlace::Input);
  }

  void operands() {
    if (before(2) == "output")
      plainTypes();
    else
      formats();
  }

  void plainTypes() {
    for (const std::string &plain : dsl::plainTypes())
      type(plain);
  }

  void formats() {
    plainTypes();
    names(Completion::Kind::Word, declaration->parameters, "parameter");
    for (uint32_t file = 0; file < view.sources()->size(); ++file)
      for (const Declaration &one : view.outline(file).declarations)
        if (isOther(view.outline(file), one, "format"))
          format(std::string(view.outline(file).tokens[one.name].text));
  }

  // Gemms belong to their own file.
  void gemms() {
    for (const Declaration &one : outline.declarations)
      if (isOther(outline, one, "gemm"))
        found.push_back(
            {Completion::Kind::Format, std::string(outline.tokens[one.name].text), "gemm"});
  }

  // Whether a declaration can be named here: none is made of itself.
  bool isOther(const Outline &of, const Declaration &one, std::string_view wanted) const {
    return of.keyword(one) == wanted && one.name != one.begin && &one != declaration;
  }

  void format(const std::string &name) {
    const dsl::Format *checked = view.module().findFormat(name);
    found.push_back(
        {Completion::Kind::Format, name, checked ? bitCount(checked->bitsPerElement()) : "format"});
  }

  const View &view;
  const Outline &outline;
  size_t at = 0; // the first token behind the place, or the name there
  const Declaration *declaration = nullptr;
  int depth = 0;
  std::vector<Completion> found;
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

std::vector<Completion> completionsAt(const View &view, size_t offset) {
  if (!view.sources())
    return {};
  return Completer(view, offset).run();
}

} // namespace rho::tool::lsp
