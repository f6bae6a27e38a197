// What Rho keeps in its cache folders: where they are, what an entry is, and its label for people.
#pragma once

#include "compiler/KernelImage.h"
#include "compiler/Plan.h"
#include "runtime/KeptPlans.h"
#include "runtime/Rho.h"
#include "runtime/cache/DiskCache.h"

#include <optional>
#include <string>
#include <string_view>

namespace rho {

// The directory is empty without a disk cache, or where none of $RHO_CACHE_DIR, $XDG_CACHE_HOME and
// $HOME is set. Errors: bad_cache_folder, bad_cache_limit.
struct CacheFolders {
  cache::DiskCacheOptions kernels; // with quantizers and the planner's plans
  cache::DiskCacheOptions tuned;   // plans that measuring chose
};
Result<CacheFolders> cacheFolders(const EngineOptions &options = {});

// Bytes: a whole number of at least 1, alone or with K, M or G for units of 1024.
std::optional<int64_t> parseByteCount(std::string_view text);

// The generator of kernels, and the layout of their entries: what another one made is never found.
std::string generatorName();

enum class EntryKind : uint8_t { Kernel, Quantizer, Plan, TunedPlan, Unknown };
std::string_view name(EntryKind kind);

// What makes entries of a kind: this build's generator; of quantizers their program alone, which
// builds may share.
std::string makerOf(EntryKind kind);

// For people, but the kind, which says what is checked of an entry. Empty where it is not known.
struct EntryLabel {
  EntryKind kind = EntryKind::Unknown;
  std::string name = {};    // of the gemm, of the quantizer's format, or which of a cache
  std::string problem = {}; // "m any, n 4096, k 4096"
  std::string target = {};
  std::string device = {};           // that it was made on; others may share it
  std::string maker = makerOf(kind); // its entries serve no other
  bool servesThisBuild() const { return maker == makerOf(kind); }
};
std::string problemText(const std::string &rows, const compiler::Problem &problem);
void label(cache::Entry &entry, const EntryLabel &label);
EntryLabel labelOf(const cache::Entry &entry);

// The contents of sound files. Each gives the reason why they cannot be used, or "".
cache::Entry kernelEntry(const compiler::KernelImage &image, const std::string &code);
std::string readKernel(const cache::Entry &entry, compiler::KernelImage &image, std::string &code);
cache::Entry planEntry(const compiler::Plan &plan, double microseconds);
std::string readPlan(const cache::Entry &entry, compiler::Plan &plan, double &microseconds);
cache::Entry chosenPlanEntry(const ChosenPlan &chosen);
std::string readChosenPlan(const cache::Entry &entry, ChosenPlan &chosen);
// Of any kind.
std::string contentDamage(const cache::Entry &entry);

} // namespace rho
