// Rho's public API: declaration -> kernel -> launch. Free of MLIR, LLVM and CUDA headers.
//
// Shapes: weight [n][k], activations x [m][k], output y [m][n]; y = x * weight^T; row-major.
// Errors are values (Result, Status) that carry the diagnostics. Nothing asserts, and nothing
// throws but what a caller's own function throws (Engine::tune), and std::bad_alloc where the host
// has no room for the small things that a call makes; for large ones the error is out_of_memory.
// Where memory ends inside of LLVM while a kernel is compiled, LLVM ends the process. Parsing,
// compilation, and quantizing on the host, take 128 KB of their thread's stack.
// Each function names the errors that are its own. Besides, any that has a handle gives
// empty_handle for one that was default-constructed or moved from (valid() is false, of a Buffer
// address() is 0), and any that reaches a GPU cuda_call_failed. Threads: Device, Engine, Module and
// Gemm are cheap handles, safe to copy and to use from any number of threads at once. A Buffer
// belongs to whoever holds it, and so do Activations, of which copies are the same buffers.
#pragma once

#include "dsl/Error.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rho {

namespace dsl {
struct Module;          // dsl/Module.h
struct QuantizedMatrix; // dsl/Quantize.h
} // namespace dsl
namespace compiler {
struct DeviceModel; // compiler/Devices.h
}

enum class ScalarType : uint8_t { F32, F16, BF16 };

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
};

// A CUstream of the GPU's primary context, which is the CUDA runtime's, or null for its legacy
// default stream. Emulated devices ignore it and run at once.
using Stream = void *;
// An address in the device's memory (CUdeviceptr or the emulator's).
using DevicePointer = uint64_t;

// A parsed and checked .rho file with its imports.
class Module {
public:
  // Every error of the text and of its imports at once, as `rho check` prints them: those of
  // docs/GRAMMAR.md. `name` stands for the text in messages. `imports` gives the texts of files
  // that are imported, none for one that there is not, by their paths behind the folder of the
  // importing file: "a.rho" in "dir/n.rho" is "dir/a.rho". Those of the standard library,
  // "rho:...", need none.
  using Imports = std::function<std::optional<std::string>(const std::string &path)>;
  static Result<Module> parse(std::string_view text, std::string_view name = "<memory>",
                              const Imports &imports = {});
  // The same of a file. Errors: module_not_found as well.
  static Result<Module> load(const std::string &path);
  std::vector<std::string> gemms() const; // names, in order of declaration
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  const Impl &impl() const { return *pimpl; }

private:
  friend class Engine;
  friend Module moduleOf(dsl::Module module);
  std::shared_ptr<const Impl> pimpl;
};

class Backend;
class Device;
class InputTransform; // runtime/InputTransform.h

// Device memory, of its own and released with it, or a view of somebody else's. Move-only.
class Buffer {
public:
  Buffer();
  Buffer(Buffer &&) noexcept;
  Buffer &operator=(Buffer &&) noexcept;
  ~Buffer();
  DevicePointer address() const;
  int64_t bytes() const;
  // Synchronous copies, there for every stream when they return. They wait for the default stream,
  // as cudaMemcpy does, so not for launches on non-blocking ones. A weight that was packed into the
  // buffer's own memory is none any more once that is written: launches compare nothing. Errors:
  // bad_range outside the buffer, null_pointer.
  Status write(const void *from, int64_t bytes, int64_t offset = 0);
  Status read(void *to, int64_t bytes, int64_t offset = 0) const;

  struct Impl;
  Impl *impl() const { return pimpl.get(); }

private:
  friend class Device;
  std::unique_ptr<Impl> pimpl;
};

// A GPU, or the emulator behind the same door.
class Device {
public:
  // Through libcuda, opened now. Errors: cuda_not_available, cuda_device_too_old.
  static Result<Device> cuda(int ordinal = 0);
  // A target, "sm_80", or a device of `rho devices`, "h200". Errors: unknown_target.
  static Result<Device> emulated(std::string_view name);
  // Errors: unknown_target, bad_device_model.
  static Result<Device> emulated(const compiler::DeviceModel &described);
  // The first GPU; emulated sm_80 where there is none that kernels are generated for.
  static Result<Device> automatic();
  std::string name() const;
  std::string target() const; // what kernels are generated for
  bool isEmulated() const;
  // 256-byte aligned, zeroed. Errors: bad_size, out_of_memory.
  Result<Buffer> allocate(int64_t bytes) const;
  // Memory that somebody else owns, a tensor's for example, which outlives the Buffer. As a weight
  // it is 256-byte aligned and has the bytes of one that was packed for the weightLayout() given,
  // which launches then compare with their own (empty: nothing is compared); a workspace begins as
  // zeros. Errors: null_pointer, bad_size.
  Result<Buffer> view(DevicePointer address, int64_t bytes,
                      std::string_view weightLayout = {}) const;
  // Waits for all that was launched on the stream.
  Status synchronize(Stream stream = nullptr) const;
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  Impl &impl() const { return *pimpl; }

private:
  friend class Activations;
  friend class Gemm;
  static Result<Buffer> allocateOn(const std::shared_ptr<Backend> &backend, int64_t bytes);
  std::shared_ptr<Impl> pimpl;
};

