// What hovers and completions say of declarations, in Markdown.
#pragma once

#include "dsl/Format.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace rho::tool::lsp {

std::string code(std::string_view text);
std::string fenced(const std::string &text);

std::string describe(dsl::ElementType type);
// The line that declares a component, its share of the bits and how it is encoded.
std::string describe(const dsl::Format &format, size_t component);
// The line of a part of that name; empty where there is none.
std::string describePart(const dsl::Format &format, std::string_view name);
std::string describe(const dsl::Format &format);
std::string describe(const dsl::Gemm &gemm);

} // namespace rho::tool::lsp
