#include "runtime/cuda/Driver.h"

#include "dsl/Lasting.h"
#include "runtime/cuda/SharedLibrary.h"

#include <array>
#include <charconv>

namespace rho::cuda {

Status check(const Driver &driver, CUresult result, const char *call) {
  if (result == CUDA_SUCCESS)
    return Done{};
  const char *name = nullptr, *words = nullptr;
  if (driver.getErrorName(result, &name) != CUDA_SUCCESS || !name)
    name = "an unknown error";
  if (driver.getErrorString(result, &words) != CUDA_SUCCESS || !words)
    words = "no description";
  return makeError(DiagId::cuda_call_failed, {call, name, words});
}

Error missingCall(const Driver &driver, const char *call) {
  return makeError(DiagId::cuda_call_missing, {printCudaVersion(driver.version), call});
}

Result<Driver> Driver::openFrom(const std::vector<std::string> &libraryNames) {
  SharedLibrary library(libraryNames);
  if (!library.opened())
    return makeError(DiagId::cuda_not_available, {library.reason()});
  Driver driver;
// NOLINTBEGIN(bugprone-macro-parentheses): a name and a parameter list take no parentheses
#define RHO_DRIVER_OPTIONAL(member, symbolName, parameters)                                        \
  library.bindOptional(driver.member, #symbolName);
#define RHO_DRIVER(member, symbolName, parameters) library.bind(driver.member, #symbolName);
#include "runtime/cuda/DriverSymbols.def"
#undef RHO_DRIVER_OPTIONAL
#undef RHO_DRIVER
  // NOLINTEND(bugprone-macro-parentheses)
  if (!library.firstMissing().empty())
    return makeError(DiagId::cuda_not_available,
                     {library.name() + " has no " + library.firstMissing() +
                      ", it must be of CUDA 11.4 or later"});
  auto unavailable = [](const Status &status) {
    return makeError(DiagId::cuda_not_available, {status.error().diagnostics[0].message});
  };
  Status status = check(driver, driver.init(0), "cuInit");
  if (!status)
    return unavailable(status);
  status = check(driver, driver.driverGetVersion(&driver.version), "cuDriverGetVersion");
  if (!status)
    return unavailable(status);
  return driver;
}

Result<const Driver *> Driver::open() {
  static const auto &driver = dsl::lasting(openFrom({"libcuda.so.1"}));
  if (!driver)
    return driver.error();
  return &*driver;
}

int newestPtxIsa(int driverVersion) {
  struct Row {
    int cuda, isa;
  };
  static constexpr std::array<Row, 19> rows = {{{11000, 70},
                                                {11010, 71},
                                                {11020, 72},
                                                {11030, 73},
                                                {11040, 74},
                                                {11050, 75},
                                                {11060, 76},
                                                {11070, 77},
                                                {11080, 78},
                                                {12000, 80},
                                                {12010, 81},
                                                {12020, 82},
                                                {12030, 83},
                                                {12040, 84},
                                                {12050, 85},
                                                {12070, 86},
                                                {12080, 87},
                                                {12090, 88},
                                                {13000, 90}}};
  int isa = 0;
  for (const Row &row : rows)
    if (driverVersion >= row.cuda)
      isa = row.isa;
  return isa;
}

int ptxIsaOf(std::string_view ptx) {
  constexpr std::string_view directive = ".version";
  size_t at = ptx.find(directive);
  if (at == std::string_view::npos)
    return 0;
  const char *begin = ptx.data(), *end = begin + ptx.size();
  for (begin += at + directive.size(); begin != end && (*begin == ' ' || *begin == '\t'); ++begin) {
  }
  int major = 0, minor = 0;
  auto [next, error] = std::from_chars(begin, end, major);
  if (error != std::errc() || next == end || *next != '.' ||
      std::from_chars(next + 1, end, minor).ec != std::errc())
    return 0;
  return major * 10 + minor;
}

std::string printIsa(int isa) { return std::to_string(isa / 10) + "." + std::to_string(isa % 10); }

std::string printCudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

ContextScope::ContextScope(const Driver &driver, CUcontext context, CaptureMode mode)
    : driver(driver) {
  if (mode != CAPTURE_MODE_GLOBAL) {
    callersMode = mode;
    driver.threadExchangeCaptureMode(&*callersMode);
    if (int more = *callersMode; more > mode) // which the thread has allowed itself
      driver.threadExchangeCaptureMode(&more);
  }
  CUcontext current = nullptr;
  if (driver.ctxGetCurrent(&current) == CUDA_SUCCESS && current == context)
    return;
  inside = check(driver, driver.ctxPushCurrent(context), "cuCtxPushCurrent");
  pushed = inside.ok();
}

ContextScope::~ContextScope() {
  if (callersMode)
    driver.threadExchangeCaptureMode(&*callersMode);
  CUcontext ignored = nullptr;
  if (pushed)
    driver.ctxPopCurrent(&ignored);
}

} // namespace rho::cuda
