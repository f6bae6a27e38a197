// What the parser read, before any name or type is checked.
#pragma once

#include "dsl/Format.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

struct Expr {
  enum class Kind : uint8_t { Integer, Real, Name, Negate, Binary, Call };
  Kind kind;
  Span span;
  int64_t integer = 0;
  double real = 0;
  std::string name; // Name, and the function or type of a Call
  dsl::Expr::Op op = dsl::Expr::Op::Add;
  std::vector<std::unique_ptr<Expr>> operands;
  int depth = 1; // operations on the longest way down
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

// `broken`: a syntax error inside; what is missing was perhaps only unreadable.
struct Format {
  Name name;
  std::vector<Component> components;
  std::vector<Rule> values;
  std::vector<Require> requirements;
  std::vector<Rule> encode;
  bool broken = false;
};

// `key: name` of a gemm.
struct GemmEntry {
  Name key, value;
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

struct Gemm {
  Name name;
  std::vector<GemmEntry> entries;
  std::vector<Schedule> schedules;
  bool broken = false;
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
};

// Indented text, one node a line.
std::string print(const File &file);

} // namespace rho::dsl::ast
