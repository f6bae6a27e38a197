// What can be written at a place: decided by the innermost sign that is open there and by the
// clause of the entry that it is in.
#include "runtime/tool/lsp/Language.h"
#include "runtime/tool/lsp/Offers.h"
#include "runtime/tool/lsp/Resolve.h"

#include <algorithm>
#include <optional>
#include <set>

namespace rho::tool::lsp {

namespace {

using dsl::TokenKind;
using dsl::WordPlace;

class Completer {
public:
  Completer(const View &view, size_t offset)
      : view(view), outline(view.outline(0)), offset(offset), offer(view) {
    auto isBefore = [&](const dsl::Token &token) {
      // The name that is being written does not count.
      return token.span.end < offset || (token.span.end == offset && token.kind != TokenKind::Name);
    };
    while (at + 1 < outline.tokens.size() && isBefore(outline.tokens[at]))
      ++at;
    if (at == 0)
      return;
    declaration = outline.declarationOf(at - 1);
    offer.of(declaration);
    open = opens(at - 1) ? at - 1 : outline.around[at - 1];
    block = open;
    while (block != Outline::none && !is(block, TokenKind::BraceOpen))
      block = outline.around[block];
  }

  std::vector<Completion> run() {
    if (const std::optional<size_t> string = stringAround()) {
      if (*string > 0 && outline.tokens[*string - 1].text == "import")
        offer.paths(outline.tokens[*string], offset);
    } else if (!isInComment()) {
      inText();
    }
    return offer.take();
  }

private:
  // --- tokens

  bool is(size_t token, TokenKind kind) const { return outline.tokens[token].kind == kind; }
  bool is(size_t token, std::string_view text) const {
    return token < at && outline.tokens[token].text == text;
  }
  bool opens(size_t token) const {
    return is(token, TokenKind::ParenOpen) || is(token, TokenKind::BracketOpen) ||
           is(token, TokenKind::BraceOpen);
  }
  std::string_view keyword() const { return declaration ? outline.keyword(*declaration) : ""; }
  std::string_view before(size_t tokens = 1) const {
    return at >= tokens ? outline.tokens[at - tokens].text : "";
  }
  bool isBehind(const std::vector<std::string_view> &words) const {
    return std::find(words.begin(), words.end(), before()) != words.end();
  }
  // Of a `]` before the place: what stands before its `[`.
  std::string_view beforeBrackets() const {
    size_t from = at - 1;
    while (from > 0 &&
           (!is(from, TokenKind::BracketOpen) || outline.around[from] != outline.around[at - 1]))
      --from;
    return from > 0 ? outline.tokens[from - 1].text : "";
  }
  bool isInBrackets() const { return open != block && is(open, TokenKind::BracketOpen); }

  bool isInComment() const {
    const size_t end = at > 0 ? outline.tokens[at - 1].span.end : 0;
    const std::string_view gap =
        std::string_view(view.sources()->text(0)).substr(end, offset - end);
    return gap.substr(gap.rfind('\n') + 1).find("//") != std::string_view::npos;
  }

  // The token of the string that the place is in.
  std::optional<size_t> stringAround() const {
    for (size_t index : {at, at == 0 ? at : at - 1}) {
      const dsl::Token &token = outline.tokens[index];
      const bool closed = token.text.size() + 2 == token.span.end - token.span.begin;
      if (token.kind == TokenKind::String && token.span.begin < offset &&
          offset <= token.span.end - closed)
        return index;
    }
    return std::nullopt;
  }

  // --- entries of a block

  // Whether an entry begins with a token of a block, as far as it is written.
  bool isStart(size_t token, size_t end) const {
    if (!is(token, TokenKind::Name))
      return false;
    const bool isLast = token + 1 == end;
    auto next = [&](TokenKind kind) { return !isLast && is(token + 1, kind); };
    if (token > 0 && is(token - 1, "residual"))
      return false; // its name
    return next(TokenKind::Colon) || next(TokenKind::Equal) || next(TokenKind::BraceOpen) ||
           is(token, "require") || (is(token, "partition") && (isLast || is(token + 1, "per"))) ||
           (is(token, "residual") && (isLast || next(TokenKind::Name)));
  }

  // Where the last entry of a block before `end` begins; none: there is no entry yet.
  std::optional<size_t> entryIn(size_t of, size_t end) const {
    for (size_t i = end; i-- > of + 1;)
      if (outline.around[i] == of && isStart(i, end))
        return i;
    return std::nullopt;
  }

  // The first token with such a text in an entry, but inside of parentheses.
  std::optional<size_t> inEntry(size_t entry, std::string_view wanted) const {
    for (size_t i = entry; i < at; ++i)
      if (outline.around[i] == block && is(i, wanted))
        return i;
    return std::nullopt;
  }

  std::optional<size_t> comparison(size_t entry) const {
    const std::optional<size_t> least = inEntry(entry, ">=");
    return least ? least : inEntry(entry, "<=");
  }

  // --- places

