#include "dsl/Parser.h"

#include "dsl/Operators.h"

#include <algorithm>

namespace rho::dsl {

namespace {

// The tokens of a body with its parameters replaced. A name before one of these is a new name or a
// word of the language: it is what it says, whatever the parameters are called.
std::vector<Token> replace(const ast::Declared &declared, const std::vector<Token> &tokens,
                           const Bindings &bindings) {
  auto keeps = [](TokenKind next) {
    return next == TokenKind::Colon || next == TokenKind::Equal || next == TokenKind::BraceOpen ||
           next == TokenKind::BracketOpen;
  };
  std::vector<Token> replaced;
  for (size_t i = declared.bodyBegin; i < declared.bodyEnd; ++i) {
    auto binding =
        tokens[i].kind == TokenKind::Name ? bindings.find(tokens[i].text) : bindings.end();
    if (binding == bindings.end() || keeps(tokens[i + 1].kind)) {
      replaced.push_back(tokens[i]);
      continue;
    }
    for (Token token : binding->second) {
      token.span = tokens[i].span;
      replaced.push_back(token);
    }
  }
  Span end = tokens[declared.bodyEnd - 1].span;
  replaced.push_back(
      Token{.kind = TokenKind::EndOfFile, .span = {end.file, end.end, end.end}, .text = {}});
  return replaced;
}

// Functions return false (or null) after they reported an error; the caller that owns a block then
// skips to the next entry of the block.
class Parser {
public:
  Parser(const std::vector<Token> &tokens, Findings &findings)
      : tokens(tokens), findings(findings) {}

  ast::File run() {
    ast::File file;
    while (!is(TokenKind::EndOfFile)) {
      if (word("import"))
        import(file);
      else if (word("format"))
        format(file);
      else if (word("gemm"))
        gemm(file);
      else {
        expected("'import', 'format' or 'gemm'");
        ++at;
        while (!is(TokenKind::EndOfFile) && !declarationStart())
          ++at;
      }
    }
    return file;
  }

  // The body of a declaration, and nothing behind it.
  template <class Declared> bool whole(Declared &declared) {
    return plainBody(declared) &&
           (is(TokenKind::EndOfFile) || expected("the end of the declaration"));
  }

private:
  // --- tokens
  const Token &token(size_t ahead = 0) const {
    return tokens[std::min(at + ahead, tokens.size() - 1)];
  }
  bool is(TokenKind kind, size_t ahead = 0) const { return token(ahead).kind == kind; }
  bool word(std::string_view text, size_t ahead = 0) const {
    return is(TokenKind::Name, ahead) && token(ahead).text == text;
  }
  const Token &advance() { return is(TokenKind::EndOfFile) ? token() : tokens[at++]; }
  Span from(const Token &first) const {
    return Span{first.span.file, first.span.begin, tokens[at == 0 ? 0 : at - 1].span.end};
  }

  bool expected(const std::string &what) {
    findings.add(DiagId::unexpected_token, {describe(token()), what}, token().span);
    return false;
  }
  bool take(TokenKind kind) {
    if (!is(kind))
      return expected(describe(kind));
    advance();
    return true;
  }
  bool takeName(ast::Name &name, const std::string &what) {
    if (!is(TokenKind::Name))
      return expected(what);
    name = ast::Name{std::string(token().text), token().span};
    advance();
    return true;
  }
  bool takeNumber(ast::Number &number, const std::string &what) {
    if (!is(TokenKind::Integer))
      return expected(what);
    number = ast::Number{token().integer, token().span};
    advance();
    return true;
  }

