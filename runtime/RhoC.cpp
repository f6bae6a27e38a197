#include "runtime/RhoC.h"

#include "runtime/RhoCHandles.h"

#include <algorithm>
#include <cstring>

namespace rho::c {

rho_error *noRoom() noexcept {
  static char mark;
  return reinterpret_cast<rho_error *>(&mark);
}

namespace {

rho_module *moduleHandle(Module module) {
  std::vector<std::string> gemms = module.gemms();
  return new rho_module{std::move(module), std::move(gemms)};
}

rho_device *deviceHandle(Device device) {
  std::string name = device.name(), target = device.target();
  return new rho_device{std::move(device), std::move(name), std::move(target)};
}

rho_gemm *gemmHandle(Gemm gemm) {
  std::string layout = gemm.weightLayout();
  return new rho_gemm{std::move(gemm), std::move(layout)};
}

// A caller of C may give any number.
Result<ScalarType> scalarType(rho_scalar_type type) {
  if (type > RHO_BF16)
    return makeError(DiagId::bad_scalar_type, {std::to_string(type)});
  return static_cast<ScalarType>(type);
}

// The options of this version in those of any: fields that one lacks are 0.
Result<rho_engine_options> ownOptions(const rho_engine_options &given) {
  constexpr size_t most = 4096;
  rho_engine_options own = {};
  if (given.size < sizeof own.size || given.size > most)
    return makeError(
        DiagId::bad_engine_options,
        {"a size of " + std::to_string(given.size),
         "it is between " + std::to_string(sizeof own.size) + " and " + std::to_string(most)});
  std::memcpy(&own, &given, std::min(given.size, sizeof own));
  const auto *bytes = reinterpret_cast<const unsigned char *>(&given);
  for (size_t i = sizeof own; i < given.size; ++i)
    if (bytes[i] != 0)
      return makeError(DiagId::bad_engine_options,
                       {"byte " + std::to_string(i),
                        "this version has " + std::to_string(sizeof own) + " of them"});
  return own;
}

Result<EngineOptions> engineOptions(const rho_engine_options *given) {
  EngineOptions options;
  if (given == nullptr)
    return options;
  Result<rho_engine_options> own = ownOptions(*given);
  if (!own)
    return std::move(own.error());
  constexpr uint32_t known = RHO_NO_DISK_CACHE | RHO_CACHE_READ_ONLY | RHO_NO_TUNED_PLANS;
  if ((own->flags & ~known) != 0)
    return makeError(DiagId::bad_engine_options, {"flags " + std::to_string(own->flags),
                                                  "all of them are " + std::to_string(known)});
  options.cacheDirectory = textOf(own->cache_directory);
  options.tunedDirectory = textOf(own->tuned_directory);
  options.cacheLimitBytes = own->cache_limit_bytes;
  options.threads = own->threads;
  options.diskCache = (own->flags & RHO_NO_DISK_CACHE) == 0;
  options.cacheReadOnly = (own->flags & RHO_CACHE_READ_ONLY) != 0;
  options.useTuned = (own->flags & RHO_NO_TUNED_PLANS) == 0;
  return options;
}

} // namespace
} // namespace rho::c

using namespace rho;
using namespace rho::c;

const char *rho_error_text(const rho_error *error) {
  if (error == noRoom())
    return "error: the host has no memory left [out_of_memory]\n";
  return error == nullptr ? "" : error->text.c_str();
}

size_t rho_error_count(const rho_error *error) {
  return error == nullptr ? 0 : error == noRoom() ? 1 : error->error.diagnostics.size();
}

const char *rho_error_id(const rho_error *error, size_t index) {
  if (index >= rho_error_count(error))
    return "";
  return name(error == noRoom() ? DiagId::out_of_memory : error->error.diagnostics[index].id)
      .data();
}

const char *rho_error_message(const rho_error *error, size_t index) {
  if (index >= rho_error_count(error))
    return "";
  return error == noRoom() ? "the host has no memory left"
                           : error->error.diagnostics[index].message.c_str();
}

void rho_error_free(rho_error *error) {
  if (error != noRoom())
    delete error;
}

const char *rho_version() { return RHO_VERSION; }

rho_error *rho_module_parse(const char *text, size_t bytes, const char *name,
                            const rho_source *imports, size_t count, rho_module **out) {
  return given(
      out,
      [&]() -> Result<Module> {
        if (text == nullptr && bytes > 0)
          return makeError(DiagId::null_pointer, {"text"});
        if (imports == nullptr && count > 0)
          return makeError(DiagId::null_pointer, {"imports"});
        const std::span files(imports, count);
        for (const rho_source &file : files)
          if (file.text == nullptr && file.bytes > 0)
            return makeError(DiagId::null_pointer, {"the text of an import"});
        auto find = [&](const std::string &path) -> std::optional<std::string> {
          for (const rho_source &file : files)
            if (path == textOf(file.path))
              return std::string(file.text, file.bytes);
          return std::nullopt;
        };
        return Module::parse({text, bytes}, name == nullptr ? "<memory>" : name, find);
      },
      moduleHandle);
}

