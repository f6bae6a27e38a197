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
    if (is(TokenKind::Minus) && is(TokenKind::Integer, 1))
      advance();
    if (!takeNumber(number, "an integer, a type or a format"))
      return false;
  } else if (!use(argument.use, nesting) || !brackets()) {
    return false;
  }
  argument.span = from(first);
  argument.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(begin),
                         tokens.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

// The numbers of a codebook as an argument, which the declaration reads.
bool UseParser::brackets() {
  if (!is(TokenKind::BracketOpen))
    return true;
  while (!is(TokenKind::BracketClose)) {
    if (is(TokenKind::EndOfFile) || declarationStart())
      return expected("']'");
    advance();
  }
  advance();
  return true;
}

bool UseParser::use(ast::Use &use, int nesting) {
  const Token &first = token();
  if (nesting > maxUseDepth) {
    findings.add(DiagId::use_too_deep, {std::to_string(maxUseDepth)}, first.span);
    return false;
  }
  if (!takeName(use.name, "the name of a format or a type"))
    return false;
  use.parentheses = is(TokenKind::ParenOpen);
  if (use.parentheses && !list([&] { return argument(use.arguments, nesting + 1); }))
    return false;
  use.span = from(first);
  return true;
}

} // namespace rho::dsl