struct EngineOptions {
  // Disk cache folder; empty: $RHO_CACHE_DIR, else $XDG_CACHE_HOME/rho, else ~/.cache/rho.
  std::string cacheDirectory = {};
  // What is kept of a kernel may still be made when the call that compiled it has returned: on one
  // more thread, by NVRTC, for some tenths of a second. The engine's last handle waits for it.
  bool diskCache = true;
  bool cacheReadOnly = false;
  // Past it the least recently used kernels go; 0: $RHO_CACHE_LIMIT (bytes, or 512K, 100M, 2G in
  // units of 1024), else 1G.
  int64_t cacheLimitBytes = 0;
  bool useTuned = true; // prefer what Engine::tune() kept to the planner's choice
  // Folder of what Engine::tune() keeps; empty: `tuned` in the disk cache's folder.
  std::string tunedDirectory = {};
  // At most so many threads of the host at a time for each call that plans, compiles, quantizes or
  // packs, of the engine and of its gemms; 0: one for each core; with 1 nothing goes on behind a
  // call. An emulated launch takes them all.
  unsigned threads = 0;
};

// What happened on the way to a Gemm, for people and benchmarks.
struct CompileReport {
  struct Stage {
    std::string name; // "plan", "rho", "tile", "llvm", "ptx", "load", ...
    double milliseconds;
  };
  enum class Source : uint8_t { Memory, Disk, Compiled } source = Source::Memory;
  enum class PlanSource : uint8_t { Planned, Tuned } planSource = PlanSource::Planned;
  double tunedMicroseconds = 0; // of a tuned plan, as it was measured
  std::vector<Stage> stages;
  double totalMilliseconds = 0;
  std::string plan;                  // Plan::print()
  double predictedMicroseconds = 0;  // of one launch, by the planner's model
  std::string key;                   // hexadecimal cache key
  int registers = -1;                // per thread; -1 where no driver says
  int64_t sharedBytes = 0;           // per CTA
  int64_t localBytes = -1;           // spills per thread; -1 where no driver says
  std::vector<std::string> warnings; // e.g. a damaged cache entry that was rebuilt
};

// What another quantizer chose for one component of a weight's format. Row by row: [n][k] codes of
// the element, [ceil(n / R)][ceil(k / G)] of n[R] k[G], where R is 1 unless written, n of a
// channel, one of the tensor. A code is the bits of its type, in a byte each, in two bytes where
// the type has more than 8 bits, in four where it has more than 16, little-endian; above the bits
// of a signed integer its sign may go on, so that -1 of s4 is 15 or 255.
struct ComponentCodes {
  std::string_view component = {}; // by its name in the declaration
  std::span<const uint8_t> codes = {};
};

// Activations in the gemm's activation format, ready for launches: codes and scales on the device.
class Activations {
public:
  // The same memory for another number of rows, no more than it was made for: for Gemm::withRows,
  // and for batches that grow and shrink. It holds the rows that were quantized last, of whichever
  // handle, and a launch reads those right by a handle of as many rows only. What chooseParts and
  // fixComponent said holds for all of them. Errors: bad_problem.
  Result<Activations> withRows(int64_t m) const;
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  Impl &impl() const { return *pimpl; }

private:
  friend class Gemm;
  std::shared_ptr<Impl> pimpl;
};

