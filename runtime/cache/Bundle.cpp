#include "runtime/cache/Bundle.h"

#include "dsl/Findings.h"
#include "runtime/ReadNumber.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>

namespace rho::cache {
namespace {

constexpr std::string_view firstLine = "rho-bundle 1\n";
constexpr std::string_view originWord = "origin ";
constexpr std::string_view entryWord = "entry ";
constexpr std::string_view endWord = "end ";
constexpr size_t maxLineBytes = 512;

bool isFolder(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == name.npos;
}

// One pass over a bundle.
class Reader {
public:
  Reader(const std::string &path, std::FILE *file, uint64_t bytes)
      : path(path), file(file), left(bytes) {}

  Status run(const std::string &origin, const std::function<Status(const BundleItem &)> &visit) {
    if (readLine() != firstLine)
      return damaged("it does not begin as one of this version");
    hash.update(line);
    readLine();
    if (!line.starts_with(originWord) || line.back() != '\n')
      return damaged("it is cut short");
    std::string theirs = line.substr(originWord.size(), line.size() - originWord.size() - 1);
    if (theirs != origin)
      return makeError(DiagId::bundle_foreign, {path, dsl::visible(theirs), origin});
    hash.update(line);
    for (uint64_t count = 0;; ++count) {
      readLine();
      if (line.starts_with(endWord))
        return checkEnd(count);
      if (!line.starts_with(entryWord) || line.back() != '\n')
        return damaged("it is cut short after " + std::to_string(count) + " entries");
      hash.update(line);
      Result<BundleItem> item = readItem();
      if (!item)
        return item.error();
      if (Status visited = visit(*item); !visited)
        return visited;
    }
  }

private:
  Error damaged(const std::string &reason) const {
    return makeError(DiagId::bundle_damaged, {path, reason});
  }

  // With its end, which is missing at the end of the file and of long lines.
  const std::string &readLine() {
    line.clear();
    for (int c = 0; line.size() < maxLineBytes && (c = std::getc(file)) != EOF;) {
      line.push_back(static_cast<char>(c));
      if (c == '\n')
        break;
    }
    left -= std::min<uint64_t>(left, line.size());
    return line;
  }

  // None where the file is shorter.
  std::optional<std::string> readBytes(uint64_t count) {
    if (count > left)
      return std::nullopt;
    std::string bytes(count, '\0');
    if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size())
      return std::nullopt;
    left -= count;
    hash.update(bytes);
    return bytes;
  }

  Result<BundleItem> readItem() {
    BundleItem item;
    std::string_view words = std::string_view(line).substr(entryWord.size());
    words.remove_suffix(1);
    size_t first = words.find(' '), second = words.rfind(' ');
    if (first == words.npos || first == second)
      return damaged("an entry has a bad line");
    item.folder = words.substr(0, first);
    item.key = words.substr(first + 1, second - first - 1);
    const auto length = readNumber<uint64_t>(words.substr(second + 1));
    if (!isFolder(item.folder) || !isKey(item.key) || !length || *length > maxManifestBytes)
      return damaged("an entry has a bad line");
    auto damagedEntry = [&](const std::string &reason) {
      return damaged("entry " + item.key + ": " + reason);
    };
    std::optional<std::string> manifest = readBytes(*length);
    if (!manifest)
      return damagedEntry("it is cut short");
    std::vector<ListedFile> files;
    if (std::string reason = parseManifest(*manifest, item.key, files); !reason.empty())
      return damagedEntry(reason);
    for (const ListedFile &listed : files) {
      std::optional<std::string> bytes = readBytes(listed.length);
      if (!bytes)
        return damagedEntry("it is cut short");
      if (std::string reason = damageOf(listed, *bytes); !reason.empty())
        return damagedEntry(reason);
      item.entry.emplace(listed.name, std::move(*bytes));
    }
    return item;
  }

  Status checkEnd(uint64_t count) {
    std::string expected =
        std::string(endWord) + std::to_string(count) + " " + hex(hash.finish()) + "\n";
    if (line != expected)
      return damaged("its end does not fit the rest");
    if (left > 0)
      return damaged("it goes on after its end");
    return Done{};
  }

  const std::string &path;
  std::FILE *file;
  uint64_t left;
  std::string line;
  Sha256 hash;
};

} // namespace

Status BundleWriter::write(std::string_view bytes) {
  hash.update(bytes);
  return file.append(bytes.data(), static_cast<int64_t>(bytes.size()));
}

Result<BundleWriter> BundleWriter::create(const std::string &path, const std::string &origin) {
  Result<files::OutputFile> file = files::OutputFile::create(path);
  if (!file)
    return file.error();
  BundleWriter writer(*std::move(file));
  if (Status begun = writer.write(std::string(firstLine) + std::string(originWord) + origin + "\n");
      !begun)
    return begun.error();
  return writer;
}

Status BundleWriter::add(const BundleItem &item) {
  std::string manifest = printManifest(item.key, item.entry);
  std::string text = std::string(entryWord) + item.folder + " " + item.key + " " +
                     std::to_string(manifest.size()) + "\n" + manifest;
  Status written = write(text);
  for (const auto &[name, bytes] : item.entry)
    if (written)
      written = write(bytes);
  ++count;
  return written;
}

Status BundleWriter::finish() {
  Sha256 before = hash;
  Status written =
      write(std::string(endWord) + std::to_string(count) + " " + hex(before.finish()) + "\n");
  return written ? file.commit() : written;
}

Status readBundle(const std::string &path, const std::string &origin,
                  const std::function<std::string(const BundleItem &)> &check,
                  const std::function<Status(const BundleItem &)> &take) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  files::Stream file(fd < 0 ? nullptr : ::fdopen(fd, "rb"));
  struct stat info = {};
  if (!file || ::fstat(fd, &info) != 0)
    return files::failed(DiagId::file_not_readable, path, errno);
  if (!S_ISREG(info.st_mode))
    return makeError(DiagId::file_not_readable, {path, "it is no regular file"});
  auto bytes = static_cast<uint64_t>(info.st_size);
  Status sound = Reader(path, file.get(), bytes).run(origin, [&](const BundleItem &item) -> Status {
    std::string damage = check(item);
    if (damage.empty())
      return Done{};
    return makeError(DiagId::bundle_damaged, {path, "entry " + item.key + ": " + damage});
  });
  if (!sound)
    return sound;
  if (std::fseek(file.get(), 0, SEEK_SET) != 0)
    return files::failed(DiagId::file_not_readable, path, errno);
  return Reader(path, file.get(), bytes).run(origin, take);
}

} // namespace rho::cache
