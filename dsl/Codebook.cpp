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

// Slots are filled once, under the mutex, before their index is given to anyone: whoever holds an
// index reads its slot without a lock.
struct Registry {
  std::mutex mutex;
  std::map<std::string, size_t> byText;
  std::array<std::unique_ptr<const Codebook>, ElementType::maxCodebooks> slots;
};

Registry &registry() {
  static Registry *const instance = new Registry; // outlives every static that holds a type
  return *instance;
}

} // namespace

Codebook::Codebook(const std::vector<double> &values)
    : byCode(values), canonical(codebookText(values)),
      bitCount(std::countr_zero(static_cast<uint32_t>(values.size()))) {
  for (uint32_t code = 0; code < values.size(); ++code)
    sorted.push_back({values[code], code});
  std::sort(sorted.begin(), sorted.end(), [](const Entry &a, const Entry &b) {
    if (a.value != b.value)
      return a.value < b.value;
    return a.code % 2 != b.code % 2 ? a.code % 2 == 0 : a.code < b.code;
  });
  sorted.erase(std::unique(sorted.begin(), sorted.end(),
                           [](const Entry &a, const Entry &b) { return a.value == b.value; }),
               sorted.end());
}

uint32_t Codebook::nearest(double value) const {
  auto above = std::lower_bound(sorted.begin(), sorted.end(), value,
                                [](const Entry &entry, double v) { return entry.value < v; });
  if (above == sorted.begin())
    return above->code;
  if (above == sorted.end())
    return sorted.back().code;
  auto below = above - 1;
  double up = above->value - value, down = value - below->value;
  if (up != down)
    return up < down ? above->code : below->code;
  if (above->code % 2 != below->code % 2)
    return above->code % 2 == 0 ? above->code : below->code;
  return std::min(above->code, below->code);
}

std::optional<size_t> internCodebook(const std::vector<double> &values, size_t limit) {
  auto made = std::make_unique<const Codebook>(values);
  Registry &all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto known = all.byText.find(made->text());
  if (known != all.byText.end())
    return known->second;
  size_t index = all.byText.size();
  if (index >= std::min(limit, all.slots.size()))
    return std::nullopt;
  all.byText.emplace(made->text(), index);
  all.slots[index] = std::move(made);
  return index;
}

const Codebook &codebookAt(size_t index) { return *registry().slots[index]; }

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
