#include "compiler/decode/WordSearch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// Pieces of a set of places: the whole, or every division in two (and in three).
using Division = std::vector<uint32_t>;
std::vector<Division> divisions(uint32_t places, size_t parts) {
  std::vector<Division> result;
  if (std::popcount(places) > 4) { // only consecutive pieces: the others are too many to try
    if (parts == 2)
      for (const TwoParts &two : consecutiveParts(places))
        result.push_back({two.begin(), two.end()});
    return result;
  }
  uint32_t lowest = places & -places;
  for (uint32_t first = places; first != 0; first = (first - 1) & places) {
    uint32_t rest = places ^ first;
    if ((first & lowest) == 0 || rest == 0)
      continue;
    if (parts == 2) {
      result.push_back({first, rest});
      continue;
    }
    for (const Division &others : divisions(rest, parts - 1)) {
      result.push_back({first});
      result.back().insert(result.back().end(), others.begin(), others.end());
    }
  }
  return result;
}

// Whether x * (sum of powers) puts each piece where it belongs when x holds the pieces' sources
// and nothing else: no other contribution and no carry reaches a place of the register.
bool productIsClean(const std::vector<Extraction::Piece> &pieces, int laneBits) {
  uint32_t sources = 0, wanted = 0;
  for (const auto &piece : pieces) {
    uint32_t places = everywhere(piece.places, laneBits);
    sources |= places >> piece.move.amount;
    wanted |= places;
  }
  std::array<int, wordBits> contributions{};
  for (const auto &piece : pieces)
    for (uint32_t moved = sources << piece.move.amount; moved != 0; moved &= moved - 1)
      ++contributions[static_cast<size_t>(std::countr_zero(moved))];
  int carry = 0; // the largest that could arrive
  for (int bit = 0; bit < wordBits; ++bit) {
    int sum = contributions[static_cast<size_t>(bit)] + carry;
    if ((wanted >> bit & 1) != 0 && (carry != 0 || contributions[static_cast<size_t>(bit)] != 1))
      return false;
    carry = sum / 2;
  }
  return true;
}

constexpr Moves leftMoves = 0xffff;

// An extraction with what it costs beside the moves that it may share.
struct Option {
  size_t form;
  Extraction extraction;
  OpCounts own; // with the form's arithmetic
  Moves moves = 0;
  WordCost least; // of a plan with it
};

// What bounds the search: the cost of a plan, first cycles and then instructions.
class CostBound {
public:
  CostBound(int registers, const std::vector<OpCounts> &extra, const InstructionRates &rates)
      : rates(rates), others(static_cast<size_t>(registers) + 1) {
    OpCounts cheapest; // one register in place
    for (const OpCounts &counts : extra)
      if (cheapest.total() == 0 || counts.total() + 1 < cheapest.total()) {
        cheapest = counts;
        ++cheapest.logic;
      }
    for (size_t taken = others.size() - 1; taken-- > 0;)
      others[taken] = others[taken + 1] + cheapest;
  }

  // Of `taken` registers with these counts and moves, and of at least what the others need.
  WordCost atLeast(OpCounts counts, Moves moves, int taken) const {
    countMoves(counts, moves);
    counts = counts + others[static_cast<size_t>(taken)];
    return {cycles(counts, rates), counts.total()};
  }

  // Logic instructions of the next register and of moves with which a plan may take no more than
  // these cycles: quickly asked.
  int logicWithin(int cycles, const OpCounts &counts, int taken) const {
    return cycles / rates.logic - counts.logic - others[static_cast<size_t>(taken)].logic;
  }

private:
  const InstructionRates &rates;
  std::vector<OpCounts> others; // the least of the registers that are not taken, by those that are
};

class Options {
public:
  Options(const std::vector<LaneForm> &forms, const std::vector<OpCounts> &extra, int laneBits,
          const CostBound &cost, WordCost bound)
      : forms(forms), extra(extra), laneBits(laneBits), cost(cost), bound(bound) {}

