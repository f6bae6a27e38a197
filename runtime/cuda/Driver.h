// libcuda as a table of functions, opened at the first use.
#pragma once

#include "dsl/Error.h"
#include "runtime/cuda/DriverTypes.h"

#include <optional>
#include <string>
#include <vector>

namespace rho::cuda {

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a parameter list take no parentheses
#define RHO_DRIVER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
#define RHO_DRIVER_OPTIONAL RHO_DRIVER // null where the driver is too old
#include "runtime/cuda/DriverSymbols.def"
#undef RHO_DRIVER_OPTIONAL
#undef RHO_DRIVER

  int version = 0; // 1000 * major + 10 * minor of the newest CUDA that it serves

  // The process's driver, initialised, there until the process has ended. Error cuda_not_available
  // says what is missing.
  static Result<const Driver *> open();
  // The same from other library names: for tests of what is missing.
  static Result<Driver> openFrom(const std::vector<std::string> &libraryNames);
};

// Error cuda_call_missing, for a null function.
Error missingCall(const Driver &driver, const char *call);

// Done, or cuda_call_failed with the call and the driver's own words.
Status check(const Driver &driver, CUresult result, const char *call);

// The newest PTX ISA that a driver of this version reads: major * 10 + minor. PTX ISA reference,
// "Release notes". Versions past the table get its last line.
int newestPtxIsa(int driverVersion);
// major * 10 + minor from a PTX text's .version line; 0 without one.
int ptxIsaOf(std::string_view ptx);
std::string printIsa(int isa);             // "8.0"
std::string printCudaVersion(int version); // "12.4"

// Makes a context current for a scope, whatever the thread's own is, and lets the thread do there
// what captures forbid, beside as many of them as this mode says: in the thread-local one others'
// captures are left alone, in the relaxed one its own as well.
class ContextScope {
public:
  ContextScope(const Driver &driver, CUcontext context, CaptureMode mode = CAPTURE_MODE_GLOBAL);
  ~ContextScope();
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;

  // Whether calls go to that context; else cuda_call_failed, and they would go to another one's
  // memory.
  const Status &entered() const { return inside; }

private:
  const Driver &driver;
  bool pushed = false;
  std::optional<int> callersMode = {};
  Status inside = Done{};
};

} // namespace rho::cuda
