// The rules of the house as functions from source files to violations, so that each rule can be
// shown to fail on files made up for it. Paths are relative to the root, with '/'.
#pragma once

#include <string>
#include <vector>

namespace rho::house {

struct SourceFile {
  std::string path;
  std::string text;
};
using Sources = std::vector<SourceFile>;

// One line for a person: "dsl/A.h includes compiler/B.h: ...".
using Violations = std::vector<std::string>;

// The sources of all rooms below `root`: C++, CUDA C++, TableGen, X-macro tables, and the
// declarations, IR and expected texts of tests.
Sources readSources(const std::string &root);

// The names in #include "..." and #include <...>, in order. Includes in comments do not count.
std::vector<std::string> includesOf(const SourceFile &file);

// dsl <- compiler <- runtime <- kernels <- examples. runtime/tool is a leaf: it may include any
// room and only tests include it. tests may include any.
Violations includesAgainstTheDirection(const Sources &sources);
// mlir/ and llvm/ headers are for compiler/ and its tests.
Violations mlirOutsideTheCompiler(const Sources &sources);
// The driver API and NVRTC are opened at run time through our own declarations.
Violations cudaHeaders(const Sources &sources);
// Public headers: dsl/*.h, the compiler's MLIR-free ones, runtime/Rho.h. Everything that they
// reach is ours or the standard library's.
Violations foreignHeadersInPublicOnes(const Sources &sources);
// Two checks that clang-tidy makes in a main file only, which in a unity build is a generated one.
// No file includes a source.
Violations includedSources(const Sources &sources);
// In sources, names in `using a::b;` at the start of a line that occur nowhere else.
Violations unusedUsings(const Sources &sources);
// No file written by a person exceeds `limit` lines.
Violations longFiles(const Sources &sources, int limit);
// Names at the root beside the agreed ones; dot files and build directories are free.
Violations strangersAtTheTop(const std::vector<std::string> &names);

} // namespace rho::house
