#include "dsl/Findings.h"

#include "dsl/Numbers.h"
#include "dsl/Utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <tuple>

namespace rho::dsl {

bool Findings::repeatsLast(DiagId id, Span span) const {
  if (diagnostics.empty())
    return false;
  const Diagnostic &last = diagnostics.back();
  auto same = [](const Diagnostic::Note &a, const Diagnostic::Note &b) {
    return a.span == b.span && a.message == b.message;
  };
  return last.id == id && last.span.file == span.file && last.span.begin == span.begin &&
         std::equal(last.notes.begin(), last.notes.end(), contexts.rbegin(), contexts.rend(), same);
}

bool Findings::isOfBadNumber(DiagId id, Span span) const {
  if (id == DiagId::unexpected_token)
    return false;
  auto has = [](Span whole, Span part) {
    return whole.file == part.file && whole.begin <= part.begin && part.end <= whole.end;
  };
  return std::ranges::any_of(diagnostics, [&](const Diagnostic &d) {
    return (d.id == DiagId::number_out_of_range || d.id == DiagId::malformed_number) &&
           (has(span, d.span) || std::ranges::any_of(contexts, [&](const Diagnostic::Note &use) {
              return has(use.span, d.span);
            }));
  });
}

void Findings::add(DiagId id, const std::vector<std::string> &args, Span span) {
  if (repeatsLast(id, span) || isOfBadNumber(id, span))
    return;
  if (full()) {
    overflowed = true;
    return;
  }
  Diagnostic &added = diagnostics.emplace_back(makeDiagnostic(id, args, span, sources));
  added.notes.assign(contexts.rbegin(), contexts.rend());
  for (const Diagnostic::Note &note : added.notes)
    added.rendered += "\n" + renderNote(note.message, note.span, sources);
}

Error Findings::takeSorted() {
  auto key = [](const Diagnostic &d) {
    return std::tie(d.span.file, d.span.begin, d.span.end, d.id, d.message, d.rendered);
  };
  std::sort(diagnostics.begin(), diagnostics.end(),
            [&](const Diagnostic &a, const Diagnostic &b) { return key(a) < key(b); });
  if (overflowed)
    diagnostics.push_back(makeDiagnostic(DiagId::too_many_errors, {std::to_string(limit)}));
  return Error{std::move(diagnostics)};
}

std::string Findings::place(Span span) const {
  auto [line, column] = sources.lineColumn(span.file, span.begin);
  return sources.name(span.file) + ":" + std::to_string(line) + ":" + std::to_string(column);
}

namespace {

// Controls, and what has no shape of its own or changes that of its neighbours.
bool isInvisible(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},
                              {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                              {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range &range) { return code >= range.first && code <= range.last; });
}

} // namespace

std::string visible(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character next = firstCharacter(text);
    const size_t bytes = std::max<size_t>(next.bytes, 1);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (next.bytes != 0 && !isInvisible(next.code))
      out += text.substr(0, bytes);
    else if (next.bytes > 1)
      out += "\\u{" + hexadecimal(next.code) + "}";
    else
      out += "\\x" + hexadecimal(byte, 2);
    text.remove_prefix(bytes);
  }
  return out;
}

std::string shown(std::string_view text) {
  constexpr size_t longest = 48;
  if (text.size() <= longest)
    return visible(text);
  size_t end = longest;
  while (end > 0 && continuesCharacter(text[end])) // no character is cut
    --end;
  return visible(text.substr(0, end)) + "...";
}

// Insertions, deletions, substitutions and swaps of neighbours that make `a` of `b`, or a number
// above `limit` where there are more: of the names of a module, few are looked at to their end.
static size_t distance(std::string_view a, std::string_view b, size_t limit) {
  constexpr size_t longest = 64;
  size_t difference = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (difference > limit || a.size() > longest || b.size() > longest)
    return limit + 1;
  using Row = std::array<uint8_t, longest + 1>;
  Row before = {}, above = {}, row = {};
  std::iota(above.begin(), above.end(), uint8_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t least = row[0] = static_cast<uint8_t>(i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      size_t best = std::min({row[j] + 1, above[j + 1] + 1, above[j] + (a[i] != b[j])});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        best = std::min<size_t>(best, before[j - 1] + 1);
      row[j + 1] = static_cast<uint8_t>(best);
      least = std::min(least, best);
    }
    if (least > limit)
      return limit + 1;
    before = above;
    above = row;
  }
  return above[b.size()];
}

// The one name that is nearest, if it is near.
static const std::string *nearest(std::string_view name, const std::vector<std::string> &known) {
  const std::string *found = nullptr;
  size_t best = std::clamp<size_t>(name.size() / 3, 1, 3) + 1;
  for (const std::string &candidate : known) {
    size_t d = distance(name, candidate, best);
    if (d < best)
      found = &candidate;
    else if (d == best)
      found = nullptr; // of several equally near ones none is what was meant
    best = std::min(best, d);
  }
  return found;
}

std::string suggestion(std::string_view name, const std::vector<std::string> &known) {
  const std::string *found = nearest(name, known);
  return found ? ", did you mean '" + *found + "'" : "";
}

std::string listed(std::string_view name, const std::vector<std::string> &valid) {
  return join(valid) + suggestion(name, valid);
}

std::string hint(std::string_view name, const std::vector<std::string> &known) {
  if (known.empty())
    return "none is declared";
  if (const std::string *found = nearest(name, known))
    return "did you mean '" + *found + "'";
  constexpr size_t most = 25; // all types; a module of a thousand formats does not list them all
  std::vector<std::string> first(known.begin(),
                                 known.begin() + static_cast<long>(std::min(known.size(), most)));
  return "known are " + join(first) + (known.size() > most ? ", ..." : "");
}

std::string join(const std::vector<std::string> &names) {
  std::string out;
  for (const std::string &name : names)
    out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos)
      return parts;
    text.remove_prefix(at + 1);
  }
}

} // namespace rho::dsl
