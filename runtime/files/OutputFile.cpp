#include "runtime/files/OutputFile.h"

#include "runtime/files/SignalsHeld.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace rho::files {

static Error unwritable(const std::string &path, const std::string &reason) {
  return makeError(DiagId::file_not_writable, {path, reason});
}

static std::string folderOf(const std::string &path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// PATH.PID.N.part, of a long name its beginning. Where another process had that number before and
// left it behind, or has it on another machine, it is another N.
static std::string nameBeside(const std::string &path) {
  static std::atomic<int> counter = 0;
  constexpr size_t mostOfName = 200; // of the 255 bytes that a name may have
  return folderOf(path) + "/" +
         std::filesystem::path(path).filename().string().substr(0, mostOfName) + "." +
         std::to_string(getpid()) + "." + std::to_string(counter++) + ".part";
}

// By which a file without a name gets one.
static std::string linkOf(const Descriptor &file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

Error OutputFile::failed(int error) const { return unwritable(path, std::strerror(error)); }

std::FILE *streamTo(const std::string &path) {
  struct stat named = {}, open = {};
  if (stat(path.c_str(), &named) == 0)
    for (std::FILE *stream : {stdout, stderr})
      if (fstat(fileno(stream), &open) == 0 && open.st_dev == named.st_dev &&
          open.st_ino == named.st_ino)
        return stream;
  return nullptr;
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  std::string target = path;
  std::optional<struct stat> before;
  if (struct stat info = {}; stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return unwritable(path, "it is no regular file");
    if (streamTo(path))
      return unwritable(path, "this process prints to it");
    if (access(path.c_str(), W_OK) != 0)
      return unwritable(path, std::strerror(errno));
    std::error_code error;
    target = std::filesystem::canonical(path, error).string();
    if (error)
      return unwritable(path, error.message());
    before = info;
  } else if (lstat(path.c_str(), &info) == 0) {
    return unwritable(path, "it is a symbolic link to nothing");
  }
  constexpr mode_t everyone = 0666;
  Descriptor file(open(folderOf(target).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, everyone));
  bool isNamed = file.get() < 0 || access(linkOf(file).c_str(), F_OK) != 0;
  std::string temporary;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  if (isNamed)
    do
      file = Descriptor(open((temporary = nameBeside(target)).c_str(), flags, everyone));
    while (file.get() < 0 && errno == EEXIST);
  if (file.get() < 0)
    return unwritable(path, std::strerror(errno));
  OutputFile output(target, temporary, std::move(file), isNamed);
  if (!before)
    return output;
  // Who may read a file of several people is said by its group, where its owner cannot stay.
  const int descriptor = output.file.get();
  if (fchown(descriptor, before->st_uid, before->st_gid) != 0)
    std::ignore = fchown(descriptor, static_cast<uid_t>(-1), before->st_gid);
  if (fchmod(descriptor, before->st_mode & 07777) != 0)
    return output.failed(errno);
  return output;
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      file(std::move(other.file)), isNamed(std::exchange(other.isNamed, false)), taken(other.taken),
      end(other.end) {}

OutputFile::~OutputFile() { dropName(); }

void OutputFile::dropName() {
  if (std::exchange(isNamed, false))
    unlink(temporary.c_str());
}

Status OutputFile::append(const void *data, int64_t bytes) {
  if (Status written = writeAt(end, data, bytes); !written)
    return written;
  end += bytes;
  return Done{};
}

Status OutputFile::writeAt(int64_t offset, const void *data, int64_t bytes) {
  const auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(file.get(), from, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return failed(written < 0 ? errno : EIO);
    from += written;
    offset += written;
    bytes -= written;
  }
  return Done{};
}

Status OutputFile::sync() const { return fsync(file.get()) == 0 ? Status(Done{}) : failed(errno); }

int OutputFile::takeName() {
  while (!isNamed) {
    temporary = nameBeside(path);
    isNamed =
        linkat(AT_FDCWD, linkOf(file).c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (!isNamed && errno != EEXIST)
      return errno;
  }
  return 0;
}

static bool swapNames(const std::string &a, const std::string &b) {
  return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

// Behind the last nothing fails: then what was there is not needed.
int OutputFile::takePlace(bool isLast) {
  struct stat there = {};
  const bool isFree = lstat(path.c_str(), &there) != 0;
  if (!isFree && S_ISDIR(there.st_mode))
    return EISDIR;
  if (!isFree && !isLast) {
    if (swapNames(temporary, path)) {
      taken = Taken::Exchanged;
      return 0;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      return errno;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return errno;
  isNamed = false;
  taken = isFree ? Taken::Free : Taken::WrittenOver;
  return 0;
}

bool OutputFile::leavePlace() {
  if (taken == Taken::Free)
    return unlink(path.c_str()) == 0;
  if (taken == Taken::Exchanged && !swapNames(temporary, path))
    isNamed = false; // of what was there, which stays
  return taken == Taken::No || isNamed;
}

Status OutputFile::commit() { return commitAll({this}); }

Status commitAll(const std::vector<OutputFile *> &files) {
  for (const OutputFile *each : files)
    if (Status synced = each->sync(); !synced)
      return synced;
  const SignalsHeld held;
  const OutputFile *failing = nullptr;
  int error = 0;
  auto forEach = [&](const auto &step) {
    for (size_t i = 0; i < files.size() && error == 0; ++i) {
      error = step(*files[i]);
      failing = files[i];
    }
  };
  forEach([](OutputFile &each) { return each.takeName(); });
  forEach([&](OutputFile &each) { return each.takePlace(&each == files.back()); });
  std::string replaced;
  std::set<std::string> folders;
  for (OutputFile *each : files) {
    if (error != 0 && !each->leavePlace())
      replaced += "; '" + each->path + "' is replaced already";
    each->dropName();
    folders.insert(folderOf(each->path));
  }
  for (const std::string &folder : folders)
    syncFolder(folder);
  if (error == 0)
    return Done{};
  return unwritable(failing->path, std::strerror(error) + replaced);
}

bool isReplaceable(const std::string &path) {
  std::error_code unknown;
  const std::string target = std::filesystem::canonical(path, unknown).string();
  struct statx info = {};
  return access(folderOf(target).c_str(), W_OK | X_OK) == 0 &&
         (statx(AT_FDCWD, target.c_str(), 0, STATX_TYPE, &info) != 0 ||
          (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0);
}

} // namespace rho::files
