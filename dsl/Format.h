// What a .rho file declares, after sema: frozen, comparable and printable values.
#pragma once

#include "dsl/ElementType.h"
#include "dsl/Source.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rho::dsl {

// What shares one component value. Ordered from fine to coarse.
enum class Extent : uint8_t {
  Element, // one number
  Group,   // k[G]: G consecutive numbers along k of one row (the last group may be short);
           // n[R] k[G]: those of R rows of a weight, m[R] k[G] of an activation
  Row,     // "channel" of a weight (one n), "token" of an activation (one m)
  Tensor,  // all
};

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

// A node of a value or encode expression. Immutable after sema.
struct Expr {
  enum class Kind : uint8_t {
    Integer,   // integer
    Real,      // real
    Component, // component: index into Format::components
    Input,     // x: the real number that is being encoded (encode rules only)
    Negate,    // operands[0]
    Binary,    // op, operands[0], operands[1]
    Cast,      // type(operands[0]): the low bits of an integer read as that type (s8, u8, ...),
               // or rounding to a float type (f16, ...)
    Reduce,    // reduce(operands[0]) over the extent of the component that is being encoded
    Call,      // function(operands...) (encode rules only)
  };
  enum class Op : uint8_t { Add, Sub, Mul, Div, And, Or, Xor, Shl, Shr };
  enum class Reduction : uint8_t { Absmax, Min, Max };
  enum class Function : uint8_t {
    BitFloor, // the largest power of two that is at most |operand|; 0 of 0
    Min,      // of two operands
    Max,
    Best, // a whole rule: the operand that encodes with the least squared error
  };

  Kind kind;
  Span span;
  int64_t integer = 0;
  double real = 0;
  int component = 0;
  Op op = Op::Add;
  Reduction reduction = Reduction::Absmax;
  Function function = Function::BitFloor;
  std::optional<ElementType> type;
  std::vector<ExprPtr> operands;
};

// What a remapped code of the element stands for: the entry of its selector's code.
struct Remap {
  struct Entry {
    double value = 0;   // a literal, where there is no component
    int component = -1; // else a component per tensor, negated or not
    bool negated = false;
    friend bool operator==(const Entry &, const Entry &) = default;
  };
  uint32_t code = 0;
  int selector = 0; // component of an unsigned integer type of as many codes as there are entries
  std::vector<Entry> entries;
  friend bool operator==(const Remap &, const Remap &) = default;
};

// The components that a remap reads: its selector and entries.
std::vector<int> componentsOf(const Remap &remap);

// One stored part of a format.
inline constexpr size_t maxComponents = 16; // of a format
struct Component {
  std::string name;
  ElementType type;
  Extent extent = Extent::Element;
  int64_t group = 0;     // G of k[G]; 0 for every other extent
  int64_t rows = 1;      // R of n[R] k[G] and m[R] k[G]; 1 for every other extent
  bool perToken = false; // of an activation: Row written as "token" instead of "channel", m[R]
                         // instead of n[R]
  // Of `NAME: TYPE in HOST`: the component above whose bits these lie in the same stored unit of 8
  // or 16 bits, with the same extent, and the lowest of them in the unit.
  int host = -1;
  int shift = 0;
  std::optional<Remap> remap = std::nullopt; // of the element
  // How the encoder computes it from the input: declared in the encode block or derived by sema
  // from the value expression. Null for the element, which is always the nearest code.
  ExprPtr encode;
  bool encodeDeclared = false; // written by the user, hence printed
  Span span;
};

// What every valid number of the format fulfils: `require EXPR <= BOUND` or `>= BOUND` over integer
// components. The encoder never chooses a code that breaks it, packing refuses such codes, and the
// compiler relies on it (no carry between packed bytes, for one).
struct Requirement {
  ExprPtr expr;
  bool atMost = true; // <= bound, else >= bound
  int64_t bound = 0;
  Span span;
};

