#include "dsl/Parser.h"

#include "dsl/Codebook.h"
#include "dsl/ExpressionParser.h"

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
class Parser : ExpressionParser {
public:
  using ExpressionParser::ExpressionParser;

  ast::File run() {
    ast::File file;
    while (!is(TokenKind::EndOfFile)) {
      entries.push_back(token().span.begin);
      if (word("import"))
        import(file);
      else if (word("format"))
        format(file);
      else if (word("gemm"))
        gemm(file);
      else if (word("device"))
        device(file);
      else {
        expectedWord("'import', 'format', 'gemm' or 'device'",
                     {"import", "format", "gemm", "device"});
        ++at;
        while (!is(TokenKind::EndOfFile) && !declarationStart())
          ++at;
      }
    }
    file.entries = std::move(entries);
    file.prefixes = std::move(prefixes);
    return file;
  }

  // The body of a declaration, and nothing behind it.
  template <class Declared> bool whole(Declared &declared) {
    return plainBody(declared) &&
           (is(TokenKind::EndOfFile) || expected("the end of the declaration"));
  }

private:
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
    if (!std::all_of(declared.parameters.begin(), declared.parameters.end(), hasSomeValue))
      return true; // of which nobody can say whether it is right
    Bindings bindings;
    for (const ast::Parameter &parameter : declared.parameters)
      bindings[parameter.name.text] =
          parameter.fallback ? parameter.fallback->tokens : std::vector<Token>{anyOf(parameter)};
    std::vector<Token> replaced = replace(declared, tokens, bindings);
    Parser inner(replaced, findings);
    bool good = inner.whole(declared);
    entries.insert(entries.end(), inner.entries.begin(), inner.entries.end());
    prefixes.insert(prefixes.end(), inner.prefixes.begin(), inner.prefixes.end());
    return good;
  }

  bool skipBody() {
    if (is(TokenKind::Equal)) {
      advance();
      ast::Name name;
      return takeUsedName(name) &&
             (!is(TokenKind::ParenOpen) || skip(TokenKind::ParenOpen, TokenKind::ParenClose));
    }
    if (!is(TokenKind::BraceOpen))
      return expected("'{' or '='");
    return skip(TokenKind::BraceOpen, TokenKind::BraceClose);
  }

  // From an `open` that is here to its `close`.
  bool skip(TokenKind open, TokenKind close) {
    int depth = 0;
    do {
      depth += is(open) - is(close);
      advance();
    } while (depth > 0 && !is(TokenKind::EndOfFile) && !declarationStart());
    return depth == 0 || expected(describe(close));
  }

  static bool hasSomeValue(const ast::Parameter &parameter) {
    return parameter.fallback || parameter.isOfKnownKind();
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
    if (residualStart())
      return residual(format);
    if (partitionStart())
      return partition(format);
    if (word("encode") && is(TokenKind::BraceOpen, 1)) {
      advance();
      return block([&] { return rule(format.encode, "the name of a component"); });
    }
    if (word("value") && is(TokenKind::Equal, 1))
      return rule(format.values, "'value'");
    if (is(TokenKind::Name) && !is(TokenKind::Colon, 1)) {
      std::string near =
          suggestion(token().text, {"value", "require", "encode", "partition", "residual"});
      ++at; // a name alone does not say which entry it was to be
      return expected("':' after the name of a component, or 'value =', 'require' or 'encode {'" +
                      near);
    }
    return component(format);
  }

  bool component(ast::Format &format) {
    ast::Component component;
    if (!takeName(component.name, "a component, 'value', 'require', 'encode' or '}'") ||
        !take(TokenKind::Colon))
      return false;
    component.broken = !componentType(component);
    format.components.push_back(std::move(component));
    return !format.components.back().broken;
  }

  // What stands behind the colon of a component, up to the next entry.
  bool componentType(ast::Component &component) {
    if (word("per") || entryStart())
      return expected("the type of the component");
    if (is(TokenKind::Name) && is(TokenKind::BracketOpen, 1) && !word("codebook"))
      return expected("'codebook' before '['");
    if (!(word("codebook") ? codebook(component.type)
                           : takeName(component.type, "the type of the component")))
      return false;
    if (word("remap") && !entryStart() && !remap(component.remap))
      return false;
    if (word("in") && !entryStart()) {
      advance();
      ast::Name host;
      if (!takeName(host, "the component whose spare bits these are"))
        return false;
      component.host = std::move(host);
    } else if (word("per") && !extent(component)) {
      return false;
    }
    const bool ended = component.host || component.extent;
    return !is(TokenKind::Name) || entryStart() ||
           expectedWord(ended ? "the next entry" : "'per', 'in', 'remap' or the next entry",
                        {"per", "remap", "residual", "partition", "require"});
  }

  // `remap CODE to [ENTRY, ...] by SELECTOR`.
  bool remap(std::optional<ast::Remap> &result) {
    ast::Remap remap;
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
    if (!takeWord("by") || !takeName(remap.selector, "the component that selects the entry"))
      return false;
    result = std::move(remap);
    return true;
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
    if (!takeNumber(number, "the size of the group, an integer or a parameter") ||
        !take(TokenKind::BracketClose))
      return false;
    size = number;
    return true;
  }

  // `codebook [-1, 0.5, ...]`, kept as its canonical text.
  bool codebook(ast::Name &type) {
    const Token &first = token();
    std::vector<double> values;
    if (!takeCodebook(values))
      return false;
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
    const bool negative = takeSigns();
    ast::Number bound;
    if (!takeNumber(bound, "an integer, the bound"))
      return false;
    require.bound = negative ? -bound.value : bound.value;
    require.span = from(first);
    format.requirements.push_back(std::move(require));
    return true;
  }

  // `k[G]`, `n[R] k[G]`, `m[R] k[G]` or `tensor k[G]`.
  bool blocks(ast::Blocks &blocks) {
    const Token &first = token();
    if (!word("k")) {
      if (!takeName(blocks.extent.emplace(), "k[G], n[R] k[G], m[R] k[G] or tensor k[G]"))
        return false;
      if (is(TokenKind::BracketOpen) && !bracketed(blocks.rows.emplace(), "the number of rows"))
        return false;
    }
    if (!takeName(blocks.along, "k[G]") || !bracketed(blocks.k, "the numbers along k"))
      return false;
    blocks.span = from(first);
    return true;
  }

  bool bracketed(ast::Number &number, const std::string &what) {
    return take(TokenKind::BracketOpen) && takeNumber(number, what) &&
           take(TokenKind::BracketClose);
  }

  bool residual(ast::Format &format) {
    ast::Residual residual;
    residual.span = advance().span;
    if (!takeName(residual.part.name, "the name of the residual") || !take(TokenKind::Colon) ||
        !use(residual.part.format))
      return false;
    if (is(TokenKind::Slash)) {
      advance();
      if (!takeNumber(residual.divisor.emplace(), "the divisor of the residual's numbers"))
        return false;
    }
    if (!word("per"))
      return expected("'per', then what is stored together");
    advance();
    if (!blocks(residual.blocks) || !selection(residual.part))
      return false;
    format.residuals.push_back(std::move(residual));
    return true;
  }

  bool partition(ast::Format &format) {
    ast::Partition partition;
    partition.span = advance().span;
    advance();
    if (!blocks(partition.blocks) || !block([&] { return part(partition.parts); }))
      return false;
    format.partitions.push_back(std::move(partition));
    return true;
  }

  bool part(std::vector<ast::Part> &parts) {
    ast::Part part;
    if (!takeName(part.name, "the name of a part or '}'") || !take(TokenKind::Colon) ||
        !use(part.format) || !selection(part))
      return false;
    parts.push_back(std::move(part));
    return true;
  }

  // [ "where" left ( ">=" | "<=" ) right ] [ "budget" number "%" ]
  bool selection(ast::Part &part) {
    if (word("where") && !is(TokenKind::Colon, 1)) {
      part.where = advance().span;
      part.left = expression(0, 0);
      if (!part.left)
        return false;
      if (!is(TokenKind::LessEqual) && !is(TokenKind::GreaterEqual))
        return expected("'<=' or '>='");
      part.atLeast = advance().kind == TokenKind::GreaterEqual;
      part.right = expression(0, 0);
      if (!part.right)
        return false;
    }
    if (is(TokenKind::Colon, 1) || !is(TokenKind::Name) || entryStart())
      return true;
    if (!word("budget"))
      return expectedWord("'where', 'budget' or the next entry", {"where", "budget"});
    advance();
    if (!is(TokenKind::Integer) && !is(TokenKind::Real))
      return expected("a number of percent");
    part.budgetSpan = token().span;
    part.budget = is(TokenKind::Real) ? token().real : static_cast<double>(token().integer);
    advance();
    return take(TokenKind::Percent);
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
    if (is(TokenKind::Name) && is(TokenKind::BraceOpen, 1))
      return expected("'schedule' before '{'");
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
