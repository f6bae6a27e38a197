// One cache entry as a folder of files: writing it durably, reading it with checks.
#pragma once

#include "runtime/cache/Manifest.h"

#include <optional>
#include <string>

namespace rho::cache {

// Writes the files and the manifest into `folder` (which exists) and syncs all of them. False:
// errno tells why.
bool writeEntry(const std::string &folder, const std::string &key, const Entry &entry);

struct ReadEntry {
  std::optional<Entry> entry; // set when all is well
  // There is no such entry, it was removed while it was read, or the system gives no access just
  // now: too many open files, no permission, a server that does not answer.
  bool missing = false;
  std::string noAccess; // of the last, why; empty: there is no such entry
  std::string damage;   // else why it is damaged
};
ReadEntry readEntry(const std::string &folder, const std::string &key);

} // namespace rho::cache
