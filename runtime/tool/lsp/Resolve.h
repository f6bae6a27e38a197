// What a token of a .rho text refers to.
#pragma once

#include "dsl/ElementType.h"
#include "dsl/Words.h"
#include "runtime/tool/lsp/Language.h"

namespace rho::tool::lsp {

struct Target {
  enum class Kind {
    None,
    Declaration, // a format, a gemm, ...
    Component,
    Part, // of a partition, or a residual
    Parameter,
    Type,
    Word,
    File, // of an import
  };
  Kind kind = Kind::None;
  uint32_t file = 0;                        // where it is declared
  const Declaration *declaration = nullptr; // it, or the one that it is in
  size_t token = 0;                         // of its name, in that file
  std::optional<dsl::ElementType> type;
  const dsl::Word *word = nullptr;
};

// The index of the name or string of file 0 at a place, or that ends there.
std::optional<size_t> tokenAt(const Outline &outline, size_t offset);

Target resolve(const View &view, size_t token);

// The word of the language with that text, at that place or any; null where there is none.
const dsl::Word *findWord(std::string_view text, std::optional<dsl::WordPlace> place);

// Where a format or a gemm, as the keyword says, of that name is declared. Gemms belong to their
// own file.
Target findDeclaration(const View &view, std::string_view keyword, std::string_view name);
// What has the arguments that stand behind an open parenthesis of file 0; none of parameters.
Target findCallee(const View &view, size_t open);

// The place in the language that the entries of a block have; none where it has none of its own.
std::optional<dsl::WordPlace> entryPlace(std::string_view keyword, int depth);

} // namespace rho::tool::lsp
