// Configurations of CUTLASS's Hopper mixed-input GEMM (its example 55): Y^T = W X^T, W int4 with a
// scale for each row and group of 128, X bf16 (or, with -DFP8, e4m3), Y bf16. Compiles those of
// cutlass_mixed_configs.h in part -DPART=.
#include "cutlass_mixed_types.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"
#include "cutlass_mixed.h"

namespace {
using namespace cute;

struct Cooperative {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
};
struct Pingpong {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};
using Persistent = cutlass::gemm::PersistentScheduler;
using StreamK = cutlass::gemm::StreamKScheduler;

using Output = cutlass::bfloat16_t;
constexpr int kAlignX = 128 / sizeof_bits_v<Mma>, kAlignW = 32, kAlignY = 8;

template <class Tile, class Cluster, class Schedule, class Scheduler> struct Kernel {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void,
      cutlass::layout::ColumnMajor, kAlignY, Output, cutlass::layout::ColumnMajor, kAlignY,
      typename Schedule::Epilogue>::CollectiveOp;

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, tuple<Weight, Scale>, WeightLayout,
      kAlignW, Mma, cutlass::layout::ColumnMajor, kAlignX, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<int(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Schedule::Mainloop>::CollectiveOp;

  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<
      Shape<int, int, int, int>, Mainloop, Epilogue, Scheduler>>;

  static typename Gemm::Arguments arguments(const Problem &p) {
    using cutlass::make_cute_packed_stride;
    typename Gemm::Arguments a{};
    a.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    a.problem_shape = make_shape(p.n, p.m, p.k, 1);
    a.mainloop = {
        static_cast<const Weight *>(p.w),
        tile_to_shape(WeightAtom{}, make_shape(p.n, p.k, 1)),
        static_cast<const Mma *>(p.x),
        make_cute_packed_stride(RowMajorStride{}, make_shape(p.m, p.k, 1)),
        static_cast<const Scale *>(p.scales),
        make_cute_packed_stride(typename Mainloop::StrideScale{}, make_shape(p.n, p.k / kGroup, 1)),
        kGroup};
    auto stride_y =
        make_cute_packed_stride(typename Gemm::GemmKernel::StrideD{}, make_shape(p.n, p.m, 1));
    a.epilogue = {{1.f, 0.f}, nullptr, stride_y, static_cast<Output *>(p.y), stride_y};
    cudaGetDevice(&a.hw_info.device_id);
    a.hw_info.sm_count = sm_count();
    return a;
  }

  static int supported(const Problem &p) {
    return p.k % kGroup == 0 && Gemm::can_implement(arguments(p)) == cutlass::Status::kSuccess;
  }

  static size_t workspace(const Problem &p) { return Gemm::get_workspace_size(arguments(p)); }

  static int launch(const Problem &p, void *workspace, size_t workspace_bytes,
                    cudaStream_t stream) {
    if (!supported(p))
      return int(cutlass::Status::kErrorInvalidProblem);
    auto a = arguments(p);
    if (Gemm::get_workspace_size(a) > workspace_bytes)
      return int(cutlass::Status::kErrorWorkspaceNull);
    Gemm gemm;
    if (auto s = gemm.initialize(a, workspace, stream); s != cutlass::Status::kSuccess)
      return int(s);
    return int(gemm.run(stream));
  }
};

template <class K> bool enter(int index, const char *name) {
  g_configs[index] = {name, K::supported, K::workspace, K::launch};
  return true;
}

#define CONFIG(index, m, n, k, cluster, schedule, scheduler)                                       \
  [[maybe_unused]] const bool entered_##index = enter<                                             \
      Kernel<Shape<Int<m>, Int<n>, Int<k>>, Shape<Int<cluster>, _1, _1>, schedule, scheduler>>(    \
      index, #m "x" #n "x" #k " cluster " #cluster " " #schedule " " #scheduler);
#include "cutlass_mixed_configs.h"
} // namespace
