#include "compiler/decode/Synthesis.h"

#include "compiler/decode/TableSearch.h"
#include "compiler/decode/UnitSearch.h"
#include "compiler/decode/WordSearch.h"
#include "dsl/Lasting.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

namespace rho::compiler {

namespace {

using Op = DecodeInstr::Op;
using Operand = DecodeProgram::Operand;

// To be found again by: NaN is not equal to itself.
std::vector<uint64_t> patternsOf(const std::vector<double> &values) {
  std::vector<uint64_t> bits;
  for (double value : values)
    bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

// Those of all factors.
const std::vector<LaneForm> &formsOf(const std::vector<double> &values, dsl::ElementType lane) {
  return dsl::knownOr(std::tuple(std::string(lane.name()), patternsOf(values)),
                      [&] { return laneForms(values, lane, lane.bits() == 16); });
}

// The multiply-add after an extraction: what registers hold is value * 2^log2.
struct Arithmetic {
  double slope = 1, offset = 0;
  bool needed() const { return slope != 1 || offset != 0; }
};

class Search {
public:
  Search(const std::vector<double> &values, std::string_view mmaType, int leastLog2,
         const InstructionRates &rates)
      : values(values), mmaType(mmaType), lane(dsl::ElementType::get(mmaType)), rates(rates),
        bits(std::countr_zero(values.size())), leastLog2(leastLog2) {}

  std::vector<SynthesizedDecode> run() {
    byPlacement();
    byTables();
    auto rank = [](const SynthesizedDecode &decode) {
      const DecodeSequence &sequence = decode.sequence;
      return std::tuple(decode.cycles, sequence.instructions(), std::abs(sequence.log2Factor),
                        sequence.program.print());
    };
    std::sort(found.begin(), found.end(),
              [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
    return std::move(found);
  }

private:
  const std::vector<double> &values;
  std::string_view mmaType;
  dsl::ElementType lane;
  const InstructionRates &rates;
  int bits;
  int leastLog2;
  static constexpr int farthest = 150; // a bf16 has no smaller powers of two
  static constexpr int nearby = 8;     // from here on a factor needs a reason
  WordCost bound{1 << 20, 0};
  std::vector<SynthesizedDecode> found;

  void keep(DecodeSequence sequence, std::string method) {
    if (!proveDecode(sequence, values, mmaType))
      return;
    int cost = cycles(countInstructions(sequence.program), rates);
    found.push_back({std::move(sequence), std::move(method), cost});
  }

  std::optional<Arithmetic> arithmeticFor(const LaneForm &form, int log2) const {
    if (!form.affine && form.log2 == log2)
      return Arithmetic{};
    if (lane.bits() != 16)
      return std::nullopt;
    Arithmetic result{std::ldexp(form.slope, log2), std::ldexp(form.offset, log2)};
    if (!exactIn(lane, result.slope) || !exactIn(lane, result.offset))
      return std::nullopt;
    return result;
  }

  Op opFor(const Arithmetic &arithmetic) const {
    if (mmaType == "bf16")
      return Op::FmaBF16;
    return arithmetic.offset == 0 ? Op::MulF16 : arithmetic.slope == 1 ? Op::AddF16 : Op::FmaF16;
  }

  Operand applied(DecodeProgram &program, Operand x, const Arithmetic &arithmetic) const {
    auto both = [&](double value) {
      return DecodeProgram::constant(everywhere(lane.encode(value), lane.bits()));
    };
    Op op = opFor(arithmetic);
    if (op == Op::AddF16)
      return program.add(op, x, both(arithmetic.offset));
    if (op == Op::MulF16)
      return program.add(op, x, both(arithmetic.slope));
    // Adding -0 keeps the sign of a zero product.
    return program.add(op, x, both(arithmetic.slope),
                       both(arithmetic.offset == 0 ? -0.0 : arithmetic.offset));
  }

  // Codes lie in one word when their bits are a power of two.
  bool isOfOneWord() const { return wordBits % bits == 0; }

  void byPlacement() {
    const bool fits = isOfOneWord() ? lane.bits() % bits == 0 : bits < lane.bits();
    if (!fits || values.size() > 256)
      return;
    std::map<std::vector<uint8_t>, std::vector<LaneForm>> byStored;
    for (const LaneForm &form : formsOf(values, lane))
      byStored[form.stored].push_back(form);
    for (const auto &[stored, forms] : byStored) {
      for (int log2 : factorsOf(forms))
        placed(forms, log2);
    }
  }

  // Powers of two that are worth a search, nearest to 1 first: 1, those of forms without
  // arithmetic, and those at which more forms are exact than at the ones before.
  std::vector<int> factorsOf(const std::vector<LaneForm> &forms) const {
    std::set<int> placed;
    for (const LaneForm &form : forms)
      if (!form.affine)
        placed.insert(form.log2);
    std::vector<int> result;
    std::set<std::vector<bool>> seen;
    for (int distance = 0; distance <= farthest; ++distance)
      for (int log2 : {-distance, distance}) {
        if (log2 < leastLog2 || (distance == 0 && !result.empty()) ||
            (log2 > 0 && lane.bits() == 16))
          continue;
        std::vector<bool> exact;
        for (const LaneForm &form : forms)
          exact.push_back(arithmeticFor(form, log2).has_value());
        bool isNew = seen.insert(exact).second;
        if (placed.contains(log2) || (isNew && distance <= nearby))
          result.push_back(log2);
      }
    return result;
  }

  void placed(const std::vector<LaneForm> &all, int log2) {
    std::vector<LaneForm> forms;
    std::vector<OpCounts> extra;
    for (const LaneForm &form : all)
      if (std::optional<Arithmetic> arithmetic = arithmeticFor(form, log2)) {
        forms.push_back(form);
        extra.emplace_back();
        if (arithmetic->needed())
          extra.back().add(opFor(*arithmetic));
      }
    if (forms.empty())
      return;
    // Searches for other least factors ask for the same.
    const std::optional<WordPlan> &plan = dsl::knownOr(
        std::tuple(std::string(mmaType), patternsOf(values), forms[0].stored, log2, bound, rates),
        [&] {
          return isOfOneWord()
                     ? searchWord(forms, extra, lane.bits() / bits, lane.bits(), rates, bound)
                     : searchUnit(forms, extra, bits, lane.bits(), rates, bound);
        });
    if (!plan)
      return;
    bound = plan->cost;
    DecodeSequence sequence;
    sequence.codes = codesOfUnit(bits);
    sequence.log2Factor = log2;
    setStored(sequence, plan->registers[0].form.stored);
    std::vector<Operand> extracted = emitExtraction(*plan, lane.bits(), sequence.program);
    bool computed = false;
    for (size_t r = 0; r < extracted.size(); ++r) {
      const WordPlan::Register &part = plan->registers[r];
      Arithmetic arithmetic = *arithmeticFor(part.form, log2);
      computed = computed || arithmetic.needed();
      sequence.program.output(
          arithmetic.needed() ? applied(sequence.program, extracted[r], arithmetic) : extracted[r]);
      sequence.bits.push_back(bitsOf(part));
    }
    keep(std::move(sequence), computed ? "bits beside a constant, then one multiply-add"
                                       : "bits in the places of the operand's");
  }

  std::vector<std::vector<CodeBit>> bitsOf(const WordPlan::Register &part) const {
    std::vector<std::vector<CodeBit>> result;
    for (int sub = 0; sub < wordBits / lane.bits(); ++sub) {
      std::vector<CodeBit> code(static_cast<size_t>(bits));
      uint32_t places = part.form.places;
      for (int i = 0; places != 0; places &= places - 1, ++i)
        code[static_cast<size_t>(part.form.bitOf[static_cast<size_t>(i)])] =
            sourceBit(part, std::countr_zero(places), sub, lane.bits());
      if (part.form.weight != 0)
        code[static_cast<size_t>(part.form.bitOf.back())] = weightedBit(part, sub, lane.bits());
      result.push_back(std::move(code));
    }
    return result;
  }

  // A permutation of codes, as an exclusive or where it is one.
  static void setStored(DecodeSequence &sequence, const std::vector<uint8_t> &stored) {
    for (size_t code = 0; code < stored.size(); ++code)
      if ((stored[code] ^ stored[0]) != static_cast<int>(code)) {
        sequence.codeTable = stored;
        return;
      }
    sequence.codeXor = stored[0];
  }

  void byTables() {
    if (values.size() > 16)
      return;
    // The factor nearest to 1 at which all values are exact.
    for (int distance = 0; distance <= farthest; ++distance)
      for (int log2 : {distance, -distance}) {
        std::vector<uint32_t> lanes;
        for (double value : values) {
          double scaled = std::isnan(value) ? 0 : std::ldexp(value, log2);
          if (!exactIn(lane, scaled))
            break;
          lanes.push_back(lane.encode(scaled));
        }
        if (lanes.size() != values.size())
          continue;
        for (TableDecode &decode : tableDecodes(lanes, lane.bits())) {
          decode.sequence.log2Factor = log2;
          std::vector<uint8_t> table = std::move(decode.sequence.codeTable);
          decode.sequence.codeTable.clear();
          setStored(decode.sequence, table);
          keep(std::move(decode.sequence), std::move(decode.method));
        }
        return;
      }
  }
};

} // namespace

std::vector<SynthesizedDecode> synthesizeDecode(const std::vector<double> &values,
                                                std::string_view mmaType, int leastLog2,
                                                const InstructionRates &rates) {
  return Search(values, mmaType, leastLog2, rates).run();
}

const std::vector<SynthesizedDecode> &knownDecodes(const std::vector<double> &values,
                                                   std::string_view mmaType, int leastLog2) {
  return dsl::knownOr(std::tuple(patternsOf(values), std::string(mmaType), leastLog2), [&] {
    return synthesizeDecode(values, mmaType, leastLog2, InstructionRates());
  });
}

bool proveDecode(const DecodeSequence &sequence, const std::vector<double> &values,
                 std::string_view mmaType) {
  dsl::ElementType lane = dsl::ElementType::get(mmaType);
  uint32_t laneMask = static_cast<uint32_t>((uint64_t{1} << lane.bits()) - 1);
  // Neighbours: all bits clear, all set, and a few patterns between.
  constexpr uint32_t neighbours[] = {0, ~0u, 0x55555555, 0xaaaaaaaa, 0x3c96a51e, 0xc3695ae1};
  const auto count = static_cast<size_t>(sequence.program.words());
  for (size_t r = 0; r < sequence.bits.size(); ++r) {
    const DecodeProgram program = sequence.program.part(r, 1);
    for (size_t s = 0; s < sequence.bits[r].size(); ++s)
      for (uint32_t code = 0; code < values.size(); ++code) {
        if (std::isnan(values[code]))
          continue;
        double wanted = std::ldexp(values[code], sequence.log2Factor);
        for (uint32_t others : neighbours) {
          std::vector<uint32_t> words(count, others);
          sequence.put(code, r, s, words);
          uint32_t result = program.run(words, {})[0];
          uint32_t held = result >> (static_cast<int>(s) * lane.bits()) & laneMask;
          if (lane.decode(held) != wanted)
            return false;
        }
      }
  }
  return true;
}

std::vector<double> valuesOf(dsl::ElementType type) {
  std::vector<double> values(size_t{1} << type.bits());
  for (uint32_t code = 0; code < values.size(); ++code)
    values[code] = type.decode(code);
  return values;
}

std::string instructionLines(const DecodeProgram &program) {
  std::ostringstream out;
  std::istringstream text(program.print());
  std::string line;
  std::getline(text, line, ';'); // the count of parameters
  while (std::getline(text, line, ';'))
    out << "  " << line.substr(line.find_first_not_of(' ')) << '\n';
  return out.str();
}

std::string describe(const std::vector<SynthesizedDecode> &alternatives, size_t most) {
  std::ostringstream out;
  for (size_t i = 0; i < std::min(most, alternatives.size()); ++i) {
    const SynthesizedDecode &decode = alternatives[i];
    out << (i == 0 ? "chosen: " : "instead: ") << decode.sequence.instructions()
        << " instructions for " << decode.sequence.codes << " codes, " << decode.cycles
        << " cycles a warp, values * 2^" << decode.sequence.log2Factor << ": " << decode.method
        << '\n';
    out << instructionLines(decode.sequence.program);
  }
  return out.str();
}

} // namespace rho::compiler
