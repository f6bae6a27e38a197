#include "kernels/WeightFileC.h"

#include "kernels/WeightFile.h"
#include "runtime/RhoCHandles.h"

using namespace rho;
using namespace rho::c;

struct rho_weight_file {
  WeightFile value;
  std::vector<std::string> names;
};
struct rho_weight {
  WeightFile::Weight value;
};

rho_error *rho_weight_file_open(const char *path, rho_weight_file **out) {
  return given(
      out, [&] { return WeightFile::open(textOf(path)); },
      [](WeightFile file) {
        std::vector<std::string> names = file.names();
        return new rho_weight_file{std::move(file), std::move(names)};
      });
}

size_t rho_weight_file_count(const rho_weight_file *file) {
  return file == nullptr ? 0 : file->names.size();
}

const char *rho_weight_file_name(const rho_weight_file *file, size_t index) {
  return file == nullptr ? "" : nameAt(file->names, index);
}

void rho_weight_file_free(rho_weight_file *file) { delete file; }

rho_error *rho_weight_file_describe(const rho_weight_file *file, const char *name,
                                    rho_weight **out) {
  return given(out, [&] { return valueOf(file).describe(textOf(name)); });
}

const char *rho_weight_format(const rho_weight *weight) { return valueOf(weight).format.c_str(); }

const char *rho_weight_declarations(const rho_weight *weight) {
  return valueOf(weight).declarations.c_str();
}

int64_t rho_weight_n(const rho_weight *weight) { return valueOf(weight).n; }

int64_t rho_weight_k(const rho_weight *weight) { return valueOf(weight).k; }

int32_t rho_weight_transforms_inputs(const rho_weight *weight) {
  return valueOf(weight).transformsInputs ? 1 : 0;
}

void rho_weight_free(rho_weight *weight) { delete weight; }

rho_error *rho_weight_file_pack(const rho_weight_file *file, const rho_weight_slice *slices,
                                size_t count, const rho_gemm *gemm, rho_buffer **out) {
  return given(out, [&]() -> Result<Buffer> {
    if (slices == nullptr && count > 0)
      return makeError(DiagId::null_pointer, {"slices"});
    std::vector<WeightFile::Slice> each;
    each.reserve(count);
    for (const rho_weight_slice &slice : std::span(slices, count))
      each.push_back(
          {textOf(slice.name), slice.first_row, slice.rows, slice.first_column, slice.columns});
    return valueOf(file).pack(each, valueOf(gemm));
  });
}

rho_error *rho_weight_file_input_transform(const rho_weight_file *file, const char *name,
                                           const rho_engine *engine, rho_input_transform **out) {
  return given(out, [&] { return valueOf(file).inputTransform(textOf(name), valueOf(engine)); });
}
