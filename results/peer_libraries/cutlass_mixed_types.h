// What all configurations share: the operand types and the layout of the reordered int4 weights.
#pragma once
#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cutlass/util/mixed_dtype_utils.hpp"

#ifdef FP8
using Mma = cutlass::float_e4m3_t;
using Scale = cutlass::Array<Mma, 8>; // asks the mainloop for its lookup-table conversion
using WeightAtom = decltype(cutlass::compute_memory_reordering_atom<Mma>());
#else
using Mma = cutlass::bfloat16_t;
using Scale = Mma;
using WeightAtom =
    decltype(cutlass::compute_memory_reordering_atom<
             Mma, cute::Layout<cute::Shape<cute::_1, cute::_1>>,
             cute::Layout<cute::Shape<cute::_2, cute::_4>, cute::Stride<cute::_4, cute::_1>>>());
#endif
using Weight = cutlass::int4b_t;
using RowMajorStride = cute::Stride<int64_t, cute::_1, int64_t>;
using WeightLayout = decltype(cute::tile_to_shape(
    WeightAtom{}, cute::Layout<cute::Shape<int, int, int>, RowMajorStride>{}));
