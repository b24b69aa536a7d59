// Products of bytes by oneDNN, with sums of 32 bits. A weight that is a constant is packed once.
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/product/product.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

dnnl::memory::desc integer_desc(const Sizes& batch, int64_t rows, int64_t columns, DType dtype) {
  Sizes sizes = batch;
  sizes.push_back(rows);
  sizes.push_back(columns);
  return dense_desc(sizes, dtype);
}

dnnl::memory::desc any_layout(const dnnl::memory::desc& desc) {
  return {desc.get_dims(), desc.get_data_type(), dnnl::memory::format_tag::any};
}

std::unique_ptr<Kernel> zeros(const Request& r) {
  const int64_t count = element_count(r.out().sizes);
  return make_kernel(r.node().op,
                     [count](const Args& args) { std::fill_n(output<int32_t>(args), count, 0); });
}

std::unique_ptr<Kernel> integer_matmul(const Request& r) {
  Product p = product_of(r, false, false);
  fold_batch(p);
  if (p.k == 0 || element_count(r.out().sizes) == 0) return zeros(r);
  return with_onednn("a product of bytes", [&]() -> std::unique_ptr<Kernel> {
    const auto a = integer_desc(p.batch_a, p.m, p.k, r.in(0).dtype);
    const auto b = integer_desc(p.batch_b, p.k, p.n, r.in(1).dtype);
    const auto y = integer_desc(p.batch, p.m, p.n, r.out().dtype);
    dnnl::matmul::primitive_desc description(cpu_engine(), a, any_layout(b), y, user_scratchpad(),
                                             true);
    if (!without_gemm(description)) return nullptr;
    std::vector<PrimitiveKernel::Argument> arguments{
        {DNNL_ARG_SRC, a, false, 0},
        {DNNL_ARG_WEIGHTS, b, false, 1, description.weights_desc(), false, r.in(1).constant},
        {DNNL_ARG_DST, y, true, 0}};
    return std::make_unique<PrimitiveKernel>(dnnl::matmul(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             product_name(r, p));
  });
}

}  // namespace

static void register_integer_product(KernelTable& table) {
  table.op("ort::IntegerMatMul")
      .add("onednn", bit(DType::i8) | bit(DType::u8) | bit(DType::i32), adds_bytes_exactly,
           integer_matmul);
}

const Family<KernelTable> kIntegerProductKernels("cpu", "integer_product",
                                                 register_integer_product);

}  // namespace ort::cpu
