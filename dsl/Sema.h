// Syntax tree -> checked declarations: names, types, extents, ranges, encode rules, schedules.
#pragma once

#include "dsl/Ast.h"
#include "dsl/Device.h"
#include "dsl/Findings.h"
#include "dsl/Format.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rho::dsl {

inline constexpr int64_t minGroup = 8;
inline constexpr int64_t maxGroup = int64_t(1) << 20; // also of rows, and of blocks of parts
// Combinations of candidates that the encoder tries.
inline constexpr int maxCandidates = 256;
inline constexpr int minElementBits = 2;
// Integers are exact in double up to here, which keeps ranges and evaluation exact.
inline constexpr double maxInteger = 0x1p53 - 1;

// The format that a use names; null where it has errors, which are reported.
using FormatLookup = std::function<std::shared_ptr<const Format>(const ast::Use &)>;

// --- SemaExpr.cpp

// What an expression may refer to.
struct ExprScope {
  const Format &format;              // its components are complete
  const std::vector<bool> &poisoned; // components with errors of their own: no second error
  Findings &findings;
  int encodes = -1;    // the component whose rule this is; -1: a value or a requirement
  bool ofPart = false; // a part's rule, which reads no component
};

// Checks and lowers an expression. Null after it reported errors.
ExprPtr lower(const ast::Expr &expr, const ExprScope &scope);

// --- Sema.cpp

// Words that no component, format or gemm can be named.
bool isReserved(const std::string &name, bool component);

// Checks a format without parameters. None after it reported errors.
std::optional<Format> checkFormat(const ast::Format &format, const FormatLookup &lookup,
                                  Findings &findings);

// --- SemaParts.cpp

// Parts that have parts themselves, on the longest way down.
inline constexpr int maxPartDepth = 3;

// Checks partition and residual and adds them to `format`. False after errors.
bool checkParts(const ast::Format &syntax, const FormatLookup &lookup, Findings &findings,
                Format &format);
// Makes the format of a residual that is divided, when that of the rest is complete.
bool shareComponents(const ast::Format &syntax, Findings &findings, Format &format);

// --- SemaGemm.cpp

// Checks a gemm without parameters. None after it reported errors, or where a format has errors.
std::optional<Gemm> checkGemm(const ast::Gemm &gemm, const FormatLookup &lookup,
                              Findings &findings);

// --- SemaDevice.cpp

// Checks a device. None after it reported errors.
std::optional<Device> checkDevice(const ast::Device &device, Findings &findings);

} // namespace rho::dsl
