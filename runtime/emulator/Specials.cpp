#include "runtime/emulator/Machine.h"

#include <algorithm>
#include <thread>

namespace rho::emulator {

uint32_t specialValue(const Cta &cta, const Warp &warp, Special special, uint32_t lane) {
  const Launch &launch = *cta.launch;
  uint32_t thread = warp.index * 32 + lane;
  switch (special) {
  case Special::TidX:
    return thread % launch.block.x;
  case Special::TidY:
    return thread / launch.block.x % launch.block.y;
  case Special::TidZ:
    return thread / launch.block.x / launch.block.y;
  case Special::NtidX:
    return launch.block.x;
  case Special::NtidY:
    return launch.block.y;
  case Special::NtidZ:
    return launch.block.z;
  case Special::CtaidX:
    return cta.index.x;
  case Special::CtaidY:
    return cta.index.y;
  case Special::CtaidZ:
    return cta.index.z;
  case Special::NctaidX:
    return launch.grid.x;
  case Special::NctaidY:
    return launch.grid.y;
  case Special::NctaidZ:
    return launch.grid.z;
  case Special::LaneId:
    return lane;
  case Special::WarpId:
    return warp.index;
  case Special::WarpCount:
    return maxWarps;
  case Special::SmId:
    return cta.worker;
  case Special::SmCount:
    return std::max(1u, std::thread::hardware_concurrency());
  case Special::MaskEq:
    return 1u << lane;
  case Special::MaskLe:
    return (2u << lane) - 1;
  case Special::MaskLt:
    return (1u << lane) - 1;
  case Special::MaskGe:
    return ~0u << lane;
  case Special::MaskGt:
    return ~0u << lane << 1;
  case Special::DynamicShared:
    return uint32_t(launch.sharedBytes);
  case Special::TotalShared:
    return cta.state->sharedBytes;
  case Special::ClusterCtaidX:
    return cta.index.x % launch.cluster.x;
  case Special::ClusterCtaidY:
    return cta.index.y % launch.cluster.y;
  case Special::ClusterCtaidZ:
    return cta.index.z % launch.cluster.z;
  case Special::ClusterNctaidX:
    return launch.cluster.x;
  case Special::ClusterNctaidY:
    return launch.cluster.y;
  case Special::ClusterNctaidZ:
    return launch.cluster.z;
  case Special::ClusteridX:
    return cta.index.x / launch.cluster.x;
  case Special::ClusteridY:
    return cta.index.y / launch.cluster.y;
  case Special::ClusteridZ:
    return cta.index.z / launch.cluster.z;
  case Special::NclusteridX:
    return cta.state->gridClusters.x;
  case Special::NclusteridY:
    return cta.state->gridClusters.y;
  case Special::NclusteridZ:
    return cta.state->gridClusters.z;
  case Special::ClusterCtaRank:
    return cta.rank;
  case Special::ClusterNctaRank:
    return uint32_t(cta.cluster->ctas.size());
  default: // the grid has no number; clocks are read by instructions
    return 0;
  }
}

} // namespace rho::emulator
