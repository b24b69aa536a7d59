// What the provider calls of CUDA's driver, of NVRTC and of cuBLASLt: a table of function pointers
// with declarations of our own. It is filled from the libraries when a device is first used, or by
// a test. tests/cuda/headers.cpp compares the declarations with NVIDIA's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/core/device.h"

namespace ort::cuda {

// Handles and numbers as the libraries have them.
using Status = int;
using Address = unsigned long long;  // of device memory
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using ContextHandle = struct CUctx_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using GraphHandle = struct CUgraph_st*;
using GraphExecHandle = struct CUgraphExec_st*;
using PoolHandle = struct CUmemPoolHandle_st*;
using ProgramHandle = struct _nvrtcProgram*;
using LtHandle = struct cublasLtContext*;
using LtDesc = void*;

constexpr Status kSuccess = 0, kOutOfMemory = 2, kDeinitialized = 4, kNotReady = 600;
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;  // CUdevice_attribute
constexpr int kReleaseThreshold = 4;                            // CUmemPool_attribute
constexpr unsigned kNonBlocking = 1, kDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;          // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr unsigned kPortable = 1, kMapped = 2;  // CU_MEMHOSTALLOC_*

// cublasLt.h
struct LtAlgo {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
enum LtDescAttribute { kScaleType = 1, kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum LtLayoutAttribute { kBatchCount = 5, kBatchStride = 6 };
enum LtPreferenceAttribute {
  kMaxWorkspace = 1,
  kAlignmentA = 5,
  kAlignmentB,
  kAlignmentC,
  kAlignmentD
};
enum LtEpilogue { kNoEpilogue = 1, kReluEpilogue = 2, kBiasEpilogue = 4 };
enum LtCompute { kCompute32 = 68, kComputeTf32 = 77, kCompute64 = 70 };
enum LtType { kReal32 = 0, kReal64 = 1, kReal16 = 2, kRealB16 = 14 };

// clang-format off
#define ORT_CUDA_DRIVER(X)                                                                        \
  X(cuInit, (unsigned))                                                                           \
  X(cuDriverGetVersion, (int*))                                                                   \
  X(cuGetErrorString, (Status, const char**))                                                     \
  X(cuDeviceGetCount, (int*))                                                                     \
  X(cuDeviceGet, (int*, int))                                                                     \
  X(cuDeviceGetName, (char*, int, int))                                                           \
  X(cuDeviceGetAttribute, (int*, int, int))                                                       \
  X(cuDevicePrimaryCtxRetain, (ContextHandle*, int))                                              \
  X(cuCtxGetCurrent, (ContextHandle*))                                                            \
  X(cuCtxSetCurrent, (ContextHandle))                                                             \
  X(cuCtxSynchronize, ())                                                                         \
  X(cuDeviceGetDefaultMemPool, (PoolHandle*, int))                                                \
  X(cuMemPoolSetAttribute, (PoolHandle, int, void*))                                              \
  X(cuMemPoolTrimTo, (PoolHandle, size_t))                                                        \
  X(cuMemAllocAsync, (Address*, size_t, StreamHandle))                                            \
  X(cuMemFreeAsync, (Address, StreamHandle))                                                      \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                                   \
  X(cuMemsetD8Async, (Address, unsigned char, size_t, StreamHandle))                              \
  X(cuMemsetD32Async, (Address, unsigned, size_t, StreamHandle))                                  \
  X(cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, StreamHandle))                           \
  X(cuMemcpyDtoHAsync_v2, (void*, Address, size_t, StreamHandle))                                 \
  X(cuMemcpyDtoDAsync_v2, (Address, Address, size_t, StreamHandle))                               \
  X(cuStreamCreate, (StreamHandle*, unsigned))                                                    \
  X(cuStreamBeginCapture_v2, (StreamHandle, int))                                                 \
  X(cuStreamEndCapture, (StreamHandle, GraphHandle*))                                             \
  X(cuGraphInstantiateWithFlags, (GraphExecHandle*, GraphHandle, unsigned long long))             \
  X(cuGraphLaunch, (GraphExecHandle, StreamHandle))                                               \
  X(cuGraphDestroy, (GraphHandle))                                                                \
  X(cuGraphExecDestroy, (GraphExecHandle))                                                        \
  X(cuStreamSynchronize, (StreamHandle))                                                          \
  X(cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned))                                     \
  X(cuEventCreate, (EventHandle*, unsigned))                                                      \
  X(cuEventRecord, (EventHandle, StreamHandle))                                                   \
  X(cuEventSynchronize, (EventHandle))                                                            \
  X(cuEventQuery, (EventHandle))                                                                  \
  X(cuModuleLoadData, (ModuleHandle*, const void*))                                               \
  X(cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char*))                            \
  X(cuLaunchKernel, (FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                     unsigned, StreamHandle, void**, void**))
