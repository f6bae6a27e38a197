#include "dsl/Codebook.h"

#include "dsl/ElementType.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>

namespace rho::dsl {

namespace {

constexpr std::string_view head = "codebook [";

// Slots are filled and emptied under the mutex. Whoever has an index, by itself or by a pool, reads
// its slot without a lock.
struct Slot {
  std::unique_ptr<const Codebook> book;
  size_t pools = 0; // that hold it
  bool stays = false;
};
struct Registry {
  std::mutex mutex;
  std::map<std::string, size_t> byText;
  std::array<Slot, ElementType::maxCodebooks> slots;
  std::vector<size_t> freed; // the other empty slots are behind all that were filled
};

Registry &registry() {
  static Registry *const instance = new Registry; // outlives every static that holds a type
  return *instance;
}

thread_local std::set<size_t> *heldByPool = nullptr; // of the scope that this thread is in

} // namespace

CodebookPool::Scope::Scope(CodebookPool &pool) { heldByPool = &pool.held; }
CodebookPool::Scope::~Scope() { heldByPool = nullptr; }

CodebookPool::~CodebookPool() {
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (size_t index : held) {
    Slot &slot = all.slots[index];
    if (--slot.pools > 0 || slot.stays)
      continue;
    all.byText.erase(slot.book->text());
    slot.book.reset();
    all.freed.push_back(index);
  }
}

void keepFirstOfEqual(std::vector<CodedValue> &values) {
  auto same = [](const CodedValue &a, const CodedValue &b) { return a.value == b.value; };
  values.erase(std::unique(values.begin(), values.end(), same), values.end());
}

Codebook::Codebook(const std::vector<double> &values)
    : byCode(values), canonical(codebookText(values)),
      bitCount(std::countr_zero(static_cast<uint32_t>(values.size()))) {
  for (uint32_t code = 0; code < values.size(); ++code)
    sorted.push_back({values[code], code});
  std::sort(sorted.begin(), sorted.end(), precedes);
  keepFirstOfEqual(sorted);
}

uint32_t Codebook::nearest(double value) const {
  auto above = std::lower_bound(sorted.begin(), sorted.end(), value,
                                [](const CodedValue &entry, double v) { return entry.value < v; });
  if (above == sorted.begin())
    return above->code;
  if (above == sorted.end())
    return sorted.back().code;
  return nearerCode(above[-1], *above, value);
}

std::optional<size_t> internCodebook(const std::vector<double> &values, size_t limit) {
  auto made = std::make_unique<const Codebook>(values);
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  size_t index = all.freed.empty() ? all.byText.size() : all.freed.back();
  auto [known, isNew] = all.byText.try_emplace(made->text(), index);
  if (isNew && all.byText.size() > std::min(limit, all.slots.size())) {
    all.byText.erase(known);
    return std::nullopt;
  }
  index = known->second;
  Slot &slot = all.slots[index];
  if (isNew) {
    slot.book = std::move(made);
    if (!all.freed.empty())
      all.freed.pop_back();
  }
  if (!heldByPool)
    slot.stays = true;
  else if (heldByPool->insert(index).second)
    ++slot.pools;
  return index;
}

const Codebook &codebookAt(size_t index) { return *registry().slots[index].book; }

std::string codebookText(const std::vector<double> &values) {
  std::string text(head);
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + printNumber(values[i]);
  return text + "]";
}

bool isCodebookText(std::string_view text) { return text.starts_with(head); }

std::optional<std::vector<double>> parseCodebook(std::string_view text) {
  if (!isCodebookText(text) || !text.ends_with(']'))
    return std::nullopt;
  const char *at = text.data() + head.size(), *end = text.data() + text.size() - 1;
  std::vector<double> values;
  while (true) {
    double value = 0;
    auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || !std::isfinite(value))
      return std::nullopt;
    values.push_back(value);
    if (next == end)
      return values;
    if (end - next < 2 || next[0] != ',' || next[1] != ' ')
      return std::nullopt;
    at = next + 2;
  }
}

} // namespace rho::dsl