// Numbers that share one choice of how they are stored; the last blocks of a matrix may be smaller.
struct Blocks {
  int64_t rows = 1;      // of k[G] one, of n[R] k[G] R, of tensor k[G] all: 0
  int64_t k = 0;         // G; of a component for each row, or one for a tensor, all: 0
  bool perToken = false; // rows written as m[R] (activations) instead of n[R] (weights)
  friend bool operator==(const Blocks &, const Blocks &) = default;
};

struct Format;

inline constexpr size_t maxParts = 8; // of a partition
// A format that stores some of the blocks, and which ones: dsl/Quantize.h.
struct Part {
  std::string name;
  std::shared_ptr<const Format> format;
  ExprPtr left, right;          // `where left >= right`; both null where there is no rule
  bool atLeast = true;          // else `<=`
  std::optional<double> budget; // percent of all blocks that it stores, at most
  double most() const { return budget.value_or(100) / 100; } // of all blocks
  // Of a residual `fix: s4 / 16`: 16, and `format`, of this name, is that which it is the residual
  // of with an s4 as its element, whose value is divided by 16. It shares the codes of all other
  // components. 0: a format of its own.
  int64_t divisor = 0;
  Span span;
};
// How many of so many blocks a part's budget allows: budget * blocks / 100 as decimals, rounded
// down.
int64_t mostBlocks(const Part &part, int64_t blocks);

// In place of components: each block is stored in one of the parts.
struct Partition {
  Blocks blocks;
  std::vector<Part> parts;
};

// Stores, of some blocks, what the format leaves over; its value is added.
struct Residual {
  Blocks blocks;
  Part part;
};

// components[0] is the element. The others stand in the order of declaration. `encodeOrder` lists
// the other components from coarse to fine, so that each rule refers only to those before it.
// Of a partition there are no components and the value is null.
struct Format {
  std::string name;
  std::vector<Component> components;
  ExprPtr value;
  std::vector<Requirement> requirements;
  std::vector<int> encodeOrder;
  std::optional<Partition> partition;
  std::optional<Residual> residual;
  Span span;

  const Component &element() const { return components[0]; }
  Component &component(int index) { return components[static_cast<size_t>(index)]; }
  const Component &component(int index) const { return components[static_cast<size_t>(index)]; }
  // Whether other formats are part of it.
  bool hasParts() const { return partition || residual; }
  // With parts: what QuantizedMatrix::choice has a code for each of.
  const Blocks &choiceBlocks() const { return residual ? residual->blocks : partition->blocks; }
  // Bits that a code of a component takes in memory: of one with others in its spare bits the whole
  // unit, of those others 0.
  int storedBits(int component) const;
  // Stored bits per number at infinite k and rows: 4.125 for int4 g128 with an f16 scale. The most
  // that the budgets of parts allow.
  double bitsPerElement() const;
  double bitsPerElement(int component) const; // its share
};

// Calls visit(part, its blocks) for the parts of a partition, then for a residual.
template <class Visit> void forEachPart(const Format &format, const Visit &visit) {
  if (format.partition)
    for (const Part &part : format.partition->parts)
      visit(part, format.partition->blocks);
  if (format.residual)
    visit(format.residual->part, format.residual->blocks);
}

// f16, bf16 and f32 name formats without a declaration: one element, whose value is itself.
const std::vector<std::string> &plainTypes();
bool isPlainType(std::string_view name);
Format plainFormat(ElementType type);
bool isPlain(const Format &format);

// The components that lie in the spare bits of one.
std::vector<int> guestsOf(const Format &format, int host);
// The component in whose stored codes one lies: itself, or that whose spare bits it has.
inline int hostOf(const Format &format, int component) {
  int host = format.component(component).host;
  return host < 0 ? component : host;
}

// As a declaration says it after `per`: "n[128] k[128]", "channel". Empty for the element.
std::string printExtent(const Component &component);

// The format by the given name with another type of element, whose value is multiplied by a factor;
// without parts.
Format withElement(Format format, ElementType type, double factor, std::string name);

// The format that stores nothing of what it leaves over.
Format withoutResidual(Format format);

