#include "compiler/decode/UnitSearch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

namespace rho::compiler {

namespace {

using Piece = Extraction::Piece;

// What an instruction counts where plans are compared: a sum, which what the busiest of issue and
// pipes takes is not, so that each of these is tried. Bitwise operations and shifts to the right
// share a pipe that is busy twice as long; shifts to the left find room in another.
struct Weights {
  int logic, left;
  int of(OpCounts counts, Moves moves) const {
    countMoves(counts, moves);
    return logic * counts.logic + left * counts.shiftLeft + counts.f16 + counts.bf16;
  }
};
constexpr Weights allWeights[] = {{1, 1}, {3, 2}, {2, 1}};

// How places are moved: to which bits, and by what.
struct Way {
  uint32_t used;
  Move move;
};
std::vector<Way> waysOf(uint32_t places, int laneBits) {
  std::vector<Way> ways;
  for (int by = 0; by < laneBits; ++by)
    for (const Move &move : movesFor(places, by, laneBits))
      ways.push_back({rotatedRight(places, by, laneBits), move});
  return ways;
}

// A form as a part of plans: of those with the same places the cheapest.
struct Choice {
  size_t form;
  uint32_t places;
  int cost; // of its arithmetic
};

std::vector<Choice> choicesOf(const std::vector<LaneForm> &forms,
                              const std::vector<OpCounts> &extra, Weights weights) {
  std::map<uint32_t, Choice> byPlaces;
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].weight != 0)
      continue;
    const Choice choice{i, forms[i].places, weights.of(extra[i], 0)};
    auto [entry, isNew] = byPlaces.try_emplace(choice.places, choice);
    if (!isNew && choice.cost < entry->second.cost)
      entry->second = choice;
  }
  std::vector<Choice> choices;
  for (const auto &[places, choice] : byPlaces)
    choices.push_back(choice);
  return choices;
}

// Codes that lie whole in a word, and the bits of its lanes that they leave.
struct Pattern {
  struct Code {
    size_t choice;
    std::vector<Piece> pieces;
  };
  std::vector<Code> codes;
  Moves moves = 0;
  uint32_t spare = 0;
  int cost = 0;
};

class Patterns {
public:
  Patterns(const std::vector<Choice> &choices, Weights weights, int codeBits, int laneBits)
      : choices(choices), weights(weights), count(static_cast<size_t>(laneBits / codeBits)),
        laneBits(laneBits), spareBits(laneBits % codeBits) {}

  // The cheapest for each set of bits that are left, cheapest first: of codes that are moved in one
  // piece, or where no such codes fit beside each other, in up to two.
  std::vector<Pattern> find() {
    for (size_t i = 0; i < choices.size(); ++i)
      offerWhole(i);
    run();
    if (found.empty()) {
      for (size_t i = 0; i < choices.size(); ++i)
        offerDivided(i);
      run();
    }
    std::vector<Pattern> result;
    for (auto &[spare, pattern] : found)
      result.push_back(std::move(pattern));
    std::sort(result.begin(), result.end(), [](const Pattern &a, const Pattern &b) {
      return std::pair(a.cost, a.spare) < std::pair(b.cost, b.spare);
    });
    return result;
  }

private:
  struct User {
    Pattern::Code code;
    uint32_t used;
    Moves moves;
    int cost; // without the moves
  };
  const std::vector<Choice> &choices;
  Weights weights;
  size_t count;
  int laneBits, spareBits;
  std::map<std::pair<uint32_t, Moves>, User> users;         // of those alike the cheapest
  std::array<std::vector<const User *>, wordBits> byLowest; // by the lowest bit that they use
  std::map<uint32_t, Pattern> found;                        // by spare bits
  std::vector<const User *> current;                        // codes, and
  Moves currentMoves = 0;
  uint32_t currentSpare = 0;
  int steps = 0;
  static constexpr int mostSteps = 100'000; // then those so far: a bound on time

