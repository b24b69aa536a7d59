// Matrix products: MatMul, Gemm, ort::MatMul and ort::Linear. Two matrices of float32 go through
// oneDNN's sgemm, batches and halves through its matmul primitive with an epilogue, float64 by
// blocks of our own; integers run a plain loop.
#include <cstring>

#include "csrc/core/parallel.h"
#include "providers/cpu/product.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/sgemm.h"
#include "providers/cpu/tile.h"
#include "providers/cpu/widened.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

TileFunction activation_function(Epilogue activation) {
  switch (activation) {
    case Epilogue::relu:
      return tile_function(TileOp::relu, 0);
    case Epilogue::tanh:
      return tile_function(TileOp::tanh, 0);
    case Epilogue::sigmoid:
      return tile_function(TileOp::sigmoid, 0);
    case Epilogue::silu:
      return tile_function(TileOp::silu, 0);
    case Epilogue::gelu:
      return tile_function(TileOp::gelu, 0);
    case Epilogue::gelu_tanh:
      return tile_function(TileOp::gelu_tanh, 0);
    case Epilogue::none:
      break;
  }
  return nullptr;
}

void apply_in_place(TileFunction f, float* y, int64_t count) {
  constexpr int64_t kPiece = 4096;
  parallel_for((count + kPiece - 1) / kPiece, count * 6, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin * kPiece; at < std::min(end * kPiece, count); at += kPiece) {
      TileArgs t{};
      t.dst = y + at;
      t.a = y + at;
      t.count = std::min(kPiece, count - at);
      f(t);
    }
  });
}

// A product of two matrices: the bias is written first and added to, the activation goes over the
// result. Measured on Intel (AVX-512, Sapphire Rapids), sgemm beats the matmul primitive on plain
// layouts by 1.1 to 1.4 times in BERT's shapes, and by 3 where b's rows are 3072 floats apart.
std::unique_ptr<Kernel> make_gemm(const Request& r, const Product& p) {
  const TileFunction activate = activation_function(p.activation);
  const auto run = [p, activate](const Args& args) {
    float* y = output<float>(args);
    if (p.bias) {
      const float* bias = input<float>(args, *p.bias);
      parallel_for(p.m, p.m * p.n, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row)
          std::memcpy(y + row * p.n, bias, static_cast<size_t>(p.n) * sizeof(float));
      });
    }
    sgemm(p.m, p.n, p.k, static_cast<float>(p.alpha),
          {input<float>(args, 0), p.trans_a ? p.m : p.k, p.trans_a},
          {input<float>(args, 1), p.trans_b ? p.k : p.n, p.trans_b}, p.bias ? 1.0f : 0.0f, y, p.n);
    if (activate) apply_in_place(activate, y, p.m * p.n);
  };
  return make_kernel(product_name(r, p), run);
}

// Any bias over any batch, where oneDNN has no kernel for it: matrix by matrix.
std::unique_ptr<Kernel> make_gemms(const Request& r, const Product& p) {
  const TileFunction activate = activation_function(p.activation);
  const Start start(r.out().sizes, p);
  return make_kernel(product_name(r, p), [=, matrices = matrices_of(p)](const Args& args) {
    float* y = output<float>(args);
    start.write(y, p.bias ? input<float>(args, *p.bias) : nullptr);
    float* at = y;
    for (const MatrixAt& matrix : matrices) {
      const float* a = input<float>(args, 0) + matrix.a * p.m * p.k;
      const float* b = input<float>(args, 1) + matrix.b * p.k * p.n;
      sgemm(p.m, p.n, p.k, static_cast<float>(p.alpha), {a, p.trans_a ? p.m : p.k, p.trans_a},
            {b, p.trans_b ? p.k : p.n, p.trans_b}, 1.0f, at, p.n);
      at += p.m * p.n;
    }
    if (activate) apply_in_place(activate, y, at - y);
  });
}

std::unique_ptr<Kernel> make_float_product(const Request& r, const Product& given) {
  Product p = given;
  fold_batch(p);
  if (p.bias && !bias_over(p)) p = given;  // rows of one product differ in bias
  const bool matrices = element_count(p.batch) == 1 && (!p.bias || is_row_bias(p));
  const bool is_float = r.in(0).dtype == DType::f32;
  if (matrices && is_float) return make_gemm(r, p);
  auto kernel = p.bias && !bias_over(p) ? nullptr : make_primitive_product(r, p);
  return kernel || !is_float ? std::move(kernel) : make_gemms(r, p);
}

// --- the plain loop ---

template <class T>
void multiply(const Product& p, const T* a, const T* b, T* y) {
  const int64_t a_row = p.trans_a ? 1 : p.k, a_col = p.trans_a ? p.m : 1;
  const int64_t b_row = p.trans_b ? 1 : p.n, b_col = p.trans_b ? p.k : 1;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      T sum{};
      for (int64_t k = 0; k < p.k; ++k)
        sum = tile::scalar::add(
            sum, tile::scalar::mul(a[i * a_row + k * a_col], b[k * b_row + j * b_col]));
      y[i * p.n + j] = sum;
    }
}

