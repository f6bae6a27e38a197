// How far a kernel goes on before the one ahead of it ends, and how early the next may start. All
// figures are those that were fastest on an H200.
#pragma once

#include "compiler/ir/Dialects.h"
#include "dsl/Format.h"

#include <algorithm>

namespace rho::compiler {

// k tiles whose weights are started before the kernel ahead has ended. Activations come behind the
// weights that are on their way when it ends, so these are no more than the memory brings until
// then. Kernels that multiply more slowly than it loads take fewer: for them only the start counts.
inline int64_t tilesAhead(tile::GeometryAttr geometry, int64_t tilesK, int64_t depth) {
  constexpr int64_t fewRows = 16, fewest = 2;
  bool isLoadBound =
      dsl::ElementType::get(geometry.getMma()).bits() <= 8 && geometry.getTileM() <= fewRows;
  int64_t share = isLoadBound ? 5 : 10;
  int64_t tiles = tilesK / std::max<int64_t>(1, geometry.getSplitK());
  return std::clamp((tiles + share / 2) / share, std::min(fewest, depth), depth);
}

// k tiles whose weights memory brings while the CTAs of the next kernel come: started so long
// before the last copies of this one, these find memory free. Where CTAs of both find room on an SM
// their weights then come while this kernel ends; started earlier, they delay what it waits for.
inline int64_t tilesInLaunch(int64_t weightBytes) {
  constexpr int64_t inLaunch = 30 << 10; // of an SM
  return std::max<int64_t>(1, (inLaunch + weightBytes / 2) / weightBytes);
}

} // namespace rho::compiler