  void inText() {
    if (!declaration || !findWord(keyword(), WordPlace::Declaration))
      return offer.words(WordPlace::Declaration);
    if (block == Outline::none)
      return inHead();
    const std::optional<size_t> entry = entryIn(block, at);
    const bool isInner = outline.around[block] != Outline::none;
    if (keyword() == "device")
      inDevice(isInner);
    else if (keyword() == "gemm" && isInner)
      inSchedule(entry);
    else if (keyword() == "gemm")
      inGemm(entry);
    else if (keyword() == "format" && isInner)
      inInnerBlock(entry);
    else if (keyword() == "format")
      inFormat(entry);
  }

  void inHead() {
    if (open != Outline::none)
      return open == declaration->name + 1 ? inParameters() : inArguments();
    if (at == declaration->alias)
      return keyword() == "gemm" ? offer.gemms() : offer.formats();
    const bool isWhole = before() == "}" || is(at - 1, TokenKind::String) ||
                         (declaration->alias != 0 && at > declaration->alias);
    if (isWhole)
      offer.words(WordPlace::Declaration);
  }

  void inParameters() {
    if (before() == ":")
      offer.words(WordPlace::Parameter);
    else if (before() == "=")
      offer.given(before(2), false);
  }

  void inArguments() {
    if (is(open, TokenKind::BracketOpen)) // of a codebook
      return offer.parameters({"int"});
    const Target callee = findCallee(view, open);
    if (callee.kind == Target::Kind::None)
      return;
    const Outline &of = view.outline(callee.file);
    const std::vector<size_t> &parameters = callee.declaration->parameters;
    auto kindOf = [&](size_t parameter) { return of.tokens[parameter + 2].text; };
    if (before() == "=") {
      for (size_t parameter : parameters)
        if (of.tokens[parameter].text == before(2))
          offer.given(kindOf(parameter), true);
      return;
    }
    if (before() == "-")
      return offer.parameters({"int"});
    if (before() != "(" && before() != ",")
      return;
    std::set<std::string_view> named;
    size_t place = 0;
    for (size_t i = open + 1; i < at; ++i)
      if (outline.around[i] == open) {
        place += is(i, TokenKind::Comma);
        if (is(i, TokenKind::Equal))
          named.insert(outline.tokens[i - 1].text);
      }
    if (named.empty() && place < parameters.size())
      offer.given(kindOf(parameters[place]), true);
    for (size_t i = named.empty() ? place : 0; i < parameters.size(); ++i)
      if (!named.contains(of.tokens[parameters[i]].text))
        offer.parameterOf(callee, parameters[i]);
  }

  void inDevice(bool isInner) {
    const std::string_view head = outline.tokens[block - 1].text;
    if (before() == ":" && before(2) == "target" && !isInner)
      offer.targets();
    else if (before() == ":")
      return;
    else if (!isInner)
      offer.words(WordPlace::DeviceEntry);
    else if (head == "tensor" || head == "mma")
      offer.rates();
    else
      offer.words(WordPlace::DeviceRate);
  }

  void inGemm(const std::optional<size_t> &entry) {
    if (open != block)
      return inArguments();
    if (before() != ":")
      return offer.words(WordPlace::GemmEntry);
    if (is(*entry, "output")) {
      offer.plainTypes();
      offer.parameters({"type"});
    } else {
      offer.formats();
    }
  }

  void inSchedule(const std::optional<size_t> &entry) {
    const std::string_view name = entry ? outline.tokens[*entry].text : "";
    const std::vector<std::string> choices = dsl::scheduleWords(name);
    const bool takesNumbers = choices.empty() || name == "split_k";
    const bool takesSeveral = name == "tile" || name == "warps" || name == "cluster";
    if (before() == ":" || (before() == "x" && takesSeveral)) {
      if (before() == ":")
        offer.words(WordPlace::ScheduleValue, choices);
      if (takesNumbers)
        offer.parameters({"int"});
      return;
    }
    if (takesSeveral)
      offer.words(WordPlace::Input, {{"x"}});
    offer.words(WordPlace::ScheduleEntry);
  }

  void inFormat(const std::optional<size_t> &entry) {
    if (!entry || before() == "}")
      return offer.words(WordPlace::Entry);
    if (is(*entry, "value") && is(*entry + 1, "="))
      inValue();
    else if (is(*entry, "require"))
      inRequirement(*entry);
    else if (is(*entry, "residual") && !is(*entry + 1, ":"))
      inResidual(*entry);
    else if (is(*entry, "partition") && !is(*entry + 1, ":"))
      inBlocks();
    else if (is(*entry + 1, ":"))
      inComponent(*entry);
  }

  // Rules or parts.
  void inInnerBlock(const std::optional<size_t> &entry) {
    const std::optional<size_t> head = entryIn(outline.around[block], block);
    const bool ofParts = head && is(*head, "partition");
    if (ofParts && entry && is(*entry + 1, ":"))
      inPart(*entry);
    else if (!ofParts && entry && isOperandNext())
      offer.ruleOperands(outline.tokens[*entry].text, before() == "=");
    else if (!ofParts && open == block)
      offer.components(1);
  }