  // --- recovery
  bool declarationStart() const {
    return (word("import") && is(TokenKind::String, 1)) ||
           ((word("format") || word("gemm")) && is(TokenKind::Name, 1) &&
            (is(TokenKind::BraceOpen, 2) || is(TokenKind::ParenOpen, 2) ||
             is(TokenKind::Equal, 2)));
  }
  bool entryStart() const {
    return is(TokenKind::Name) && (is(TokenKind::Colon, 1) || is(TokenKind::Equal, 1) ||
                                   is(TokenKind::BraceOpen, 1) || word("require"));
  }
  // Skips to the next entry of the block whose entry began at `begin`, over whole { } inside.
  void recover(size_t begin) {
    if (at == begin && !is(TokenKind::BraceOpen))
      advance();
    int depth = 0;
    while (!is(TokenKind::EndOfFile) && !declarationStart()) {
      if (depth == 0 && (is(TokenKind::BraceClose) || entryStart()))
        return;
      depth += is(TokenKind::BraceOpen) - is(TokenKind::BraceClose);
      advance();
    }
  }

  // `{` entries `}`. `entry` parses one entry. False: a syntax error somewhere inside.
  template <class Entry> bool block(Entry entry) {
    if (!take(TokenKind::BraceOpen))
      return false;
    bool good = true;
    while (!is(TokenKind::BraceClose)) {
      if (is(TokenKind::EndOfFile) || declarationStart())
        return expected("'}'");
      size_t begin = at;
      if (!entry()) {
        good = false;
        recover(begin);
      }
    }
    advance();
    return good;
  }

  // --- declarations
  void import(ast::File &file) {
    const Token &first = advance();
    if (!is(TokenKind::String)) {
      expected("the path of a file in quotes");
      return;
    }
    ast::Import import{std::string(advance().text), {}};
    import.span = from(first);
    file.declarations.emplace_back(std::move(import));
  }

  void format(ast::File &file) {
    advance();
    ast::Format format;
    format.broken = !header(format, "the name of the format") || !body(format);
    file.declarations.emplace_back(std::move(format));
  }

  bool header(ast::Declared &declared, const std::string &what) {
    if (!takeName(declared.name, what))
      return false;
    return !is(TokenKind::ParenOpen) || list([&] { return parameter(declared.parameters); });
  }

  // `(` items with commas between them `)`.
  template <class Item> bool list(Item item) {
    advance();
    while (!is(TokenKind::ParenClose)) {
      if (!item())
        return false;
      if (!is(TokenKind::Comma) && !is(TokenKind::ParenClose))
        return expected("',' or ')'");
      if (is(TokenKind::Comma))
        advance();
    }
    advance();
    return true;
  }

