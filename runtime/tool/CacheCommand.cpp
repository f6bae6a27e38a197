// rho cache list, verify, clear, export, import: the folders of compiled kernels and tuned plans.
#include "dsl/Findings.h"
#include "runtime/CacheEntries.h"
#include "runtime/cache/Bundle.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/Report.h"
#include "runtime/tool/Table.h"
#include "runtime/tool/Tool.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <set>

namespace rho::tool {

namespace {

// One of the two folders.
struct Part {
  const char *name; // also in bundles
  cache::DiskCache disk;
  const std::string &folder() const { return disk.options().directory; }
};

struct Parts {
  explicit Parts(const CacheFolders &folders)
      : kernels{"kernels", cache::DiskCache(folders.kernels)},
        tuned{"tuned", cache::DiskCache(folders.tuned)} {}
  Part kernels, tuned;
  std::array<Part *, 2> all() { return {&kernels, &tuned}; }
  Part *find(std::string_view name) {
    for (Part *part : all())
      if (part->name == name)
        return part;
    return nullptr;
  }
};

Result<std::unique_ptr<Parts>> openParts(const Options &options) {
  Result<CacheFolders> folders = openCacheFolders(options);
  if (!folders)
    return folders.error();
  return std::make_unique<Parts>(*folders);
}

// Of a command that works on the folders and on nothing else.
Result<std::unique_ptr<Parts>> openPartsAlone(const Options &options) {
  if (!options.files().empty())
    return makeError(DiagId::option_conflict,
                     {dsl::shown(options.files()[0]), "rho " + std::string(options.commandName()),
                      "it works on the cache folder, which --cache-dir names"});
  return openParts(options);
}

// Of a command that brings entries to a file or from it.
struct FileAndParts {
  std::string file;
  std::unique_ptr<Parts> parts;
};
Result<FileAndParts> openFileAndParts(const Options &options) {
  Result<std::string> file = options.onlyFile();
  if (!file)
    return file.error();
  Result<std::unique_ptr<Parts>> parts = openParts(options);
  if (!parts)
    return parts.error();
  return FileAndParts{std::move(*file), std::move(*parts)};
}

// What is wrong with an entry; or why the system does not let it be read now, which tells nothing
// of it. None of both also for one that is gone by now.
struct Condition {
  std::string damage, noAccess;
};
Condition conditionOf(const Part &part, const std::string &key) {
  cache::ReadEntry read = part.disk.inspect(key);
  if (read.entry)
    return {contentDamage(*read.entry), ""};
  return read.missing ? Condition{"", read.noAccess} : Condition{read.damage, ""};
}

std::string timeText(std::filesystem::file_time_type time) {
  if (time == std::filesystem::file_time_type::min())
    return "not known";
  auto seconds =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time));
  std::time_t value = std::chrono::system_clock::to_time_t(seconds);
  std::tm parts = {};
  gmtime_r(&value, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

} // namespace

Result<CacheFolders> openCacheFolders(const Options &options) {
  Result<EngineOptions> chosen = engineOptions(options);
  if (!chosen)
    return chosen.error();
  Result<CacheFolders> folders = cacheFolders(*chosen);
  if (!folders)
    return folders;
  if (folders->kernels.directory.empty())
    return makeError(DiagId::no_cache_folder);
  for (const std::string &folder : {folders->kernels.directory, folders->tuned.directory}) {
    std::error_code error;
    std::filesystem::directory_iterator readable(folder, error);
    if (error && error != std::errc::no_such_file_or_directory)
      return makeError(DiagId::file_not_readable, {folder, error.message()});
  }
  return folders;
}

Result<int> cacheListCommand(const Options &options) {
  Result<std::unique_ptr<Parts>> parts = openPartsAlone(options);
  if (!parts)
    return parts.error();
  std::vector<std::vector<std::string>> rows = {
      {"kind", "name", "problem", "target", "device", "made by", "size", "last use (UTC)", "key"}};
  for (Part *part : (*parts)->all()) {
    std::vector<cache::StoredEntry> entries = part->disk.entries();
    std::reverse(entries.begin(), entries.end());
    for (const cache::StoredEntry &stored : entries) {
      cache::ReadEntry read = part->disk.inspect(stored.key);
      if (read.missing && read.noAccess.empty()) // by now
        continue;
      EntryLabel label = read.entry ? labelOf(*read.entry) : EntryLabel{};
      const std::string kind = read.entry     ? std::string(name(label.kind))
                               : read.missing ? "no access"
                                              : "damaged";
      rows.push_back({kind, label.name, label.problem, label.target, label.device,
                      !read.entry               ? "-"
                      : label.servesThisBuild() ? "this build"
                                                : "another build",
                      byteCount(stored.bytes), timeText(stored.used), stored.key.substr(0, 16)});
    }
    printLine(part->name, part->folder() + ": " + std::to_string(entries.size()) + " of " +
                              byteCount(cache::bytesOf(entries)) + ", at most " +
                              byteCount(part->disk.options().limitBytes));
  }
  for (std::vector<std::string> &row : rows)
    for (std::string &cell : row)
      cell = cell.empty() ? "-" : dsl::visible(cell);
  if (rows.size() > 1)
    std::fputs(table(rows).c_str(), stdout);
  return success;
}

Result<int> cacheVerifyCommand(const Options &options) {
  Result<std::unique_ptr<Parts>> parts = openPartsAlone(options);
  if (!parts)
    return parts.error();
  bool allSound = true;
  for (Part *part : (*parts)->all()) {
    size_t sound = 0;
    for (const cache::StoredEntry &stored : part->disk.entries()) {
      const auto [damage, noAccess] = conditionOf(*part, stored.key);
      if (damage.empty() && noAccess.empty()) {
        ++sound;
        continue;
      }
      allSound = false;
      printLine(damage.empty() ? "no access" : "damaged",
                part->folder() + "/" + stored.key + ": " + damage + noAccess);
    }
    printLine(part->name, std::to_string(sound) + " sound");
  }
  return allSound ? success : failure;
}

Result<int> cacheClearCommand(const Options &options) {
  bool onlyDamaged = options.has("--damaged");
  if (onlyDamaged && options.has("--tuned"))
    return makeError(DiagId::option_conflict,
                     {"--damaged", "--tuned", "what is damaged goes from both folders"});
  Result<std::unique_ptr<Parts>> parts = openPartsAlone(options);
  if (!parts)
    return parts.error();
  Error left;
  for (Part *part : (*parts)->all()) {
    std::vector<cache::StoredEntry> entries = part->disk.entries();
    bool measured = part == &(*parts)->tuned;
    if (measured && !onlyDamaged && !options.has("--tuned")) {
      if (!entries.empty())
        printLine(part->name, std::to_string(entries.size()) + " kept, --tuned removes them too");
      continue;
    }
    size_t removed = 0, stuck = 0, unread = 0;
    int64_t bytes = 0;
    for (const cache::StoredEntry &stored : entries) {
      const Condition found =
          onlyDamaged ? conditionOf(*part, stored.key) : Condition{"", stored.noAccess};
      unread += found.noAccess.empty() ? 0 : 1;
      if (!found.noAccess.empty() || (onlyDamaged && found.damage.empty()))
        continue;
      if (!part->disk.remove(stored.key)) {
        ++stuck;
        continue;
      }
      ++removed;
      bytes += stored.bytes;
    }
    part->disk.removeLeftovers();
    printLine(part->name,
              std::to_string(removed) + " removed, " + byteCount(bytes) +
                  (unread > 0 ? ", " + std::to_string(unread) + " without access kept" : ""));
    if (stuck > 0)
      left.diagnostics.push_back(
          makeDiagnostic(DiagId::cache_not_cleared, {part->folder(), std::to_string(stuck)}));
  }
  if (!left.diagnostics.empty())
    return left;
  return success;
}

// The least recently used first: importing in this order keeps it.
Result<int> cacheExportCommand(const Options &options) {
  Result<FileAndParts> opened = openFileAndParts(options);
  if (!opened)
    return opened.error();
  const auto &[file, parts] = *opened;
  const std::filesystem::path folder = resolved(file).parent_path();
  auto isPart = [all = parts->all()](const std::filesystem::path &path) {
    return std::any_of(all.begin(), all.end(), [&](const Part *part) {
      std::error_code missing;
      return std::filesystem::equivalent(path, part->folder(), missing);
    });
  };
  const bool isInside = isPart(folder.parent_path()) && !isPart(folder);
  const bool isNamedAsOne =
      isPart(folder) && (cache::DiskCache::isOwnName(resolved(file).filename().string()) ||
                         resolved(file) == resolved(parts->tuned.folder()));
  if (isInside || isNamedAsOne)
    return makeError(DiagId::option_conflict,
                     {dsl::shown(file), "the cache",
                      isInside ? "it would lie in one of its own folders"
                               : "it would have a name of one of its own"});
  Result<cache::BundleWriter> bundle = cache::BundleWriter::create(file, generatorName());
  if (!bundle)
    return bundle.error();
  for (Part *part : parts->all()) {
    size_t written = 0, left = 0;
    int64_t bytes = 0;
    for (const cache::StoredEntry &stored : part->disk.entries()) {
      cache::ReadEntry read = part->disk.inspect(stored.key);
      if (!read.entry || !contentDamage(*read.entry).empty() ||
          !labelOf(*read.entry).servesThisBuild()) {
        ++left;
        continue;
      }
      if (Status added = bundle->add({part->name, stored.key, std::move(*read.entry)}); !added)
        return added.error();
      ++written;
      bytes += stored.bytes;
    }
    printLine(part->name,
              std::to_string(written) + " exported, " + byteCount(bytes) +
                  (left > 0 ? ", " + std::to_string(left) +
                                  " damaged, without access or of another build left out"
                            : ""));
  }
  if (Status finished = bundle->finish(); !finished)
    return finished.error();
  return success;
}

Result<int> cacheImportCommand(const Options &options) {
  Result<FileAndParts> opened = openFileAndParts(options);
  if (!opened)
    return opened.error();
  const auto &[file, parts] = *opened;
  struct Counts {
    size_t imported = 0, there = 0;
    std::set<std::string> keys, others; // others: that stood there before
  };
  std::map<const Part *, Counts> counts;
  for (Part *part : parts->all())
    for (const cache::StoredEntry &stored : part->disk.entries())
      counts[part].others.insert(stored.key);
  cache::Warnings warnings;
  auto damageOfItem = [&](const cache::BundleItem &item) -> std::string {
    if (!parts->find(item.folder))
      return "there is no folder '" + item.folder + "'";
    return contentDamage(item.entry);
  };
  // What was made or measured here stays.
  auto take = [&](const cache::BundleItem &item) -> Status {
    Part *part = parts->find(item.folder);
    Counts &count = counts[part];
    count.keys.insert(item.key);
    count.others.erase(item.key);
    if (part->disk.inspect(item.key).entry)
      ++count.there;
    else if (part->disk.store(item.key, item.entry, warnings))
      ++count.imported;
    return Done{};
  };
  if (Status read = cache::readBundle(file, generatorName(), damageOfItem, take); !read)
    return read.error();
  for (const std::string &warning : warnings)
    printLine("warning", warning);
  bool complete = true;
  for (Part *part : parts->all()) {
    const Counts &count = counts[part];
    size_t lost = 0, evicted = 0;
    for (const std::string &key : count.keys)
      lost += part->disk.inspect(key).entry ? 0 : 1;
    for (const std::string &key : count.others) {
      const cache::ReadEntry read = part->disk.inspect(key);
      evicted += read.missing && read.noAccess.empty() ? 1 : 0;
    }
    complete = complete && lost == 0;
    const bool tooLarge =
        evicted > 0 || (lost > 0 && warnings.empty()); // they say what else is in the way
    printLine(part->name,
              std::to_string(count.imported) + " imported, " + std::to_string(count.there) +
                  " were there" + (lost > 0 ? ", " + std::to_string(lost) + " are not kept" : "") +
                  (evicted > 0 ? ", " + std::to_string(evicted) + " of others removed" : "") +
                  (tooLarge ? ": the limit is " + byteCount(part->disk.options().limitBytes) : ""));
  }
  return complete ? success : failure;
}

} // namespace rho::tool
