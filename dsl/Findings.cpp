#include "dsl/Findings.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace rho::dsl {

void Findings::add(DiagId id, const std::vector<std::string> &args, Span span) {
  // Two phases of recovery may stumble over the same token.
  if (!diagnostics.empty() && diagnostics.back().id == id &&
      diagnostics.back().span.file == span.file && diagnostics.back().span.begin == span.begin)
    return;
  if (full()) {
    overflowed = true;
    return;
  }
  Diagnostic &added = diagnostics.emplace_back(makeDiagnostic(id, args, span, sources));
  for (auto context = contexts.rbegin(); context != contexts.rend(); ++context)
    added.rendered += "\n" + renderNote(context->first, context->second, sources);
}

Error Findings::takeSorted() {
  auto key = [](const Diagnostic &d) {
    return std::tie(d.span.file, d.span.begin, d.span.end, d.id, d.message);
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

std::string shown(std::string_view text) {
  constexpr size_t longest = 48;
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < std::min(text.size(), longest); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f)
      out += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    else
      out += text[i];
  }
  return text.size() > longest ? out + "..." : out;
}

// Levenshtein distance of two short names.
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string hint(std::string_view name, const std::vector<std::string> &known) {
  if (known.empty())
    return "none is declared";
  const std::string *nearest = nullptr;
  size_t best = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string &candidate : known) {
    size_t d = distance(name, candidate);
    if (d < best)
      nearest = &candidate;
    else if (d == best)
      nearest = nullptr; // of several equally near ones none is what was meant
    best = std::min(best, d);
  }
  if (nearest)
    return "did you mean '" + *nearest + "'";
  constexpr size_t most = 24; // a module of a thousand formats does not list them all
  std::vector<std::string> listed(known.begin(),
                                  known.begin() + static_cast<long>(std::min(known.size(), most)));
  return "known are " + join(listed) + (known.size() > most ? ", ..." : "");
}

std::string join(const std::vector<std::string> &names) {
  std::string out;
  for (const std::string &name : names)
    out += (out.empty() ? "" : ", ") + name;
  return out;
}

} // namespace rho::dsl
