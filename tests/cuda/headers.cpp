// The provider's declarations of CUDA's interfaces against NVIDIA's headers, where those are.
#include "providers/cuda/api.h"

#ifdef ORT_CUDA_HEADERS
#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <type_traits>

namespace {

using namespace ort::cuda;

// One is passed as the other is: a pointer for a pointer, a number of the same bytes for a number.
template <class A, class B>
constexpr bool kPassedAlike =
    std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B);

template <class A, class B>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
struct Alike<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = []() {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return kPassedAlike<R, S> && (kPassedAlike<A, B> && ...);
  }();
};
#define ORT_COMPARE(NAME, PARAMETERS) \
  static_assert(Alike<decltype(Api::NAME), decltype(&::NAME)>::value);
ORT_CUDA_DRIVER(ORT_COMPARE)
ORT_CUDA_NVRTC(ORT_COMPARE)
ORT_CUDA_BLAS(ORT_COMPARE)
static_assert(Alike<decltype(Api::cublasLtGetVersion), decltype(&::cublasLtGetVersion)>::value);

#define ORT_EQUAL(OURS, THEIRS) static_assert(static_cast<int>(OURS) == static_cast<int>(THEIRS));
ORT_EQUAL(kSuccess, CUDA_SUCCESS)
ORT_EQUAL(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY)
ORT_EQUAL(kDeinitialized, CUDA_ERROR_DEINITIALIZED)
ORT_EQUAL(kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
ORT_EQUAL(kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
ORT_EQUAL(kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
ORT_EQUAL(kReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
ORT_EQUAL(kNonBlocking, CU_STREAM_NON_BLOCKING)
ORT_EQUAL(kDisableTiming, CU_EVENT_DISABLE_TIMING)
ORT_EQUAL(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
ORT_EQUAL(kPortable, CU_MEMHOSTALLOC_PORTABLE)
ORT_EQUAL(kMapped, CU_MEMHOSTALLOC_DEVICEMAP)
ORT_EQUAL(kNotReady, CUDA_ERROR_NOT_READY)
ORT_EQUAL(kSuccess, NVRTC_SUCCESS)
ORT_EQUAL(kSuccess, CUBLAS_STATUS_SUCCESS)
ORT_EQUAL(kScaleType, CUBLASLT_MATMUL_DESC_SCALE_TYPE)
ORT_EQUAL(kTransA, CUBLASLT_MATMUL_DESC_TRANSA)
ORT_EQUAL(kTransB, CUBLASLT_MATMUL_DESC_TRANSB)
ORT_EQUAL(kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE)
ORT_EQUAL(kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
ORT_EQUAL(kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
ORT_EQUAL(kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
ORT_EQUAL(kMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
ORT_EQUAL(kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
ORT_EQUAL(kAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
ORT_EQUAL(kAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
ORT_EQUAL(kAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
ORT_EQUAL(kNoEpilogue, CUBLASLT_EPILOGUE_DEFAULT)
ORT_EQUAL(kReluEpilogue, CUBLASLT_EPILOGUE_RELU)
ORT_EQUAL(kBiasEpilogue, CUBLASLT_EPILOGUE_BIAS)
ORT_EQUAL(kCompute32, CUBLAS_COMPUTE_32F)
ORT_EQUAL(kComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32)
ORT_EQUAL(kCompute64, CUBLAS_COMPUTE_64F)
ORT_EQUAL(kReal32, CUDA_R_32F)
ORT_EQUAL(kReal64, CUDA_R_64F)
ORT_EQUAL(kReal16, CUDA_R_16F)
ORT_EQUAL(kRealB16, CUDA_R_16BF)
static_assert(sizeof(LtAlgo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristic, workspace) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace
#endif

// For Python: whether the comparison was made.
extern "C" bool cuda_double_compared() {
#ifdef ORT_CUDA_HEADERS
  return true;
#else
  return false;
#endif
}
