// What the parser read, before any name or type is checked.
#pragma once

#include "dsl/Format.h"
#include "dsl/Lexer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rho::dsl::ast {

struct Name {
  std::string text;
  Span span;
};

struct Number {
  int64_t value = 0;
  Span span;
};

struct Argument;

// `name`, or `name(arguments)`: a type, a format or gemm, or an instance of one with parameters.
struct Use {
  Name name;
  std::vector<Argument> arguments;
  bool parentheses = false;
  Span span;
};

// `64`, `f16`, `int4(64)`, each perhaps after `parameter =`.
struct Argument {
  std::optional<Name> parameter;
  bool integer = false;
  Use use;                      // where it is no integer
  std::vector<double> codebook; // the values of one
  std::vector<Token> tokens;    // of the value
  Span span;                    // of the value
};

// The kinds of parameters.
inline constexpr std::array<std::string_view, 3> parameterKinds = {"int", "type", "format"};

// `name: kind` or `name: kind = value`.
struct Parameter {
  Name name, kind;
  std::optional<Argument> fallback;
  bool isOfKnownKind() const {
    return std::find(parameterKinds.begin(), parameterKinds.end(), kind.text) !=
           parameterKinds.end();
  }
};

// What formats and gemms have in common. With parameters, what follows is read with their default
// values, and with some value where there is none: enough to check its syntax.
struct Declared {
  Name name;
  std::vector<Parameter> parameters;
  size_t bodyBegin = 0, bodyEnd = 0; // tokens of the file; with parameters only
  std::optional<Use> alias;          // `= use` in place of { }
  bool broken = false; // a syntax error inside; what is missing was perhaps only unreadable
};

struct Expr {
  enum class Kind : uint8_t { Integer, Real, Name, Negate, Binary, Call };
  Kind kind;
  Span span;
  int64_t integer = 0;
  double real = 0;
  std::string name; // Name, and the function or type of a Call
  dsl::Expr::Op op = dsl::Expr::Op::Add;
  std::vector<std::unique_ptr<Expr>> operands;
  int depth = 0; // operations on the longest way down
};
using ExprPtr = std::unique_ptr<Expr>;

// `remap CODE to [ENTRY, ...] by SELECTOR`.
struct Remap {
  struct Entry {
    std::optional<Name> name; // else a number
    double value = 0;
    bool negated = false; // of a name
  };
  Number code;
  std::vector<Entry> entries;
  Name selector;
};

// `name: type`, `name: type per extent`, `name: type in host`.
struct Component {
  Name name, type;
  std::optional<Name> extent;  // k, channel, token, tensor
  std::optional<Number> group; // of k[G]
  std::optional<Name> rowAxis; // n or m, of n[R] k[G] and m[R] k[G]
  std::optional<Number> rows;
  std::optional<Name> host;
  std::optional<Remap> remap;
  bool broken = false; // a syntax error behind its name; what there is stands before it
};

// `name = expression`, in an encode block or as the value.
struct Rule {
  Name name;
  ExprPtr expr;
};

struct Require {
  ExprPtr expr;
  bool atMost = true;
  int64_t bound = 0;
  Span span;
};

// `k[G]`, `n[R] k[G]`, `m[R] k[G]` or `tensor k[G]`.
struct Blocks {
  std::optional<Name> extent;
  std::optional<Number> rows;
  Name along; // k
  Number k;
  Span span;
};

// `name: format where left >= right budget 10%`.
struct Part {
  Name name;
  Use format;
  ExprPtr left, right; // null without `where`
  bool atLeast = true;
  std::optional<double> budget;
  Span where, budgetSpan;
};

struct Partition {
  Blocks blocks;
  std::vector<Part> parts;
  Span span;
};

// `name: format` or `name: type / divisor`, then as a part.
struct Residual {
  Blocks blocks;
  Part part;
  std::optional<Number> divisor;
  Span span;
};

struct Format : Declared {
  std::vector<Component> components;
  std::vector<Rule> values;
  std::vector<Require> requirements;
  std::vector<Rule> encode;
  std::vector<Partition> partitions;
  std::vector<Residual> residuals;
};

// `key: use` of a gemm.
struct GemmEntry {
  Name key;
  Use value;
};

// `key: 4`, `key: 16 x 128 x 128` or `key: word` of a schedule.
struct ScheduleEntry {
  Name key;
  std::vector<Number> numbers;
  std::optional<Name> word;
};

struct Schedule {
  Span span;
  std::vector<ScheduleEntry> entries;
};

struct Gemm : Declared {
  std::vector<GemmEntry> entries;
  std::vector<Schedule> schedules;
};

// `key: 108`, `key: 1.41 GHz`, `key: sm_80` or `key: "NVIDIA A40"` of a device.
struct DeviceEntry {
  Name key;
  std::optional<Name> word, string;
  std::optional<double> number;
  std::string unit; // "" or e.g. "GB/s"
  Span valueSpan;   // of number and unit
};

// `tensor { ... }`, `mma { ... }` or `throughput { ... }`.
struct DeviceBlock {
  Name key;
  std::vector<DeviceEntry> entries;
};

struct Device {
  Name name;
  std::vector<DeviceEntry> entries;
  std::vector<DeviceBlock> blocks;
  bool broken = false;
};

struct Import {
  std::string path;
  Span span;
};

using Declaration = std::variant<Import, Format, Gemm, Device>;

struct File {
  std::vector<Declaration> declarations; // in order of the text
  // What tokens alone do not tell a formatter: positions in bytes, in order of the text.
  std::vector<uint32_t> entries;  // first tokens of declarations and of the entries of blocks
  std::vector<uint32_t> prefixes; // minus signs and parentheses that begin an operand
};

// As written: "int4(64, f16)".
std::string print(const Use &use);
// Indented text, one node a line.
std::string print(const File &file);

} // namespace rho::dsl::ast
