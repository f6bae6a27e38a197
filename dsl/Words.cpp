#include "dsl/Words.h"

#include "dsl/Format.h"

namespace rho::dsl {

namespace {

constexpr Word wordTable[] = {
#define RHO_WORD(place, text, meaning) {WordPlace::place, text, meaning},
#include "dsl/Words.def"
#undef RHO_WORD
};

template <class Choice> std::vector<std::string> wordsOf() {
  std::vector<std::string> words;
  for (const auto &[choice, word] : ScheduleWords<Choice>::all)
    words.emplace_back(word);
  return words;
}

} // namespace

std::span<const Word> allWords() { return wordTable; }

std::vector<std::string> scheduleWords(std::string_view entry) {
  struct Entry {
    std::string_view name;
    std::vector<std::string> (*words)();
  };
  static constexpr Entry entries[] = {
      {"scales", wordsOf<ScheduleDecl::Scales>},
      {"sums", wordsOf<ScheduleDecl::Sums>},
      {"roles", wordsOf<ScheduleDecl::Roles>},
      {"balance", wordsOf<ScheduleDecl::Balance>},
      {"packing", wordsOf<ScheduleDecl::Packing>},
      {"tables", wordsOf<ScheduleDecl::Tables>},
      {"split_k", [] { return std::vector<std::string>{"stream"}; }},
      {"launch", [] { return std::vector<std::string>{"serial", "dependent"}; }},
  };
  for (const Entry &one : entries)
    if (one.name == entry)
      return one.words();
  return {};
}

} // namespace rho::dsl
