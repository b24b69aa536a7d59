// The engine, the streams and the kernel around one primitive.
#include "providers/cpu/onednn.h"

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
  if (dtype == DType::bf16) return dnnl::memory::data_type::bf16;
  if (dtype == DType::f16) return dnnl::memory::data_type::f16;
  check(dtype == DType::f32, "oneDNN has no {} here", dtype);
  return dnnl::memory::data_type::f32;
}

dnnl::memory::desc dense_desc(const Sizes& sizes, DType dtype) {
  const Sizes dims = sizes.empty() ? Sizes{1} : sizes;
  return {dims, onednn_type(dtype), strides_of(dims)};
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
    case Epilogue::none:
      break;
  }
  return dnnl::algorithm::undef;
}

}  // namespace

void append_activation(dnnl::post_ops& ops, Epilogue activation) {
  if (activation == Epilogue::none) return;
  const float alpha = activation == Epilogue::silu ? 1.0f : 0.0f;
  ops.append_eltwise(algorithm_of(activation), alpha, 0.0f);
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

PrimitiveKernel::PrimitiveKernel(dnnl::primitive primitive, dnnl::memory::desc scratchpad,
                                 std::vector<Argument> arguments, std::string name)
    : primitive_(std::move(primitive)),
      scratchpad_(std::move(scratchpad)),
      arguments_(std::move(arguments)),
      name_(std::move(name)) {
  const auto reserve = [&](size_t bytes) {
    const size_t at = scratch_;
    scratch_ += (bytes + 63) / 64 * 64;
    return at;
  };
  reserve(scratchpad_.get_size());
  for (Argument& a : arguments_) {
    if (a.wanted == a.desc) a.wanted = {};
    if (!reordered(a)) continue;
    a.scratch = reserve(a.wanted.get_size());
    const auto& from = a.output ? a.wanted : a.desc;
    const auto& to = a.output ? a.desc : a.wanted;
    a.reorder = dnnl::reorder({cpu_engine(), from, cpu_engine(), to});
  }
}

void PrimitiveKernel::run(const Args& args) const {
  with_onednn("to run", [&] {
    char* scratch = static_cast<char*>(args.scratch);
    std::unordered_map<int, dnnl::memory> memories;
    const auto outside = [&](const Argument& a) {
      return dnnl::memory(a.desc, cpu_engine(), a.output ? args.out[a.index] : args.in[a.index]);
    };
    for (const Argument& a : arguments_) {
      if (!reordered(a)) {
        memories.emplace(a.id, outside(a));
        continue;
      }
      dnnl::memory inside(a.wanted, cpu_engine(), scratch + a.scratch);
      dnnl::memory given = outside(a);
      if (!a.output) a.reorder.execute(cpu_stream(), given, inside);
      memories.emplace(a.id, std::move(inside));
    }
    memories.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad_, cpu_engine(), scratch));
    primitive_.execute(cpu_stream(), memories);
    for (const Argument& a : arguments_) {
      if (!reordered(a) || !a.output) continue;
      dnnl::memory given = outside(a);
      a.reorder.execute(cpu_stream(), memories.at(a.id), given);
    }
  });
}

}  // namespace ort::cpu
