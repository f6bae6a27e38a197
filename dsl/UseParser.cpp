#include "dsl/UseParser.h"

namespace rho::dsl {

bool UseParser::parameter(std::vector<ast::Parameter> &parameters) {
  ast::Parameter parameter;
  if (!takeName(parameter.name, "the name of a parameter or ')'") || !take(TokenKind::Colon) ||
      !takeName(parameter.kind, "int, type or format"))
    return false;
  if (is(TokenKind::Equal)) {
    advance();
    parameter.fallback.emplace();
    if (!argumentValue(*parameter.fallback, 0))
      return false;
  }
  parameters.push_back(std::move(parameter));
  return true;
}

bool UseParser::argument(std::vector<ast::Argument> &arguments, int nesting) {
  ast::Argument argument;
  if (is(TokenKind::Name) && is(TokenKind::Equal, 1)) {
    takeName(argument.parameter.emplace(), "");
    advance();
  }
  if (!argumentValue(argument, nesting))
    return false;
  arguments.push_back(std::move(argument));
  return true;
}

bool UseParser::argumentValue(ast::Argument &argument, int nesting) {
  const Token &first = token();
  size_t begin = at;
  argument.integer = !is(TokenKind::Name);
  if (argument.integer) {
    ast::Number number;
    takeSigns();
    if (!takeNumber(number, "an integer, a type or a format"))
      return false;
  } else if (word("codebook") && is(TokenKind::BracketOpen, 1)) {
    argument.use.name = ast::Name{std::string(first.text), first.span};
    if (!takeCodebook(argument.codebook))
      return false;
    argument.use.span = from(first);
  } else if (!use(argument.use, nesting)) {
    return false;
  }
  argument.span = from(first);
  argument.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(begin),
                         tokens.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

bool UseParser::takeCodebook(std::vector<double> &values) {
  advance();
  if (!take(TokenKind::BracketOpen))
    return false;
  do {
    if (!values.empty())
      advance();
    double value = 0;
    if (!takeReal(value))
      return false;
    values.push_back(value);
  } while (is(TokenKind::Comma));
  if (!is(TokenKind::BracketClose))
    return expected("',' or ']'");
  advance();
  return true;
}

bool UseParser::use(ast::Use &use, int nesting) {
  const Token &first = token();
  if (nesting > maxUseDepth) {
    findings.add(DiagId::use_too_deep, {std::to_string(maxUseDepth)}, first.span);
    return false;
  }
  if (!takeUsedName(use.name))
    return false;
  use.parentheses = is(TokenKind::ParenOpen);
  if (use.parentheses && !list([&] { return argument(use.arguments, nesting + 1); }))
    return false;
  use.span = from(first);
  return true;
}

} // namespace rho::dsl
