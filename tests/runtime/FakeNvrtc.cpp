#include "tests/runtime/FakeNvrtc.h"

#include <cstring>
#include <mutex>

namespace rho::cuda {

struct NvrtcProgram {
  std::string text;
  std::string cubin() const { return "cubin of " + text; }
};

namespace {

FakeNvrtc state;
std::mutex mutex;
constexpr char compilerLog[] = "a.cu(3): error: nonsense\nmore";

} // namespace

FakeNvrtc &resetFakeNvrtc() {
  state = {};
  return state;
}

Result<const Nvrtc *> fakeNvrtc() {
  const std::lock_guard lock(mutex);
  static Nvrtc fake;
  fake.toolkit = state.toolkit;
  fake.getErrorString = [](int) { return "NVRTC_ERROR_COMPILATION"; };
  fake.createProgram = [](Nvrtc::Program *program, const char *text, const char *, int count,
                          const char *const *headers, const char *const *) {
    const std::lock_guard lock(mutex);
    *program = new NvrtcProgram{text};
    state.headers.assign(headers, headers + count);
    ++state.alive;
    return 0;
  };
  fake.compileProgram = [](Nvrtc::Program program, int count, const char *const *options) {
    const std::lock_guard lock(mutex);
    state.options.assign(options, options + count);
    state.programs.push_back(program->text);
    return state.compiles ? 0 : 6;
  };
  fake.getProgramLogSize = [](Nvrtc::Program, size_t *size) {
    *size = sizeof(compilerLog);
    return 0;
  };
  fake.getProgramLog = [](Nvrtc::Program, char *to) {
    std::strcpy(to, compilerLog);
    return 0;
  };
  fake.getCubinSize = [](Nvrtc::Program program, size_t *size) {
    *size = program->cubin().size();
    return 0;
  };
  fake.getCubin = [](Nvrtc::Program program, char *cubin) {
    program->cubin().copy(cubin, std::string::npos);
    return 0;
  };
  fake.destroyProgram = [](Nvrtc::Program *program) {
    const std::lock_guard lock(mutex);
    delete *program;
    return --state.alive;
  };
  return &fake;
}

} // namespace rho::cuda
