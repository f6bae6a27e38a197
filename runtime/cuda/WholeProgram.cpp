#include "runtime/cuda/WholeProgram.h"

#include <string_view>

namespace rho::cuda {
namespace {

// All but what says which line of a declaration an instruction is of.
std::string withoutLines(std::string_view body) {
  std::string text;
  while (!body.empty()) {
    const std::string_view line = body.substr(0, body.find('\n') + 1);
    if (line.find(".loc\t") == std::string_view::npos)
      text += line;
    body.remove_prefix(line.size());
  }
  return text;
}

} // namespace

std::optional<std::string> asCudaProgram(std::string_view ptx) {
  constexpr std::string_view head = "\n.address_size 64\n", end = "\tret;\n";
  const size_t headAt = ptx.find(head), endAt = ptx.rfind(end);
  if (headAt == std::string_view::npos || endAt == std::string_view::npos)
    return std::nullopt;
  const size_t begin = headAt + head.size();
  // Behind the last return there is the end of the function that it is in, and no other.
  const std::string_view behind = ptx.substr(endAt + end.size());
  if (const size_t brace = behind.find_first_of("{}");
      brace == std::string_view::npos || behind[brace] == '{' ||
      behind.find(".func ") != std::string_view::npos ||
      behind.find(".entry ") != std::string_view::npos)
    return std::nullopt;
  return "extern \"C\" __global__ void rho_before() {\n  asm volatile(R\"ptx(ret;\n}\n" +
         withoutLines(ptx.substr(begin, endAt - begin)) + ")ptx\");\n}\n";
}

std::optional<std::string> assembleWholeProgram(const Nvrtc &nvrtc, int driverVersion,
                                                const compiler::KernelImage &image) {
  if (nvrtc.toolkit < oldestWholeProgramToolkit || nvrtc.toolkit > driverVersion)
    return std::nullopt;
  const std::optional<std::string> program = asCudaProgram(image.ptx);
  if (!program)
    return std::nullopt;
  NvrtcOutput output = compileCuda(nvrtc, {*program, "whole_program.cu"},
                                   {"--gpu-architecture=" + image.target, "--minimal"});
  if (output.cubin.empty())
    return std::nullopt;
  return std::move(output.cubin);
}

} // namespace rho::cuda
