#include "runtime/tool/lsp/Resolve.h"

#include "dsl/StandardLibrary.h"
#include "runtime/tool/Files.h"

#include <algorithm>
#include <filesystem>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;
using dsl::WordPlace;

class Resolver {
public:
  Resolver(const View &view, size_t at)
      : view(view), outline(view.outline(0)), at(at), declaration(outline.declarationOf(at)) {}

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
  Target part() const { return among(Target::Kind::Part, declaration->parts); }
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
    if (inFormat && isPart())
      return part();
    if (inFormat && (followedBy(TokenKind::Colon) || depth > 1))
      if (Target found = component(); found.kind != Target::Kind::None)
        return found;
    if (Target found = word(entryPlace(outline.keyword(*declaration), depth));
        found.kind != Target::Kind::None)
      return found;
    if (Target found = type(); found.kind != Target::Kind::None)
      return found; // a rate of the tensor cores
    return word(WordPlace::TensorRate);
  }

  bool isPart() const {
    return std::find(declaration->parts.begin(), declaration->parts.end(), at) !=
           declaration->parts.end();
  }

  // Of `name = value` in parentheses: the parameter of what they belong to.
  Target argument() const {
    const Target callee = findCallee(view, outline.around[at]);
    if (callee.kind == Target::Kind::None)
      return {};
    for (size_t parameter : callee.declaration->parameters)
      if (view.outline(callee.file).tokens[parameter].text == text())
        return {Target::Kind::Parameter, callee.file, callee.declaration, parameter, {}};
    return {};
  }

  Target reference() const {
    const std::string_view keyword = outline.keyword(*declaration);
    const bool inFormat = keyword == "format";
    const int depth = outline.depths[at];
    if (inFormat && isPart())
      return part();
    if (outline.isInParameters(*declaration, at) && precededBy(":"))
      return word(WordPlace::Parameter);
    if (followedBy(TokenKind::Equal))
      if (Target found = argument(); found.kind != Target::Kind::None)
        return found;
    if (Target found = parameter(); found.kind != Target::Kind::None)
      return found;
    if (inFormat && !precededBy(":"))
      if (Target found = component(); found.kind != Target::Kind::None)
        return found;
    const bool isCopied = at == declaration->alias; // else what is named is a format
    const bool inSchedule = !inFormat && depth > 1;
    if (Target found = findDeclaration(view, isCopied ? keyword : "format", text());
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
      if (isSameFile(sources.name(file), path))
        return {Target::Kind::File, file, declaration, at, {}};
    return {};
  }

  // A file is read once, under the first of its names.
  static bool isSameFile(const std::string &a, const std::string &b) {
    return a == b || (!a.starts_with(dsl::libraryPrefix) && !b.starts_with(dsl::libraryPrefix) &&
                      resolved(a) == resolved(b));
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
  const size_t files = keyword == "gemm" ? 1 : view.sources()->size();
  for (uint32_t file = 0; file < files; ++file) {
    const Outline &outline = view.outline(file);
    for (const Declaration &declaration : outline.declarations)
      if (outline.keyword(declaration) == keyword && declaration.name != declaration.begin &&
          outline.tokens[declaration.name].text == name)
        return {Target::Kind::Declaration, file, &declaration, declaration.name, {}};
  }
  return {};
}

Target findCallee(const View &view, size_t open) {
  const Outline &outline = view.outline(0);
  const Declaration *declaration = open == Outline::none ? nullptr : outline.declarationOf(open);
  if (!declaration || outline.tokens[open].kind != TokenKind::ParenOpen ||
      open == declaration->name + 1)
    return {};
  const bool isCopied = open - 1 == declaration->alias;
  return findDeclaration(view, isCopied ? outline.keyword(*declaration) : "format",
                         outline.tokens[open - 1].text);
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
