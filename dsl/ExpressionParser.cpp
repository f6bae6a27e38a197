#include "dsl/ExpressionParser.h"

#include "dsl/Operators.h"

#include <algorithm>
#include <utility>

namespace rho::dsl {

ast::ExprPtr ExpressionParser::tooDeep(Span span) {
  findings.add(DiagId::expression_too_deep, {std::to_string(maxExpressionDepth)}, span);
  return nullptr;
}

ast::ExprPtr ExpressionParser::expression(int precedence, int nesting) {
  if (nesting > maxExpressionDepth)
    return tooDeep(token().span);
  ast::ExprPtr left = unary(nesting);
  while (left) {
    const Operator *op =
        token().kind >= TokenKind::ShiftLeft ? findOperator(token().text) : nullptr;
    if (!op || op->precedence <= precedence)
      return left;
    Span at = advance().span;
    ast::ExprPtr right = expression(op->precedence, nesting + 1);
    if (!right)
      return nullptr;
    auto node = make(ast::Expr::Kind::Binary, {left->span.file, left->span.begin, right->span.end});
    node->op = op->op;
    left = adopt(std::move(node), std::move(left), std::move(right), at);
  }
  return nullptr;
}

ast::ExprPtr ExpressionParser::make(ast::Expr::Kind kind, Span span) {
  auto node = std::make_unique<ast::Expr>();
  node->kind = kind;
  node->span = span;
  return node;
}

// Gives `node` its operands; null where the tree gets too deep.
ast::ExprPtr ExpressionParser::adopt(ast::ExprPtr node, ast::ExprPtr first, ast::ExprPtr second,
                                     Span at) {
  node->depth = 1 + std::max(first->depth, second ? second->depth : 0);
  node->operands.push_back(std::move(first));
  if (second)
    node->operands.push_back(std::move(second));
  return node->depth > maxExpressionDepth ? tooDeep(at) : std::move(node);
}

ast::ExprPtr ExpressionParser::unary(int nesting) {
  if (!is(TokenKind::Minus))
    return primary(nesting);
  if (nesting > maxExpressionDepth)
    return tooDeep(token().span);
  const Token &first = advance();
  prefixes.push_back(first.span.begin);
  ast::ExprPtr operand = unary(nesting + 1);
  if (!operand)
    return nullptr;
  return adopt(make(ast::Expr::Kind::Negate, from(first)), std::move(operand), nullptr, first.span);
}

ast::ExprPtr ExpressionParser::primary(int nesting) {
  const Token &first = token();
  switch (first.kind) {
  case TokenKind::Integer: {
    advance();
    auto node = make(ast::Expr::Kind::Integer, first.span);
    node->integer = first.integer;
    return node;
  }
  case TokenKind::Real: {
    advance();
    auto node = make(ast::Expr::Kind::Real, first.span);
    node->real = first.real;
    return node;
  }
  case TokenKind::ParenOpen: {
    advance();
    prefixes.push_back(first.span.begin);
    ast::ExprPtr inner = expression(0, nesting + 1);
    if (!inner || !take(TokenKind::ParenClose))
      return nullptr;
    inner->span = from(first);
    return inner;
  }
  case TokenKind::Name: {
    if (entryStart()) { // the expression broke off before the next entry
      expected("an expression");
      return nullptr;
    }
    advance();
    bool call = is(TokenKind::ParenOpen);
    auto node = make(call ? ast::Expr::Kind::Call : ast::Expr::Kind::Name, first.span);
    node->name = first.text;
    if (!call)
      return node;
    advance();
    return arguments(std::move(node), first, nesting);
  }
  default:
    expected("an expression");
    return nullptr;
  }
}

// The arguments of a call and its closing parenthesis.
ast::ExprPtr ExpressionParser::arguments(ast::ExprPtr call, const Token &first, int nesting) {
  while (true) {
    ast::ExprPtr argument = expression(0, nesting + 1);
    if (!argument)
      return nullptr;
    call->depth = std::max(call->depth, argument->depth + 1);
    call->operands.push_back(std::move(argument));
    if (!is(TokenKind::Comma))
      break;
    advance();
  }
  if (!take(TokenKind::ParenClose))
    return nullptr;
  call->span = from(first);
  return call->depth > maxExpressionDepth ? tooDeep(first.span) : std::move(call);
}

} // namespace rho::dsl
