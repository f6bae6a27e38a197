#include "dsl/Fmt.h"

#include "dsl/Findings.h"
#include "dsl/Lexer.h"
#include "dsl/Operators.h"
#include "dsl/Parser.h"
#include "dsl/Utf8.h"

#include <algorithm>
#include <set>

namespace rho::dsl {

namespace {

constexpr size_t lineWidth = 100;
constexpr size_t indentWidth = 2;
constexpr size_t continuationWidth = 4;

struct Comment {
  std::string_view text; // with its slashes, without spaces at its end
  bool ownLine;
  bool blankBefore;
};

// A token with what stands before it.
struct Piece {
  Token token;
  std::string_view text; // as written; empty at the end of the file
  std::vector<Comment> comments;
  bool blankBefore = false; // between the last comment, or the token before, and this token
};

// Columns that a text takes, one for each character.
size_t widthOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continuesCharacter(c); }));
}

std::string_view trimmedEnd(std::string_view text) {
  size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

// Comments in the text between two tokens, which has nothing but them and spaces.
void readGap(std::string_view gap, bool startOfFile, Piece &piece) {
  size_t newlines = startOfFile ? 1 : 0;
  while (!gap.empty()) {
    if (gap[0] != '/') {
      newlines += gap[0] == '\n';
      gap.remove_prefix(1);
      continue;
    }
    size_t length = std::min(gap.find('\n'), gap.size());
    piece.comments.push_back({trimmedEnd(gap.substr(0, length)), newlines > 0, newlines > 1});
    gap.remove_prefix(length);
    newlines = 0;
  }
  piece.blankBefore = newlines > 1;
}

std::vector<Piece> piecesOf(std::string_view text, const std::vector<Token> &tokens) {
  std::vector<Piece> pieces;
  pieces.reserve(tokens.size());
  size_t end = 0;
  for (const Token &token : tokens) {
    Piece piece{.token = token,
                .text = text.substr(token.span.begin, token.span.end - token.span.begin),
                .comments = {}};
    readGap(text.substr(end, token.span.begin - end), end == 0, piece);
    end = token.span.end;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// A line of the result.
struct Line {
  size_t indent = 0;
  std::string text;
  std::string comment; // behind the text, or alone
  bool blankBefore = false;
  bool continues = false; // the entry of the line before
  size_t block = 0;       // lines of one block may be aligned
  // `name: type per extent` and `name = expression`: where the columns end, in bytes of the text.
  char separator = 0;
  size_t first = 0;  // behind `name:`, or behind `name`
  size_t second = 0; // behind the type; 0 where no clause follows
};

class Formatter {
public:
  Formatter(std::vector<Piece> pieces, const ast::File &file)
      : pieces(std::move(pieces)), entries(file.entries.begin(), file.entries.end()),
        prefixes(file.prefixes.begin(), file.prefixes.end()) {}

  std::string run() {
    size_t at = 0;
    while (at + 1 < pieces.size())
      at = segment(at);
    leadingComments(pieces.back(), false);
    alignColumns();
    alignComments();
    std::string out;
    for (const Line &line : lines) {
      out += line.blankBefore ? "\n" : "";
      std::string whole = std::string(line.indent, ' ') + line.text;
      if (!line.comment.empty())
        whole += (line.text.empty() ? "" : " ") + line.comment;
      out += whole + "\n";
    }
    return out;
  }

private:
  bool is(size_t at, std::string_view text) const {
    return at < pieces.size() && pieces[at].text == text;
  }
  bool isName(size_t at) const { return pieces[at].token.kind == TokenKind::Name; }
  bool isPrefix(size_t at) const {
    if (prefixes.contains(pieces[at].token.span.begin))
      return true;
    // Signs of literals are no part of an expression.
    if (pieces[at].text != "-" || at == 0)
      return false;
    std::string_view before = pieces[at - 1].text;
    constexpr std::string_view openers[] = {"(", "[", ",", "=", ":", "<=", ">=", "<", ">"};
    return findOperator(before) ||
           std::find(std::begin(openers), std::end(openers), before) != std::end(openers);
  }

  // The `/` of a number's unit, 4 GB/s: names follow numbers nowhere in expressions.
  bool isUnitSlash(size_t at) const {
    return at >= 2 && pieces[at].text == "/" && isName(at - 1) &&
           (pieces[at - 2].token.kind == TokenKind::Integer ||
            pieces[at - 2].token.kind == TokenKind::Real);
  }

  bool spaceBefore(size_t at) const {
    std::string_view before = pieces[at - 1].text, here = pieces[at].text;
    if (before == "(" || before == "[" || (before == "-" && isPrefix(at - 1)))
      return false;
    if (here == ")" || here == "]" || here == "," || here == ":" || here == "%")
      return false;
    if (isUnitSlash(at) || isUnitSlash(at - 1))
      return false;
    if (here == "(")
      return isPrefix(at) || !isName(at - 1);
    if (here == "[") // k[64], but codebook [0, 1]
      return before != "k" && before != "n" && before != "m";
    return true;
  }

  // Lines too long are broken before these tokens.
  bool mayBreakBefore(size_t at) const {
    if (is(at, "{") || is(at, ",") || is(at, ")") || is(at, "]"))
      return false;
    if (is(at - 1, ":") || is(at - 1, "="))
      return false;
    return is(at - 1, ",") || (findOperator(pieces[at].text) && !isPrefix(at)) ||
           (isName(at) && !beginsClause(at - 1) && !findOperator(pieces[at - 1].text) &&
            spaceBefore(at));
  }

  // Whether what follows belongs to a token, as the name behind `by`. Names follow names in no
  // other place.
  bool beginsClause(size_t at) const {
    return is(at, "per") || is(at, "by") || is(at, "in") || is(at, "where");
  }

  // --- lines

  Line &newLine(size_t indent, bool blankBefore) {
    Line line;
    line.indent = indent;
    line.blankBefore = blankBefore && !lines.empty();
    line.block = blocks.back();
    lines.push_back(std::move(line));
    return lines.back();
  }

  size_t blockIndent() const { return (blocks.size() - 1) * indentWidth; }

  // Writes the comments before a token that begins a line, the first perhaps behind the line
  // before. Gives whether a blank line follows.
  bool leadingComments(const Piece &piece, bool declarationWithBlock) {
    bool blank = endOfDeclaration || declarationWithBlock;
    for (const Comment &comment : piece.comments) {
      if (!comment.ownLine) {
        lines.back().comment = comment.text;
        continue;
      }
      newLine(blockIndent(), (blank || comment.blankBefore) && !startOfBlock).comment =
          comment.text;
      blank = startOfBlock = false;
    }
    endOfDeclaration = false;
    return (blank || piece.blankBefore) && !startOfBlock && piece.text != "}";
  }

  // One entry without its block, `}` and what follows it, or a header up to `{`: from `at` to the
  // result.
  size_t segment(size_t at) {
    size_t end = at + 1;
    while (end + 1 < pieces.size() && !is(end - 1, "{") && !is(end, "}") &&
           !entries.contains(pieces[end].token.span.begin))
      ++end;
    bool opens = is(end - 1, "{"), closes = is(at, "}");
    if (blocks.size() == 1)
      aligned = is(at, "format");
    bool blank = leadingComments(pieces[at], blocks.size() == 1 && opens);
    if (closes && blocks.size() > 1)
      blocks.pop_back();
    if (closes && startOfBlock && pieces[at].comments.empty()) {
      lines.back().text += "}";
      write(at + 1, end);
    } else {
      newLine(blockIndent(), blank).text = pieces[at].text;
      separate(at, end);
      write(at + 1, end);
    }
    startOfBlock = opens;
    if (opens)
      blocks.push_back(++lastBlock);
    endOfDeclaration = closes && blocks.size() == 1;
    return end;
  }

  // Writes tokens behind the last line, and to as many more as their length and comments need.
  void write(size_t begin, size_t end) {
    size_t entry = lines.size() - 1;
    size_t base = lines[entry].indent;
    int depth = 0;
    for (size_t at = begin; at < end; ++at) {
      bool closing = is(at, ")") || is(at, "]");
      depth -= closing;
      bool broken = interiorComments(pieces[at], base, depth);
      size_t column = lines.back().indent + widthOf(lines.back().text);
      if (broken || (mayBreakBefore(at) && column + 1 + chunkWidth(at, end) > lineWidth))
        newLine(base + continuation(depth, closing), false).continues = true;
      else if (spaceBefore(at))
        lines.back().text += ' ';
      lines.back().text += pieces[at].text;
      depth += is(at, "(") || is(at, "[");
    }
    if (lines.size() > entry + 1) // of several lines
      lines[entry].second = 0;
    if (lines[entry].text.size() <= lines[entry].first) // broken behind the name
      lines[entry].separator = 0;
  }

  // Of the tokens up to the next place for a line break.
  size_t chunkWidth(size_t at, size_t end) const {
    size_t width = widthOf(pieces[at].text);
    for (size_t next = at + 1; next < end && pieces[next].comments.empty() && !mayBreakBefore(next);
         ++next)
      width += widthOf(pieces[next].text) + spaceBefore(next);
    return width;
  }

  static size_t continuation(int depth, bool closing) {
    if (depth == 0 && closing)
      return 0;
    return continuationWidth + indentWidth * static_cast<size_t>(std::max(depth - 1, 0));
  }

  // Comments between two tokens of an entry: whether the second begins a line.
  bool interiorComments(const Piece &piece, size_t base, int depth) {
    for (const Comment &comment : piece.comments) {
      if (!comment.ownLine)
        lines.back().comment = comment.text;
      else
        newLine(base + continuation(depth, false), false).comment = comment.text;
    }
    return !piece.comments.empty();
  }

  // Finds the columns of `name: type per extent` and `name = expression`.
  void separate(size_t at, size_t end) {
    if (!aligned || blocks.size() == 1 || end - at < 3 || !isName(at) || is(end - 1, "{"))
      return;
    Line &line = lines.back();
    if (is(at + 1, "=")) {
      line.separator = '=';
      line.first = pieces[at].text.size();
    } else if (is(at + 1, ":")) {
      line.separator = ':';
      line.first = pieces[at].text.size() + 1;
      if (end - at > 3 && (is(at + 3, "per") || is(at + 3, "in")))
        line.second = line.first + 1 + pieces[at + 2].text.size();
    }
  }

  // --- alignment

  void alignColumns() {
    std::vector<Line *> run;
    auto flush = [&] {
      size_t first = 0, second = 0;
      for (const Line *line : run) {
        first = std::max(first, line->first);
        if (line->second)
          second = std::max(second, line->second - line->first);
      }
      bool fits = std::all_of(run.begin(), run.end(), [&](const Line *line) {
        size_t widened =
            first - line->first + (line->second ? second - (line->second - line->first) : 0);
        return line->indent + line->text.size() + widened <= lineWidth;
      });
      if (!fits)
        return run.clear();
      for (Line *line : run) {
        if (line->second)
          line->text.insert(line->second, second - (line->second - line->first), ' ');
        line->text.insert(line->first, first - line->first, ' ');
      }
      run.clear();
    };
    for (Line &line : lines) {
      if (line.continues || (line.text.empty() && !line.blankBefore))
        continue;
      if (run.empty() || line.separator != run.back()->separator ||
          line.block != run.back()->block || line.blankBefore)
        flush();
      if (line.separator)
        run.push_back(&line);
    }
    flush();
  }

  void alignComments() {
    std::vector<Line *> run;
    auto flush = [&] {
      size_t width = 0;
      for (const Line *line : run)
        width = std::max(width, widthOf(line->text));
      for (Line *line : run)
        line->text.append(width - widthOf(line->text), ' ');
      run.clear();
    };
    for (Line &line : lines) {
      bool commented = !line.text.empty() && !line.comment.empty();
      if (!commented || line.blankBefore || (!run.empty() && line.block != run.back()->block))
        flush();
      if (commented)
        run.push_back(&line);
    }
    flush();
  }

  std::vector<Piece> pieces;
  std::set<uint32_t> entries, prefixes;
  std::vector<Line> lines;
  std::vector<size_t> blocks = {0}; // ids of the open blocks, the file's own first
  size_t lastBlock = 0;
  bool startOfBlock = false;     // the last line ends in {
  bool endOfDeclaration = false; // the last line ends a declaration's block
  bool aligned = false;          // the entries of this declaration
};

} // namespace

Status checkSameContent(std::string_view before, std::string_view after, std::string_view name) {
  SourceMap sources;
  Findings ignored(sources);
  std::vector<Piece> pieces[2];
  for (std::string_view text : {before, after})
    sources.add(std::string(name), std::string(text));
  for (uint32_t file : {0U, 1U})
    pieces[file] = piecesOf(sources.text(file), lex(sources, file, ignored));
  auto sameComment = [](const Comment &a, const Comment &b) { return a.text == b.text; };
  auto same = [&](const Piece &a, const Piece &b) {
    return a.text == b.text && std::equal(a.comments.begin(), a.comments.end(), b.comments.begin(),
                                          b.comments.end(), sameComment);
  };
  if (std::equal(pieces[0].begin(), pieces[0].end(), pieces[1].begin(), pieces[1].end(), same))
    return Done{};
  return makeError(DiagId::format_changes_text, {shown(name)});
}

// With a byte order mark and line ends as `before` has them.
static std::string encodedAs(std::string_view before, const std::string &text) {
  std::string out(before.starts_with(byteOrderMark) ? byteOrderMark : "");
  size_t lineEnds = 0, ofTwo = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    lineEnds += before[i] == '\n';
    ofTwo += before[i] == '\n' && i > 0 && before[i - 1] == '\r';
  }
  const bool two = lineEnds > 0 && ofTwo == lineEnds;
  for (char c : text)
    out += c == '\n' && two ? "\r\n" : std::string(1, c);
  return out;
}

Result<std::string> formatText(std::string_view text, std::string_view name) {
  if (text.size() > maxFileBytes)
    return makeError(DiagId::file_too_large, {shown(name), std::to_string(maxFileBytes)});
  SourceMap sources;
  uint32_t file = sources.add(std::string(name), std::string(text));
  Findings findings(sources);
  std::vector<Token> tokens = lex(sources, file, findings);
  ast::File tree = parse(tokens, findings);
  if (!findings.empty())
    return findings.takeSorted();
  std::string result = encodedAs(text, Formatter(piecesOf(sources.text(file), tokens), tree).run());
  if (result.size() > maxFileBytes)
    return makeError(DiagId::file_too_large,
                     {shown(name) + ", formatted,", std::to_string(maxFileBytes)});
  if (Status same = checkSameContent(text, result, name); !same)
    return same.error();
  return result;
}

} // namespace rho::dsl
