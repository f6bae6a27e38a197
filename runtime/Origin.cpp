#include "runtime/Origin.h"

#include <algorithm>
#include <cctype>

namespace rho {
namespace {

bool known(Span span) { return span.file != Span::none; }

Span spanIn(const dsl::Format &format, Span whole, std::string_view part) {
  if (part == "value" && format.value)
    return format.value->span;
  for (const dsl::Component &component : format.components)
    if (component.name == part && known(component.span)) // a built-in format has no text
      return component.span;
  return whole;
}

bool inName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// Whether `origin` stands in the text as a whole name.
bool mentions(std::string_view text, std::string_view origin) {
  for (size_t at = text.find(origin); at != std::string_view::npos;
       at = text.find(origin, at + 1)) {
    size_t end = at + origin.size();
    if ((at == 0 || !inName(text[at - 1])) && (end == text.size() || !inName(text[end])))
      return true;
  }
  return false;
}

} // namespace

Span spanOfOrigin(const dsl::Gemm &gemm, std::string_view origin) {
  size_t dot = origin.find('.');
  std::string_view head = origin.substr(0, dot);
  std::string_view part = dot == std::string_view::npos ? "" : origin.substr(dot + 1);
  std::string_view inPart = part;
  part = part.substr(0, part.find('.'));
  Span span;
  if (head == "weight") {
    span = spanIn(gemm.weight, gemm.weightSpan, part);
  } else if (head == "activation") {
    span = spanIn(gemm.activation, gemm.activationSpan, part);
    if (gemm.activation.partition) // "low.scale"
      for (const dsl::Part &one : gemm.activation.partition->parts)
        if (one.name == part)
          span = spanIn(*one.format, one.span,
                        inPart.substr(std::min(inPart.size(), part.size() + 1)));
  } else if (head == "output") {
    span = gemm.outputSpan;
  } else if (head == "schedule") {
    span = gemm.schedule.spans.schedule;
  }
  return known(span) ? span : gemm.span;
}

Error withSpans(const Error &error, const std::vector<std::string> &origins, const dsl::Gemm &gemm,
                const SourceMap &sources) {
  Error result = error;
  for (Diagnostic &diagnostic : result.diagnostics) {
    if (known(diagnostic.span))
      continue;
    std::string_view named; // the longest: "weight.scale", not "weight"
    for (const std::string &origin : origins)
      if (origin.size() > named.size() && mentions(diagnostic.message, origin))
        named = origin;
    if (named.empty())
      continue;
    // The same words at another place: the caret of this id's bare text, the words of this message.
    Diagnostic bare = makeDiagnostic(diagnostic.id, {});
    Diagnostic placed = makeDiagnostic(diagnostic.id, {}, spanOfOrigin(gemm, named), sources);
    if (size_t at = placed.rendered.find(bare.rendered); at != std::string::npos) {
      placed.rendered.replace(at, bare.rendered.size(), diagnostic.rendered);
      placed.message = diagnostic.message;
      diagnostic = std::move(placed);
    }
  }
  return result;
}

} // namespace rho