  bool parameter(std::vector<ast::Parameter> &parameters) {
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

  bool argument(std::vector<ast::Argument> &arguments, int nesting) {
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

  bool argumentValue(ast::Argument &argument, int nesting) {
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
  bool brackets() {
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

  bool use(ast::Use &use, int nesting = 0) {
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

  bool entryOf(ast::Format &format) { return formatEntry(format); }
  bool entryOf(ast::Gemm &gemm) { return gemmEntry(gemm); }

  template <class Declared> bool body(Declared &declared) {
    return declared.parameters.empty() ? plainBody(declared) : parametricBody(declared);
  }

  // `{` entries `}` or `=` use.
  template <class Declared> bool plainBody(Declared &declared) {
    if (is(TokenKind::BraceOpen))
      return block([&] { return entryOf(declared); });
    if (!is(TokenKind::Equal))
      return expected("'{', '(' or '='");
    advance();
    return use(declared.alias.emplace());
  }

  template <class Declared> bool parametricBody(Declared &declared) {
    declared.bodyBegin = at;
    if (!skipBody())
      return false;
    declared.bodyEnd = at;
    Bindings bindings;
    for (const ast::Parameter &parameter : declared.parameters)
      bindings[parameter.name.text] =
          parameter.fallback ? parameter.fallback->tokens : std::vector<Token>{anyOf(parameter)};
    std::vector<Token> replaced = replace(declared, tokens, bindings);
    return Parser(replaced, findings).whole(declared);
  }

  bool skipBody() {
    if (is(TokenKind::Equal)) {
      advance();
      ast::Use alias;
      return use(alias);
    }
    if (!is(TokenKind::BraceOpen))
      return expected("'{' or '='");
    int depth = 0;
    do {
      depth += is(TokenKind::BraceOpen) - is(TokenKind::BraceClose);
      advance();
    } while (depth > 0 && !is(TokenKind::EndOfFile) && !declarationStart());
    return depth == 0 || expected("'}'");
  }

  static Token anyOf(const ast::Parameter &parameter) {
    bool integer = parameter.kind.text == "int";
    return Token{.kind = integer ? TokenKind::Integer : TokenKind::Name,
                 .span = {},
                 .text = integer ? "128" : "f32",
                 .integer = 128};
  }

  bool formatEntry(ast::Format &format) {
    if (word("require"))
      return require(format);
    if (word("encode") && is(TokenKind::BraceOpen, 1)) {
      advance();
      return block([&] { return rule(format.encode, "the name of a component"); });
    }
    if (word("value") && is(TokenKind::Equal, 1))
      return rule(format.values, "'value'");
    if (is(TokenKind::Name) && !is(TokenKind::Colon, 1)) {
      ++at; // a name alone does not say which entry it was to be
      return expected("':' after the name of a component, or 'value =', 'require' or 'encode {'");
    }
    return component(format);
  }

  bool component(ast::Format &format) {
    ast::Component component;
    if (!takeName(component.name, "a component, 'value', 'require', 'encode' or '}'") ||
        !take(TokenKind::Colon))
      return false;
    if (word("per") || entryStart())
      return expected("the type of the component");
    if (!takeName(component.type, "the type of the component"))
      return false;
    if (word("per")) {
      advance();
      ast::Name extent;
      if (entryStart())
        return expected("k[G], channel, token or tensor");
      if (!takeName(extent, "k[G], channel, token or tensor"))
        return false;
      component.extent = extent;
      if (is(TokenKind::BracketOpen)) {
        advance();
        ast::Number group;
        if (!takeNumber(group, "the size of the group") || !take(TokenKind::BracketClose))
          return false;
        component.group = group;
      }
    }
    format.components.push_back(std::move(component));
    return true;
  }

  bool rule(std::vector<ast::Rule> &rules, const std::string &what) {
    ast::Rule rule;
    if (!takeName(rule.name, what) || !take(TokenKind::Equal))
      return false;
    rule.expr = expression(0, 0);
    if (!rule.expr)
      return false;
    rules.push_back(std::move(rule));
    return true;
  }

  bool require(ast::Format &format) {
    const Token &first = advance();
    ast::Require require;
    require.expr = expression(0, 0);
    if (!require.expr)
      return false;
    if (!is(TokenKind::LessEqual) && !is(TokenKind::GreaterEqual))
      return expected("'<=' or '>='");
    require.atMost = advance().kind == TokenKind::LessEqual;
    bool negative = is(TokenKind::Minus);
    if (negative)
      advance();
    ast::Number bound;
    if (!takeNumber(bound, "an integer, the bound"))
      return false;
    require.bound = negative ? -bound.value : bound.value;
    require.span = from(first);
    format.requirements.push_back(std::move(require));
    return true;
  }

  void gemm(ast::File &file) {
    advance();
    ast::Gemm gemm;
    gemm.broken = !header(gemm, "the name of the gemm") || !body(gemm);
    file.declarations.emplace_back(std::move(gemm));
  }

  bool gemmEntry(ast::Gemm &gemm) {
    if (word("schedule") && is(TokenKind::BraceOpen, 1)) {
      ast::Schedule schedule;
      schedule.span = advance().span;
      bool good = block([&] { return scheduleEntry(schedule); });
      gemm.schedules.push_back(std::move(schedule));
      return good;
    }
    ast::GemmEntry entry;
    if (!takeName(entry.key, "'weight', 'activation', 'output', 'schedule' or '}'") ||
        !take(TokenKind::Colon) || !use(entry.value))
      return false;
    gemm.entries.push_back(std::move(entry));
    return true;
  }

  bool scheduleEntry(ast::Schedule &schedule) {
    ast::ScheduleEntry entry;
    if (!takeName(entry.key, "an entry of the schedule or '}'") || !take(TokenKind::Colon))
      return false;
    if (is(TokenKind::Name)) {
      entry.word = ast::Name{std::string(token().text), token().span};
      advance();
    } else {
      ast::Number number;
      if (!takeNumber(number, "an integer or a word"))
        return false;
      entry.numbers.push_back(number);
      while (word("x")) {
        advance();
        if (!takeNumber(number, "an integer"))
          return false;
        entry.numbers.push_back(number);
      }
    }
    schedule.entries.push_back(std::move(entry));
    return true;
  }

  // --- expressions: precedence climbing. `nesting` counts open parentheses, calls and unary
  // operators, which recurse; a node's depth also counts long chains, on which later phases
  // recurse.
  ast::ExprPtr tooDeep(Span span) {
    findings.add(DiagId::expression_too_deep, {std::to_string(maxExpressionDepth)}, span);
    return nullptr;
  }

  ast::ExprPtr expression(int precedence, int nesting) {
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
      auto node =
          make(ast::Expr::Kind::Binary, {left->span.file, left->span.begin, right->span.end});
      node->op = op->op;
      left = adopt(std::move(node), std::move(left), std::move(right), at);
    }
    return nullptr;
  }

  static ast::ExprPtr make(ast::Expr::Kind kind, Span span) {
    auto node = std::make_unique<ast::Expr>();
    node->kind = kind;
    node->span = span;
    return node;
  }

  // Gives `node` its operands; null where the tree gets too deep.
  ast::ExprPtr adopt(ast::ExprPtr node, ast::ExprPtr first, ast::ExprPtr second, Span at) {
    node->depth = 1 + std::max(first->depth, second ? second->depth : 0);
    node->operands.push_back(std::move(first));
    if (second)
      node->operands.push_back(std::move(second));
    return node->depth > maxExpressionDepth ? tooDeep(at) : std::move(node);
  }

  ast::ExprPtr unary(int nesting) {
    if (!is(TokenKind::Minus))
      return primary(nesting);
    if (nesting > maxExpressionDepth)
      return tooDeep(token().span);
    const Token &first = advance();
    ast::ExprPtr operand = unary(nesting + 1);
    if (!operand)
      return nullptr;
    return adopt(make(ast::Expr::Kind::Negate, from(first)), std::move(operand), nullptr,
                 first.span);
  }

  ast::ExprPtr primary(int nesting) {
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
      ast::ExprPtr argument = expression(0, nesting + 1);
      if (!argument || !take(TokenKind::ParenClose))
        return nullptr;
      node->span = from(first);
      return adopt(std::move(node), std::move(argument), nullptr, first.span);
    }
    default:
      expected("an expression");
      return nullptr;
    }
  }

  const std::vector<Token> &tokens;
  Findings &findings;
  size_t at = 0;
};

} // namespace

template <class Declared>
static Declared instanceOf(const Declared &declared, const std::vector<Token> &tokens,
                           const Bindings &bindings, Findings &findings) {
  Declared instance;
  instance.name = declared.name;
  std::vector<Token> replaced = replace(declared, tokens, bindings);
  instance.broken = !Parser(replaced, findings).whole(instance);
  return instance;
}

ast::Format instantiate(const ast::Format &declared, const std::vector<Token> &tokens,
                        const Bindings &bindings, Findings &findings) {
  return instanceOf(declared, tokens, bindings, findings);
}

ast::Gemm instantiate(const ast::Gemm &declared, const std::vector<Token> &tokens,
                      const Bindings &bindings, Findings &findings) {
  return instanceOf(declared, tokens, bindings, findings);
}

size_t instanceSize(const ast::Declared &declared, const std::vector<Token> &tokens,
                    const Bindings &bindings) {
  size_t size = declared.bodyEnd - declared.bodyBegin;
  for (size_t i = declared.bodyBegin; i < declared.bodyEnd; ++i)
    if (auto binding = bindings.find(tokens[i].text); binding != bindings.end())
      size += binding->second.size();
  return size;
}

ast::File parse(const std::vector<Token> &tokens, Findings &findings) {
  return Parser(tokens, findings).run();
}

} // namespace rho::dsl