rho_error *rho_module_load(const char *path, rho_module **out) {
  return given(out, [&] { return Module::load(textOf(path)); }, moduleHandle);
}

size_t rho_module_gemm_count(const rho_module *module) {
  return module == nullptr ? 0 : module->gemms.size();
}

const char *rho_module_gemm_name(const rho_module *module, size_t index) {
  return module == nullptr ? "" : nameAt(module->gemms, index);
}

void rho_module_free(rho_module *module) { delete module; }

rho_error *rho_device_cuda(int32_t ordinal, rho_device **out) {
  return given(out, [&] { return Device::cuda(ordinal); }, deviceHandle);
}

rho_error *rho_device_emulated(const char *name, rho_device **out) {
  return given(out, [&] { return Device::emulated(textOf(name)); }, deviceHandle);
}

rho_error *rho_device_automatic(rho_device **out) {
  return given(out, [] { return Device::automatic(); }, deviceHandle);
}

const char *rho_device_name(const rho_device *device) {
  return device == nullptr ? "" : device->name.c_str();
}

const char *rho_device_target(const rho_device *device) {
  return device == nullptr ? "" : device->target.c_str();
}

int32_t rho_device_is_emulated(const rho_device *device) {
  return valueOf(device).isEmulated() ? 1 : 0;
}

rho_error *rho_device_allocate(const rho_device *device, int64_t bytes, rho_buffer **out) {
  return given(out, [&] { return valueOf(device).allocate(bytes); });
}

rho_error *rho_device_view(const rho_device *device, rho_device_pointer address, int64_t bytes,
                           const char *layout, rho_buffer **out) {
  return given(out, [&] { return valueOf(device).view(address, bytes, textOf(layout)); });
}

rho_error *rho_device_synchronize(const rho_device *device, rho_stream stream) {
  return ended([&] { return valueOf(device).synchronize(stream); });
}

void rho_device_free(rho_device *device) { delete device; }

rho_device_pointer rho_buffer_address(const rho_buffer *buffer) {
  return valueOf(buffer).address();
}

int64_t rho_buffer_bytes(const rho_buffer *buffer) { return valueOf(buffer).bytes(); }

rho_error *rho_buffer_write(rho_buffer *buffer, const void *from, int64_t bytes, int64_t offset) {
  return ended([&] {
    return buffer == nullptr ? Buffer().write(from, bytes, offset)
                             : buffer->value.write(from, bytes, offset);
  });
}

rho_error *rho_buffer_read(const rho_buffer *buffer, void *to, int64_t bytes, int64_t offset) {
  return ended([&] { return valueOf(buffer).read(to, bytes, offset); });
}

void rho_buffer_free(rho_buffer *buffer) { delete buffer; }

rho_error *rho_engine_create(const rho_device *device, const rho_engine_options *options,
                             rho_engine **out) {
  return given(out, [&]() -> Result<Engine> {
    Result<EngineOptions> chosen = engineOptions(options);
    return chosen ? Engine::create(valueOf(device), *chosen)
                  : Result<Engine>(std::move(chosen.error()));
  });
}

rho_error *rho_engine_compile(const rho_engine *engine, const rho_module *module, const char *gemm,
                              int64_t m, int64_t n, int64_t k, rho_gemm **out) {
  return given(
      out, [&] { return valueOf(engine).compile(valueOf(module), textOf(gemm), {m, n, k}); },
      gemmHandle);
}

rho_error *rho_engine_compile_shared(const rho_engine *engine, const rho_module *module,
                                     const char *gemm, int64_t n, int64_t k, const int64_t *batches,
                                     size_t count, rho_gemm **out) {
  if (out != nullptr)
    std::fill_n(out, count, nullptr);
  return ended([&]() -> Status {
    if (out == nullptr || (batches == nullptr && count > 0))
      return makeError(DiagId::null_pointer, {out == nullptr ? "out" : "batches"});
    Result<std::vector<Gemm>> gemms =
        valueOf(engine).compileShared(valueOf(module), textOf(gemm), n, k, {batches, count});
    if (!gemms)
      return std::move(gemms.error());
    std::vector<std::unique_ptr<rho_gemm>> handles; // all of them, or none where memory ends
    handles.reserve(count);
    for (Gemm &each : *gemms)
      handles.emplace_back(gemmHandle(std::move(each)));
    std::transform(handles.begin(), handles.end(), out,
                   [](std::unique_ptr<rho_gemm> &handle) { return handle.release(); });
    return Done{};
  });
}

rho_error *rho_engine_compile_sharing(const rho_engine *engine, const rho_gemm *gemm, int64_t m,
                                      rho_gemm **out) {
  return given(out, [&] { return valueOf(engine).compileSharing(valueOf(gemm), m); }, gemmHandle);
}

void rho_engine_free(rho_engine *engine) { delete engine; }

rho_error *rho_gemm_with_rows(const rho_gemm *gemm, int64_t m, rho_gemm **out) {
  return given(out, [&] { return valueOf(gemm).withRows(m); }, gemmHandle);
}

int64_t rho_gemm_m(const rho_gemm *gemm) { return valueOf(gemm).shape().m; }