  // Registers whose places are moved together, and with `inPieces` all others.
  std::vector<Option> take(bool inPieces) {
    for (size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].weight != 0) {
        weighted(i);
        continue;
      }
      whole(i);
      if (inPieces)
        pieces(i);
    }
    // Of those that use the same bits, what another one beats whatever else is moved is left out.
    std::vector<Option> result;
    size_t alike = 0; // the first that uses the same bits
    for (auto &[key, option] : options) {
      if (alike < result.size() && result[alike].extraction.used != option.extraction.used)
        alike = result.size();
      if (std::none_of(result.begin() + static_cast<std::ptrdiff_t>(alike), result.end(),
                       [&](const Option &other) { return isNoWorse(other, option); }))
        result.push_back(std::move(option));
    }
    return result;
  }

private:
  const std::vector<LaneForm> &forms;
  const std::vector<OpCounts> &extra;
  int laneBits;
  const CostBound &cost;
  WordCost bound;
  // The first of those that use the same bits and moves at the same cost.
  std::map<std::tuple<uint32_t, int, Moves>, Option> options;

  static bool isNoWorse(const Option &a, const Option &b) {
    return (a.moves & ~b.moves) == 0 && a.own.logic <= b.own.logic &&
           a.own.multiply <= b.own.multiply && a.own.f16 <= b.own.f16 && a.own.bf16 <= b.own.bf16 &&
           a.own.shiftLeft <= b.own.shiftLeft;
  }

  void whole(size_t i) {
    uint32_t places = forms[i].places;
    for (int by = 0; by < laneBits; ++by)
      for (Move move : movesFor(places, by, laneBits))
        addMoved(i, {{places, move}}, rotatedRight(places, by, laneBits));
    byBytes(i);
  }

  void pieces(size_t i) {
    uint32_t places = forms[i].places;
    for (const Division &two : divisions(places, 2))
      forMovedParts({two[0], two[1]}, laneBits,
                    [&](std::vector<Extraction::Piece> pieces, uint32_t used) {
                      addMoved(i, std::move(pieces), used);
                    });
    for (size_t parts : {2, 3})
      for (const Division &division : divisions(places, parts)) {
        std::vector<Extraction::Piece> none;
        byProduct(i, division, none);
      }
  }

  // The weighted bit may be taken from any place at which a factor makes it its weight.
  void weighted(size_t i) {
    OpCounts own;
    own.logic = 2;
    own.multiply = 1;
    uint32_t places = forms[i].places;
    for (int at = 0; at <= std::countr_zero(forms[i].weight); ++at)
      for (int a = 0; a < laneBits; ++a)
        for (int b = 0; b < laneBits; ++b) {
          uint32_t first = rotatedRight(places, a, laneBits),
                   second = rotatedRight(1u << at, b, laneBits);
          if ((first & second) != 0)
            continue;
          for (Move moveA : movesFor(places, a, laneBits))
            for (Move moveB : movesFor(1u << at, b, laneBits))
              add(i, Extraction::Kind::Weighted, {{places, moveA}, {1u << at, moveB}},
                  first | second, own, bitOf(moveA) | bitOf(moveB));
        }
  }

  void add(size_t form, Extraction::Kind kind, std::vector<Extraction::Piece> pieces, uint32_t used,
           OpCounts own, Moves moves) {
    own = own + extra[form];
    if (WordCost least = cost.atLeast(own, moves, 1); least < bound)
      options.try_emplace({used, own.total(), moves},
                          Option{form, {kind, std::move(pieces), used}, own, moves, least});
  }

  void addMoved(size_t form, std::vector<Extraction::Piece> pieces, uint32_t used) {
    OpCounts own;
    own.logic = static_cast<int>(pieces.size());
    Moves moves = 0;
    for (const auto &piece : pieces)
      moves |= bitOf(piece.move);
    add(form, Extraction::Kind::Moved, std::move(pieces), used, own, moves);
  }

  // Whole bytes: any byte of the word to any, and constant bytes beside them.
  void byBytes(size_t form) {
    uint32_t places = forms[form].places;
    if (places % 255 != 0 || std::popcount(places) != 8 || laneBits != 16)
      return;
    OpCounts own;
    own.logic = 1;
    for (int by : {0, 8})
      add(form, Extraction::Kind::Bytes,
          {{places, {by == 0 ? Move::Kind::None : Move::Kind::Rotate, by}}},
          rotatedRight(places, by, laneBits), own, 0);
  }

  // These pieces moved, the others by every amount that none of them has.
  void byProduct(size_t form, const Division &division, std::vector<Extraction::Piece> &pieces) {
    if (pieces.size() == division.size()) {
      uint32_t used = 0;
      for (const auto &piece : pieces)
        used |= piece.places >> piece.move.amount;
      if (std::popcount(used) != std::popcount(forms[form].places) ||
          !productIsClean(pieces, laneBits))
        return;
      OpCounts own;
      own.logic = 2;
      own.multiply = 1;
      add(form, Extraction::Kind::Multiply, pieces, used, own, 0);
      return;
    }
    uint32_t piece = division[pieces.size()];
    for (int left = 0; left <= std::countr_zero(piece); ++left) {
      bool repeated = std::any_of(pieces.begin(), pieces.end(),
                                  [&](const auto &other) { return other.move.amount == left; });
      if (repeated)
        continue;
      pieces.push_back({piece, {Move::Kind::Left, left}});
      byProduct(form, division, pieces);
      pieces.pop_back();
    }
  }
};

