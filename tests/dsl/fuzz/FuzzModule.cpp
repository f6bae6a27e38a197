// Whatever the bytes: errors in order, or a module that prints and parses back as itself.
#include "dsl/Module.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rho::dsl {
namespace {

void hold(bool condition, const char *what, const std::string &text) {
  if (condition)
    return;
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

bool equal(const Gemm &a, const Gemm &b) {
  return a.name == b.name && a.weight == b.weight && a.activation == b.activation &&
         a.output == b.output && a.schedule == b.schedule;
}

bool equal(const Module &a, const Module &b) {
  if (!(a.formats == b.formats) || a.gemms.size() != b.gemms.size())
    return false;
  for (size_t i = 0; i < a.gemms.size(); ++i)
    if (!equal(a.gemms[i], b.gemms[i]))
      return false;
  return true;
}

void ordered(const Error &error) {
  hold(!error.diagnostics.empty(), "a failure without a diagnostic", "");
  const Diagnostic *last = nullptr;
  for (const Diagnostic &diagnostic : error.diagnostics) {
    bool inOrder = !last || diagnostic.id == DiagId::too_many_errors ||
                   std::pair(last->span.file, last->span.begin) <=
                       std::pair(diagnostic.span.file, diagnostic.span.begin);
    hold(inOrder, "diagnostics out of order", error.str());
    last = &diagnostic;
  }
}

void check(std::string_view text) {
  // A text may import itself and a small library.
  FileReader reader = [&](const std::string &path) -> std::optional<std::string> {
    if (path == "self.rho")
      return std::string(text);
    if (path == "int4.rho")
      return "format int4(G: int = 64) { element: s4  scale: f16 per k[G]  value = element * scale "
             "}";
    return std::nullopt;
  };
  if (Result<std::string> tree = printAst(text, "fuzz.rho"); !tree)
    ordered(tree.error());
  Result<Module> module = parseModule(text, "fuzz.rho", reader);
  if (!module)
    return ordered(module.error());
  std::string printed = print(*module);
  Result<Module> again = parseModule(printed, "again.rho", nullptr);
  hold(again.ok(), "the canonical text does not parse",
       printed + (again ? "" : again.error().str()));
  hold(print(*again) == printed, "the canonical text prints otherwise", printed + print(*again));
  hold(equal(*module, *again), "the canonical text means something else", printed);
}

} // namespace
} // namespace rho::dsl

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  rho::dsl::check(std::string_view(reinterpret_cast<const char *>(data), size));
  return 0;
}