#define ORT_CUDA_NVRTC(X)                                                                         \
  X(nvrtcVersion, (int*, int*))                                                                   \
  X(nvrtcCreateProgram, (ProgramHandle*, const char*, const char*, int, const char* const*,       \
                         const char* const*))                                                     \
  X(nvrtcCompileProgram, (ProgramHandle, int, const char* const*))                                \
  X(nvrtcGetProgramLogSize, (ProgramHandle, size_t*))                                             \
  X(nvrtcGetProgramLog, (ProgramHandle, char*))                                                   \
  X(nvrtcGetCUBINSize, (ProgramHandle, size_t*))                                                  \
  X(nvrtcGetCUBIN, (ProgramHandle, char*))                                                        \
  X(nvrtcDestroyProgram, (ProgramHandle*))
#define ORT_CUDA_BLAS(X)                                                                          \
  X(cublasLtCreate, (LtHandle*))                                                                  \
  X(cublasLtMatmulDescCreate, (LtDesc*, int, int))                                                \
  X(cublasLtMatmulDescDestroy, (LtDesc))                                                          \
  X(cublasLtMatmulDescSetAttribute, (LtDesc, int, const void*, size_t))                           \
  X(cublasLtMatrixLayoutCreate, (LtDesc*, int, uint64_t, uint64_t, int64_t))                      \
  X(cublasLtMatrixLayoutDestroy, (LtDesc))                                                        \
  X(cublasLtMatrixLayoutSetAttribute, (LtDesc, int, const void*, size_t))                         \
  X(cublasLtMatmulPreferenceCreate, (LtDesc*))                                                    \
  X(cublasLtMatmulPreferenceDestroy, (LtDesc))                                                    \
  X(cublasLtMatmulPreferenceSetAttribute, (LtDesc, int, const void*, size_t))                     \
  X(cublasLtMatmulAlgoGetHeuristic, (LtHandle, LtDesc, LtDesc, LtDesc, LtDesc, LtDesc, LtDesc,    \
                                     int, LtHeuristic*, int*))                                    \
  X(cublasLtMatmul, (LtHandle, LtDesc, const void*, const void*, LtDesc, const void*, LtDesc,     \
                     const void*, const void*, LtDesc, void*, LtDesc, const LtAlgo*, void*,       \
                     size_t, StreamHandle))
// clang-format on

// Memory that a launch may touch.
struct Reach {
  const void* begin;
  size_t bytes;
};

struct Api {
#define ORT_POINTER(NAME, PARAMETERS) Status(*NAME) PARAMETERS = nullptr;
  ORT_CUDA_DRIVER(ORT_POINTER)
  ORT_CUDA_NVRTC(ORT_POINTER)
  ORT_CUDA_BLAS(ORT_POINTER)
#undef ORT_POINTER
  size_t (*cublasLtGetVersion)() = nullptr;
  // Told before each launch; null: nobody asks, as the driver does not.
  void (*launch_reaches)(const Reach*, size_t count) = nullptr;
  // What torch calls the devices behind the table.
  DeviceKind kind = DeviceKind::cuda;
};

// The table; the libraries are opened at the first call. An Error says what is not there.
const Api& api();
DeviceKind kind();  // of the devices, without opening anything
// In place of the libraries'; before a device is used.
void set_api(const Api& table);

// Throws OutOfMemory or an Error that says what was called and what came back.
void check_driver(Status status, const char* what);
void check_nvrtc(Status status, const char* what);
void check_blas(Status status, const char* what);
#define ORT_DRIVER(NAME, ...) check_driver(api().NAME(__VA_ARGS__), #NAME)
#define ORT_BLAS(NAME, ...) check_blas(api().NAME(__VA_ARGS__), #NAME)

}  // namespace ort::cuda
