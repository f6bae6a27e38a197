// From numbers or codes to weights on the device.
#include "compiler/Layout.h"
#include "compiler/PackChecks.h"
#include "dsl/Numbers.h"
#include "dsl/Parallel.h"
#include "dsl/StoredFactors.h"
#include "runtime/Kernel.h"

namespace rho {

Result<Buffer> Gemm::packWeights(const void *host, ScalarType type, int64_t stride) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!host)
    return makeError(DiagId::null_pointer, {"host"});
  if (Status good = checkScalarType(type); !good)
    return good.error();
  if (Status good = checkStride(stride, pimpl->shape.k); !good)
    return good.error();
  const dsl::ThreadLimit threads(pimpl->threads);
  dsl::MatrixView view{host, viewType(type), pimpl->shape.n, pimpl->shape.k, stride};
  return onHost(std::to_string(view.rows * view.k), [&]() -> Result<Buffer> {
    Result<dsl::QuantizedMatrix> codes = dsl::quantize(pimpl->weight(), view, true);
    if (!codes)
      return codes.error();
    return packQuantized(*codes);
  });
}

// What two formats' codes do not have in common, by the first lines of their declarations that
// differ; empty: each number has the same codes in both.
static std::string difference(const dsl::Format &codes, const dsl::Format &taken) {
  const dsl::Format a = dsl::meaningOf(codes), b = dsl::meaningOf(taken);
  if (a == b)
    return {};
  std::string lineA, lineB;
  auto differ = [&](const std::string &textA, const std::string &textB) {
    dsl::TextReader linesA(textA), linesB(textB);
    while (lineA == lineB && linesA && linesB) {
      std::getline(linesA, lineA);
      std::getline(linesB, lineB);
    }
    return lineA != lineB;
  };
  if (!differ(dsl::print(a), dsl::print(b))) // their own are the same
    differ(dsl::printWithParts(a), dsl::printWithParts(b));
  auto shown = [](const dsl::Format &format, const std::string &line) {
    const size_t begin = line.find_first_not_of(' ');
    return "'" + format.name + "'" +
           (begin == std::string::npos || line == "}" ? "" : " with '" + line.substr(begin) + "'");
  };
  return "the codes are of format " + shown(codes, lineA) + ", the gemm takes " +
         shown(taken, lineB);
}

Result<Buffer> Gemm::packQuantized(const dsl::QuantizedMatrix &given) const {
  if (Status valid = checkHandle(*this, "gemm"); !valid)
    return valid.error();
  if (!given.format)
    return makeError(DiagId::empty_handle, {"quantized matrix"});
  if (std::string other = difference(*given.format, pimpl->gemm->weight); !other.empty())
    return makeError(DiagId::layout_mismatch, {other});
  const dsl::ThreadLimit threads(pimpl->threads);
  const compiler::KernelImage &image = pimpl->image();
  const compiler::WeightLayout &layout = image.weight;
  return onHost(std::to_string(layout.bytes), [&]() -> Result<Buffer> {
    std::optional<dsl::QuantizedMatrix> numbers;
    if (!pimpl->prepared->target->weightFactors.empty()) {
      if (std::string problem = compiler::codesProblem(given); !problem.empty())
        return makeError(DiagId::layout_mismatch, {problem});
      Result<dsl::QuantizedMatrix> stored = dsl::storedFactors(given, pimpl->packedWeight());
      if (!stored)
        return stored.error();
      numbers = *std::move(stored);
    }
    const dsl::QuantizedMatrix &weight = numbers ? *numbers : given;
    std::vector<uint8_t> packed(static_cast<size_t>(layout.bytes));
    if (Status done = compiler::pack(layout, weight, packed.data()); !done)
      return done.error();
    for (const compiler::OperandRange &range : pimpl->prepared->operands)
      if (std::optional<Error> beyond = compiler::beyondOperands(range, weight))
        return *beyond;
    Result<Buffer> buffer = Device::allocateOn(pimpl->backend, layout.bytes);
    if (!buffer)
      return buffer;
    if (Status written = buffer->write(packed.data(), layout.bytes); !written)
      return written.error();
    buffer->impl()->layout = pimpl->prepared->weightLayout;
    return buffer;
  });
}

} // namespace rho
