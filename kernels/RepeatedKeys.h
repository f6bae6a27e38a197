// Keys that stand twice in one JSON object, of which a parser keeps the last value.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>

namespace rho::kernels {

class RepeatedKeys {
public:
  // Is told of all that a parser reads, as its callback is. Whether it is a key that its object has
  // already.
  bool repeats(int depth, nlohmann::json::parse_event_t event, const nlohmann::json &parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start)
      keys[depth + 1].clear();
    return event == Event::key && !keys[depth].insert(parsed.get_ref<const std::string &>()).second;
  }

private:
  std::map<int, std::set<std::string>> keys; // of the last object, by their depth
};

} // namespace rho::kernels
