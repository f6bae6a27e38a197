#include "runtime/cuda/WholeProgram.h"

#include "dsl/Findings.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace rho::cuda {
namespace {

// The text between two others, from `at` on, which moves behind it.
std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after, size_t &at) {
  const size_t first = text.find(before, at);
  if (first == std::string_view::npos)
    return std::nullopt;
  const size_t begin = first + before.size(), end = text.find(after, begin);
  if (end == std::string_view::npos)
    return std::nullopt;
  at = end + after.size();
  return text.substr(begin, end - begin);
}

std::optional<int> numberBehind(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos)
    return std::nullopt;
  text.remove_prefix(at + word.size());
  int number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{})
    return std::nullopt;
  return number;
}

// Whether there is nothing else but the lines that say these two.
bool areAll(std::string_view limits) {
  const std::vector<std::string_view> lines = dsl::split(limits, '\n');
  return std::all_of(lines.begin(), lines.end(), [](std::string_view line) {
    return line.empty() || line.starts_with(".reqntid ") || line.starts_with(".maxnreg ");
  });
}

// `.param .u64 .ptr .global .align 1 gemm_param_0`, `.param .align 64 .b8 gemm_param_1[128]`.
// Inline PTX names parameters as PTX does: NVRTC calls them by the kernel and their place, too.
struct Parameters {
  std::string types, list;

  bool add(std::string_view text) {
    const std::string index = std::to_string(count++);
    list += (list.empty() ? "" : ", ");
    if (text.find(".b8 ") != std::string_view::npos) {
      const std::optional<int> align = numberBehind(text, ".align "),
                               bytes = numberBehind(text, "[");
      if (!align || !bytes)
        return false;
      types += "struct alignas(" + std::to_string(*align) + ") Bytes" + index + " { char at[" +
               std::to_string(*bytes) + "]; };\n";
      list += "const __grid_constant__ Bytes" + index + " a" + index;
      return true;
    }
    for (auto [ptx, cuda] : {std::pair{".u64 ", "unsigned long long"}, {".u32 ", "unsigned"}})
      if (text.find(ptx) != std::string_view::npos) {
        list += std::string(cuda) + " a" + index;
        return true;
      }
    return false;
  }

private:
  int count = 0;
};

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

std::optional<std::string> asCudaProgram(const std::string &ptx, const compiler::Dim3 &cluster) {
  size_t at = 0;
  const auto shared = between(ptx, ".extern .shared ", "[];", at);
  const auto entry = between(ptx, ".visible .entry ", "(", at);
  const auto parameters = between(ptx, "\n", "\n)", at);
  const auto limits = between(ptx, "\n", "{\n", at);
  const auto body = between(ptx, "", "\tret;\n", at);
  if (!shared || !entry || !parameters || !limits || !body)
    return std::nullopt;
  // Nothing but one kernel that returns in one place, its end.
  const std::string_view all = ptx;
  for (const char *single : {"\tret;", ".entry ", ".shared "})
    if (all.find(single) != all.rfind(single))
      return std::nullopt;
  for (const char *other : {".func ", "\n.global ", "\n.const "})
    if (all.find(other) != std::string_view::npos)
      return std::nullopt;
  Parameters taken;
  for (std::string_view each : dsl::split(*parameters, '\n'))
    if (!taken.add(each))
      return std::nullopt;
  const std::optional<int> threads = numberBehind(*limits, ".reqntid "),
                           registers = numberBehind(*limits, ".maxnreg "),
                           align = numberBehind(*shared, ".align ");
  if (!threads || !registers || !align || !areAll(*limits))
    return std::nullopt;
  const std::string bytes(shared->substr(shared->rfind(' ') + 1));
  return taken.types + "extern __shared__ __align__(" + std::to_string(*align) + ") char " + bytes +
         "[];\n" + "extern \"C\" __global__ void __block_size__((" + std::to_string(*threads) +
         ", 1, 1), (" + std::to_string(cluster.x) + ", " + std::to_string(cluster.y) + ", " +
         std::to_string(cluster.z) + ")) __maxnreg__(" + std::to_string(*registers) + ") " +
         std::string(*entry) + "(" + taken.list + ") {\n" + "  asm volatile(\"\" ::\"l\"(" + bytes +
         "));\n" + "  asm volatile(R\"ptx({\n" + withoutLines(*body) + "})ptx\");\n}\n";
}

std::optional<std::string> assembleWholeProgram(const Nvrtc &nvrtc, int driverVersion,
                                                const compiler::KernelImage &image) {
  constexpr int since = 13000;
  if (nvrtc.toolkit < since || nvrtc.toolkit > driverVersion)
    return std::nullopt;
  const std::optional<std::string> program = asCudaProgram(image.ptx, image.cluster());
  if (!program)
    return std::nullopt;
  NvrtcOutput output = compileCuda(nvrtc, {*program, "whole_program.cu"},
                                   {"--gpu-architecture=" + image.target, "--minimal"});
  if (output.cubin.empty())
    return std::nullopt;
  return std::move(output.cubin);
}

} // namespace rho::cuda