  void offer(size_t choice, std::vector<Piece> pieces, uint32_t used) {
    Moves moves = 0;
    for (const Piece &piece : pieces)
      moves |= bitOf(piece.move);
    const int cost =
        choices[choice].cost + weights.of({.logic = static_cast<int>(pieces.size())}, 0);
    const User user{{choice, std::move(pieces)}, used, moves, cost};
    auto [entry, isNew] = users.try_emplace({used, moves}, user);
    if (!isNew && cost < entry->second.cost)
      entry->second = user;
  }

  void offerWhole(size_t choice) {
    const uint32_t places = choices[choice].places;
    for (const Way &way : waysOf(places, laneBits))
      offer(choice, {{places, way.move}}, way.used);
  }

  void offerDivided(size_t choice) {
    for (const TwoParts &parts : consecutiveParts(choices[choice].places))
      forMovedParts(parts, laneBits, [&](std::vector<Piece> pieces, uint32_t used) {
        offer(choice, std::move(pieces), used);
      });
  }

  void run() {
    steps = 0;
    for (auto &list : byLowest)
      list.clear();
    for (const auto &[key, user] : users)
      byLowest[static_cast<size_t>(std::countr_zero(user.used))].push_back(&user);
    auto rank = [&](const User *user) {
      return std::tuple(user->cost + weights.of({}, user->moves), user->used, user->moves);
    };
    for (auto &list : byLowest)
      std::sort(list.begin(), list.end(),
                [&](const User *a, const User *b) { return rank(a) < rank(b); });
    extend(0, 0);
  }

  // `cost` is that without moves.
  void extend(uint32_t used, int cost) {
    if (current.size() == count) {
      const int all = cost + weights.of({}, currentMoves);
      const uint32_t spare = currentSpare | (((1U << laneBits) - 1) & ~used);
      auto [entry, isNew] = found.try_emplace(spare);
      if (!isNew && all >= entry->second.cost)
        return;
      entry->second = {{}, currentMoves, spare, all};
      for (const User *user : current)
        entry->second.codes.push_back(user->code);
      return;
    }
    const int lowest = std::countr_one(used);
    if (lowest >= laneBits)
      return;
    for (const User *user : byLowest[static_cast<size_t>(lowest)]) {
      if ((user->used & used) != 0)
        continue;
      if (++steps > mostSteps)
        return;
      const Moves before = currentMoves;
      currentMoves |= user->moves;
      current.push_back(user);
      extend(used | user->used, cost + user->cost);
      current.pop_back();
      currentMoves = before;
    }
    if (std::popcount(currentSpare) < spareBits) {
      currentSpare |= 1U << lowest;
      extend(used | 1U << lowest, cost);
      currentSpare &= ~(1U << lowest);
    }
  }
};

// A word: its pattern, and what of the spare bits goes to codes in pieces.
struct WordUse {
  size_t pattern = 0;
  std::vector<Piece> pieces;
  int cost = 0;
};

// Divides the spare bits of the words among the codes that lie in pieces, one word and one code
// after the other: one piece of a word for each code, or with `divided` up to two.
class Pieces {
public:
  Pieces(const std::vector<Choice> &choices, const std::vector<Pattern> &patterns, Weights weights,
         int codeBits, int laneBits, int words, bool divided)
      : choices(choices), patterns(patterns), weights(weights), codeBits(codeBits),
        laneBits(laneBits), words(words), divided(divided) {}

  struct Step {
    uint32_t ofOpen = 0, ofNext = 0; // places that the word's spare bits go to
    size_t next = 0;                 // the choice of the code that begins here, if any
  };
  struct Division {
    int cost = 0;
    Step step;
  };

  // The cheapest from a word on, where a code has `open` places left; `open` is 0 between codes.
  const Division &from(int word, uint32_t open) {
    auto [entry, isNew] = known.try_emplace({word, open});
    if (!isNew)
      return entry->second;
    Division best{word == words && open == 0 ? 0 : impossible, {}};
    if (word < words)
      best = cheapest(word, open);
    return entry->second = best;
  }

