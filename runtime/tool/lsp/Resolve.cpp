#include "runtime/tool/lsp/Resolve.h"

#include "dsl/StandardLibrary.h"

#include <algorithm>
#include <filesystem>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;
using dsl::WordPlace;

class Resolver {
public:
  Resolver(const View &view, size_t at)
      : view(view), outline(view.outline(0)), at(at), declaration(outline.around(at)) {}

  Target run() const {
    if (outline.tokens[at].kind == TokenKind::String)
      return import();
    if (!declaration)
      return {};
    if (at == declaration->begin)
      return word(WordPlace::Declaration);
    if (at == declaration->name)
      return named(Target::Kind::Declaration, at);
    if (isExtent())
      return word(WordPlace::Extent);
    if (outline.isEntry(at))
      return entry();
    return reference();
  }

private:
  std::string_view text() const { return outline.tokens[at].text; }
  bool precededBy(std::string_view text) const {
    return at > 0 && outline.tokens[at - 1].text == text;
  }
  bool followedBy(TokenKind kind) const { return outline.tokens[at + 1].kind == kind; }
  bool isExtent() const {
    const bool ofBlock = text() == "k" || text() == "n" || text() == "m";
    return precededBy("per") || (ofBlock && followedBy(TokenKind::BracketOpen));
  }

  Target named(Target::Kind kind, size_t token) const { return {kind, 0, declaration, token, {}}; }
  Target word(std::optional<WordPlace> place) const {
    const dsl::Word *found = findWord(text(), place);
    if (!found)
      return {};
    return {Target::Kind::Word, 0, declaration, at, {}, found};
  }

  // The one with this token's text among the names at `candidates`.
  Target among(Target::Kind kind, const std::vector<size_t> &candidates) const {
    for (size_t candidate : candidates)
      if (outline.tokens[candidate].text == text())
        return named(kind, candidate);
    return {};
  }
  Target component() const { return among(Target::Kind::Component, declaration->components); }
  Target parameter() const { return among(Target::Kind::Parameter, declaration->parameters); }
  Target type() const {
    std::optional<dsl::ElementType> type = dsl::ElementType::fromName(text());
    if (!type)
      return {};
    return {Target::Kind::Type, 0, declaration, at, type};
  }

  Target entry() const {
    int depth = outline.depths[at];
    bool inFormat = outline.keyword(*declaration) == "format";
    if (inFormat && (followedBy(TokenKind::Colon) || depth > 1))
      if (Target found = component(); found.kind != Target::Kind::None)
        return found;
    if (Target found = word(entryPlace(outline.keyword(*declaration), depth));
        found.kind != Target::Kind::None)
      return found;
    return type(); // a rate of the tensor cores
  }

  // Of `name = value` in parentheses: the parameter of what they belong to.
  Target argument() const {
    size_t open = at;
    for (int depth = 0; open > 1 && depth >= 0; --open) {
      depth += outline.tokens[open - 1].kind == TokenKind::ParenClose;
      depth -= outline.tokens[open - 1].kind == TokenKind::ParenOpen;
    }
    const std::string_view of = outline.tokens[open - 1].text;
    const size_t before = open > 1 ? open - 2 : 0; // an alias is of its own kind
    const bool ofGemm =
        outline.keyword(*declaration) == "gemm" && outline.tokens[before].text == "=";
    const Target callee = findDeclaration(view, ofGemm ? "gemm" : "format", of);
    if (callee.kind == Target::Kind::None)
      return {};
    for (size_t parameter : callee.declaration->parameters)
      if (view.outline(callee.file).tokens[parameter].text == text())
        return {Target::Kind::Parameter, callee.file, callee.declaration, parameter, {}};
    return {};
  }

  Target reference() const {
    const bool inFormat = outline.keyword(*declaration) == "format";
    const int depth = outline.depths[at];
    if (followedBy(TokenKind::Equal) && !precededBy("format") && depth <= 1)
      if (Target found = argument(); found.kind != Target::Kind::None)
        return found;
    if (Target found = parameter(); found.kind != Target::Kind::None)
      return found;
    if (inFormat && !precededBy(":"))
      if (Target found = component(); found.kind != Target::Kind::None)
        return found;
    const bool isAliased = !inFormat && depth == 0 && precededBy("=");
    const bool inSchedule = !inFormat && depth > 1;
    if (Target found = findDeclaration(view, isAliased ? "gemm" : "format", text());
        found.kind != Target::Kind::None && !inSchedule)
      return found;
    if (Target found = type(); found.kind != Target::Kind::None)
      return found;
    return word(std::nullopt);
  }

  Target import() const {
    namespace fs = std::filesystem;
    const SourceMap &sources = *view.sources();
    if (!precededBy("import"))
      return {};
    fs::path folder = fs::path(sources.name(0)).parent_path();
    std::string path(text());
    if (!path.starts_with(dsl::libraryPrefix))
      path = (folder / path).lexically_normal().generic_string();
    for (uint32_t file = 1; file < sources.size(); ++file)
      if (sources.name(file) == path)
        return {Target::Kind::File, file, declaration, at, {}};
    return {};
  }

  const View &view;
  const Outline &outline;
  size_t at;
  const Declaration *declaration;
};

} // namespace

std::optional<size_t> tokenAt(const Outline &outline, size_t offset) {
  auto behind = std::upper_bound(
      outline.tokens.begin(), outline.tokens.end(), offset,
      [](size_t place, const dsl::Token &token) { return place < token.span.begin; });
  if (behind == outline.tokens.begin())
    return std::nullopt;
  auto isNameAround = [&](const dsl::Token &token) {
    return offset <= token.span.end &&
           (token.kind == TokenKind::Name || token.kind == TokenKind::String);
  };
  auto found = behind - 1;
  // Between `(` and a name the name is meant, between a name and `)` too.
  if (!isNameAround(*found) && found != outline.tokens.begin() && isNameAround(*(found - 1)))
    --found;
  if (!isNameAround(*found))
    return std::nullopt;
  return static_cast<size_t>(found - outline.tokens.begin());
}

const dsl::Word *findWord(std::string_view text, std::optional<WordPlace> place) {
  for (const dsl::Word &word : dsl::allWords())
    if (word.text == text && (!place || word.place == *place))
      return &word;
  return nullptr;
}

Target resolve(const View &view, size_t token) { return Resolver(view, token).run(); }

Target findDeclaration(const View &view, std::string_view keyword, std::string_view name) {
  for (uint32_t file = 0; file < view.sources()->size(); ++file) {
    const Outline &outline = view.outline(file);
    for (const Declaration &declaration : outline.declarations)
      if (outline.keyword(declaration) == keyword && declaration.name != declaration.begin &&
          outline.tokens[declaration.name].text == name)
        return {Target::Kind::Declaration, file, &declaration, declaration.name, {}};
  }
  return {};
}

std::optional<WordPlace> entryPlace(std::string_view keyword, int depth) {
  if (keyword == "format" && depth == 1)
    return WordPlace::Entry;
  if (keyword == "gemm" && depth == 1)
    return WordPlace::GemmEntry;
  if (keyword == "gemm" && depth == 2)
    return WordPlace::ScheduleEntry;
  if (keyword == "device" && depth == 1)
    return WordPlace::DeviceEntry;
  if (keyword == "device" && depth == 2)
    return WordPlace::DeviceRate;
  return std::nullopt;
}

} // namespace rho::tool::lsp