// What a part is measured by where errors choose the blocks of `k` numbers that it has: of the
// first, which keeps what others leave, a format in which each block of a row has components per
// channel or token of its own, since what is large elsewhere in the row may not stay; else its own.
Format measuredPart(const std::vector<Part> &parts, size_t index, int64_t k);

// What of a format says which number its codes are: without its name, how numbers become codes, and
// what may be stored of them, such as how many blocks of a residual. Of parts the same.
Format meaningOf(Format format);

// Whether a rule chooses among candidates, its operands.
bool isBest(const ExprPtr &rule);

// Structural equality; spans never count.
bool equal(const Expr &a, const Expr &b);

// Canonical text: parses back to an equal declaration; equal declarations print equal text. Parts
// are printed by the names of their formats.
std::string print(const Format &format);
// The same after the declarations of its parts, each once: all that the format is. Of a plain
// format its name.
std::string printWithParts(const Format &format);
// " with 'scale: f16 per channel'" of each: the first lines of their declarations that differ.
std::pair<std::string, std::string> differingLines(const Format &one, const Format &other);
std::string printComponent(const Format &format, int component); // `name: type per extent`
std::string print(const Expr &expr, const Format &format);
std::string print(const Requirement &requirement, const Format &format); // "element <= 3"
std::string print(const Blocks &blocks);                                 // "n[16] k[64]"
bool operator==(const Format &a, const Format &b);

// What the user fixed of the schedule. Absent values are the planner's choice.
struct ScheduleDecl {
  static constexpr int mostStages = 16; // of a pipeline, 2 at least
  struct Tile {
    int64_t m, n, k;
    friend bool operator==(const Tile &, const Tile &) = default;
  };
  struct Warps {
    int64_t m, n, k = 1;
    friend bool operator==(const Warps &, const Warps &) = default;
  };
  enum class Scales : uint8_t { Operand, Accumulator, Hardware };
  // How integer partial sums of groups become floats. Converted: by an instruction of low
  // throughput. Biased: sums start at the bits of 1.5 * 2^23, so that while they stay below 2^22 in
  // magnitude they are the bits of that number plus the sum, and a subtraction converts them.
  enum class Sums : uint8_t { Converted, Biased };
  // Which warps load, decode and multiply. Uniform: every warp does all three (mma.sync). ImFP: one
  // warp loads, the others decode and multiply (wgmma, operand A in registers). ExCP: one warp
  // loads, one warpgroup decodes, the others multiply (wgmma, both operands in shared memory).
  // LiquidGEMM, sections 5.1-5.3, for the latter two.
  // Gemv: every warp loads codes straight into registers and multiplies on the CUDA cores.
  enum class Roles : uint8_t { Uniform, ImFP, ExCP, Gemv };
  // Of split_k: the k tiles of all output tiles, one after the other, in equal shares for each CTA.
  static constexpr int64_t streamK = 0;
  // Of a split of k whose k tiles are stored in several formats: shares of as many k tiles, or of
  // as much work.
  enum class Balance : uint8_t { Tiles, Cost };
  // Of a weight: as the tiles of one kernel are, or in panels that kernels with other tiles read
  // too.
  enum class Packing : uint8_t { Tiles, Panels };
  // Where codes are looked up whose numbers no bits of theirs make: by permutations of registers,
  // two at a time in shared memory, or three words of four there and one by permutations.
  enum class Tables : uint8_t { Registers, Shared, Mixed };
  struct Cluster {
    int64_t n, k;
    friend bool operator==(const Cluster &, const Cluster &) = default;
  };