  // Whether an operand of an expression comes next, and no operator or what is behind it.
  bool isOperandNext() const {
    return !(is(at - 1, TokenKind::Name) && before() != "where" && before() != "require") &&
           !is(at - 1, TokenKind::Integer) && !is(at - 1, TokenKind::Real) &&
           !is(at - 1, TokenKind::ParenClose);
  }

  void inValue() {
    if (isOperandNext())
      offer.valueOperands();
    else if (open == block)
      offer.words(WordPlace::Entry);
  }

  void inRequirement(size_t entry) {
    if (const std::optional<size_t> compared = comparison(entry)) {
      if (at == *compared + 1 || (at == *compared + 2 && before() == "-"))
        offer.parameters({"int"});
      else
        offer.words(WordPlace::Entry);
    } else if (isOperandNext()) {
      offer.valueOperands();
    }
  }

  void inComponent(size_t entry) {
    const bool isElement = declaration->components.empty() || declaration->components[0] == entry;
    if (isInBrackets()) {
      const std::string_view of = outline.tokens[open - 1].text;
      if (isOperandNext())
        offer.parameters({"int"});
      if (of == "to" && isOperandNext())
        offer.components(1);
      return;
    }
    if (before() == ":")
      return offer.types();
    if (before() == "remap")
      return offer.parameters({"int"});
    if (before(2) == "remap")
      return offer.words(WordPlace::Type, {{"to"}});
    if (before() == "]" && beforeBrackets() == "to")
      return offer.words(WordPlace::Type, {{"by"}});
    if (before() == "by")
      return offer.components(1);
    if (before() == "in")
      return offer.components(1, entry);
    if (inEntry(entry, "per"))
      return inExtent();
    if (before() == "to" || before() == "codebook")
      return;
    if (before(2) == ":" || before() == "]")
      offer.words(WordPlace::Type, isElement ? std::vector<std::string>{"remap"}
                                             : std::vector<std::string>{"per", "in"});
    offer.words(WordPlace::Entry);
  }

  void inExtent() {
    if (before() == "per")
      offer.words(WordPlace::Extent);
    else if (before() == "]" && beforeBrackets() != "k")
      offer.words(WordPlace::Extent, {{"k"}});
    else if (before() == "]" || (before(2) == "per" && !isBehind({"k", "n", "m"})))
      offer.words(WordPlace::Entry);
  }

  // `per` and what blocks are of: true when all of that is there.
  bool inBlocks() {
    if (isInBrackets())
      offer.parameters({"int"});
    else if (before() == "per")
      offer.words(WordPlace::Extent, {{"k", "n", "m", "tensor"}});
    else if (before() == "tensor" || (before() == "]" && beforeBrackets() != "k"))
      offer.words(WordPlace::Extent, {{"k"}});
    else if (before() == "partition")
      offer.words(WordPlace::Type, {{"per"}});
    else
      return before() == "]";
    return false;
  }

  void inResidual(size_t entry) {
    const std::optional<size_t> per = inEntry(entry, "per");
    if (at < entry + 3) // its name
      return;
    if (at == entry + 3) {
      offer.formats();
      offer.residualTypes();
    } else if (!per && open != block) {
      inArguments();
    } else if (before() == "/") {
      offer.parameters({"int"});
    } else if (!per) {
      offer.words(WordPlace::Type, {{"per"}});
    } else if (isSelecting(entry)) {
      inSelection(entry);
      if (isSelected(entry))
        offer.words(WordPlace::Entry);
    } else if (inBlocks()) {
      offer.words(WordPlace::Part);
      offer.words(WordPlace::Entry);
    }
  }

  void inPart(size_t entry) {
    const bool isFirst = entryIn(block, entry) == std::nullopt;
    if (before() == ":")
      offer.formats();
    else if (isSelecting(entry))
      inSelection(entry);
    else if (open != block)
      inArguments();
    else if (!isFirst)
      offer.words(WordPlace::Part);
  }

  bool isSelecting(size_t entry) const {
    return inEntry(entry, "where") || inEntry(entry, "budget");
  }
  // Whether another entry may follow.
  bool isSelected(size_t entry) const {
    return before() == "%" ||
           (!inEntry(entry, "budget") && comparison(entry) && open == block && !isOperandNext());
  }

  // Behind `where` or `budget`.
  void inSelection(size_t entry) {
    if (before() == "budget")
      return offer.parameters({"int"});
    if (inEntry(entry, "budget"))
      return;
    if (isOperandNext())
      offer.reductions({"absmax", "min", "max", "bit_floor"});
    else if (isSelected(entry))
      offer.words(WordPlace::Part, {{"budget"}});
  }

  const View &view;
  const Outline &outline;
  size_t offset;
  size_t at = 0; // the first token behind the place, or the name there
  const Declaration *declaration = nullptr;
  size_t open = Outline::none;  // the innermost sign that is open
  size_t block = Outline::none; // the innermost brace of these
  Offers offer;
};

} // namespace

std::vector<Completion> completionsAt(const View &view, size_t offset) {
  if (!view.sources())
    return {};
  return Completer(view, offset).run();
}

} // namespace rho::tool::lsp
