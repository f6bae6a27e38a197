#include "dsl/Division.h"
#include "runtime/Backend.h"
#include "runtime/Handles.h"
#include "runtime/Quantizer.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/TensorMap.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <unordered_map>

namespace rho {
namespace {

struct EmulatedKernel final : LoadedKernel {
  EmulatedKernel(emulator::Program program, const compiler::KernelImage &image)
      : program(std::move(program)), entry(image.entry), threads(image.threads),
        sharedBytes(image.sharedBytes), origins(image.origins) {}
  emulator::Program program;
  std::string entry;
  int threads;
  int64_t sharedBytes;
  std::vector<std::string> origins;
};

// The PTX parameter buffer (PTX ISA, "Kernel function parameters").
std::vector<uint8_t> parameterBuffer(std::span<const LaunchArgument> arguments) {
  std::vector<uint8_t> buffer;
  for (const LaunchArgument &argument : arguments) {
    size_t size = static_cast<size_t>(argument.bytes), alignment = std::min(size, size_t(64));
    buffer.resize(roundUp(buffer.size(), alignment) + size);
    std::memcpy(buffer.data() + buffer.size() - size, argument.value, size);
  }
  return buffer;
}

emulator::Dim3 dim3(const compiler::Dim3 &extent) { return {extent.x, extent.y, extent.z}; }

int64_t physicalBytes() {
  return int64_t(::sysconf(_SC_PHYS_PAGES)) * int64_t(::sysconf(_SC_PAGE_SIZE));
}

class EmulatedBackend final : public Backend {
public:
  explicit EmulatedBackend(compiler::DeviceModel model) : device(std::move(model)) {}

  const compiler::DeviceModel &model() const override { return device; }
  bool emulated() const override { return true; }
  std::string codeVersion() const override { return "emulator"; }

  Result<DevicePointer> allocate(int64_t bytes) override {
    std::lock_guard lock(mutex);
    // The host's own limit: past it the host kernel would end the process, not the allocation.
    const uint64_t address = bytes > physicalBytes() - allocated ? 0 : memory.allocate(bytes);
    if (address == 0)
      return makeError(DiagId::out_of_memory, {std::to_string(bytes), device.name});
    if (Status filled = memory.fill(address, 0, bytes); !filled)
      return filled.error();
    sizes.emplace(address, bytes);
    allocated += bytes;
    return address;
  }

  void release(DevicePointer address) override {
    std::lock_guard lock(mutex);
    auto it = sizes.find(address);
    if (it == sizes.end())
      return;
    allocated -= it->second;
    sizes.erase(it);
    memory.release(address);
  }

  Status write(DevicePointer to, const void *from, int64_t bytes) override {
    std::lock_guard lock(mutex);
    return memory.write(to, from, bytes);
  }

  Status read(DevicePointer from, void *to, int64_t bytes) override {
    std::lock_guard lock(mutex);
    return memory.read(from, to, bytes);
  }

  Status writeInOrder(DevicePointer to, const void *from, int64_t bytes, Stream) override {
    return write(to, from, bytes);
  }

  Status synchronize(Stream) override { return Done{}; }

  Result<std::string> assemble(const compiler::KernelImage &) override { return std::string(); }

  Result<std::shared_ptr<const LoadedKernel>> load(const compiler::KernelImage &image,
                                                   const std::string &) override {
    Result<emulator::Program> program = emulator::Program::parse(image.ptx);
    if (!program)
      return program.error();
    return std::shared_ptr<const LoadedKernel>(
        std::make_shared<EmulatedKernel>(std::move(*program), image));
  }

  // One launch at a time, as on a stream.
  Status launch(const LoadedKernel &kernel, const LaunchShape &shape,
                std::span<const LaunchArgument> arguments, Stream) override {
    const auto &loaded = static_cast<const EmulatedKernel &>(kernel);
    emulator::Launch launch;
    launch.entry = loaded.entry;
    launch.grid = dim3(shape.grid);
    launch.cluster = dim3(shape.cluster);
    launch.block = {static_cast<uint32_t>(loaded.threads), 1, 1};
    launch.sharedBytes = loaded.sharedBytes;
    launch.mostSharedBytes = device.sharedPerCta;
    launch.parameters = parameterBuffer(arguments);
    launch.origins = loaded.origins;
    if (shape.dependent)
      launch.ahead = {shape.ahead, static_cast<uint64_t>(shape.aheadBytes)};
    std::lock_guard lock(mutex);
    Result<emulator::LaunchStats> stats =
        onHost([&] { return emulator::run(loaded.program, memory, launch); });
    if (!stats)
      return stats.error();
    totals.threadInstructions += stats->threadInstructions;
    totals.bankConflicts += stats->bankConflicts;
    totals.mostMmas = std::max(totals.mostMmas, stats->mostMmas);
    totals.seconds += stats->seconds;
    return Done{};
  }

  Result<TensorMap> makeTensorMap(const TensorMapShape &shape) override {
    emulator::TensorMap map;
    map.rank = 2;
    map.address = shape.base;
    map.dims[0] = static_cast<uint64_t>(shape.rowBytes);
    map.dims[1] = static_cast<uint64_t>(shape.rows);
    map.strides[1] = static_cast<uint64_t>(shape.pitch);
    map.box[0] = static_cast<uint32_t>(shape.boxBytes);
    map.box[1] = static_cast<uint32_t>(shape.boxRows);
    map.swizzle = shape.swizzle ? emulator::Swizzle::Span128 : emulator::Swizzle::None;
    Result<std::array<uint8_t, emulator::tensorMapBytes>> bytes = emulator::encodeTensorMap(map);
    if (!bytes)
      return bytes.error();
    return TensorMap{*bytes};
  }

  EmulationTotals emulationTotals() override {
    std::lock_guard lock(mutex);
    return totals;
  }

  Result<std::shared_ptr<const Quantizer>> makeQuantizer(std::shared_ptr<const dsl::Format>,
                                                         const dsl::Format &,
                                                         const compiler::ActivationLayout &,
                                                         cache::DiskCache &,
                                                         cache::Warnings &) override {
    return makeHostQuantizer();
  }

private:
  const compiler::DeviceModel device;
  std::mutex mutex;
  emulator::Memory memory;
  std::unordered_map<uint64_t, int64_t> sizes;
  int64_t allocated = 0;
  EmulationTotals totals;
};

} // namespace

Result<std::shared_ptr<Backend>> makeEmulatedBackend(compiler::DeviceModel model) {
  if (Status good = compiler::checkModel(model); !good)
    return good.error();
  model.name += " (emulated)";
  return std::shared_ptr<Backend>(std::make_shared<EmulatedBackend>(std::move(model)));
}

} // namespace rho