  // The cheapest way to a word's pieces.
  const WordUse &use(uint32_t ofOpen, uint32_t ofNext) {
    auto [entry, isNew] = uses.try_emplace({ofOpen, ofNext});
    if (isNew)
      entry->second = find(ofOpen, ofNext);
    return entry->second;
  }

  static constexpr int impossible = 1 << 20;

private:
  const std::vector<Choice> &choices;
  const std::vector<Pattern> &patterns;
  Weights weights;
  int codeBits, laneBits, words;
  bool divided;
  std::map<std::pair<int, uint32_t>, Division> known;
  std::map<std::pair<uint32_t, uint32_t>, WordUse> uses;

  Division cheapest(int word, uint32_t open) {
    Division best{impossible, {}};
    const int spare = laneBits % codeBits, ofOpen = std::min(spare, std::popcount(open));
    // Words cost no less than the cheapest pattern, with the pieces.
    const int others = (words - word) * patterns.front().cost;
    auto consider = [&](const Step &step, uint32_t left, int cost) {
      const int pieces = (step.ofOpen != 0 ? 1 : 0) + (step.ofNext != 0 ? 1 : 0);
      if (cost + others + weights.of({.logic = pieces}, 0) >= best.cost)
        return;
      cost += use(step.ofOpen, step.ofNext).cost;
      if (cost < best.cost)
        cost += from(word + 1, left).cost;
      if (cost < best.cost)
        best = {cost, step};
    };
    forSubsets(open, ofOpen, [&](uint32_t own) {
      if (ofOpen == spare)
        return consider({own, 0, 0}, open & ~own, 0);
      for (size_t i = 0; i < choices.size(); ++i)
        forSubsets(choices[i].places, spare - ofOpen, [&](uint32_t next) {
          consider({own, next, i}, choices[i].places & ~next, choices[i].cost);
        });
    });
    return best;
  }

  template <class Visit> static void forSubsets(uint32_t places, int count, const Visit &visit) {
    for (uint32_t subset = places;; subset = (subset - 1) & places) {
      if (std::popcount(subset) == count)
        visit(subset);
      if (subset == 0)
        return;
    }
  }

  // The whole, and where pieces may be divided low places apart from those above.
  std::vector<std::vector<uint32_t>> parts(uint32_t places) const {
    std::vector<std::vector<uint32_t>> result{{places}};
    if (divided)
      for (const TwoParts &two : consecutiveParts(places))
        result.push_back({two.begin(), two.end()});
    return result;
  }

  std::map<uint32_t, std::vector<Way>> ways; // asked for again and again

  const std::vector<Way> &knownWays(uint32_t places) {
    auto [entry, isNew] = ways.try_emplace(places);
    if (isNew)
      entry->second = waysOf(places, laneBits);
    return entry->second;
  }

  struct Wanted {
    uint32_t places;
    const std::vector<Way> *ways;
  };

  WordUse find(uint32_t ofOpen, uint32_t ofNext) {
    WordUse best{0, {}, impossible};
    for (const std::vector<uint32_t> &open : parts(ofOpen))
      for (const std::vector<uint32_t> &next : parts(ofNext)) {
        std::vector<Wanted> wanted;
        for (const std::vector<uint32_t> *all : {&open, &next})
          for (uint32_t places : *all)
            if (places != 0)
              wanted.push_back({places, &knownWays(places)});
        const int own = weights.of({.logic = static_cast<int>(wanted.size())}, 0);
        for (size_t i = 0; i < patterns.size() && patterns[i].cost + own < best.cost; ++i) {
          WordUse use{i, {}, patterns[i].cost + own};
          place(wanted, patterns[i].spare, patterns[i].moves, use, best);
        }
      }
    return best;
  }

