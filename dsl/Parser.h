// Tokens -> syntax tree. docs/GRAMMAR.md has the grammar.
#pragma once

#include "dsl/Ast.h"
#include "dsl/Lexer.h"

namespace rho::dsl {

// Operations on the longest way through one expression; every later phase recurses no deeper.
inline constexpr int maxExpressionDepth = 200;

// Parses a whole file. After an error it goes on at the next entry or declaration.
ast::File parse(const std::vector<Token> &tokens, Findings &findings);

} // namespace rho::dsl
