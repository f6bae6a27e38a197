#include "dsl/Fmt.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Tool.h"

#include <cstdio>
#include <filesystem>

namespace rho::tool {

namespace {

// Whether the file was, or is now, as it should be.
Result<bool> formatFile(const std::string &path, bool check) {
  std::error_code unknown; // then it is not readable either
  if (!check && path != "-" && std::filesystem::exists(path, unknown) &&
      !std::filesystem::is_regular_file(path, unknown))
    return makeError(DiagId::file_not_writable,
                     {path, "it is no regular file; '-' formats standard input"});
  Result<std::string> text = readText(path);
  if (!text)
    return text.error();
  Result<std::string> formatted = dsl::formatText(*text, path);
  if (!formatted)
    return formatted.error();
  bool same = *formatted == *text;
  if (check) {
    if (!same)
      std::printf("%s\n", path.c_str());
    return same;
  }
  if (same && path != "-")
    return true;
  if (Status written = writeText(path == "-" ? "" : path, *formatted); !written)
    return written.error();
  return true;
}

} // namespace

Result<int> fmtCommand(const Options &options) {
  if (options.files().empty())
    return makeError(DiagId::option_missing, {"FILE.rho", "'rho fmt' needs a file or -"});
  int code = success;
  for (const std::string &path : options.files()) {
    Result<bool> good = formatFile(path, options.has("--check"));
    if (!good)
      std::fputs(good.error().str().c_str(), stderr);
    if (!good || !*good)
      code = failure;
  }
  return code;
}

} // namespace rho::tool