  std::optional<int64_t> pipeline; // stages of the load pipeline, 2..16
  std::optional<Tile> tile;        // tile: M x N x K of one CTA
  std::optional<Warps> warps; // warps: M x N of one CTA, or M x N x K: K groups take turns along k
  std::optional<int64_t> splitK; // split_k: CTAs that share one output tile, or streamK
  std::optional<int64_t> ctas;   // ctas: with split_k: stream, the CTAs that have shares, at most
  std::optional<Scales>
      scales; // scales: operand | accumulator | hardware, where group scales are applied
  std::optional<Sums> sums;       // sums: converted | biased
  std::optional<Roles> roles;     // roles: uniform | imfp | excp | gemv
  std::optional<Balance> balance; // balance: tiles | cost
  std::optional<Packing> packing; // packing: tiles | panels
  std::optional<Tables> tables;   // tables: registers | shared | mixed
  std::optional<Cluster> cluster; // cluster: N x K, CTAs that share activations x parts of k
  std::optional<bool>
      dependent; // launch: serial | dependent, may start before its predecessor ends

  // Where these are written, which is no part of what they say.
  struct Spans {
    Span schedule, pipeline, tile, warps, splitK, ctas, scales, sums, roles, balance, packing,
        tables, cluster, launch;
    friend bool operator==(const Spans &, const Spans &) { return true; }
  } spans = {};

  friend bool operator==(const ScheduleDecl &, const ScheduleDecl &) = default;
};

// The words that a schedule has for a choice, as messages list them.
template <class Choice> struct ScheduleWords;
template <> struct ScheduleWords<ScheduleDecl::Scales> {
  using enum ScheduleDecl::Scales;
  static constexpr std::array<std::pair<ScheduleDecl::Scales, std::string_view>, 3> all = {
      {{Operand, "operand"}, {Accumulator, "accumulator"}, {Hardware, "hardware"}}};
};
template <> struct ScheduleWords<ScheduleDecl::Sums> {
  using enum ScheduleDecl::Sums;
  static constexpr std::array<std::pair<ScheduleDecl::Sums, std::string_view>, 2> all = {
      {{Converted, "converted"}, {Biased, "biased"}}};
};
template <> struct ScheduleWords<ScheduleDecl::Roles> {
  using enum ScheduleDecl::Roles;
  static constexpr std::array<std::pair<ScheduleDecl::Roles, std::string_view>, 4> all = {
      {{Uniform, "uniform"}, {ImFP, "imfp"}, {ExCP, "excp"}, {Gemv, "gemv"}}};
};
template <> struct ScheduleWords<ScheduleDecl::Balance> {
  using enum ScheduleDecl::Balance;
  static constexpr std::array<std::pair<ScheduleDecl::Balance, std::string_view>, 2> all = {
      {{Tiles, "tiles"}, {Cost, "cost"}}};
};
template <> struct ScheduleWords<ScheduleDecl::Packing> {
  using enum ScheduleDecl::Packing;
  static constexpr std::array<std::pair<ScheduleDecl::Packing, std::string_view>, 2> all = {
      {{Tiles, "tiles"}, {Panels, "panels"}}};
};
template <> struct ScheduleWords<ScheduleDecl::Tables> {
  using enum ScheduleDecl::Tables;
  static constexpr std::array<std::pair<ScheduleDecl::Tables, std::string_view>, 3> all = {
      {{Registers, "registers"}, {Shared, "shared"}, {Mixed, "mixed"}}};
};

template <class Choice>
  requires requires { ScheduleWords<Choice>::all; }
std::string_view name(Choice choice) {
  for (const auto &[each, word] : ScheduleWords<Choice>::all)
    if (each == choice)
      return word;
  return {};
}
template <class Choice> std::optional<Choice> named(std::string_view text) {
  for (const auto &[each, word] : ScheduleWords<Choice>::all)
    if (word == text)
      return each;
  return std::nullopt;
}

// y[m,n] = sum over k of activation[m,k] * weight[n,k], rounded to `output`.
struct Gemm {
  std::string name;
  Format weight;
  Format activation; // a plain f16 or bf16 activation is the format whose value is its element
  ElementType output = ElementType::get("f16");
  ScheduleDecl schedule;
  Span span, weightSpan, activationSpan, outputSpan;
};

std::string print(const Gemm &gemm); // canonical text of the gemm alone (formats by name)

} // namespace rho::dsl
