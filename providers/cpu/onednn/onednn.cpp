// The engine, the streams and what activations are to oneDNN.
#include "providers/cpu/onednn/onednn.h"

#include <omp.h>

namespace ort::cpu {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine* const engine =
      new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every static
  return *engine;
}

dnnl::stream& cpu_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  using Type = dnnl::memory::data_type;
  switch (dtype) {
    case DType::f32:
      return Type::f32;
    case DType::bf16:
      return Type::bf16;
    case DType::f16:
      return Type::f16;
    case DType::i8:
      return Type::s8;
    case DType::u8:
      return Type::u8;
    case DType::i32:
      return Type::s32;
    default:
      fail("oneDNN has no {} here", dtype);
  }
}

Verdict adds_bytes_exactly(const Node&) {
  static const bool saturates = [] {
    using Isa = dnnl::cpu_isa;
    const Isa isa = dnnl::get_effective_cpu_isa();  // ONEDNN_MAX_CPU_ISA may say less
    return isa == Isa::sse41 || isa == Isa::avx || isa == Isa::avx2 || isa == Isa::avx512_core;
  }();
  return require(!saturates, "the processor has no VNNI");
}

dnnl::memory::desc dense_desc(const Sizes& sizes, DType dtype) {
  const Sizes dims = sizes.empty() ? Sizes{1} : sizes;
  return {dims, onednn_type(dtype), strides_of(dims)};
}

dnnl::memory::format_tag channels_last_tag(size_t rank) {
  using Tag = dnnl::memory::format_tag;
  return rank == 3 ? Tag::nwc : rank == 4 ? Tag::nhwc : rank == 5 ? Tag::ndhwc : Tag::undef;
}

bool is_own(const dnnl::primitive_desc_base& description) {
  if (!description.get(true)) return false;
  const std::string_view name = description.impl_info_str();
  const auto has = [&](std::string_view word) { return name.find(word) != name.npos; };
  return !name.starts_with("ref") && !name.starts_with("simple") && !has("gemm");
}

namespace {

dnnl::algorithm algorithm_of(Epilogue activation) {
  switch (activation) {
    case Epilogue::relu:
      return dnnl::algorithm::eltwise_relu;
    case Epilogue::tanh:
      return dnnl::algorithm::eltwise_tanh;
    case Epilogue::sigmoid:
      return dnnl::algorithm::eltwise_logistic;
    case Epilogue::silu:
      return dnnl::algorithm::eltwise_swish;
    case Epilogue::gelu:
      return dnnl::algorithm::eltwise_gelu_erf;
    case Epilogue::gelu_tanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case Epilogue::hard_swish:
      return dnnl::algorithm::eltwise_hardswish;
    case Epilogue::leaky_relu:
      return dnnl::algorithm::eltwise_relu;
    case Epilogue::clip:
      return dnnl::algorithm::eltwise_clip;
    case Epilogue::none:
      break;
  }
  return dnnl::algorithm::undef;
}

}  // namespace

bool is_post_op(const Activation& activation) {
  const bool slope = activation.kind == Epilogue::leaky_relu,
             clip = activation.kind == Epilogue::clip;
  return !(slope && activation.low == 0.0) && !(clip && !(activation.low <= activation.high));
}

void append_activation(dnnl::post_ops& ops, const Activation& activation) {
  if (!activation) return;
  auto alpha = static_cast<float>(activation.low), beta = static_cast<float>(activation.high);
  if (activation.kind == Epilogue::silu) alpha = 1.0f;
  if (activation.kind == Epilogue::hard_swish) {
    alpha = 1.0f / 6.0f;
    beta = 0.5f;
  }
  ops.append_eltwise(algorithm_of(activation.kind), alpha, beta);
}

bool wrong_for_nan_or_inf(const Activation& activation) {
  return activation.kind == Epilogue::relu || activation.kind == Epilogue::clip ||
         activation.kind == Epilogue::gelu;
}

ActivationPlaces places_of(const Activation& activation) {
  if (wrong_for_nan_or_inf(activation) && omp_get_max_threads() > 1) return {{}, activation};
  return {activation, {}};
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

}  // namespace ort::cpu
