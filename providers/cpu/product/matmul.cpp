// Matrix products: MatMul, Gemm, ort::MatMul and ort::Linear. float32 and float64 are computed by
// blocks of our own, halves by oneDNN's matmul primitive with an epilogue; integers of 32
// bits go by the blocks too, others by a plain loop.
#include "providers/cpu/product/product.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

// --- the plain loop ---

// y's row i: rows of b, or dot products with its columns.
template <class T>
void multiply_row(const Product& p, const T* a, const T* b, int64_t i, T* y) {
  const int64_t a_row = p.trans_a ? 1 : p.k, a_column = p.trans_a ? p.m : 1;
  std::fill_n(y, p.n, T{});
  for (int64_t k = 0; k < p.k && !p.trans_b; ++k)
    for (int64_t j = 0; j < p.n; ++j)
      y[j] =
          tile::scalar::add(y[j], tile::scalar::mul(a[i * a_row + k * a_column], b[k * p.n + j]));
  for (int64_t j = 0; j < p.n && p.trans_b; ++j)
    for (int64_t k = 0; k < p.k; ++k)
      y[j] =
          tile::scalar::add(y[j], tile::scalar::mul(a[i * a_row + k * a_column], b[j * p.k + k]));
}

std::unique_ptr<Kernel> make_plain_product(const Request& r, const Product& p) {
  const DType dtype = r.in(0).dtype;
  return make_kernel(r.node().op, [p, dtype, matrices = matrices_of(p)](const Args& args) {
    dispatch(dtype, [&]<class T>() {
      const auto count = static_cast<int64_t>(matrices.size());
      parallel_for(count * p.m, count * p.m * p.n * p.k, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const MatrixAt& at = matrices[static_cast<size_t>(row / p.m)];
          multiply_row(p, input<T>(args, 0) + at.a * p.m * p.k,
                       input<T>(args, 1) + at.b * p.k * p.n, row % p.m,
                       output<T>(args) + row * p.n);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_product(const Request& r, Product p) {
  if (p.bias) p.bias_sizes = r.sizes(*p.bias);
  const DType dtype = r.in(0).dtype;
  const bool floats = (bit(dtype) & kFloating) != 0;
  if (!floats && (p.bias || p.alpha != 1.0 || p.activation)) return nullptr;
  if (!is_half(dtype))
    return floats || size_of(dtype) == 4 ? make_blocked_product(r, p) : make_plain_product(r, p);
  if (p.k == 0 || element_count(r.out().sizes) == 0) return nullptr;
  return make_primitive_product(r, p);
}

std::unique_ptr<Kernel> matmul_kernel(const Request& r) {
  return make_product(r, product_of(r, false, false));
}

std::unique_ptr<Kernel> fused_kernel(const Request& r) {
  Product p = product_of(r, r.attrs().i("trans_a", 0) != 0, r.attrs().i("trans_b", 0) != 0);
  p.alpha = r.attrs().f("alpha", 1.0);
  p.activation = activation_of(r.attrs());
  if (r.has(2)) p.bias = 2;
  return make_product(r, p);
}

std::unique_ptr<Kernel> linear_kernel(const Request& r) {
  Product p = product_of(r, false, true);
  p.activation = activation_of(r.attrs());
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

static void register_matmul(KernelTable& table) {
  add_products(table.op("MatMul"), matmul_kernel, nullptr, nullptr, half_product);
  table.op("MatMul").add("plain", kIntegers, matmul_kernel);
  add_products(table.op("Gemm"), gemm_kernel, plain_gemm, plain_gemm, plain_gemm);
  add_products(table.op("ort::MatMul"), fused_kernel, nullptr, double_product, half_product);
  add_products(table.op("ort::Linear"), linear_kernel, nullptr, double_product, half_product);
}

const Family<KernelTable> kMatmulKernels("cpu", "matmul", register_matmul);

}  // namespace ort::cpu
