// The words of the language, for editors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rho::dsl {

enum class WordPlace : uint8_t {
  Declaration,
  Entry,
  Part,
  Parameter,
  Type,
  Extent,
  Function,
  Input,
  GemmEntry,
  ScheduleEntry,
  ScheduleValue,
  DeviceEntry,
  TensorRate,
  DeviceRate,
};

struct Word {
  WordPlace place;
  std::string_view text;
  std::string_view meaning;
};

// All of Words.def, in its order.
std::span<const Word> allWords();

// The words that an entry of a schedule takes; none where it takes numbers alone.
std::vector<std::string> scheduleWords(std::string_view entry);

} // namespace rho::dsl