// Exact cover of a lane's bits by one option for each register, cheapest first.
class Cover {
public:
  Cover(std::vector<Option> options, int registers, int laneBits, const CostBound &cost,
        WordCost bound)
      : options(std::move(options)), registers(registers), cost(cost), bestCost(bound),
        all(laneBits == wordBits ? ~0u : (1u << laneBits) - 1) {
    auto rank = [&](const Option &option) {
      return std::tuple(option.least, option.extraction.used, option.moves, option.own.total());
    };
    std::sort(this->options.begin(), this->options.end(),
              [&](const Option &a, const Option &b) { return rank(a) < rank(b); });
    for (size_t i = 0; i < this->options.size(); ++i) {
      const Option &option = this->options[i];
      const uint32_t used = option.extraction.used;
      if (used == 0)
        continue;
      const User user{option.least, option.own, option.moves, used, static_cast<uint32_t>(i)};
      byLowest[static_cast<size_t>(std::countr_zero(used))].push_back(user);
      byUsed[used].push_back(user);
    }
  }

  std::vector<Option> run() {
    extend(0, {}, 0);
    std::vector<Option> result;
    for (size_t i : best)
      result.push_back(options[i]);
    return result;
  }

private:
  // What is asked of most options, side by side in memory: the search waits for little else.
  struct User {
    WordCost least;
    OpCounts own;
    Moves moves;
    uint32_t used;
    uint32_t option;
  };
  std::vector<Option> options;
  int registers;
  const CostBound &cost;
  WordCost bestCost;
  uint32_t all;
  // In order of what they cost: by the lowest bit that they use, and by all of them.
  std::array<std::vector<User>, wordBits> byLowest;
  std::unordered_map<uint32_t, std::vector<User>> byUsed;
  // By the bits that two registers have left, see next().
  std::unordered_map<uint32_t, std::vector<User>> ofTwo;
  std::vector<size_t> chosen, best;
  int steps = 0;
  static constexpr int mostSteps = 100'000; // then the best so far: a bound on time

  // Options of the next register, among them all that go with these bits of others: of the last
  // register those of all bits that are left, else those of the lowest of them, and of the last but
  // one none that leaves to the last what no option has.
  const std::vector<User> &next(uint32_t used, int taken) {
    static const std::vector<User> none;
    const uint32_t left = all & ~used;
    if (taken == registers - 1) {
      const auto last = byUsed.find(left);
      return last == byUsed.end() ? none : last->second;
    }
    const std::vector<User> &users = byLowest[static_cast<size_t>(std::countr_zero(left))];
    if (taken != registers - 2)
      return users;
    auto [fitting, isNew] = ofTwo.try_emplace(left);
    if (isNew)
      std::copy_if(users.begin(), users.end(), std::back_inserter(fitting->second),
                   [&](const User &user) {
                     return (user.used & used) == 0 && byUsed.contains(left & ~user.used);
                   });
    return fitting->second;
  }

