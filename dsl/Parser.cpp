#include "dsl/Parser.h"

#include "dsl/Codebook.h"
#include "dsl/Operators.h"

#include <algorithm>

namespace rho::dsl {

namespace {

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
      else if (word("device"))
        device(file);
      else {
        expected("'import', 'format', 'gemm' or 'device'");
        ++at;
        while (!is(TokenKind::EndOfFile) && !declarationStart())
          ++at;
      }
    }
    return file;
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

  bool takeWord(const char *text) {
    if (!word(text))
      return expected("'" + std::string(text) + "'");
    advance();
    return true;
  }
  bool takeReal(double &number) {
    bool negative = is(TokenKind::Minus);
    if (negative)
      advance();
    if (!is(TokenKind::Integer) && !is(TokenKind::Real))
      return expected("a number");
    const Token &token = advance();
    number = token.kind == TokenKind::Real ? token.real : static_cast<double>(token.integer);
    number = negative ? -number : number;
    return true;
  }

  // --- recovery
  bool declarationStart() const {
    return (word("import") && is(TokenKind::String, 1)) ||
           ((word("format") || word("gemm") || word("device")) && is(TokenKind::Name, 1) &&
            is(TokenKind::BraceOpen, 2));
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
    format.broken = !takeName(format.name, "the name of the format") ||
                    !block([&] { return formatEntry(format); });
    file.declarations.emplace_back(std::move(format));
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
    if (!(word("codebook") ? codebook(component.type)
                           : takeName(component.type, "the type of the component")))
      return false;
    if (word("remap") && is(TokenKind::Integer, 1) && !remap(component.remap.emplace()))
      return false;
    if (word("in") && !entryStart()) {
      advance();
      if (!takeName(component.host.emplace(), "the component whose spare bits these are"))
        return false;
    } else if (word("per") && !extent(component)) {
      return false;
    }
    format.components.push_back(std::move(component));
    return true;
  }

  // `remap CODE to [ENTRY, ...] by SELECTOR`.
  bool remap(ast::Remap &remap) {
    advance();
    if (!takeNumber(remap.code, "the code that is remapped") || !takeWord("to") ||
        !take(TokenKind::BracketOpen))
      return false;
    do {
      if (!remap.entries.empty())
        advance();
      if (!remapEntry(remap.entries.emplace_back()))
        return false;
    } while (is(TokenKind::Comma));
    if (!is(TokenKind::BracketClose))
      return expected("',' or ']'");
    advance();
    return takeWord("by") && takeName(remap.selector, "the component that selects the entry");
  }

  bool remapEntry(ast::Remap::Entry &entry) {
    entry.negated = is(TokenKind::Minus) && is(TokenKind::Name, 1);
    if (entry.negated)
      advance();
    if (!is(TokenKind::Name))
      return takeReal(entry.value);
    return takeName(entry.name.emplace(), "the name of a component");
  }

  // `per k[G]`, `per n[R] k[G]`, `per WORD`.
  bool extent(ast::Component &component) {
    advance();
    ast::Name name;
    std::optional<ast::Number> size;
    if (!axis(name, size))
      return false;
    if (size && (name.text == "n" || name.text == "m") && word("k") &&
        is(TokenKind::BracketOpen, 1)) {
      component.rowAxis = std::move(name);
      component.rows = size;
      if (!axis(name, size))
        return false;
    }
    component.extent = std::move(name);
    component.group = size;
    return true;
  }

  // A word of an extent, with its size in brackets where it has one.
  bool axis(ast::Name &name, std::optional<ast::Number> &size) {
    constexpr const char *expectation = "k[G], n[R] k[G], m[R] k[G], channel, token or tensor";
    size.reset();
    if (entryStart())
      return expected(expectation);
    if (!takeName(name, expectation))
      return false;
    if (!is(TokenKind::BracketOpen))
      return true;
    advance();
    ast::Number number;
    if (!takeNumber(number, "the size of the group") || !take(TokenKind::BracketClose))
      return false;
    size = number;
    return true;
  }

  // `codebook [-1, 0.5, ...]`, kept as its canonical text.
  bool codebook(ast::Name &type) {
    const Token &first = advance();
    if (!take(TokenKind::BracketOpen))
      return false;
    std::vector<double> values;
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
    type = ast::Name{codebookText(values), from(first)};
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
    gemm.broken =
        !takeName(gemm.name, "the name of the gemm") || !block([&] { return gemmEntry(gemm); });
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
        !take(TokenKind::Colon) || !takeName(entry.value, "the name of a format or a type"))
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

  void device(ast::File &file) {
    advance();
    ast::Device device;
    device.broken = !takeName(device.name, "the name of the device") ||
                    !block([&] { return deviceEntry(device); });
    file.declarations.emplace_back(std::move(device));
  }

  bool deviceEntry(ast::Device &device) {
    if (!is(TokenKind::Name) || !is(TokenKind::BraceOpen, 1))
      return deviceValue(device.entries);
    ast::DeviceBlock rates;
    rates.key = ast::Name{std::string(token().text), token().span};
    advance();
    bool good = block([&] { return deviceValue(rates.entries); });
    device.blocks.push_back(std::move(rates));
    return good;
  }

  bool deviceValue(std::vector<ast::DeviceEntry> &entries) {
    ast::DeviceEntry entry;
    if (!takeName(entry.key, "an entry of the device or '}'") || !take(TokenKind::Colon))
      return false;
    const Token &first = token();
    if (entryStart())
      return expected("a number, a word or a string");
    if (is(TokenKind::String) || is(TokenKind::Name)) {
      (is(TokenKind::String) ? entry.string : entry.word) =
          ast::Name{std::string(first.text), first.span};
      advance();
    } else if (is(TokenKind::Integer) || is(TokenKind::Real)) {
      entry.number = is(TokenKind::Real) ? first.real : static_cast<double>(first.integer);
      advance();
      unit(entry);
    } else {
      return expected("a number, a word or a string");
    }
    entry.valueSpan = from(first);
    entries.push_back(std::move(entry));
    return true;
  }

  // What stands between a number and the next entry: GHz, GB/s.
  void unit(ast::DeviceEntry &entry) {
    if (!is(TokenKind::Name) || entryStart())
      return;
    entry.unit = advance().text;
    if (is(TokenKind::Slash) && is(TokenKind::Name, 1)) {
      advance();
      entry.unit += "/" + std::string(advance().text);
    }
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
      return arguments(std::move(node), first, nesting);
    }
    default:
      expected("an expression");
      return nullptr;
    }
  }

  // The arguments of a call and its closing parenthesis.
  ast::ExprPtr arguments(ast::ExprPtr call, const Token &first, int nesting) {
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

  const std::vector<Token> &tokens;
  Findings &findings;
  size_t at = 0;
};

} // namespace

ast::File parse(const std::vector<Token> &tokens, Findings &findings) {
  return Parser(tokens, findings).run();
}

} // namespace rho::dsl
