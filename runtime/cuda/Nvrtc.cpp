#include "runtime/cuda/Nvrtc.h"

#include "runtime/cuda/SharedLibrary.h"

#include <array>

namespace rho::cuda {

Result<Nvrtc> Nvrtc::openFrom(const std::vector<std::string> &libraryNames) {
  SharedLibrary library(libraryNames);
  if (!library.opened())
    return makeError(DiagId::nvrtc_not_available, {library.reason()});
  Nvrtc nvrtc;
  library.bind(nvrtc.version, "nvrtcVersion");
  library.bind(nvrtc.getErrorString, "nvrtcGetErrorString");
  library.bind(nvrtc.createProgram, "nvrtcCreateProgram");
  library.bind(nvrtc.compileProgram, "nvrtcCompileProgram");
  library.bind(nvrtc.getProgramLogSize, "nvrtcGetProgramLogSize");
  library.bind(nvrtc.getProgramLog, "nvrtcGetProgramLog");
  library.bind(nvrtc.getCubinSize, "nvrtcGetCUBINSize");
  library.bind(nvrtc.getCubin, "nvrtcGetCUBIN");
  library.bind(nvrtc.destroyProgram, "nvrtcDestroyProgram");
  if (!library.firstMissing().empty())
    return makeError(DiagId::nvrtc_not_available,
                     {library.name() + " has no " + library.firstMissing() +
                      ", it must be of CUDA 11.2 or later"});
  int major = 0, minor = 0;
  if (int result = nvrtc.version(&major, &minor); result != 0)
    return makeError(DiagId::nvrtc_not_available,
                     {std::string("nvrtcVersion failed: ") + nvrtc.getErrorString(result)});
  return nvrtc;
}

Result<const Nvrtc *> Nvrtc::open() {
  // The library's name carries the version of its interface. The last one is the toolkit's default
  // folder, which few systems have in the loader's search path.
  static const Result<Nvrtc> nvrtc =
      openFrom({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                "/usr/local/cuda/lib64/libnvrtc.so"});
  if (!nvrtc)
    return nvrtc.error();
  return &*nvrtc;
}

Result<std::string> compileToCubin(const Nvrtc &nvrtc, const NvrtcSource &source, int capability,
                                   const std::string &what) {
  const std::string text(source.text), name(source.name), header(source.header),
      headerName(source.headerName);
  const char *headers[] = {header.c_str()};
  const char *headerNames[] = {headerName.c_str()};
  Nvrtc::Program program = nullptr;
  auto fail = [&](int result) -> Error {
    std::string log = nvrtc.getErrorString(result);
    size_t size = 0;
    if (program && nvrtc.getProgramLogSize(program, &size) == 0 && size > 1) {
      std::string lines(size, '\0');
      if (nvrtc.getProgramLog(program, lines.data()) == 0)
        log += ": " + lines.substr(0, lines.find('\n'));
    }
    if (program)
      nvrtc.destroyProgram(&program);
    return makeError(DiagId::nvrtc_failed, {what, log});
  };
  if (int result =
          nvrtc.createProgram(&program, text.c_str(), name.c_str(), 1, headers, headerNames);
      result != 0)
    return fail(result);
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
  // No contraction: the arithmetic is the host's, operation by operation.
  const std::array<const char *, 3> options = {architecture.c_str(), "--std=c++17", "--fmad=false"};
  if (int result = nvrtc.compileProgram(program, options.size(), options.data()); result != 0)
    return fail(result);
  size_t size = 0;
  if (int result = nvrtc.getCubinSize(program, &size); result != 0)
    return fail(result);
  std::string cubin(size, '\0');
  if (int result = nvrtc.getCubin(program, cubin.data()); result != 0)
    return fail(result);
  nvrtc.destroyProgram(&program);
  return cubin;
}

} // namespace rho::cuda
