#include "compiler/KvCache.h"

#include "compiler/decode/Affine.h"
#include "compiler/decode/NotFinite.h"
#include "dsl/DeriveEncode.h"
#include "dsl/Expressions.h"
#include "dsl/Findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace rho::compiler {

namespace {

// Words of codes that a lane holds of keys, and of values, in a step.
constexpr int64_t mostLaneWords = 32;
constexpr int64_t rowsOfTile = 16;

std::string_view nameOf(KvPart part) { return part == KvPart::Keys ? "keys" : "values"; }

// What is left of `number` when `divisor`, one product, is taken out of every term.
std::optional<RowNumber> dividedBy(const RowNumber &number, const RowNumber &divisor) {
  if (divisor.terms.size() != 1)
    return std::nullopt;
  RowNumber result;
  for (RowNumber::Term term : number.terms) {
    for (int component : divisor.terms[0].components) {
      auto found = std::find(term.components.begin(), term.components.end(), component);
      if (found == term.components.end())
        return std::nullopt;
      term.components.erase(found);
    }
    term.factor /= divisor.terms[0].factor;
    result.terms.push_back(term);
  }
  return result;
}

// Whether a component of each number's own group is not finite either where the number is not, as
// absmax(x) / 448 in f16 is: then no decode of the element has to be.
bool showsNotFinite(const dsl::Format &format) {
  using Expr = dsl::Expr;
  auto isAbsmax = [](const Expr &e) {
    return e.kind == Expr::Kind::Reduce && e.reduction == Expr::Reduction::Absmax &&
           e.operands[0]->kind == Expr::Kind::Input;
  };
  auto keeps = [](dsl::ElementType type, double number) {
    return !std::isfinite(type.decode(type.encode(number)));
  };
  auto shows = [&](const dsl::Component &component) {
    const Expr &rule = *component.encode;
    return (isAbsmax(rule) || (rule.kind == Expr::Kind::Binary && rule.op == Expr::Op::Div &&
                               isAbsmax(*rule.operands[0]) && dsl::isLiteral(*rule.operands[1]))) &&
           keeps(component.type, INFINITY) && keeps(component.type, NAN);
  };
  return dsl::isProduct(format) &&
         std::any_of(format.components.begin() + 1, format.components.end(), shows);
}

constexpr std::array<int64_t, 3> steps{64, 32, 16}; // of tokens, the best first

class LayoutMaker {
public:
  LayoutMaker(const dsl::Format &format, KvPart part, const KvShape &shape) {
    tensor.format = format;
    tensor.part = part;
    tensor.shape = shape;
  }

  KvTensor tensor;

  // All but the step. Errors: kv_format.
  Status prepare() {
    if (std::string reason = misfit(); !reason.empty())
      return makeError(DiagId::kv_format,
                       {tensor.format.name, std::string(nameOf(tensor.part)), reason});
    tensor.slope = affine.slope.times(std::ldexp(1.0, -tensor.decode.log2Factor));
    tensor.offset = affine.offset;
    if (std::optional<RowNumber> ratio = dividedBy(affine.offset, affine.slope))
      tensor.ratio = ratio->times(std::ldexp(1.0, tensor.decode.log2Factor));
    return Done{};
  }

  // Tokens that share all components, a divisor of the page.
  int64_t run() const {
    int64_t common = tensor.shape.pageTokens;
    for (size_t i = 1; i < tensor.format.components.size(); ++i)
      common = std::gcd(common, tensor.format.components[i].group);
    return common;
  }

  // Whether steps of so many tokens are whole in registers and in pieces of 16 bytes.
  bool fits(int64_t step) {
    tensor.step = step;
    auto unit = static_cast<int64_t>(tensor.decode.registers());
    return run() % step == 0 && tensor.registers() % unit == 0 && tensor.words() % 4 == 0 &&
           tensor.words() <= mostLaneWords;
  }

  // All that fit.
  std::string fitting() {
    std::vector<std::string> all;
    for (int64_t step : steps)
      if (fits(step))
        all.push_back(std::to_string(step));
    return dsl::join(all);
  }

private:
  Affine affine;

  std::string misfit() {
    const dsl::Format &format = tensor.format;
    const dsl::Component *odd = nullptr;
    if (format.hasParts())
      return "it has parts";
    if (!format.requirements.empty())
      return "it has a requirement, which a kernel that quantizes cannot refuse to break";
    if (format.element().remap)
      return "its element is remapped";
    for (size_t i = 1; i < format.components.size(); ++i) {
      const dsl::Component &c = format.components[i];
      if (c.extent != dsl::Extent::Group || c.rows != 1 || c.host >= 0)
        odd = &c;
      else if (c.group % rowsOfTile != 0 || tensor.shape.pageTokens % c.group != 0)
        return "'" + c.name + "' is per k[" + std::to_string(c.group) +
               "], groups of tokens are multiples of 16 that divide the page of " +
               std::to_string(tensor.shape.pageTokens);
      else if (c.type.isCodebook())
        return "'" + c.name + "' is a codebook, only elements are";
      else if (dsl::isBest(c.encode))
        return "the rule of '" + c.name + "' chooses among candidates";
    }
    if (odd)
      return "'" + odd->name + "' is " +
             (odd->host >= 0 ? "in spare bits" : "per " + dsl::printExtent(*odd)) +
             ", components of a cache are per k[G]";
    return misfitOfValue();
  }

