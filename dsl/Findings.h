// Collects the diagnostics of one module while its phases go on.
#pragma once

#include "dsl/Error.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rho::dsl {

class Findings {
public:
  // A file of nonsense gives this many errors, not one for each of its bytes.
  static constexpr size_t limit = 100;

  explicit Findings(const SourceMap &sources) : sources(sources) {}

  void add(DiagId id, const std::vector<std::string> &args, Span span);
  // Whether further findings are only counted.
  bool full() const { return diagnostics.size() >= limit; }
  bool empty() const { return diagnostics.empty(); }
  // All findings by file and position.
  Error takeSorted();
  // "file.rho:3:12", for messages that name a second place.
  std::string place(Span span) const;

  // While it lives, what is added ends with a note on another place.
  class Context {
  public:
    Context(Findings &findings, std::string note, Span place) : findings(findings) {
      findings.contexts.push_back({std::move(note), place});
    }
    ~Context() { findings.contexts.pop_back(); }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

  private:
    Findings &findings;
  };

private:
  // Two phases of recovery may stumble over the same token, in the same instance.
  bool repeatsLast(DiagId id, Span span) const;
  // Whether a number that is there, or of which an instance was made, was reported itself: an error
  // would be of the value that stands in for it, but for one of syntax.
  bool isOfBadNumber(DiagId id, Span span) const;

  const SourceMap &sources;
  std::vector<Diagnostic::Note> contexts;
  std::vector<Diagnostic> diagnostics;
  bool overflowed = false;
};

// A user's text with what is no UTF-8 ("\xff"), controls ("\x1b") and characters that show nothing
// or turn what is behind them ("\u{202e}") made visible.
std::string visible(std::string_view text);
// The same inside a message: cut at 48 characters.
std::string shown(std::string_view text);

// "did you mean 'scale'" when one name is near, else "known are a, b, c".
std::string hint(std::string_view name, const std::vector<std::string> &known);

// ", did you mean 'scale'" when one name is near, else nothing.
std::string suggestion(std::string_view name, const std::vector<std::string> &known);

// "a, b, c", and the suggestion when one of them is near.
std::string listed(std::string_view name, const std::vector<std::string> &valid);

// "a, b, c".
std::string join(const std::vector<std::string> &names);

// What stands between the separators: one piece more than there are of them.
std::vector<std::string_view> split(std::string_view text, char separator);

} // namespace rho::dsl
