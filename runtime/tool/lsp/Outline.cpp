#include "runtime/tool/lsp/Outline.h"

#include "dsl/Parser.h"

#include <algorithm>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;

bool isNameBeforeColon(const Outline &outline, size_t token) {
  return token + 1 < outline.tokens.size() && outline.tokens[token].kind == TokenKind::Name &&
         outline.tokens[token + 1].kind == TokenKind::Colon;
}

Declaration declarationAt(const Outline &outline, size_t begin, size_t end) {
  Declaration declaration{begin, end, begin, 0, {}, {}, {}};
  const bool isFormat = outline.keyword(declaration) == "format";
  if (begin + 1 < end && outline.tokens[begin + 1].kind == TokenKind::Name)
    declaration.name = begin + 1;
  for (size_t i = begin; i < end; ++i) {
    if (outline.around[i] == Outline::none && outline.tokens[i].kind == TokenKind::Equal)
      declaration.alias = i + 1;
    if (!isNameBeforeColon(outline, i))
      continue;
    if (outline.isInParameters(declaration, i))
      declaration.parameters.push_back(i);
    else if (isFormat && (outline.depths[i] == 2 || outline.tokens[i - 1].text == "residual"))
      declaration.parts.push_back(i);
    else if (outline.depths[i] == 1)
      declaration.components.push_back(i);
  }
  return declaration;
}

} // namespace

const Declaration *Outline::declarationOf(size_t token) const {
  for (const Declaration &declaration : declarations)
    if (token >= declaration.begin && token < declaration.end)
      return &declaration;
  return nullptr;
}

size_t Outline::endOfUse(size_t token) const {
  size_t end = token + 1;
  if (tokens[end].kind != TokenKind::ParenOpen)
    return end;
  const size_t open = end++;
  const Declaration *declaration = declarationOf(token);
  while (end < declaration->end && around[end] != around[open])
    ++end;
  return std::min(end + 1, declaration->end);
}

size_t Outline::endOfEntry(size_t name) const {
  const Declaration *declaration = declarationOf(name);
  size_t end = name + 1;
  while (end < declaration->end && !isEntry(end) && tokens[end].kind != TokenKind::BraceClose)
    ++end;
  return end;
}

// What is closed by another sign is closed with that which the sign belongs to.
static void close(const Outline &outline, std::vector<size_t> &open, TokenKind closing) {
  const TokenKind opening = closing == TokenKind::ParenClose     ? TokenKind::ParenOpen
                            : closing == TokenKind::BracketClose ? TokenKind::BracketOpen
                                                                 : TokenKind::BraceOpen;
  const auto found = std::find_if(open.rbegin(), open.rend(), [&](size_t token) {
    return outline.tokens[token].kind == opening;
  });
  if (found != open.rend())
    open.erase(found.base() - 1, open.end());
}

Outline outlineOf(const SourceMap &sources, uint32_t file) {
  dsl::Findings ignored(sources);
  Outline outline;
  outline.tokens = dsl::lex(sources, file, ignored);
  dsl::ast::File tree = dsl::parse(outline.tokens, ignored);
  outline.entries.insert(tree.entries.begin(), tree.entries.end());
  int depth = 0;
  std::vector<size_t> begins, open;
  for (size_t i = 0; i < outline.tokens.size(); ++i) {
    TokenKind kind = outline.tokens[i].kind;
    if (kind == TokenKind::BraceClose)
      depth = std::max(depth - 1, 0);
    std::string_view text = outline.tokens[i].text;
    // A block that is still being written does not swallow the next declaration.
    bool declares =
        outline.isEntry(i) && kind == TokenKind::Name &&
        (depth == 0 || text == "format" || text == "gemm" || text == "device" || text == "import");
    if (declares) {
      begins.push_back(i);
      depth = 0;
      open.clear();
    }
    // Nor do parentheses the next entry.
    while (outline.isEntry(i) && !open.empty() &&
           outline.tokens[open.back()].kind != TokenKind::BraceOpen)
      open.pop_back();
    if (kind == TokenKind::ParenClose || kind == TokenKind::BracketClose ||
        kind == TokenKind::BraceClose)
      close(outline, open, kind);
    outline.depths.push_back(depth);
    outline.around.push_back(open.empty() ? Outline::none : open.back());
    depth += kind == TokenKind::BraceOpen;
    if (kind == TokenKind::ParenOpen || kind == TokenKind::BracketOpen ||
        kind == TokenKind::BraceOpen)
      open.push_back(i);
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    size_t end = i + 1 < begins.size() ? begins[i + 1] : outline.tokens.size() - 1;
    outline.declarations.push_back(declarationAt(outline, begins[i], end));
  }
  return outline;
}

} // namespace rho::tool::lsp
