// Products in float32, float64 and 32 bits of integers by the provider's own gemm, with any bias;
// many small ones of a batch run side by side. An activation goes over the result.
#include "csrc/core/parallel.h"
#include "providers/cpu/product/gemm.h"
#include "providers/cpu/product/packed_constant.h"
#include "providers/cpu/product/product.h"

namespace ort::cpu {
namespace {

// Below this many multiplications a product of a batch is one thread's.
constexpr int64_t kSmall = 1 << 20;

template <class T>
class BlockedProduct final : public Kernel {
 public:
  BlockedProduct(const Request& r, const Product& p)
      : p_(p),
        name_(product_name(r, p)),
        matrices_(matrices_of(p)),
        start_(r.out().sizes, p),
        row_bias_(p.bias && is_row_bias(p)),
        side_by_side_(matrices_.size() > 1 && p.m * p.n * p.k < kSmall) {
    if constexpr (!std::is_same_v<T, uint32_t>)
      if (r.in(1).constant && matrices_.size() == 1 && p.n > 1)  // a column is read as a row
        packed_ = packed_constant<T>(
            r.in(1).constant,
            {.k = p.k, .n = p.n, .row = p.trans_b ? p.k : p.n, .transposed = p.trans_b});
  }

  void run(const Args& args) const override {
    auto* y = static_cast<T*>(args.out[0]);
    const T* bias = p_.bias ? static_cast<const T*>(args.in[*p_.bias]) : nullptr;
    if (bias && !row_bias_) start_.write(y, bias);
    const auto count = static_cast<int64_t>(matrices_.size());
    const auto multiply_all = [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end; ++at) multiply(args, at, y + at * p_.m * p_.n, bias);
    };
    if (side_by_side_)
      parallel_for(count, count * p_.m * p_.n * p_.k, multiply_all);
    else
      multiply_all(0, count, 0);
    if constexpr (std::is_same_v<T, float>)
      activate(p_.activation, DType::f32, y, count * p_.m * p_.n);
  }
  std::string name() const override { return name_; }
  std::shared_ptr<const Pack> pack(size_t in) const override { return in == 1 ? packed_ : nullptr; }

 private:
  void multiply(const Args& args, int64_t at, T* y, const T* bias) const {
    const MatrixAt& matrix = matrices_[static_cast<size_t>(at)];
    const T* a = static_cast<const T*>(args.in[0]) + matrix.a * p_.m * p_.k;
    const T* b = static_cast<const T*>(args.in[1]) + matrix.b * p_.k * p_.n;
    gemm(Gemm<T>{.m = p_.m,
                 .n = p_.n,
                 .k = p_.k,
                 .a = stored(a, p_.trans_a ? p_.m : p_.k, p_.trans_a),
                 .b = stored(b, p_.trans_b ? p_.k : p_.n, p_.trans_b),
                 .c = y,
                 .c_row = p_.n,
                 .alpha = static_cast<T>(p_.alpha),
                 .start = row_bias_ ? bias
                          : bias    ? y
                                    : nullptr,
                 .start_row = row_bias_ ? 0 : p_.n,
                 .packed = packed_ ? packed_->data() : nullptr});
  }

  Product p_;
  std::string name_;
  std::vector<MatrixAt> matrices_;
  Start start_;
  bool row_bias_, side_by_side_;
  std::shared_ptr<const PackedMatrix<T>> packed_;  // a constant b
};

}  // namespace

std::unique_ptr<Kernel> make_blocked_product(const Request& r, const Product& given) {
  Product p = given;
  fold_batch(p);
  const DType dtype = r.in(0).dtype;
  if (dtype == DType::f64) return std::make_unique<BlockedProduct<double>>(r, p);
  if (dtype == DType::f32) return std::make_unique<BlockedProduct<float>>(r, p);
  check(size_of(dtype) == 4, "blocks have no {}", dtype);
  return std::make_unique<BlockedProduct<uint32_t>>(r, p);
}

}  // namespace ort::cpu