  void extend(uint32_t used, const OpCounts &own, Moves moves) {
    int taken = static_cast<int>(chosen.size());
    if (taken == registers || used == all) {
      if (WordCost total = cost.atLeast(own, moves, taken);
          taken == registers && used == all && total < bestCost) {
        best = chosen;
        bestCost = total;
      }
      return;
    }
    const int mostLogic = cost.logicWithin(bestCost.cycles, own, taken + 1);
    for (const User &user : next(used, taken)) {
      if (!(user.least < bestCost)) // nor do those behind it
        return;
      if ((user.used & used) != 0)
        continue;
      const Moves allMoves = moves | user.moves;
      if (user.own.logic + std::popcount(allMoves & ~leftMoves) > mostLogic)
        continue;
      const OpCounts together = own + user.own;
      if (!(cost.atLeast(together, allMoves, taken + 1) < bestCost))
        continue;
      if (++steps > mostSteps)
        return;
      chosen.push_back(user.option);
      extend(used | user.used, together, allMoves);
      chosen.pop_back();
    }
  }
};

// Where the bit at `at` was before a move.
int movedFrom(int at, const Move &move) {
  int by = move.kind == Move::Kind::Right ? -move.amount : move.amount;
  return (at - by + wordBits) % wordBits;
}

class Emission {
public:
  Emission(int laneBits, DecodeProgram &program) : laneBits(laneBits), program(program) {}

  Operand extract(const WordPlan::Register &r) {
    uint32_t constant = everywhere(r.form.constant, laneBits);
    switch (r.extraction.kind) {
    case Extraction::Kind::Bytes:
      return permuted(r, constant);
    case Extraction::Kind::Multiply: {
      uint32_t sources = 0, powers = 0, places = 0;
      for (const auto &piece : r.extraction.pieces) {
        uint32_t all = everywhere(piece.places, laneBits);
        places |= all;
        sources |= all >> piece.move.amount;
        powers |= 1u << piece.move.amount;
      }
      Operand bits = program.add(Op::And, DecodeProgram::word(), number(sources));
      bits = program.add(Op::Mad, bits, number(powers), number(0));
      return masked(bits, places, constant);
    }
    case Extraction::Kind::Weighted: {
      const auto &rest = r.extraction.pieces[0], &last = r.extraction.pieces[1];
      Operand bits = masked(moved(rest), everywhere(rest.places, laneBits), constant);
      Operand bit = masked(moved(last), everywhere(last.places, laneBits), 0);
      return program.add(Op::Mad, bit, number(r.form.weight / last.places), bits);
    }
    case Extraction::Kind::Moved:
      break;
    }
    Operand result;
    bool first = true;
    for (const auto &piece : r.extraction.pieces) {
      uint32_t places = everywhere(piece.places, laneBits);
      Operand source = moved(piece);
      result = first ? masked(source, places, constant)
                     : program.add(Op::AndOr, source, number(places), result);
      first = false;
    }
    return result;
  }

private:
  int laneBits;
  DecodeProgram &program;
  std::map<std::pair<int, Move>, Operand> moves; // by word

  static Operand number(uint32_t value) { return DecodeProgram::constant(value); }

  Operand masked(Operand source, uint32_t places, uint32_t constant) {
    if (constant == 0)
      return places == ~0u ? program.add(Op::Or, source, number(0))
                           : program.add(Op::And, source, number(places));
    return program.add(Op::AndOr, source, number(places), number(constant));
  }

  Operand moved(const Extraction::Piece &piece) {
    const Operand word = DecodeProgram::word(piece.word);
    if (piece.move.kind == Move::Kind::None)
      return word;
    auto [entry, isNew] = moves.try_emplace({piece.word, piece.move});
    if (isNew) {
      Op op = piece.move.kind == Move::Kind::Left    ? Op::Shl
              : piece.move.kind == Move::Kind::Right ? Op::Shr
                                                     : Op::RotateLeft;
      entry->second = program.add(op, word, number(static_cast<uint32_t>(piece.move.amount)));
    }
    return entry->second;
  }