  // Takes the next of `wanted` out of the bits that are left in every way, then the others.
  void place(const std::vector<Wanted> &wanted, uint32_t left, Moves moves, WordUse &use,
             WordUse &best) const {
    const size_t taken = use.pieces.size();
    if (taken == wanted.size()) {
      best = use;
      return;
    }
    for (const Way &way : *wanted[taken].ways) {
      if ((way.used & ~left) != 0)
        continue;
      const int cost = weights.of({}, bitOf(way.move) & ~moves); // beside what masks cost
      if (use.cost + cost >= best.cost)
        continue;
      use.pieces.push_back({wanted[taken].places, way.move});
      use.cost += cost;
      place(wanted, left & ~way.used, moves | bitOf(way.move), use, best);
      use.pieces.pop_back();
      use.cost -= cost;
    }
  }
};

WordPlan planOf(const std::vector<LaneForm> &forms, const std::vector<OpCounts> &extra,
                const std::vector<Choice> &choices, const std::vector<Pattern> &patterns,
                Pieces &pieces, int words, const InstructionRates &rates) {
  WordPlan plan;
  OpCounts counts;
  auto add = [&](size_t choice, std::vector<Piece> parts) {
    const size_t form = choices[choice].form;
    counts = counts + extra[form];
    counts.logic += static_cast<int>(parts.size());
    plan.registers.push_back({forms[form], {Extraction::Kind::Moved, std::move(parts)}});
  };
  std::vector<Piece> open; // of a code in pieces, and which places it has left
  size_t choiceOfOpen = 0;
  uint32_t left = 0;
  for (int word = 0; word < words; ++word) {
    const Pieces::Step step = pieces.from(word, left).step;
    const WordUse &use = pieces.use(step.ofOpen, step.ofNext);
    const Pattern &pattern = patterns[use.pattern];
    Moves moves = pattern.moves;
    for (Pattern::Code code : pattern.codes) {
      for (Piece &piece : code.pieces)
        piece.word = word;
      add(code.choice, std::move(code.pieces));
    }
    for (const Piece &piece : use.pieces) {
      if (left == 0) {
        choiceOfOpen = step.next;
        left = choices[step.next].places;
      }
      open.push_back({piece.places, piece.move, word});
      moves |= bitOf(piece.move);
      left &= ~piece.places;
      if (left == 0)
        add(choiceOfOpen, std::exchange(open, {}));
    }
    countMoves(counts, moves);
  }
  plan.cost = {cycles(counts, rates), counts.total()};
  return plan;
}

std::optional<WordPlan> search(const std::vector<LaneForm> &forms,
                               const std::vector<OpCounts> &extra, int codeBits, int laneBits,
                               const InstructionRates &rates, Weights weights) {
  const std::vector<Choice> choices = choicesOf(forms, extra, weights);
  const std::vector<Pattern> patterns = Patterns(choices, weights, codeBits, laneBits).find();
  if (patterns.empty())
    return std::nullopt;
  const int words = codesOfUnit(codeBits) * codeBits / wordBits;
  for (bool divided : {false, true}) {
    Pieces pieces(choices, patterns, weights, codeBits, laneBits, words, divided);
    if (pieces.from(0, 0).cost < Pieces::impossible)
      return planOf(forms, extra, choices, patterns, pieces, words, rates);
  }
  return std::nullopt;
}

} // namespace

int codesOfUnit(int codeBits) { return wordBits / planesOf(codeBits).back().bits; }

std::optional<WordPlan> searchUnit(const std::vector<LaneForm> &forms,
                                   const std::vector<OpCounts> &extra, int codeBits, int laneBits,
                                   const InstructionRates &rates, WordCost bound) {
  std::optional<WordPlan> best;
  for (Weights weights : allWeights)
    if (std::optional<WordPlan> plan = search(forms, extra, codeBits, laneBits, rates, weights);
        plan && plan->cost < bound) {
      bound = plan->cost;
      best = std::move(plan);
    }
  return best;
}

} // namespace rho::compiler
