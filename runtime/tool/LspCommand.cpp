#include "runtime/tool/Tool.h"
#include "runtime/tool/lsp/Server.h"

#include <csignal>
#include <cstdio>

namespace rho::tool {

Result<int> lspCommand(const Options &options) {
  if (!options.files().empty())
    return makeError(DiagId::bad_option_value,
                     {"FILE", options.files()[0], "'rho lsp' is told of files by the editor"});
  std::signal(SIGPIPE, SIG_IGN); // an editor that goes away ends the server by itself
  return lsp::serve(stdin, stdout);
}

} // namespace rho::tool
