// The part of the CUDA driver's binary interface that Rho uses, declared here so that the build
// needs no CUDA toolkit. Values: CUDA Driver API reference, "Data types used by CUDA driver".
#pragma once

#include <cstdint>

namespace rho::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;
using CUlinkState = struct CUlinkState_st *;

enum : CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2 };

// CUdevice_attribute
enum DeviceAttribute : int {
  CLOCK_RATE_KHZ = 13,
  MULTIPROCESSOR_COUNT = 16,
  MEMORY_CLOCK_RATE_KHZ = 36,
  MEMORY_BUS_WIDTH_BITS = 37,
  L2_CACHE_BYTES = 38,
  COMPUTE_CAPABILITY_MAJOR = 75,
  COMPUTE_CAPABILITY_MINOR = 76,
  SHARED_MEMORY_PER_SM = 81,
  SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

// CUfunction_attribute
enum FunctionAttribute : int {
  LOCAL_SIZE_BYTES = 3,
  NUM_REGS = 4,
  MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

// CUlaunchAttributeID
enum LaunchAttribute : int { CLUSTER_DIMENSION = 4, PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

// NOLINTNEXTLINE(bugprone-tagged-union-member-count): the union's size is the driver's
struct CUlaunchAttribute {
  LaunchAttribute id;
  union alignas(8) {
    char all[64];
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
};

static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56);

// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
// CUtensorMapFloatOOBfill
enum : int { TENSOR_MAP_UINT8 = 0 };
enum : int { TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum : int { TENSOR_MAP_SWIZZLE_NONE = 0, TENSOR_MAP_SWIZZLE_128B = 3 };
enum : int { TENSOR_MAP_L2_PROMOTION_256B = 3 };
enum : int { TENSOR_MAP_FILL_ZEROS = 0 };

// CUjit_option
enum JitOption : int { JIT_ERROR_LOG_BUFFER = 5, JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
// CUjitInputType
enum JitInput : int { JIT_INPUT_PTX = 1 };

// CU_STREAM_PER_THREAD: the calling thread's default stream.
// NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes a number as a pointer
inline const auto streamPerThread = reinterpret_cast<CUstream>(uintptr_t(2));
// CUstream_flags, CUevent_flags
enum : unsigned { EVENT_DEFAULT = 0, STREAM_NON_BLOCKING = 1 };
// CUstreamCaptureMode. Of a capture: whose calls of kinds that captures forbid, such as those that
// allocate, break it. Of a thread: beside which captures it may not make them.
enum CaptureMode : int {
  CAPTURE_MODE_GLOBAL = 0,       // any thread's; its own and those of this mode
  CAPTURE_MODE_THREAD_LOCAL = 1, // only the thread's own
  CAPTURE_MODE_RELAXED = 2,      // none
};

} // namespace rho::cuda
