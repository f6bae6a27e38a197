/* Rho's public API in C, for C and for whatever calls C functions: Python's ctypes, Rust, Julia.
 *
 * Most of runtime/Rho.h, which states shapes, layouts, errors and what launches rely on; what
 * differs is said here. rho_x_y is y of class X. kernels/WeightFileC.h has the files that `rho
 * quantize` wrote. Left to C++ are KvCache, InputTransform::create, packQuantized, described
 * devices and Engine::tune; engines find what `rho tune` kept.
 *
 * Handles: what a function gives through `out`, which it does not read, is the caller's, who frees
 * it once, with rho_x_free, while nothing else uses it; null may be freed, too. A handle keeps
 * those that it was made from, so their order does not matter, but not memory that was given by its
 * address: what rho_device_view and rho_gemm_view_activations look at stays until they are freed
 * and their launches have ended, also where it is another rho_buffer's. As in C++ neither a launch
 * that has not ended nor a graph keeps anything. A null handle is an empty one: error empty_handle;
 * its numbers are 0 and its texts "". A null text is an empty one.
 *
 * Threads: any number of them may use one device, engine, module, gemm, file, weight or transform
 * at once, and launch with one packed weight. Other buffers, and activations with all that
 * rho_activations_with_rows made of them, are for one at a time.
 *
 * Memory: `host`, `from` and `to` are the host's; an rho_device_pointer is the device's. Strides
 * are in elements. Of the streams of CUDA a null one is the legacy default. Calls leave the
 * thread's current context as it was.
 *
 * Errors: a function that can fail returns null, or an error that the caller frees; then what `out`
 * points to is null. A null `out` is an error, too: null_pointer. Texts are those of the C++ API;
 * where they quote a source, bytes that are no UTF-8 are in them as they are. Texts belong to the
 * handle that gave them and end with it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rho_error rho_error;
typedef struct rho_module rho_module;
typedef struct rho_device rho_device;
typedef struct rho_buffer rho_buffer;
typedef struct rho_engine rho_engine;
typedef struct rho_gemm rho_gemm;
typedef struct rho_activations rho_activations;
typedef struct rho_input_transform rho_input_transform; /* kernels/WeightFileC.h makes them */

/* Of the library, as "0.1.0". */
const char *rho_version(void);

typedef uint32_t rho_scalar_type;
enum { RHO_F32 = 0, RHO_F16 = 1, RHO_BF16 = 2 };
typedef void *rho_stream;            /* Stream */
typedef uint64_t rho_device_pointer; /* DevicePointer */

/* All texts of an error for a person, each line with its end. */
const char *rho_error_text(const rho_error *error);
/* Its diagnostics, of which there is at least one; id and message as in dsl/Error.h, "" of an index
 * that is none. */
size_t rho_error_count(const rho_error *error);
const char *rho_error_id(const rho_error *error, size_t index);
const char *rho_error_message(const rho_error *error, size_t index);
void rho_error_free(rho_error *error);

/* A file that may be imported: its path is one behind the folder of the importing file, as
 * Module::Imports has it. */
typedef struct rho_source {
  const char *path;
  const char *text;
  size_t bytes;
} rho_source;
/* `name` stands for the text in messages; null: "<memory>". */
rho_error *rho_module_parse(const char *text, size_t bytes, const char *name,
                            const rho_source *imports, size_t count, rho_module **out);
rho_error *rho_module_load(const char *path, rho_module **out);
size_t rho_module_gemm_count(const rho_module *module);
const char *rho_module_gemm_name(const rho_module *module, size_t index);
void rho_module_free(rho_module *module);

rho_error *rho_device_cuda(int32_t ordinal, rho_device **out);
rho_error *rho_device_emulated(const char *name, rho_device **out);
rho_error *rho_device_automatic(rho_device **out);
const char *rho_device_name(const rho_device *device);
const char *rho_device_target(const rho_device *device);
int32_t rho_device_is_emulated(const rho_device *device);
rho_error *rho_device_allocate(const rho_device *device, int64_t bytes, rho_buffer **out);
/* `layout`, of a weight, may be null. */
rho_error *rho_device_view(const rho_device *device, rho_device_pointer address, int64_t bytes,
                           const char *layout, rho_buffer **out);
rho_error *rho_device_synchronize(const rho_device *device, rho_stream stream);
void rho_device_free(rho_device *device);

rho_device_pointer rho_buffer_address(const rho_buffer *buffer);
int64_t rho_buffer_bytes(const rho_buffer *buffer);
rho_error *rho_buffer_write(rho_buffer *buffer, const void *from, int64_t bytes, int64_t offset);
rho_error *rho_buffer_read(const rho_buffer *buffer, void *to, int64_t bytes, int64_t offset);
void rho_buffer_free(rho_buffer *buffer);