// A compiled GEMM for one shape on one device. On a GPU launch() and quantizeActivations() compile
// nothing, allocate nothing and never block; both can be captured in a CUDA graph. Neither a launch
// that has not ended nor a graph keeps anything of what it was made from: a copy of the gemm, its
// activations, weight and workspace are to live as long (of a KvCache, it, its KvJobs and KvBatch).
// While a thread captures a stream, others may make any call, such as copy only where that is a
// non-blocking one; it may launch itself, and give back what it has.
class Gemm {
public:
  // The kernel of this gemm for another number of rows: nothing is planned or compiled, what
  // report() says stays, and so does weightLayout(). For batches that grow and shrink: within the
  // rows of one tile it takes as long, far from shape().m another kernel is faster. Errors:
  // bad_problem, grid_too_large, those of a plan that m does not fit, such as schedule_roles of a
  // kernel on the CUDA cores for more than 4 rows.
  Result<Gemm> withRows(int64_t m) const;
  GemmShape shape() const;
  const CompileReport &report() const;
  ScalarType outputType() const;
  int64_t packedWeightBytes() const;
  // Names how a weight is packed for this gemm. It depends on the plan, so on m: gemms of which it
  // is the same read one packed weight, others need their own. See Engine::compileShared.
  std::string weightLayout() const;
  int64_t workspaceBytes() const; // 0: launch needs none

  // Quantizes [n][k] host numbers by the weight format's encode rules and packs them for this
  // kernel. Stride in elements between rows. The bytes depend on numbers, rules and
  // weightLayout() alone: they can be kept, and written to another Buffer; Device::view of that
  // with the layout is a weight that launches check as they check this one.
  // Errors: null_pointer, bad_scalar_type, bad_stride below k, non_finite_input,
  // requirement_unfulfilled where no codes fulfil the format's, those of packQuantized.
  Result<Buffer> packWeights(const void *host, ScalarType type, int64_t stride) const;
  // The same for codes of all components, in any order: weights of another quantizer or of another
  // checkpoint. Not of formats with a residual or a partition. Errors: bad_component_codes, those
  // of packQuantized.
  Result<Buffer> packCodes(std::span<const ComponentCodes> components) const;
  // The same for codes that an encoder of this source tree chose. The matrix is [n][k] in
  // the weight's format. Errors: layout_mismatch, out_of_memory, pack_breaks_requirement; of
  // numbers that this kernel does not take, such as ones beyond operands of f16, those that begin
  // with pack_.
  Result<Buffer> packQuantized(const dsl::QuantizedMatrix &weight) const;
  // Buffers for this gemm's activations, to be filled by quantizeActivations, and for those of
  // other gemms of the same m, k and activation format that lay them out alike (else
  // activations_mismatch): several layers that have the same input quantize it once. Errors:
  // out_of_memory.
  Result<Activations> makeActivations() const;
  // The same for inputs that quantizeActivations transforms before it quantizes them, in launches
  // of their own. Other errors: wrong_device, transform_width.
  Result<Activations> makeActivations(const InputTransform &transform) const;
  // x [m][k] in device memory, used where it lies: for a gemm whose activation is plain f16 or
  // bf16 and multiplied as that (f16 beside a weight or scales of bf16 is not), rows contiguous, k
  // a multiple of 8, x 16-byte aligned. It must outlive the launches that
  // read it. Errors: activations_not_viewable, null_pointer, misaligned_pointer.
  Result<Activations> viewActivations(DevicePointer x) const;
  // Of a format with a partition: which part, by its index, stores each of the ceil(k / G) blocks
  // of k[G] from now on, whatever the numbers; none: the format's rules and the numbers say so
  // again. What was quantized before is of no use then. A synchronous copy to the device, for
  // set-up; a graph keeps which of the two held when it was captured, not the parts: one that goes
  // by the numbers writes over them. Errors: bad_block_choice, wrong_device, activations_mismatch.
  Status chooseParts(const Activations &out, std::span<const uint8_t> parts) const;
  // Of a format without a partition: the number of a component per tensor from now on, rounded to
  // its type, whatever the numbers (static quantization); none: its rule says it again, from the
  // numbers of all rows. A synchronous copy to the device, for set-up; a graph keeps which of the
  // two held when it was captured, not the number: one that goes by the rule writes over it.
  // Errors: bad_fixed_component, wrong_device, activations_mismatch.
  Status fixComponent(const Activations &out, std::string_view component,
                      std::optional<double> value) const;
  // Quantizes x [m][k] in device memory into `out` on the stream: one NVRTC kernel. Emulated, and
  // on a GPU without NVRTC or for what that kernel's source cannot say of a format (then with a
  // warning in report()), the host does it between synchronous copies, which no graph can capture.
  // NaN and infinity make outputs of their rows NaN or infinite, but for infinity beside scales of
  // e8m0 (MXFP4), which have none: it becomes a large number.
  // `x` is aligned to its numbers, 2 or 4 bytes; stride in elements between rows. Errors:
  // null_pointer, misaligned_pointer, bad_scalar_type, bad_stride below k, wrong_device,
  // activations_mismatch, activations_are_a_view.
  Status quantizeActivations(const Activations &out, DevicePointer x, ScalarType type,
                             int64_t stride, Stream stream = nullptr) const;
  // A kernel with `launch: dependent` reads the weight while kernels ahead of it in the stream run:
  // what one of them wrote to it has to be complete for the device (an event that was waited for, a
  // synchronization) before the launch; copies need nothing.
  // y [m][n] in outputType(), 16-byte aligned. `workspace` has workspaceBytes() bytes from
  // Device::allocate, which nothing but launches writes, of whichever gemms; it serves one at a
  // time, and two at once may never end. Errors: null_pointer, misaligned_pointer,
  // buffer_too_small, wrong_device, buffers_overlap of y, workspace, weight and viewed activations,
  // weight_mismatch, activations_mismatch.
  Status launch(const Buffer &weight, const Activations &x, DevicePointer y,
                const Buffer &workspace, Stream stream = nullptr) const;
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  const Impl &impl() const { return *pimpl; }

private:
  friend class Engine;
  std::shared_ptr<const Impl> pimpl;
};

