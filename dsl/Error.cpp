#include "dsl/Error.h"

#include "dsl/Lasting.h"
#include "dsl/Numbers.h"
#include "dsl/Utf8.h"

#include <algorithm>

namespace rho {

namespace {

struct Registered {
  std::string_view name, text;
};

constexpr Registered registered[] = {
#define RHO_DIAG(id, text) {#id, text},
#include "dsl/Diagnostics.def"
#undef RHO_DIAG
};

// Longer lines are shown as a window around the caret: a file of one line of 1 MiB stays readable.
constexpr size_t longestLine = 160;
constexpr size_t contextBefore = 60;

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

// What a user's name holds moves no cursor and ends no text; lines of a compiler's log stay lines.
std::string harmless(std::string_view text) {
  std::string out;
  for (char c : text)
    if (auto byte = static_cast<unsigned char>(c); isControl(c) && c != '\n')
      out += "\\x" + dsl::hexadecimal(byte, 2);
    else
      out += c;
  return out;
}

// Replaces {0}, {1}, ...; every other brace stands for itself.
std::string fill(std::string_view text, const std::vector<std::string> &args) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 2 < text.size() && text[i] == '{' && isDigit(text[i + 1]) && text[i + 2] == '}') {
      size_t index = static_cast<size_t>(text[i + 1] - '0');
      if (index < args.size())
        out += harmless(args[index]);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The source line and the caret line below it. Tabs are repeated in the caret line, so that both
// lines stay aligned whatever a tab's width is.
std::string excerpt(Span span, const SourceMap &sources) {
  auto [line, column] = sources.lineColumn(span.file, span.begin);
  std::string_view text = sources.line(span.file, line);
  size_t at = std::min<size_t>(column - 1, text.size());
  size_t length = span.end > span.begin ? span.end - span.begin : 1;

  size_t begin = 0, end = text.size();
  if (text.size() > longestLine) {
    begin = at > contextBefore ? at - contextBefore : 0;
    end = std::min(text.size(), begin + longestLine);
  }
  std::string shown, carets;
  if (begin > 0) {
    shown = "...";
    carets = "   ";
  }
  for (size_t i = begin; i < end; ++i) {
    shown += isControl(text[i]) ? '?' : text[i];
    if (i < at && !dsl::continuesCharacter(text[i]))
      carets += text[i] == '\t' ? '\t' : ' ';
    else if (i > at && i < at + length && !dsl::continuesCharacter(text[i]))
      carets += '~';
    if (i == at)
      carets += '^';
  }
  if (at >= end)
    carets += '^';
  if (end < text.size())
    shown += "...";
  return shown + "\n" + carets;
}

// `text` behind its place, above its excerpt.
std::string placed(const std::string &text, Span span, const SourceMap &sources) {
  auto [line, column] = sources.lineColumn(span.file, span.begin);
  return sources.name(span.file) + ":" + std::to_string(line) + ":" + std::to_string(column) +
         ": " + text + "\n" + excerpt(span, sources);
}

} // namespace

std::string_view name(DiagId id) { return registered[static_cast<size_t>(id)].name; }
std::string_view text(DiagId id) { return registered[static_cast<size_t>(id)].text; }

const std::vector<DiagId> &allDiagIds() {
  static const auto &ids = dsl::lasting([] {
    std::vector<DiagId> all;
    all.reserve(std::size(registered));
    for (size_t i = 0; i < std::size(registered); ++i)
      all.push_back(static_cast<DiagId>(i));
    return all;
  }());
  return ids;
}

std::string Error::str() const {
  std::string out;
  for (const Diagnostic &diagnostic : diagnostics)
    out += diagnostic.rendered + "\n";
  return out;
}

Diagnostic makeDiagnostic(DiagId id, const std::vector<std::string> &args) {
  Diagnostic diagnostic{id, Span{}, fill(text(id), args), {}, {}};
  diagnostic.rendered = "error: " + diagnostic.message + " [" + std::string(name(id)) + "]";
  return diagnostic;
}

Diagnostic makeDiagnostic(DiagId id, const std::vector<std::string> &args, Span span,
                          const SourceMap &sources) {
  Diagnostic diagnostic = makeDiagnostic(id, args);
  if (span.file >= sources.size() || span.begin > sources.text(span.file).size())
    return diagnostic;
  diagnostic.span = span;
  diagnostic.rendered = placed(diagnostic.rendered, span, sources);
  return diagnostic;
}

std::string renderNote(const std::string &message, Span span, const SourceMap &sources) {
  return placed("note: " + message, span, sources);
}

Error makeError(DiagId id, const std::vector<std::string> &args) {
  return Error{{makeDiagnostic(id, args)}};
}

} // namespace rho
