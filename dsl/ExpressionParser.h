// Expressions: precedence climbing.
#pragma once

#include "dsl/UseParser.h"

namespace rho::dsl {

// `nesting` counts open parentheses, calls and unary operators, which recurse; a node's depth also
// counts long chains, on which later phases recurse. Functions return null after they reported an
// error.
class ExpressionParser : protected UseParser {
public:
  using UseParser::UseParser;

protected:
  // Operators that bind tighter than `precedence`.
  ast::ExprPtr expression(int precedence, int nesting);

private:
  ast::ExprPtr tooDeep(Span span);
  static ast::ExprPtr make(ast::Expr::Kind kind, Span span);
  // Gives `node` its operands; null where the tree gets too deep.
  ast::ExprPtr adopt(ast::ExprPtr node, ast::ExprPtr first, ast::ExprPtr second, Span at);
  ast::ExprPtr unary(int nesting);
  ast::ExprPtr primary(int nesting);
  // The arguments of a call and its closing parenthesis.
  ast::ExprPtr arguments(ast::ExprPtr call, const Token &first, int nesting);
};

} // namespace rho::dsl
