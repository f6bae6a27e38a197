#include "runtime/tool/SuitePeers.h"

#include "runtime/Handles.h"
#include "runtime/cuda/CudaBackend.h"

namespace rho::tool {

namespace {

constexpr int64_t workspaceBytes = 32 << 20;
constexpr int choices = 8;

} // namespace

std::string peerName(cuda::LtType type) { return "cublaslt_" + std::string(cuda::name(type)); }

Result<SuitePeers> SuitePeers::create(const Device &device) {
  Result<const cuda::CublasLt *> library = cuda::CublasLt::open();
  if (!library)
    return library.error();
  SuitePeers peers(device, *library);
  std::shared_ptr<const cuda::Context> context = cuda::contextOf(*device.impl().backend);
  const cuda::ContextScope scope(context->driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  Result<std::shared_ptr<cuda::LtHandle>> handle = (*library)->makeHandle();
  if (!handle)
    return handle.error();
  peers.handle = std::move(*handle);
  Result<Buffer> workspace = device.allocate(workspaceBytes);
  if (!workspace)
    return workspace.error();
  peers.workspace = std::move(*workspace);
  Result<Buffer> one = device.allocate(sizeof(float));
  if (!one)
    return one.error();
  peers.one = std::move(*one);
  constexpr float value = 1;
  if (Status written = peers.one.write(&value, sizeof value); !written)
    return written.error();
  return peers;
}

Result<SuiteRow> SuitePeers::measure(cuda::LtType type, const GemmShape &shape,
                                     TimingOperands &operands) {
  std::shared_ptr<const cuda::Context> context = cuda::contextOf(*device->impl().backend);
  const cuda::ContextScope scope(context->driver, context->handle);
  if (!scope.entered())
    return scope.entered().error();
  Result<cuda::LtMatmul> matmul =
      cuda::LtMatmul::create(*library, handle, {type, shape.m, shape.n, shape.k},
                             {workspace.address(), workspaceBytes, one.address()}, choices);
  if (!matmul)
    return matmul.error();
  int64_t rows = matmul->rows();
  dsl::ElementType element = dsl::ElementType::get(cuda::element(type));
  Result<const WeightCopies *> weight = operands.plainWeight(element, shape.n, shape.k);
  if (!weight)
    return weight.error();
  Result<DevicePointer> x = operands.numbers(element, rows * shape.k);
  if (!x)
    return x.error();
  Result<Buffer> y = device->allocate(rows * shape.n * cuda::outputBytes(type));
  if (!y)
    return y.error();
  Result<FastestTime> fastest = timeFastest(
      *device, matmul->algorithms(), static_cast<int>((*weight)->size()),
      [&](int algorithm, int copy, Stream stream) {
        return matmul->launch(algorithm, (**weight)[static_cast<size_t>(copy)].address(), *x,
                              y->address(), stream);
      });
  if (!fastest)
    return fastest.error();
  SuiteRow row;
  row.name = peerName(type);
  row.peer = type == cuda::LtType::Bf16 ? SuiteRow::Peer::Half : SuiteRow::Peer::Byte;
  row.mmaType = cuda::element(type);
  row.device = device->name();
  row.shape = shape;
  row.paddedM = rows;
  row.time = fastest->time;
  row.weightBytes = shape.n * shape.k * cuda::operandBytes(type);
  row.roofline = rooflineMicroseconds(*device, shape, row.weightBytes, row.mmaType);
  row.algorithm = fastest->place();
  return row;
}

} // namespace rho::tool
