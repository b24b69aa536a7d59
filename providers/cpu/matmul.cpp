// Matrix products: MatMul, Gemm, ort::MatMul and ort::Linear. float32 and float64 are computed by
// blocks of our own, halves by oneDNN's matmul primitive with an epilogue; integers run a plain
// loop.
#include "providers/cpu/product.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

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

std::unique_ptr<Kernel> make_product(const Request& r, Product p) {
  if (p.bias) p.bias_sizes = r.sizes(*p.bias);
  const DType dtype = r.in(0).dtype;
  if (dtype == DType::f32 || dtype == DType::f64) return make_blocked_product(r, p);
  if (!(bit(dtype) & kFloating)) return make_plain_product(r, p);
  if (p.k == 0 || element_count(r.out().sizes) == 0) return nullptr;
  return make_primitive_product(r, p);
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
Verdict half_product(const Node& node) {
  const auto& dims = node.output().type().dims;
  const size_t rank = dims ? dims->size() : 0;
  return require(rank <= 6, "the product has rank {}, at most 6", rank);
}

Verdict double_product(const Node& node) {
  return require(epilogue_of(node.attrs) == Epilogue::none, "it has an activation");
}

using ProductKernel = std::unique_ptr<Kernel>(const Request&);

void add_products(KernelList& list, ProductKernel make, When of_float, When of_double,
                  When of_half) {
  list.add("blocked", kF32, of_float, make)
      .add("blocked", kF64, of_double, make)
      .add("onednn", kF32 | kHalves, of_half, make)
      .add("widened", kF32 | kHalves, of_half,
           [make](const Request& r) { return widened(r, make); });
}

}  // namespace

void register_matmul(KernelTable& table) {
  add_products(table.op("MatMul"), matmul_kernel, nullptr, nullptr, half_product);
  table.op("MatMul").add("plain", kIntegers, matmul_kernel);
  add_products(table.op("Gemm"), gemm_kernel, plain_gemm, plain_gemm, plain_gemm);
  add_products(table.op("ort::MatMul"), fused_kernel, nullptr, double_product, half_product);
  add_products(table.op("ort::Linear"), linear_kernel, nullptr, double_product, half_product);
}

}  // namespace ort::cpu
