#include "tests/house/House.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace rho::house {

namespace {

// In the order in which they may include: a room includes itself and those before it.
constexpr std::array<std::string_view, 5> rooms = {"dsl", "compiler", "runtime", "kernels",
                                                   "examples"};

bool isBelow(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// The room's position in `rooms`, or -1 for files of no room.
int roomOf(std::string_view path) {
  for (size_t i = 0; i < rooms.size(); ++i)
    if (isBelow(path, rooms[i]))
      return static_cast<int>(i);
  return -1;
}

bool isMlir(std::string_view header) {
  for (std::string_view folder : {"mlir", "mlir-c", "llvm", "llvm-c"})
    if (isBelow(header, folder))
      return true;
  return false;
}

bool isCuda(const std::string &header) {
  static const std::regex pattern(
      R"((.*/)?(cuda(_\w+|Typedefs)?|nvrtc|nvml|cublas\w*|cooperative_groups|mma)\.h|(cute|cutlass|cub|thrust)/.*)");
  return std::regex_match(header, pattern);
}

bool isPublic(std::string_view path) {
  if (isBelow(path, "dsl") && path.ends_with(".h") && path.find('/', 4) == path.npos)
    return true;
  constexpr std::array<std::string_view, 16> names = {"compiler/Candidates.h",
                                                      "compiler/Compiler.h",
                                                      "compiler/Devices.h",
                                                      "compiler/ErrorBound.h",
                                                      "compiler/Explain.h",
                                                      "compiler/InputTransform.h",
                                                      "compiler/KernelImage.h",
                                                      "compiler/KvCache.h",
                                                      "compiler/Layout.h",
                                                      "compiler/Plan.h",
                                                      "kernels/WeightFile.h",
                                                      "kernels/WeightFileC.h",
                                                      "runtime/InputTransform.h",
                                                      "runtime/KvCache.h",
                                                      "runtime/Rho.h",
                                                      "runtime/RhoC.h"};
  return std::find(names.begin(), names.end(), path) != names.end();
}

} // namespace

Sources readSources(const std::string &root) {
  namespace fs = std::filesystem;
  static const std::set<std::string> kinds = {".h",   ".c",   ".cpp", ".def",  ".td", ".cu",
                                              ".cuh", ".inc", ".txt", ".mlir", ".rho"};
  Sources sources;
  for (std::string_view room : {"dsl", "compiler", "runtime", "kernels", "examples", "tests"}) {
    if (!fs::exists(fs::path(root) / room))
      continue;
    for (const auto &entry : fs::recursive_directory_iterator(fs::path(root) / room)) {
      if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string()))
        continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      sources.push_back({fs::relative(entry.path(), root).generic_string(), text.str()});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const auto &a, const auto &b) { return a.path < b.path; });
  return sources;
}

std::vector<std::string> includesOf(const SourceFile &file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*["<]([^">]+)[">])");
  std::vector<std::string> includes;
  std::istringstream lines(file.text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern))
      includes.push_back(match[1]);
  }
  return includes;
}

Violations includesAgainstTheDirection(const Sources &sources) {
  Violations violations;
  for (const SourceFile &file : sources) {
    bool isTool = isBelow(file.path, "runtime/tool");
    int from = roomOf(file.path);
    for (const std::string &header : includesOf(file)) {
      std::string what = file.path + " includes " + header;
      if (from >= 0 && !isTool && isBelow(header, "runtime/tool"))
        violations.push_back(what + ": runtime/tool is a leaf");
      else if (from >= 0 && isBelow(header, "tests"))
        violations.push_back(what + ": tests are for tests");
      else if (from >= 0 && !isTool && roomOf(header) > from)
        violations.push_back(what + ": includes go dsl <- compiler <- runtime <- kernels");
    }
  }
  return violations;
}

Violations mlirOutsideTheCompiler(const Sources &sources) {
  Violations violations;
  for (const SourceFile &file : sources) {
    if (isBelow(file.path, "compiler") || isBelow(file.path, "tests/compiler"))
      continue;
    for (const std::string &header : includesOf(file))
      if (isMlir(header))
        violations.push_back(file.path + " includes " + header);
  }
  return violations;
}

Violations cudaHeaders(const Sources &sources) {
  Violations violations;
  for (const SourceFile &file : sources)
    for (const std::string &header : includesOf(file))
      if (isCuda(header))
        violations.push_back(file.path + " includes " + header);
  return violations;
}

Violations foreignHeadersInPublicOnes(const Sources &sources) {
  std::map<std::string, const SourceFile *> files;
  for (const SourceFile &file : sources)
    files[file.path] = &file;

  Violations violations;
  for (const SourceFile &file : sources) {
    if (!isPublic(file.path))
      continue;
    // Each reached file with the way that leads there.
    std::vector<std::pair<const SourceFile *, std::string>> pending = {{&file, file.path}};
    std::set<std::string> seen = {file.path};
    while (!pending.empty()) {
      auto [current, way] = pending.back();
      pending.pop_back();
      for (const std::string &header : includesOf(*current)) {
        if (isMlir(header) || isCuda(header))
          violations.push_back(way + " -> " + header);
        auto next = files.find(header);
        if (next != files.end() && seen.insert(header).second)
          pending.push_back({next->second, way + " -> " + header});
      }
    }
  }
  return violations;
}

Violations includedSources(const Sources &sources) {
  Violations violations;
  for (const SourceFile &file : sources)
    for (const std::string &header : includesOf(file))
      if (header.ends_with(".cpp"))
        violations.push_back(file.path + " includes " + header);
  return violations;
}

Violations unusedUsings(const Sources &sources) {
  static const std::regex comment("//[^\n]*"), word("[A-Za-z_]\\w*"), include("#include[^\n]*");
  static const std::regex declaration(R"((^|\n)using ([\w:]+::\w+(?:, *[\w:]+::\w+)*);)");
  static const std::regex name(R"(::(\w+) *(?=,|$))");
  Violations violations;
  for (const SourceFile &file : sources) {
    if (!file.path.ends_with(".cpp"))
      continue;
    std::string code = std::regex_replace(file.text, comment, "");
    code = std::regex_replace(code, include, "");
    std::map<std::string, int> uses;
    for (std::sregex_iterator it(code.begin(), code.end(), word), end; it != end; ++it)
      ++uses[it->str()];
    for (std::sregex_iterator it(code.begin(), code.end(), declaration), end; it != end; ++it) {
      std::string names = (*it)[2];
      for (std::sregex_iterator each(names.begin(), names.end(), name); each != end; ++each)
        if (uses[(*each)[1]] < 2)
          violations.push_back(file.path + ": nothing uses " + (*each)[1].str());
    }
  }
  return violations;
}

Violations longFiles(const Sources &sources, int limit) {
  Violations violations;
  for (const SourceFile &file : sources) {
    if (file.path.ends_with(".txt")) // what a program printed
      continue;
    auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (lines > limit)
      violations.push_back(file.path + " has " + std::to_string(lines) + " lines, the limit is " +
                           std::to_string(limit));
  }
  return violations;
}

Violations strangersAtTheTop(const std::vector<std::string> &names) {
  static const std::set<std::string> known = {"compiler", "dsl",    "runtime",        "kernels",
                                              "examples", "docs",   "CMakeLists.txt", "README.md",
                                              "tests",    "results"};
  Violations violations;
  for (const std::string &name : names)
    if (!known.contains(name) && !name.starts_with('.') && name != "build" &&
        !name.starts_with("build-"))
      violations.push_back(name);
  return violations;
}

} // namespace rho::house
