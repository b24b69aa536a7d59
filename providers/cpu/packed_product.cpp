// oneDNN's matmul with weights in the layout that it picks.
#include "providers/cpu/packed_product.h"

#include "providers/cpu/onednn.h"

namespace ort::cpu {

struct PackedProduct::Parts {
  dnnl::memory::desc a, b, c;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
  dnnl::reorder pack;
  size_t packed_bytes() const { return (description.weights_desc().get_size() + 63) / 64 * 64; }
};

PackedProduct::PackedProduct(int64_t m, int64_t n, int64_t k, bool transposed, bool accumulate) {
  with_onednn("a product with a packed matrix", [&] {
    using Desc = dnnl::memory::desc;
    const auto f32 = dnnl::memory::data_type::f32;
    auto parts = std::make_shared<Parts>();
    parts->a = Desc({m, k}, f32, {k, 1});
    parts->b = transposed ? Desc({k, n}, f32, {1, k}) : Desc({k, n}, f32, {n, 1});
    parts->c = Desc({m, n}, f32, {n, 1});
    dnnl::primitive_attr attr = user_scratchpad();
    dnnl::post_ops ops;
    if (accumulate) ops.append_sum();
    attr.set_post_ops(ops);
    parts->description = {cpu_engine(), parts->a, Desc({k, n}, f32, dnnl::memory::format_tag::any),
                          parts->c, attr};
    parts->product = dnnl::matmul(parts->description);
    parts->pack =
        dnnl::reorder({cpu_engine(), parts->b, cpu_engine(), parts->description.weights_desc()});
    parts_ = parts;
  });
}

size_t PackedProduct::scratch_bytes() const {
  return parts_->packed_bytes() + parts_->description.scratchpad_desc().get_size();
}

void PackedProduct::pack(const float* b, void* scratch) const {
  with_onednn("to pack a matrix", [&] {
    dnnl::memory from(parts_->b, cpu_engine(), const_cast<float*>(b));
    dnnl::memory to(parts_->description.weights_desc(), cpu_engine(), scratch);
    parts_->pack.execute(cpu_stream(), from, to);
  });
}

void PackedProduct::run(const float* a, float* c, void* scratch) const {
  with_onednn("to run a product", [&] {
    const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
    };
    char* spare = static_cast<char*>(scratch) + parts_->packed_bytes();
    parts_->product.execute(
        cpu_stream(),
        {{DNNL_ARG_SRC, memory(parts_->a, a)},
         {DNNL_ARG_WEIGHTS, memory(parts_->description.weights_desc(), scratch)},
         {DNNL_ARG_DST, memory(parts_->c, c)},
         {DNNL_ARG_SCRATCHPAD, memory(parts_->description.scratchpad_desc(), spare)}});
  });
}

}  // namespace ort::cpu
