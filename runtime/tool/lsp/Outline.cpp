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
  Declaration declaration{begin, end, begin, 0, {}, {}};
  if (begin + 1 < end && outline.tokens[begin + 1].kind == TokenKind::Name)
    declaration.name = begin + 1;
  int parentheses = 0;
  for (size_t i = begin; i < end; ++i) {
    if (outline.depths[i] == 0) {
      parentheses += outline.tokens[i].kind == TokenKind::ParenOpen;
      parentheses -= outline.tokens[i].kind == TokenKind::ParenClose;
      if (parentheses == 0 && outline.tokens[i].kind == TokenKind::Equal)
        declaration.alias = i + 1;
    }
    if (!isNameBeforeColon(outline, i))
      continue;
    if (outline.depths[i] == 0 && parentheses == 1)
      declaration.parameters.push_back(i);
    else if (outline.depths[i] == 1 && outline.isEntry(i))
      declaration.components.push_back(i);
  }
  return declaration;
}

} // namespace

const Declaration *Outline::around(size_t token) const {
  for (const Declaration &declaration : declarations)
    if (token >= declaration.begin && token < declaration.end)
      return &declaration;
  return nullptr;
}

Outline outlineOf(const SourceMap &sources, uint32_t file) {
  dsl::Findings ignored(sources);
  Outline outline;
  outline.tokens = dsl::lex(sources, file, ignored);
  dsl::ast::File tree = dsl::parse(outline.tokens, ignored);
  outline.entries.insert(tree.entries.begin(), tree.entries.end());
  int depth = 0;
  std::vector<size_t> begins;
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
    }
    outline.depths.push_back(depth);
    depth += kind == TokenKind::BraceOpen;
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    size_t end = i + 1 < begins.size() ? begins[i + 1] : outline.tokens.size() - 1;
    outline.declarations.push_back(declarationAt(outline, begins[i], end));
  }
  return outline;
}

} // namespace rho::tool::lsp
