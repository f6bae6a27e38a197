#include "runtime/tool/Operands.h"

#include "dsl/StoredValues.h"
#include "kernels/TensorHeader.h"
#include "runtime/Kernel.h"
#include "runtime/Scalar.h"
#include "runtime/Stopwatch.h"
#include "runtime/tool/Inputs.h"

namespace rho::tool {

Result<Operands> makeOperands(const Device &device, const Gemm &gemm, const dsl::MatrixView &w,
                              const dsl::MatrixView &x) {
  Stopwatch watch;
  Result<dsl::QuantizedMatrix> weight = dsl::quantize(gemm.impl().weight(), w, true);
  if (!weight)
    return weight.error();
  double milliseconds = watch.milliseconds();
  Result<Operands> operands = makeOperands(device, gemm, *weight, x);
  if (operands)
    operands->quantizeMilliseconds = milliseconds;
  return operands;
}

Result<Operands> makeOperands(const Device &device, const Gemm &gemm,
                              const dsl::QuantizedMatrix &weight, const dsl::MatrixView &x) {
  Operands operands;
  Stopwatch watch;
  Result<Buffer> packed = gemm.packQuantized(weight);
  if (!packed)
    return packed.error();
  operands.packMilliseconds = watch.milliseconds();
  operands.weight = weight;
  operands.packed = std::move(*packed);

  int64_t inputBytes = x.rows * x.k * kernels::bytesOf(x.type);
  Result<Buffer> input = device.allocate(inputBytes);
  if (!input)
    return input.error();
  if (Status written = input->write(x.data, inputBytes); !written)
    return written.error();
  Result<ReadyGemm> ready = makeReady(device, gemm, input->address(), scalarType(x.type));
  if (!ready)
    return ready.error();
  operands.ready = std::move(*ready);
  Result<dsl::QuantizedMatrix> activation = readActivations(operands.ready.activations);
  if (!activation)
    return activation.error();
  Result<dsl::QuantizedMatrix> byHost = dsl::quantize(gemm.impl().activation(), x, false);
  if (!byHost)
    return byHost.error();
  if (gemm.impl().prepared->target->reason.empty()) {
    operands.differing = differingCodes(*activation, *byHost);
    operands.activation = std::move(*activation);
  } else { // what is stored may be rounded, the reference is what is declared
    operands.activation = *byHost;
    operands.differing = differingCodes(
        *activation, dsl::storedValues(*std::move(byHost), gemm.impl().storedActivation()));
  }
  return operands;
}

Result<HostOutput> readOutput(const ReadyGemm &ready) {
  GemmShape shape = ready.gemm.shape();
  HostOutput output;
  output.bytes.resize(static_cast<size_t>(ready.output.bytes()));
  if (Status read = ready.output.read(output.bytes.data(), ready.output.bytes()); !read)
    return read.error();
  output.view = {output.bytes.data(), viewType(ready.gemm.outputType()), shape.m, shape.n, shape.n};
  return output;
}

Result<Comparison> compare(const Operands &operands, const HostOutput &output, VerifyMode mode,
                           std::optional<compiler::Summing> by) {
  const Gemm::Impl &gemm = operands.ready.gemm.impl();
  const auto ofDevice =
      gemm.backend->emulated() ? compiler::Summing::Emulator : compiler::Summing::Gpu;
  return verify(*gemm.gemm, gemm.plan(), operands.activation, operands.weight, output.view, mode,
                by.value_or(ofDevice));
}

} // namespace rho::tool
