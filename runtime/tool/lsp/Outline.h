// Where a file declares what, also in files with errors: what an editor navigates by.
#pragma once

#include "dsl/Lexer.h"

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

namespace rho::tool::lsp {

// Numbers are indices of tokens.
struct Declaration {
  size_t begin = 0, end = 0; // end: behind its last token
  size_t name = 0;           // `begin` where it has none
  size_t alias = 0;          // behind the `=` of `NAME = use`; 0 where there is none
  std::vector<size_t> parameters;
  std::vector<size_t> components; // `name:` entries of the outermost block
  std::vector<size_t> parts;      // of a format: names of those of a partition, then of a residual
};

struct Outline {
  std::vector<dsl::Token> tokens;
  std::vector<int> depths;    // by token: open braces before it
  std::vector<size_t> around; // by token: the innermost parenthesis, bracket or brace around it
  std::set<uint32_t> entries; // positions at which an entry or a declaration begins
  std::vector<Declaration> declarations;

  static constexpr size_t none = SIZE_MAX; // of `around`: at the top of a file

  std::string_view keyword(const Declaration &declaration) const {
    return tokens[declaration.begin].text;
  }
  bool isEntry(size_t token) const { return entries.contains(tokens[token].span.begin); }
  // The one that the token is in; null before the first.
  const Declaration *declarationOf(size_t token) const;
  // Whether a token is in the parentheses of its declaration's parameters.
  bool isInParameters(const Declaration &declaration, size_t token) const {
    return around[token] == declaration.name + 1 &&
           tokens[around[token]].kind == dsl::TokenKind::ParenOpen;
  }
  // Behind a use, `name` or `name(...)`, that begins at a token.
  size_t endOfUse(size_t token) const;
  // Behind the entry of a block that a name stands at the beginning of.
  size_t endOfEntry(size_t name) const;
};

// Tokens point into the text that `sources` holds.
Outline outlineOf(const SourceMap &sources, uint32_t file);

} // namespace rho::tool::lsp
