// Column-major matrices with strides between those of a batch; a bias for each row of the result.
#include "tests/cuda/blas.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "csrc/core/device.h"
#include "csrc/core/error.h"
#include "csrc/core/tensor.h"
#include "tests/far/memory.h"
#include "tests/far/queue.h"

namespace cuda_double {
namespace {

using namespace ort::cuda;

constexpr Status kInvalidValue = 7, kNotSupported = 15;
constexpr size_t kWorkspace = 1 << 16;

std::atomic<int> count = 0;

struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int batch = 1;
  int64_t stride = 0;
};
struct Desc {
  int compute, scale, trans_a = 0, trans_b = 0, epilogue = kNoEpilogue;
  const void* bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
};

size_t width(int type) {
  return type == kReal64 ? 8 : type == kReal32 ? 4 : 2;
}

double read(const uint8_t* data, int type, int64_t i) {
  const uint8_t* at = data + static_cast<size_t>(i) * width(type);
  switch (type) {
    case kReal64: {
      double x;
      std::memcpy(&x, at, 8);
      return x;
    }
    case kReal32: {
      float x;
      std::memcpy(&x, at, 4);
      return x;
    }
    default: {
      uint16_t x;
      std::memcpy(&x, at, 2);
      return type == kReal16 ? ort::half_to_float(x) : ort::bfloat_to_float(x);
    }
  }
}

void write(uint8_t* data, int type, int64_t i, double value) {
  uint8_t* at = data + static_cast<size_t>(i) * width(type);
  const auto narrow = static_cast<float>(value);
  const uint16_t half = type == kReal16 ? ort::float_to_half(narrow) : ort::float_to_bfloat(narrow);
  if (type == kReal64)
    std::memcpy(at, &value, 8);
  else if (type == kReal32)
    std::memcpy(at, &narrow, 4);
  else
    std::memcpy(at, &half, 2);
}

uint64_t bytes_of(const Layout& l) {
  const auto cells = static_cast<uint64_t>(l.ld) * (l.cols - 1) + l.rows;
  return (static_cast<uint64_t>(l.stride) * static_cast<uint64_t>(l.batch - 1) + cells) *
         width(l.type);
}

// What cublasLt.h and its manual ask of a product, for the types that the provider uses.
bool is_sound(const Desc& d, const Layout& a, const Layout& b, const Layout& y) {
  const uint64_t m = d.trans_a ? a.cols : a.rows, ka = d.trans_a ? a.rows : a.cols;
  const uint64_t kb = d.trans_b ? b.cols : b.rows, n = d.trans_b ? b.rows : b.cols;
  if (m != y.rows || n != y.cols || ka != kb || m == 0 || n == 0 || ka == 0) return false;
  for (const Layout* l : {&a, &b, &y})
    if (l->ld < static_cast<int64_t>(l->rows) || l->batch != y.batch) return false;
  if (a.type != b.type) return false;
  const bool doubles = a.type == kReal64;
  if (doubles)
    return d.compute == kCompute64 && d.scale == kReal64 && y.type == kReal64 &&
           d.epilogue == kNoEpilogue;
  if (d.scale != kReal32 || (d.compute != kCompute32 && d.compute != kComputeTf32)) return false;
  if (d.compute == kComputeTf32 && a.type != kReal32) return false;
  return y.type == a.type || (y.type == kReal32 && a.type != kReal32);
}

struct Call {
  Desc desc;
  Layout a, b, y;
  const void *a_data, *b_data;
  void* y_data;
  double alpha;
};

void multiply(const Call& c) {
  const far::Bytes& memory = far::Bytes::instance();
  const auto* a = static_cast<const uint8_t*>(memory.seen_by_kernels(c.a_data));
  const auto* b = static_cast<const uint8_t*>(memory.seen_by_kernels(c.b_data));
  auto* y = static_cast<uint8_t*>(memory.seen_by_kernels(c.y_data));
  const bool biased = (c.desc.epilogue & kBiasEpilogue) != 0;
  const auto* bias =
      biased ? static_cast<const uint8_t*>(memory.seen_by_kernels(c.desc.bias)) : nullptr;
  const auto m = static_cast<int64_t>(c.y.rows), n = static_cast<int64_t>(c.y.cols);
  const auto k = static_cast<int64_t>(c.desc.trans_a ? c.a.rows : c.a.cols);
  std::vector<double> row(static_cast<size_t>(k));
  for (int64_t batch = 0; batch < c.y.batch; ++batch)
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; ++p)
        row[static_cast<size_t>(p)] = read(
            a, c.a.type, batch * c.a.stride + (c.desc.trans_a ? i * c.a.ld + p : p * c.a.ld + i));
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += row[static_cast<size_t>(p)] *
                 read(b, c.b.type,
                      batch * c.b.stride + (c.desc.trans_b ? p * c.b.ld + j : j * c.b.ld + p));
        sum *= c.alpha;
        if (bias) sum += read(bias, c.y.type, i);
        if ((c.desc.epilogue & kReluEpilogue) && sum < 0) sum = 0;
        write(y, c.y.type, batch * c.y.stride + j * c.y.ld + i, sum);
      }
    }
}

const Layout& layout(LtDesc handle) {
  return *static_cast<const Layout*>(handle);
}

