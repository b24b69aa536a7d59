// Products of halves by oneDNN's matmul primitive, with an epilogue; sums are float32.
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/product/product.h"

namespace ort::cpu {
namespace {

dnnl::memory::desc strided_desc(const Sizes& batch, int64_t rows, int64_t cols, bool transposed,
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
  if (!is_post_op(p.activation)) return nullptr;
  return with_onednn("a matmul", [&]() -> std::unique_ptr<Kernel> {
    const DType dtype = r.in(0).dtype;
    const auto a = strided_desc(p.batch_a, p.m, p.k, p.trans_a, dtype);
    const auto b = strided_desc(p.batch_b, p.k, p.n, p.trans_b, dtype);
    const auto y = strided_desc(p.batch, p.m, p.n, false, r.out().dtype);
    std::vector<PrimitiveKernel::Argument> arguments{
        {DNNL_ARG_SRC, a, false, 0}, {DNNL_ARG_WEIGHTS, b, false, 1}, {DNNL_ARG_DST, y, true, 0}};
    dnnl::memory::desc bias;
    if (p.bias) bias = dense_desc(*bias_over(p), r.in(*p.bias).dtype);
    const auto alpha = static_cast<float>(p.alpha);
    const bool scaled = alpha != 1.0f, plain = !scaled && is_row_bias(p);
    if (p.bias) {
      const int at = scaled ? 1 : 0;
      arguments.push_back(
          {plain ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_SRC_1, bias, false,
           *p.bias});
    }
    const auto described = [=](const Activation& activation) {
      dnnl::post_ops ops;
      if (scaled) ops.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0.0f);
      if (!bias.is_zero() && !plain) ops.append_binary(dnnl::algorithm::binary_add, bias);
      append_activation(ops, activation);
      dnnl::primitive_attr attr = user_scratchpad();
      attr.set_post_ops(ops);
      using Description = dnnl::matmul::primitive_desc;
      return bias.is_zero() || !plain ? Description(cpu_engine(), a, b, y, attr, true)
                                      : Description(cpu_engine(), a, b, bias, y, attr, true);
    };
    const ActivationPlaces places = places_of(p.activation);
    const auto description = described(places.post_op);
    if (!is_own(description) || !runs_bare(places, described)) return nullptr;
    return std::make_unique<PrimitiveKernel>(
        dnnl::matmul(description), description.scratchpad_desc(), std::move(arguments),
        product_name(r, p), after<dnnl::matmul>(places, described));
  });
}

}  // namespace ort::cpu
