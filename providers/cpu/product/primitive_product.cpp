// Products of halves by oneDNN's matmul primitive, with an epilogue; sums are float32.
#include "providers/cpu/onednn.h"
#include "providers/cpu/product/product.h"

namespace ort::cpu {
namespace {

dnnl::memory::desc matrix_desc(const Sizes& batch, int64_t rows, int64_t cols, bool transposed,
                               DType dtype) {
  Sizes stored = batch;
  stored.push_back(transposed ? cols : rows);
  stored.push_back(transposed ? rows : cols);
  Sizes strides = strides_of(stored);
  if (transposed) {
    std::swap(stored[stored.size() - 1], stored[stored.size() - 2]);
    std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  }
  return {stored, onednn_type(dtype), strides};
}

}  // namespace

std::unique_ptr<Kernel> make_primitive_product(const Request& r, const Product& given) {
  Product p = given;
  fold_batch(p);
  if (p.bias && !bias_over(p)) p = given;  // rows of one product differ in bias
  if (p.bias && !bias_over(p)) return nullptr;
  return with_onednn("a matmul", [&]() -> std::unique_ptr<Kernel> {
    const DType dtype = r.in(0).dtype;
    const auto a = matrix_desc(p.batch_a, p.m, p.k, p.trans_a, dtype);
    const auto b = matrix_desc(p.batch_b, p.k, p.n, p.trans_b, dtype);
    const auto y = matrix_desc(p.batch, p.m, p.n, false, r.out().dtype);
    std::vector<PrimitiveKernel::Argument> arguments{
        {DNNL_ARG_SRC, a, false, 0}, {DNNL_ARG_WEIGHTS, b, false, 1}, {DNNL_ARG_DST, y, true, 0}};
    dnnl::primitive_attr attr = user_scratchpad();
    dnnl::post_ops ops;
    if (p.alpha != 1.0)
      ops.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(p.alpha), 0.0f);
    dnnl::memory::desc bias;
    if (p.bias) {
      bias = dense_desc(*bias_over(p), r.in(*p.bias).dtype);
      const bool plain = p.alpha == 1.0 && is_row_bias(p);
      const int id =
          plain ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1;
      if (!plain) ops.append_binary(dnnl::algorithm::binary_add, bias);
      arguments.push_back({id, bias, false, *p.bias});
      if (!plain) bias = {};
    }
    append_activation(ops, p.activation);
    attr.set_post_ops(ops);
    const auto description =
        bias.is_zero() ? dnnl::matmul::primitive_desc(cpu_engine(), a, b, y, attr, true)
                       : dnnl::matmul::primitive_desc(cpu_engine(), a, b, bias, y, attr, true);
    if (!is_own(description)) return nullptr;
    return std::make_unique<PrimitiveKernel>(dnnl::matmul(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             product_name(r, p));
  });
}

}  // namespace ort::cpu
