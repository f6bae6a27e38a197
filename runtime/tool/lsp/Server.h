// A language server for .rho files: JSON-RPC 2.0, the Language Server Protocol 3.17.
#pragma once

#include <cstdio>

namespace rho::tool::lsp {

// Serves one editor until it says exit or goes away. Gives the exit code: 0 after shutdown and
// exit, else 1.
int serve(std::FILE *in, std::FILE *out);

} // namespace rho::tool::lsp