// Microseconds of one launch of a candidate, or why it must not be chosen: a wrong result, say.
using MeasureGemm = std::function<Result<double>(const Gemm &candidate)>;

struct TuneOptions {
  int64_t candidates = 24; // at most; 1 or more, else bad_option_value
  // Called from several threads at once, whenever another candidate is compiled. What it throws
  // ends the tuning: no other candidate is begun, and tune() throws it. So with MeasureGemm.
  std::function<void(int64_t done, int64_t total)> compiled = {};
};

struct TuneReport {
  struct Candidate {
    std::string plan;             // Plan::print()
    double predictedMicroseconds; // of one launch, by the planner's model
    Result<double> microseconds;  // or why it cannot be chosen
  };
  std::vector<Candidate> candidates; // best predictions first: [0] is the planner's own choice
  size_t best = 0;
  bool kept = false; // whether engines that have not compiled the gemm find the best from now on
  std::vector<std::string> warnings; // e.g. a folder that is not writable
};

// Compiles gemms for one device through the memory and disk caches.
class Engine {
public:
  // Errors: bad_cache_limit, bad_cache_folder where its name has a NUL, or both folders are one.
  static Result<Engine> create(const Device &device, const EngineOptions &options = {});
  Device device() const;
  // `gemm` may be empty when the module declares exactly one. Errors: no_gemm, ambiguous_gemm,
  // unknown_gemm, grid_too_large, bad_problem; what of the declaration has no kernel for this
  // device and shape, with its place in the file and the reason; kernel_refused by the driver.
  Result<Gemm> compile(const Module &module, std::string_view gemm, const GemmShape &shape) const;
  // Gemms for several numbers of rows that read one packed weight: weightLayout() of all is the
  // same. Of the layouts that serve all of `batches` (m of each gemm, in their order) that with the
  // least product of predicted times; what tune() kept does not count. In as many threads as the
  // engine may have. Errors: those of compile(), no_shared_layout.
  Result<std::vector<Gemm>> compileShared(const Module &module, std::string_view gemm, int64_t n,
                                          int64_t k, std::span<const int64_t> batches) const;
  // The same gemm for `m` rows, reading weights that were packed for `gemm`: the fastest, by
  // prediction, of its weightLayout(). What compileShared() made serves most m well; of what
  // compile() made for few rows there may be none but its own kernel, and beyond 4 rows not that if
  // it multiplies on the CUDA cores. Errors: those of compile(), no_shared_layout, wrong_device.
  Result<Gemm> compileSharing(const Gemm &gemm, int64_t m) const;
  // Compiles the planner's best candidates, in as many threads as the engine may have, then
  // measures one after the other and keeps the fastest on disk. compile() uses it from then on for
  // this declaration, n, k, m up to the next multiple of 16 (from 33 to 1024, else the next power
  // of two), and devices of the same name, target and number of SMs. Errors: those of compile(),
  // the first candidate's where none can be chosen; null_pointer for no measure.
  Result<TuneReport> tune(const Module &module, std::string_view gemm, const GemmShape &shape,
                          const MeasureGemm &measure, const TuneOptions &options = {}) const;
  bool valid() const { return pimpl != nullptr; }

  struct Impl;
  Impl &impl() const { return *pimpl; }

private:
  std::shared_ptr<Impl> pimpl;
};

} // namespace rho
