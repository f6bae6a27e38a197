// A driver of made-up devices: memory is the host's, code is text, launches are recorded. It shows
// what the runtime asks of libcuda, and how its failures are reported, on machines without a GPU.
#pragma once

#include "runtime/cuda/Driver.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rho::cuda {

struct FakeLaunch {
  unsigned gridX, gridY, gridZ, threads, sharedBytes;
  CUstream stream;
  std::vector<uint64_t> arguments; // as many as expectedArguments, the first 8 bytes of each
  std::vector<CUlaunchAttribute> attributes;
  bool extended = false; // by cuLaunchKernelEx
};

struct FakeTensorMap {
  int dataType;
  uint64_t address;
  std::vector<uint64_t> dims, strides;
  std::vector<uint32_t> box, elementStrides;
  int interleave, swizzle, l2Promotion, outsideFill;
};

// Of a stream that the default stream waits for.
struct FakeCapture {
  std::thread::id thread;
  CaptureMode mode;
  bool broken = false; // by a call that it forbids
};

struct FakeState {
  std::string deviceName = "Fake GPU";
  std::map<int, int> attributes;      // CUdevice_attribute -> value
  size_t freeBytes = size_t(1) << 20; // memory
  std::string linkError, loadError;   // non-empty: the call fails with this log
  CUresult loadResult = CUDA_SUCCESS;
  CUresult linkCreateResult = CUDA_SUCCESS;
  CUresult pushResult = CUDA_SUCCESS; // of a context
  int retained = 0;                   // primary contexts
  std::optional<FakeCapture> capture;
  int modules = 0, allocations = 0;      // alive
  std::vector<std::string> loaded;       // what modules were made of
  std::function<void()> whileLoading;    // called by each load that works
  std::map<int, int> functionAttributes; // set by cuFuncSetAttribute
  int activeClusters = 0;                // that find room at a time; 0: asking for them fails
  std::vector<FakeLaunch> asked;         // about
  size_t expectedArguments = 0;          // that a launch has
  std::vector<FakeLaunch> launches;
  CUresult tensorMapResult = CUDA_SUCCESS;
  std::vector<FakeTensorMap> tensorMaps; // the i-th encoded begins with the byte i
};

// The state of the only fake driver; resetFake() starts anew.
FakeState &fake();
// This thread's, which captures hold calls against.
CaptureMode &fakeCaptureMode();
// Resets the state to one sm_90a device and gives its driver, of CUDA 12.4.
const Driver &resetFake();
// The same driver, but of CUDA 13.0.
const Driver &resetNewFake();
// The same driver without what CUDA 11.4 lacks.
const Driver &resetOldFake();

} // namespace rho::cuda
