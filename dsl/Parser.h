// Tokens -> syntax tree. docs/GRAMMAR.md has the grammar.
#pragma once

#include "dsl/Ast.h"
#include "dsl/Lexer.h"

#include <map>
#include <string>
#include <vector>

namespace rho::dsl {

// Operations on the longest way through one expression; every later phase recurses no deeper.
inline constexpr int maxExpressionDepth = 200;

// Instances whose arguments are instances, on the longest way down.
inline constexpr int maxUseDepth = 16;

// What stands for each parameter in the text of an instance.
using Bindings = std::map<std::string, std::vector<Token>, std::less<>>;

// The declaration with its parameters replaced; `tokens` are those of its file. Places of what
// replaces a parameter are those of the parameter in the declaration.
ast::Format instantiate(const ast::Format &declared, const std::vector<Token> &tokens,
                        const Bindings &bindings, Findings &findings);
ast::Gemm instantiate(const ast::Gemm &declared, const std::vector<Token> &tokens,
                      const Bindings &bindings, Findings &findings);

// The number of its tokens.
size_t instanceSize(const ast::Declared &declared, const std::vector<Token> &tokens,
                    const Bindings &bindings);

// Parses a whole file. After an error it goes on at the next entry or declaration.
ast::File parse(const std::vector<Token> &tokens, Findings &findings);

} // namespace rho::dsl
