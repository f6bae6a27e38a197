// An NVRTC that compiles a text to "cubin of <text>", and says what it was asked for.
#pragma once

#include "runtime/cuda/Nvrtc.h"

#include <string>
#include <vector>

namespace rho::cuda {

struct FakeNvrtc {
  bool compiles = true;
  int toolkit = 12040;
  std::vector<std::string> options, headers; // of the last program
  std::vector<std::string> programs;         // the texts that were compiled
  int alive = 0;                             // that nobody destroyed
};

// Starts anew. To be read while nobody compiles.
FakeNvrtc &resetFakeNvrtc();
// The fake's functions, as Nvrtc::open() gives the real ones. Threads may compile at once.
Result<const Nvrtc *> fakeNvrtc();

} // namespace rho::cuda