std::unique_ptr<Kernel> make_plain_product(const Request& r, const Product& p) {
  if (p.bias || p.alpha != 1.0 || p.activation != Epilogue::none) return nullptr;
  const DType dtype = r.in(0).dtype;
  return make_kernel(r.node().op, [p, dtype, matrices = matrices_of(p)](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      T* y = output<T>(args);
      for (const MatrixAt& at : matrices) {
        multiply(p, input<T>(args, 0) + at.a * p.m * p.k, input<T>(args, 1) + at.b * p.k * p.n, y);
        y += p.m * p.n;
      }
    });
  });
}

// Products without terms: nothing is multiplied, the bias alone remains.
std::unique_ptr<Kernel> make_empty_product(const Request& r, const Product& p) {
  const int64_t count = element_count(r.out().sizes);
  const Sizes out = r.out().sizes;
  const Sizes strides = p.bias ? broadcast_strides(r.sizes(*p.bias), out) : Sizes(out.size(), 0);
  const TileFunction activate = activation_function(p.activation);
  return make_kernel(r.node().op, [=](const Args& args) {
    float* y = output<float>(args);
    for (int64_t at = 0; at < count; ++at) {
      int64_t rest = at, from = 0;
      for (size_t axis = out.size(); axis-- > 0; rest /= out[axis])
        from += rest % out[axis] * strides[axis];
      y[at] = p.bias ? input<float>(args, *p.bias)[from] : 0.0f;
    }
    if (activate) apply_in_place(activate, y, count);
  });
}

std::unique_ptr<Kernel> make_product(const Request& r, Product p) {
  if (p.bias) p.bias_sizes = r.sizes(*p.bias);
  const DType dtype = r.in(0).dtype;
  if (dtype == DType::f64) return make_double_product(r, p);
  if (!(bit(dtype) & kFloating)) return make_plain_product(r, p);
  if (p.k > 0 && element_count(r.out().sizes) > 0) return make_float_product(r, p);
  return dtype == DType::f32 ? make_empty_product(r, p) : nullptr;
}

std::unique_ptr<Kernel> matmul_kernel(const Request& r) {
  return make_product(r, product_of(r, false, false));
}

std::unique_ptr<Kernel> fused_kernel(const Request& r) {
  Product p = product_of(r, r.attrs().i("trans_a", 0) != 0, r.attrs().i("trans_b", 0) != 0);
  p.alpha = r.attrs().f("alpha", 1.0);
  p.activation = epilogue_of(r.attrs());
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

std::unique_ptr<Kernel> linear_kernel(const Request& r) {
  Product p = product_of(r, false, true);
  p.activation = epilogue_of(r.attrs());
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

std::unique_ptr<Kernel> gemm_kernel(const Request& r) {
  Product p = product_of(r, r.attrs().i("transA", 0) != 0, r.attrs().i("transB", 0) != 0);
  p.alpha = r.attrs().f("alpha", 1.0);
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

Verdict plain_gemm(const Node& node) {
  const bool scaled = node.has_input(2) && node.attrs.f("beta", 1.0) != 1.0;
  return require(!scaled, "beta is not 1");
}

// oneDNN has no more axes than this, and a bias must fit them.
Verdict float_product(const Node& node) {
  const auto& dims = node.output().type().dims;
  const size_t rank = dims ? dims->size() : 0;
  return require(rank <= 6, "the product has rank {}, at most 6", rank);
}

Verdict double_product(const Node& node) {
  return require(epilogue_of(node.attrs) == Epilogue::none, "it has an activation");
}

using ProductKernel = std::unique_ptr<Kernel>(const Request&);

void add_products(KernelList& list, When when, ProductKernel make) {
  list.add("onednn", kF32 | kHalves, when, make)
      .add("widened", kF32 | kHalves, when, [make](const Request& r) { return widened(r, make); });
}

}  // namespace

void register_matmul(KernelTable& table) {
  add_products(table.op("MatMul"), float_product, matmul_kernel);
  table.op("MatMul").add("blocked", kF64, matmul_kernel).add("plain", kIntegers, matmul_kernel);
  add_products(table.op("Gemm"), plain_gemm, gemm_kernel);
  table.op("Gemm").add("blocked", kF64, plain_gemm, gemm_kernel);
  add_products(table.op("ort::MatMul"), float_product, fused_kernel);
  table.op("ort::MatMul").add("blocked", kF64, double_product, fused_kernel);
  add_products(table.op("ort::Linear"), float_product, linear_kernel);
  table.op("ort::Linear").add("blocked", kF64, double_product, linear_kernel);
}

}  // namespace ort::cpu