int64_t rho_gemm_n(const rho_gemm *gemm) { return valueOf(gemm).shape().n; }

int64_t rho_gemm_k(const rho_gemm *gemm) { return valueOf(gemm).shape().k; }

rho_scalar_type rho_gemm_output_type(const rho_gemm *gemm) {
  return gemm == nullptr ? 0 : static_cast<rho_scalar_type>(gemm->value.outputType());
}

int64_t rho_gemm_packed_weight_bytes(const rho_gemm *gemm) {
  return valueOf(gemm).packedWeightBytes();
}

const char *rho_gemm_weight_layout(const rho_gemm *gemm) {
  return gemm == nullptr ? "" : gemm->layout.c_str();
}

int64_t rho_gemm_workspace_bytes(const rho_gemm *gemm) { return valueOf(gemm).workspaceBytes(); }

const char *rho_gemm_plan(const rho_gemm *gemm) { return valueOf(gemm).report().plan.c_str(); }

double rho_gemm_predicted_microseconds(const rho_gemm *gemm) {
  return valueOf(gemm).report().predictedMicroseconds;
}

double rho_gemm_compile_milliseconds(const rho_gemm *gemm) {
  return valueOf(gemm).report().totalMilliseconds;
}

size_t rho_gemm_warning_count(const rho_gemm *gemm) {
  return valueOf(gemm).report().warnings.size();
}

const char *rho_gemm_warning(const rho_gemm *gemm, size_t index) {
  return nameAt(valueOf(gemm).report().warnings, index);
}

rho_error *rho_gemm_pack_weights(const rho_gemm *gemm, const void *host, rho_scalar_type type,
                                 int64_t stride, rho_buffer **out) {
  return given(out, [&]() -> Result<Buffer> {
    const Result<ScalarType> known = scalarType(type);
    return known ? valueOf(gemm).packWeights(host, *known, stride) : known.error();
  });
}

rho_error *rho_gemm_pack_codes(const rho_gemm *gemm, const rho_component_codes *components,
                               size_t count, rho_buffer **out) {
  return given(out, [&]() -> Result<Buffer> {
    if (components == nullptr && count > 0)
      return makeError(DiagId::null_pointer, {"components"});
    std::vector<ComponentCodes> each;
    each.reserve(count);
    for (const rho_component_codes &given : std::span(components, count)) {
      if (given.codes == nullptr && given.bytes > 0)
        return makeError(DiagId::null_pointer, {"codes of '" + textOf(given.component) + "'"});
      each.push_back(
          {given.component == nullptr ? "" : given.component, {given.codes, given.bytes}});
    }
    return valueOf(gemm).packCodes(each);
  });
}

rho_error *rho_gemm_make_activations(const rho_gemm *gemm, const rho_input_transform *transform,
                                     rho_activations **out) {
  return given(out, [&] {
    return transform == nullptr ? valueOf(gemm).makeActivations()
                                : valueOf(gemm).makeActivations(transform->value);
  });
}

rho_error *rho_gemm_view_activations(const rho_gemm *gemm, rho_device_pointer x,
                                     rho_activations **out) {
  return given(out, [&] { return valueOf(gemm).viewActivations(x); });
}

rho_error *rho_activations_with_rows(const rho_activations *activations, int64_t m,
                                     rho_activations **out) {
  return given(out, [&] { return valueOf(activations).withRows(m); });
}

void rho_activations_free(rho_activations *activations) { delete activations; }

void rho_input_transform_free(rho_input_transform *transform) { delete transform; }

rho_error *rho_gemm_choose_parts(const rho_gemm *gemm, rho_activations *activations,
                                 const uint8_t *parts, size_t count) {
  return ended([&]() -> Status {
    if (parts == nullptr && count > 0)
      return makeError(DiagId::null_pointer, {"parts"});
    return valueOf(gemm).chooseParts(valueOf(activations), {parts, count});
  });
}

rho_error *rho_gemm_fix_component(const rho_gemm *gemm, rho_activations *activations,
                                  const char *component, const double *value) {
  return ended([&] {
    return valueOf(gemm).fixComponent(valueOf(activations), textOf(component),
                                      value == nullptr ? std::nullopt
                                                       : std::optional<double>(*value));
  });
}

rho_error *rho_gemm_quantize_activations(const rho_gemm *gemm, rho_activations *activations,
                                         rho_device_pointer x, rho_scalar_type type, int64_t stride,
                                         rho_stream stream) {
  return ended([&]() -> Status {
    const Result<ScalarType> known = scalarType(type);
    return known
               ? valueOf(gemm).quantizeActivations(valueOf(activations), x, *known, stride, stream)
               : known.error();
  });
}

rho_error *rho_gemm_launch(const rho_gemm *gemm, const rho_buffer *weight,
                           const rho_activations *activations, rho_device_pointer y,
                           const rho_buffer *workspace, rho_stream stream) {
  return ended([&] {
    return valueOf(gemm).launch(valueOf(weight), valueOf(activations), y, valueOf(workspace),
                                stream);
  });
}

void rho_gemm_free(rho_gemm *gemm) { delete gemm; }
