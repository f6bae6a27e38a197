// NVIDIA's run-time compiler, opened at run time.
#pragma once

#include "dsl/Error.h"

#include <string>
#include <string_view>
#include <vector>

namespace rho::cuda {

// A function table, as Driver.
struct Nvrtc {
  using Program = struct NvrtcProgram *;

  int (*version)(int *major, int *minor) = nullptr;
  const char *(*getErrorString)(int result) = nullptr;
  int (*createProgram)(Program *program, const char *text, const char *name, int headerCount,
                       const char *const *headers, const char *const *headerNames) = nullptr;
  int (*compileProgram)(Program program, int optionCount, const char *const *options) = nullptr;
  int (*getProgramLogSize)(Program program, size_t *size) = nullptr;
  int (*getProgramLog)(Program program, char *log) = nullptr;
  int (*getCubinSize)(Program program, size_t *size) = nullptr;
  int (*getCubin)(Program program, char *cubin) = nullptr;
  int (*destroyProgram)(Program *program) = nullptr;
  int toolkit = 0; // the CUDA version it is of, 13000 for 13.0

  // The process's NVRTC. Error nvrtc_not_available says what is missing.
  static Result<const Nvrtc *> open();
  static Result<Nvrtc> openFrom(const std::vector<std::string> &libraryNames);
};

struct NvrtcSource {
  std::string_view text, name;                   // the program
  std::string_view header = {}, headerName = {}; // what it includes, if anything
};

// Of a compilation: the machine code, or without it the first line of what the compiler said.
struct NvrtcOutput {
  std::string cubin, log;
};
NvrtcOutput compileCuda(const Nvrtc &nvrtc, const NvrtcSource &source,
                        const std::vector<std::string> &options);

} // namespace rho::cuda
