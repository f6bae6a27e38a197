#include "compiler/Devices.h"
#include "dsl/Findings.h"
#include "runtime/Handles.h"
#include "runtime/cuda/CudaBackend.h"

namespace rho {
namespace {

// Sums of a few such sizes stay far from the end of int64_t.
constexpr int64_t maxAllocation = int64_t(1) << 46;

} // namespace

Buffer::Buffer() = default;
Buffer::Buffer(Buffer &&) noexcept = default;
Buffer &Buffer::operator=(Buffer &&) noexcept = default;
Buffer::~Buffer() = default;

DevicePointer Buffer::address() const { return pimpl ? pimpl->address : 0; }
int64_t Buffer::bytes() const { return pimpl ? pimpl->bytes : 0; }

static Status checkRange(const Buffer &buffer, const void *host, int64_t bytes, int64_t offset) {
  if (!buffer.impl())
    return makeError(DiagId::empty_handle, {"buffer"});
  if (offset < 0 || bytes < 0 || offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    return makeError(DiagId::bad_range,
                     {std::to_string(offset),
                      offset < 0 || bytes < 0
                          ? std::to_string(static_cast<int64_t>(uint64_t(offset) + uint64_t(bytes)))
                          : std::to_string(uint64_t(offset) + uint64_t(bytes)),
                      std::to_string(buffer.bytes())});
  if (bytes > 0 && !host)
    return makeError(DiagId::null_pointer, {"host memory"});
  return Done{};
}

Status Buffer::write(const void *from, int64_t bytes, int64_t offset) {
  if (Status range = checkRange(*this, from, bytes, offset); !range || bytes == 0)
    return range;
  if (!pimpl->isView) // of a view it is what the caller says
    pimpl->layout.clear();
  return pimpl->backend->write(pimpl->address + static_cast<uint64_t>(offset), from, bytes);
}

Status Buffer::read(void *to, int64_t bytes, int64_t offset) const {
  if (Status range = checkRange(*this, to, bytes, offset); !range || bytes == 0)
    return range;
  return pimpl->backend->read(pimpl->address + static_cast<uint64_t>(offset), to, bytes);
}

Result<Device> Device::cuda(int ordinal) {
  Result<std::shared_ptr<Backend>> backend = cuda::backendOf(ordinal);
  if (!backend)
    return backend.error();
  Device device;
  device.pimpl = std::make_shared<Impl>(Impl{std::move(*backend)});
  return device;
}

Result<Device> Device::emulated(std::string_view name) {
  const FloatEnvironment numbers; // of figures that are read
  if (const dsl::Device *shipped = compiler::shippedDevice(name))
    return emulated(compiler::modelOf(*shipped));
  if (Result<compiler::DeviceModel> model = compiler::modelOfTarget(name))
    return emulated(*model);
  return makeError(DiagId::unknown_target,
                   {dsl::shown(name), dsl::join(compiler::allTargets()) + ", and devices " +
                                          dsl::join(compiler::shippedNames()) +
                                          compiler::suggestedDevice(name)});
}

Result<Device> Device::emulated(const compiler::DeviceModel &described) {
  Result<std::shared_ptr<Backend>> backend = makeEmulatedBackend(described);
  if (!backend)
    return backend.error();
  Device device;
  device.pimpl = std::make_shared<Impl>(Impl{std::move(*backend)});
  return device;
}

Result<Device> Device::automatic() {
  Result<Device> gpu = cuda(0);
  return gpu || isFaultOfDevice(gpu.error()) ? gpu : emulated("sm_80");
}

std::string Device::name() const { return pimpl ? pimpl->backend->model().name : std::string(); }
std::string Device::target() const {
  return pimpl ? pimpl->backend->model().target : std::string();
}
bool Device::isEmulated() const { return pimpl && pimpl->backend->emulated(); }

Result<Buffer> Device::allocate(int64_t bytes) const {
  if (Status valid = checkHandle(*this, "device"); !valid)
    return valid.error();
  return allocateOn(pimpl->backend, bytes);
}

Result<Buffer> Device::allocateOn(const std::shared_ptr<Backend> &backend, int64_t bytes) {
  if (bytes < 0 || bytes > maxAllocation)
    return makeError(DiagId::bad_size, {std::to_string(bytes), std::to_string(maxAllocation)});
  Buffer buffer;
  buffer.pimpl = std::make_unique<Buffer::Impl>(backend, 0, bytes, false); // owns what follows
  if (bytes > 0) {
    Result<DevicePointer> allocated = backend->allocate(bytes);
    if (!allocated)
      return allocated.error();
    buffer.pimpl->address = *allocated;
  }
  return buffer;
}

Result<Buffer> Device::view(DevicePointer address, int64_t bytes,
                            std::string_view weightLayout) const {
  if (Status valid = checkHandle(*this, "device"); !valid)
    return valid.error();
  if (bytes < 0 || bytes > maxAllocation)
    return makeError(DiagId::bad_size, {std::to_string(bytes), std::to_string(maxAllocation)});
  if (address == 0)
    return makeError(DiagId::null_pointer, {"address"});
  Buffer buffer;
  buffer.pimpl = std::make_unique<Buffer::Impl>(pimpl->backend, address, bytes, true);
  buffer.pimpl->layout = weightLayout;
  return buffer;
}

Status Device::synchronize(Stream stream) const {
  if (Status valid = checkHandle(*this, "device"); !valid)
    return valid;
  return pimpl->backend->synchronize(stream);
}

} // namespace rho