  // Byte i of the result: byte i of the word or its neighbour in the lane, or the constant's.
  Operand permuted(const WordPlan::Register &r, uint32_t constant) {
    const auto &piece = r.extraction.pieces[0];
    uint32_t selector = 0;
    for (uint32_t byte = 0; byte < 4; ++byte) {
      bool ofCode = (everywhere(piece.places, laneBits) >> (8 * byte) & 1) != 0;
      uint32_t from = piece.move.amount == 0 ? byte : byte ^ 1;
      selector |= (ofCode ? from : 4 + byte) << (4 * byte);
    }
    return program.add(Op::Prmt, DecodeProgram::word(), number(constant), number(selector));
  }
};

} // namespace

Moves bitOf(const Move &move) {
  if (move.kind == Move::Kind::None)
    return 0;
  int kind = static_cast<int>(move.kind) - static_cast<int>(Move::Kind::Left);
  return Moves{1} << (16 * kind + move.amount);
}

void countMoves(OpCounts &counts, Moves moves) {
  counts.shiftLeft += std::popcount(moves & leftMoves);
  counts.logic += std::popcount(moves & ~leftMoves);
}

uint32_t rotatedRight(uint32_t lane, int by, int laneBits) {
  uint32_t all = laneBits == wordBits ? ~0u : (1u << laneBits) - 1;
  return by == 0 ? lane : ((lane >> by) | (lane << (laneBits - by))) & all;
}

std::vector<Move> movesFor(uint32_t places, int by, int laneBits) {
  if (by == 0)
    return {{}};
  int lowest = std::countr_zero(places), highest = std::bit_width(places) - 1;
  std::vector<Move> moves;
  if (lowest >= by)
    moves.push_back({Move::Kind::Left, by});
  if (highest + laneBits - by < laneBits)
    moves.push_back({Move::Kind::Right, laneBits - by});
  if (moves.empty())
    moves.push_back({Move::Kind::Rotate, by});
  return moves;
}

std::vector<TwoParts> consecutiveParts(uint32_t places) {
  std::vector<TwoParts> result;
  for (uint32_t high = places & (places - 1); high != 0; high &= high - 1)
    result.push_back({places & ~high, high});
  return result;
}

std::optional<WordPlan> searchWord(const std::vector<LaneForm> &forms,
                                   const std::vector<OpCounts> &extra, int registers, int laneBits,
                                   const InstructionRates &rates, WordCost bound) {
  CostBound cost(registers, extra, rates);
  std::vector<Option> best;
  OpCounts counts;
  for (bool inPieces : {false, true}) {
    std::vector<Option> options = Options(forms, extra, laneBits, cost, bound).take(inPieces);
    std::vector<Option> chosen = Cover(std::move(options), registers, laneBits, cost, bound).run();
    if (chosen.empty())
      continue;
    best = std::move(chosen);
    Moves moves = 0;
    counts = {};
    for (const Option &option : best) {
      counts = counts + option.own;
      moves |= option.moves;
    }
    bound = cost.atLeast(counts, moves, registers);
  }
  if (best.empty())
    return std::nullopt;
  WordPlan plan;
  plan.cost = bound;
  for (Option &option : best)
    plan.registers.push_back({forms[option.form], std::move(option.extraction)});
  return plan;
}

CodeBit sourceBit(const WordPlan::Register &r, int place, int lane, int laneBits) {
  int at = lane * laneBits + place;
  for (const auto &piece : r.extraction.pieces) {
    if ((piece.places >> place & 1) == 0)
      continue;
    if (r.extraction.kind == Extraction::Kind::Bytes)
      return {piece.word, piece.move.amount == 0 ? at : at ^ 8};
    return {piece.word, movedFrom(at, piece.move)};
  }
  return {-1, -1};
}

CodeBit weightedBit(const WordPlan::Register &r, int lane, int laneBits) {
  const Extraction::Piece &piece = r.extraction.pieces[1];
  return {piece.word, movedFrom(lane * laneBits + std::countr_zero(piece.places), piece.move)};
}

std::vector<Operand> emitExtraction(const WordPlan &plan, int laneBits, DecodeProgram &program) {
  Emission emission(laneBits, program);
  std::vector<Operand> result;
  for (const WordPlan::Register &r : plan.registers)
    result.push_back(emission.extract(r));
  return result;
}

} // namespace rho::compiler