Status create(LtHandle* handle) {
  static int place;
  *handle = reinterpret_cast<LtHandle>(&place);
  return kSuccess;
}
Status desc_create(LtDesc* desc, int compute, int scale) {
  *desc = new Desc{compute, scale};
  return kSuccess;
}
Status desc_destroy(LtDesc desc) {
  delete static_cast<Desc*>(desc);
  return kSuccess;
}
template <class T>
Status put(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(&to, from, bytes);
  return kSuccess;
}
Status desc_set(LtDesc handle, int which, const void* from, size_t bytes) {
  Desc& desc = *static_cast<Desc*>(handle);
  switch (which) {
    case kTransA:
      return put(desc.trans_a, from, bytes);
    case kTransB:
      return put(desc.trans_b, from, bytes);
    case kEpilogue:
      return put(desc.epilogue, from, bytes);
    case kBiasPointer:
      return put(desc.bias, from, bytes);
    default:
      return kInvalidValue;
  }
}
Status layout_create(LtDesc* desc, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  *desc = new Layout{type, rows, cols, ld};
  return kSuccess;
}
Status layout_destroy(LtDesc desc) {
  delete static_cast<Layout*>(desc);
  return kSuccess;
}
Status layout_set(LtDesc handle, int which, const void* from, size_t bytes) {
  Layout& l = *static_cast<Layout*>(handle);
  return which == kBatchCount    ? put(l.batch, from, bytes)
         : which == kBatchStride ? put(l.stride, from, bytes)
                                 : kInvalidValue;
}
Status preference_create(LtDesc* desc) {
  *desc = new Preference();
  return kSuccess;
}
Status preference_destroy(LtDesc desc) {
  delete static_cast<Preference*>(desc);
  return kSuccess;
}
Status preference_set(LtDesc handle, int which, const void* from, size_t bytes) {
  if (which == kMaxWorkspace) return put(static_cast<Preference*>(handle)->workspace, from, bytes);
  uint32_t alignment = 0;
  return which >= kAlignmentA && which <= kAlignmentD ? put(alignment, from, bytes) : kInvalidValue;
}
Status heuristic(LtHandle, LtDesc desc, LtDesc a, LtDesc b, LtDesc, LtDesc y, LtDesc preference,
                 int, LtHeuristic* found, int* number) {
  const bool sound = is_sound(*static_cast<const Desc*>(desc), layout(a), layout(b), layout(y));
  *number = sound ? 1 : 0;
  if (!sound) return kNotSupported;
  *found = {};
  found->workspace =
      std::min<uint64_t>(kWorkspace, static_cast<Preference*>(preference)->workspace);
  found->algo.data[0] = 42;
  return kSuccess;
}
Status matmul(LtHandle, LtDesc handle, const void* alpha, const void* a, LtDesc a_layout,
              const void* b, LtDesc b_layout, const void* beta, const void* c, LtDesc, void* y,
              LtDesc y_layout, const LtAlgo* algo, void* workspace, size_t bytes,
              StreamHandle stream) {
  const Desc& desc = *static_cast<const Desc*>(handle);
  const far::Bytes& memory = far::Bytes::instance();
  Call call{desc, layout(a_layout), layout(b_layout), layout(y_layout), a, b, y, 0.0};
  if (!is_sound(desc, call.a, call.b, call.y) || algo->data[0] != 42 || c != y)
    return kInvalidValue;
  if (!memory.has(a, bytes_of(call.a)) || !memory.has(b, bytes_of(call.b)) ||
      !memory.has(y, bytes_of(call.y)) || !memory.has(workspace, bytes) ||
      reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    return kInvalidValue;
  if ((desc.epilogue & kBiasEpilogue) && !memory.has(desc.bias, call.y.rows * width(call.y.type)))
    return kInvalidValue;
  const bool wide = desc.scale == kReal64;
  call.alpha = read(static_cast<const uint8_t*>(alpha), wide ? kReal64 : kReal32, 0);
  if (read(static_cast<const uint8_t*>(beta), wide ? kReal64 : kReal32, 0) != 0)
    return kInvalidValue;
  ++count;
  auto& queue = *reinterpret_cast<far::Stream*>(stream);
  queue.queue([call, &memory, workspace, bytes] {
    std::memset(memory.seen_by_kernels(workspace), 0xa5, bytes);  // its own for the time being
    multiply(call);
  });
  return kSuccess;
}
size_t version() {
  return 130000;
}

}  // namespace

int products() {
  return count;
}

void fill_blas(Api& t) {
  t.cublasLtCreate = create;
  t.cublasLtMatmulDescCreate = desc_create;
  t.cublasLtMatmulDescDestroy = desc_destroy;
  t.cublasLtMatmulDescSetAttribute = desc_set;
  t.cublasLtMatrixLayoutCreate = layout_create;
  t.cublasLtMatrixLayoutDestroy = layout_destroy;
  t.cublasLtMatrixLayoutSetAttribute = layout_set;
  t.cublasLtMatmulPreferenceCreate = preference_create;
  t.cublasLtMatmulPreferenceDestroy = preference_destroy;
  t.cublasLtMatmulPreferenceSetAttribute = preference_set;
  t.cublasLtMatmulAlgoGetHeuristic = heuristic;
  t.cublasLtMatmul = matmul;
  t.cublasLtGetVersion = version;
}

}  // namespace cuda_double
