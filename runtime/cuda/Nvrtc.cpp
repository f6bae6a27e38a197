#include "runtime/cuda/Nvrtc.h"

#include "dsl/Lasting.h"
#include "dsl/ProcessEnd.h"
#include "runtime/cuda/SharedLibrary.h"

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
  nvrtc.toolkit = 1000 * major + 10 * minor; // as drivers count
  return nvrtc;
}

Result<const Nvrtc *> Nvrtc::open() {
  // The library's name carries the version of its interface. The last one is the toolkit's default
  // folder, which few systems have in the loader's search path.
  static const auto &nvrtc = dsl::lasting([] {
    static dsl::EndingLibrary loading;
    const dsl::DelaysProcessEnd delay(loading);
    return openFrom({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                     "/usr/local/cuda/lib64/libnvrtc.so"});
  }());
  if (!nvrtc)
    return nvrtc.error();
  return &*nvrtc;
}

NvrtcOutput compileCuda(const Nvrtc &nvrtc, const NvrtcSource &source,
                        const std::vector<std::string> &options) {
  const std::string text(source.text), name(source.name), header(source.header),
      headerName(source.headerName);
  const char *headers[] = {header.c_str()};
  const char *headerNames[] = {headerName.c_str()};
  std::vector<const char *> words;
  for (const std::string &option : options)
    words.push_back(option.c_str());
  Nvrtc::Program program = nullptr;
  NvrtcOutput output;
  static dsl::EndingLibrary compiling;
  const dsl::DelaysProcessEnd delay(compiling);
  if (!delay) {
    output.log = "the process ends";
    return output;
  }
  auto failed = [&](int result) {
    if (result == 0)
      return false;
    output = {.cubin = {}, .log = nvrtc.getErrorString(result)};
    size_t size = 0;
    if (program && nvrtc.getProgramLogSize(program, &size) == 0 && size > 1) {
      std::string lines(size, '\0');
      if (nvrtc.getProgramLog(program, lines.data()) == 0)
        output.log += ": " + lines.substr(0, lines.find('\n'));
    }
    return true;
  };
  size_t size = 0;
  if (!failed(nvrtc.createProgram(&program, text.c_str(), name.c_str(), header.empty() ? 0 : 1,
                                  headers, headerNames)) &&
      !failed(nvrtc.compileProgram(program, static_cast<int>(words.size()), words.data())) &&
      !failed(nvrtc.getCubinSize(program, &size))) {
    output.cubin.resize(size);
    (void)failed(nvrtc.getCubin(program, output.cubin.data()));
  }
  if (program)
    nvrtc.destroyProgram(&program);
  return output;
}

} // namespace rho::cuda
