// Errors as values. Every function that can fail on what a user passed in returns a Result.
#pragma once

#include "dsl/Source.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rho {

// One id per user error, listed once in Diagnostics.def.
enum class DiagId {
#define RHO_DIAG(id, text) id,
#include "dsl/Diagnostics.def"
#undef RHO_DIAG
};

// The id as written in Diagnostics.def, e.g. "unknown_name".
std::string_view name(DiagId id);
// The registered text with its {0}, {1}, ... placeholders, unfilled.
std::string_view text(DiagId id);
// All registered ids, in the order of Diagnostics.def.
const std::vector<DiagId> &allDiagIds();

// One finding. `message` is the registered text with its arguments filled in: lower case, no full
// stop, what was found first, then the rule. `rendered` is the complete text for a person:
//   file.rho:3:12: error: ... [id]
//   <source line>
//   <caret line>
// Without a span (span.file == Span::none) it is only "error: ... [id]". Each note follows
// likewise.
struct Diagnostic {
  DiagId id;
  Span span;
  std::string message;
  std::string rendered;
  struct Note {
    std::string message;
    Span span;
  };
  std::vector<Note> notes; // on other places: where what is wrong is used, the nearest first
};

// A failure: at least one diagnostic.
struct Error {
  std::vector<Diagnostic> diagnostics;
  // All rendered texts, one after the other, each ending in a newline.
  std::string str() const;
};

// Builds the diagnostic of `id` with its arguments, without a position in a source text.
Diagnostic makeDiagnostic(DiagId id, const std::vector<std::string> &args);
// The same with a caret into `sources`.
Diagnostic makeDiagnostic(DiagId id, const std::vector<std::string> &args, Span span,
                          const SourceMap &sources);
// "file.rho:9:3: note: ..." with a caret into `sources`, to follow a diagnostic on another place.
std::string renderNote(const std::string &message, Span span, const SourceMap &sources);
// An Error of the one diagnostic `id` without a position.
Error makeError(DiagId id, const std::vector<std::string> &args = {});

// A value or an Error. Whoever asks for the one that it is not gets a std::bad_variant_access.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state.index() == 0; }
  explicit operator bool() const { return ok(); }
  T &value() & { return std::get<0>(state); }
  const T &value() const & { return std::get<0>(state); }
  T &&value() && { return std::get<0>(std::move(state)); }
  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T &&operator*() && { return std::move(*this).value(); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }
  Error &error() { return std::get<1>(state); }
  const Error &error() const { return std::get<1>(state); }

private:
  std::variant<T, Error> state;
};

// The result of something done for its effect.
struct Done {};
using Status = Result<Done>;

} // namespace rho