/* EngineOptions; 0 everywhere but in `size` are the defaults. */
typedef struct rho_engine_options {
  size_t size; /* sizeof(rho_engine_options), in bytes: what a later version has more is 0 */
  const char *cache_directory;
  const char *tuned_directory;
  int64_t cache_limit_bytes;
  uint32_t threads;
  uint32_t flags; /* RHO_NO_DISK_CACHE | ... */
} rho_engine_options;
enum { RHO_NO_DISK_CACHE = 1, RHO_CACHE_READ_ONLY = 2, RHO_NO_TUNED_PLANS = 4 };

/* `options` may be null. Errors: bad_engine_options for a size that none has, and for flags and
 * fields that this version does not have and are not 0, as well. */
rho_error *rho_engine_create(const rho_device *device, const rho_engine_options *options,
                             rho_engine **out);
/* `gemm` may be null where the module declares exactly one. */
rho_error *rho_engine_compile(const rho_engine *engine, const rho_module *module, const char *gemm,
                              int64_t m, int64_t n, int64_t k, rho_gemm **out);
/* `out` has room for `count` gemms, each freed by itself. */
rho_error *rho_engine_compile_shared(const rho_engine *engine, const rho_module *module,
                                     const char *gemm, int64_t n, int64_t k, const int64_t *batches,
                                     size_t count, rho_gemm **out);
rho_error *rho_engine_compile_sharing(const rho_engine *engine, const rho_gemm *gemm, int64_t m,
                                      rho_gemm **out);
void rho_engine_free(rho_engine *engine);

rho_error *rho_gemm_with_rows(const rho_gemm *gemm, int64_t m, rho_gemm **out);
int64_t rho_gemm_m(const rho_gemm *gemm);
int64_t rho_gemm_n(const rho_gemm *gemm);
int64_t rho_gemm_k(const rho_gemm *gemm);
rho_scalar_type rho_gemm_output_type(const rho_gemm *gemm);
int64_t rho_gemm_packed_weight_bytes(const rho_gemm *gemm);
const char *rho_gemm_weight_layout(const rho_gemm *gemm);
int64_t rho_gemm_workspace_bytes(const rho_gemm *gemm);
/* Of report(). */
const char *rho_gemm_plan(const rho_gemm *gemm);
double rho_gemm_predicted_microseconds(const rho_gemm *gemm);
double rho_gemm_compile_milliseconds(const rho_gemm *gemm);
size_t rho_gemm_warning_count(const rho_gemm *gemm);
const char *rho_gemm_warning(const rho_gemm *gemm, size_t index);

typedef struct rho_component_codes {
  const char *component;
  const uint8_t *codes;
  size_t bytes;
} rho_component_codes;

rho_error *rho_gemm_pack_weights(const rho_gemm *gemm, const void *host, rho_scalar_type type,
                                 int64_t stride, rho_buffer **out);
rho_error *rho_gemm_pack_codes(const rho_gemm *gemm, const rho_component_codes *components,
                               size_t count, rho_buffer **out);
/* `transform` may be null. */
rho_error *rho_gemm_make_activations(const rho_gemm *gemm, const rho_input_transform *transform,
                                     rho_activations **out);
rho_error *rho_gemm_view_activations(const rho_gemm *gemm, rho_device_pointer x,
                                     rho_activations **out);
rho_error *rho_activations_with_rows(const rho_activations *activations, int64_t m,
                                     rho_activations **out);
void rho_activations_free(rho_activations *activations);
void rho_input_transform_free(rho_input_transform *transform);
/* `count` 0: by the numbers again. */
rho_error *rho_gemm_choose_parts(const rho_gemm *gemm, rho_activations *activations,
                                 const uint8_t *parts, size_t count);
/* `value` null: by the rule again. */
rho_error *rho_gemm_fix_component(const rho_gemm *gemm, rho_activations *activations,
                                  const char *component, const double *value);
rho_error *rho_gemm_quantize_activations(const rho_gemm *gemm, rho_activations *activations,
                                         rho_device_pointer x, rho_scalar_type type, int64_t stride,
                                         rho_stream stream);
/* `workspace` may be null where workspaceBytes() is 0. */
rho_error *rho_gemm_launch(const rho_gemm *gemm, const rho_buffer *weight,
                           const rho_activations *activations, rho_device_pointer y,
                           const rho_buffer *workspace, rho_stream stream);
void rho_gemm_free(rho_gemm *gemm);

#ifdef __cplusplus
}
#endif