  std::string misfitOfValue() {
    const dsl::Format &format = tensor.format;
    std::optional<Affine> core = affineCore(format, *format.value);
    if (!core || core->slope.terms.empty())
      return "its value is not a sum of products of components, with the element in some of them";
    affine = *core;
    std::string_view type = tensor.shape.type.name();
    dsl::ElementType element = format.element().type;
    dsl::Expr bare{};
    bare.kind = dsl::Expr::Kind::Component;
    if (element == tensor.shape.type) { // what lies in memory is what is multiplied
      tensor.decode = *decodeSequence(format, bare, type);
      return {};
    }
    // Of keys the power of two that a decode leaves out goes into queries of 16 bits.
    int least = tensor.part == KvPart::Values ? smallestUsefulLog2 : type == "f16" ? -4 : -8;
    std::optional<DecodeSequence> decode;
    if (element.bits() <= 8)
      decode = decodeSequence(format, bare, type, least);
    if (!decode)
      return "its element " + std::string(element.name()) + " has no decode to " +
             std::string(type);
    if (decode->log2Factor < least) {
      if (element.maxFinite() > tensor.shape.type.maxFinite())
        return "its element " + std::string(element.name()) + " has numbers beyond those of " +
               std::string(type);
      decode = restored(*std::move(decode), type);
    }
    if (!showsNotFinite(format))
      decode = keepingNotFinite(*std::move(decode), element, type);
    if (!decode)
      return "its element " + std::string(element.name()) +
             " has codes of NaN or infinity, which its decode to " + std::string(type) + " loses";
    tensor.decode = *std::move(decode);
    return {};
  }
};

Status checkShape(const KvShape &shape) {
  auto fail = [](const char *what, int64_t value, const std::string &rule) {
    return makeError(DiagId::kv_shape, {what, std::to_string(value), rule});
  };
  constexpr int64_t mostHeads = 4096, mostTokens = 1024;
  if (shape.headDim != 64 && shape.headDim != 128)
    return fail("the head dimension", shape.headDim, "kernels have 64 and 128");
  if (shape.pageTokens < 16 || shape.pageTokens > mostTokens || shape.pageTokens % 16 != 0)
    return fail("the number of tokens of a page", shape.pageTokens,
                "it is a multiple of 16, at most " + std::to_string(mostTokens));
  if (shape.kvHeads < 1 || shape.kvHeads > mostHeads)
    return fail("the number of heads of the cache", shape.kvHeads,
                "it is between 1 and " + std::to_string(mostHeads));
  if (shape.queryHeads < 1 || shape.queryHeads > mostHeads || shape.queryHeads % shape.kvHeads != 0)
    return fail("the number of query heads", shape.queryHeads,
                "it is a multiple of the " + std::to_string(shape.kvHeads) +
                    " heads of the cache, at most " + std::to_string(mostHeads));
  return Done{};
}

} // namespace

int64_t KvTensor::componentOffset(int i) const {
  int64_t offset = steps() * stepBytes();
  for (int before = 1; before < i; ++before)
    offset += shape.pageTokens / component(before).group * shape.headDim * componentBytes(before);
  return offset;
}

int64_t KvTensor::headBytes() const {
  return roundUp(componentOffset(static_cast<int>(format.components.size())), 16);
}

double KvTensor::bitsPerNumber() const {
  return 8.0 * static_cast<double>(headBytes()) /
         static_cast<double>(shape.pageTokens * shape.headDim);
}

// Operand A of m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type").
KvTensor::Place KvTensor::place(int64_t r, int64_t half, int64_t lane) const {
  int64_t tilesAlongK = (part == KvPart::Keys ? shape.headDim : step) / 16;
  int64_t instruction = r / 4;
  int64_t row = instruction / tilesAlongK * 16 + r % 2 * 8 + lane / 4;
  int64_t k = instruction % tilesAlongK * 16 + r / 2 % 2 * 8 + lane % 4 * 2 + half;
  return part == KvPart::Keys ? Place{k, row} : Place{row, k};
}

int64_t KvTensor::channelPlace(int64_t channel) const {
  int64_t tile = channel / 16, inTile = channel % 16, half = inTile / 8;
  if (part == KvPart::Keys)
    return inTile % 8 / 2 * (shape.headDim / 4) + tile * 4 + half * 2 + inTile % 2;
  return inTile % 8 * (shape.headDim / 8) + tile * 2 + half;
}

Result<KvLayout> kvLayout(const dsl::Format &keys, const dsl::Format &values,
                          const KvShape &shape) {
  if (Status good = checkShape(shape); !good)
    return good.error();
  LayoutMaker k(keys, KvPart::Keys, shape), v(values, KvPart::Values, shape);
  for (LayoutMaker *maker : {&k, &v})
    if (Status good = maker->prepare(); !good)
      return good.error();
  for (int64_t step : steps)
    if (k.fits(step) && v.fits(step))
      return KvLayout{shape, k.tensor, v.tensor};
  for (LayoutMaker *maker : {&k, &v})
    if (maker->fitting().empty())
      return makeError(
          DiagId::kv_format,
          {maker->tensor.format.name, std::string(nameOf(maker->tensor.part)),
           "no step of 16, 32 or 64 tokens with one scale has whole pieces of 16 bytes "
           "of it"});
  return makeError(DiagId::kv_format,
                   {values.name, "values",
                    "steps of " + v.fitting() + " tokens have whole pieces of 16 bytes of it, of " +
                        k.fitting() + " those of keys in '" + keys.name + "', and kernels have " +
                        "one for both"});
}

int64_t kvWorkspaceBytes(const KvShape &shape, int64_t items) {
  int64_t ctas = items * shape.kvHeads * shape.headSets();
  return kvCounterBytes(ctas) + ctas * shape.mostHeads() * kvSumsBytes(shape);
}

} // namespace rho::compiler
