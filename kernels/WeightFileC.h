/* kernels/WeightFile.h in C: files that `rho quantize` wrote, from a name to a weight that a gemm
 * launches with. Handles and errors as in runtime/RhoC.h. */
#pragma once

#include "runtime/RhoC.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rho_weight_file rho_weight_file;
typedef struct rho_weight rho_weight; /* WeightFile::Weight */

rho_error *rho_weight_file_open(const char *path, rho_weight_file **out);
size_t rho_weight_file_count(const rho_weight_file *file);
const char *rho_weight_file_name(const rho_weight_file *file, size_t index);
void rho_weight_file_free(rho_weight_file *file);

rho_error *rho_weight_file_describe(const rho_weight_file *file, const char *name,
                                    rho_weight **out);
const char *rho_weight_format(const rho_weight *weight);
const char *rho_weight_declarations(const rho_weight *weight);
int64_t rho_weight_n(const rho_weight *weight);
int64_t rho_weight_k(const rho_weight *weight);
/* 1: launches take activations of rho_gemm_make_activations with the transform of
 * rho_weight_file_input_transform; with others the products are wrong, and no launch can tell. */
int32_t rho_weight_transforms_inputs(const rho_weight *weight);
void rho_weight_free(rho_weight *weight);

/* WeightFile::Slice; 0 everywhere but in `name` is the whole weight. */
typedef struct rho_weight_slice {
  const char *name;
  int64_t first_row, rows, first_column, columns;
} rho_weight_slice;

rho_error *rho_weight_file_pack(const rho_weight_file *file, const rho_weight_slice *slices,
                                size_t count, const rho_gemm *gemm, rho_buffer **out);
rho_error *rho_weight_file_input_transform(const rho_weight_file *file, const char *name,
                                           const rho_engine *engine, rho_input_transform **out);

#ifdef __cplusplus
}
#endif
