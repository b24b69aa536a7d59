// The engine, the streams, layouts, packed constants and the kernel around one primitive.
#include "providers/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <cfenv>
#include <map>

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

namespace {

class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(dnnl::memory::desc from, dnnl::memory::desc to, std::string name)
      : from_(std::move(from)), to_(std::move(to)), name_(std::move(name)) {
    reorder_ = dnnl::reorder({cpu_engine(), from_, cpu_engine(), to_});
  }
  void run(const Args& args) const override {
    with_onednn("to reorder", [&] {
      dnnl::memory from(from_, cpu_engine(), args.in[0]), to(to_, cpu_engine(), args.out[0]);
      reorder_.execute(cpu_stream(), from, to);
    });
  }
  std::string name() const override { return name_; }

 private:
  dnnl::memory::desc from_, to_;
  dnnl::reorder reorder_;
  std::string name_;
};

// Without padding: as a value of the plan's it would take more memory.
bool is_compact(const dnnl::memory::desc& desc) {
  const dnnl::memory::dims dims = desc.get_dims();
  const dnnl::memory::desc plain(dims, desc.get_data_type(), strides_of(dims));
  return dims == desc.get_padded_dims() && desc.get_size() == plain.get_size();
}

// Whether the bytes are those of a row-major value, as those of blocks of channels at one position.
bool is_row_major(const dnnl::memory::desc& desc) {
  const dnnl::memory::dims dims = desc.get_dims(), strides = desc.get_strides();
  const auto axes = desc.get_inner_idxs(), blocks = desc.get_inner_blks();
  if (axes.size() > 1 || dims != desc.get_padded_dims()) return false;
  const size_t blocked = axes.empty() ? dims.size() : static_cast<size_t>(axes[0]);
  int64_t stride = axes.empty() ? 1 : blocks[0];
  for (size_t i = dims.size(); i-- > 0;) {
    if (i > blocked && blocked < dims.size() && dims[i] != 1) return false;
    const int64_t outer = i == blocked ? dims[i] / blocks[0] : dims[i];
    if (outer != 1 && strides[i] != stride) return false;
    stride *= outer;
  }
  return true;
}

// A type of as many bytes that oneDNN can move; undef: there is none.
dnnl::memory::data_type stored_type(DType dtype) {
  using Type = dnnl::memory::data_type;
  switch (dtype) {
    case DType::f32:
      return Type::f32;
    case DType::bf16:
      return Type::bf16;
    case DType::f16:
      return Type::f16;
    case DType::i32:
      return Type::s32;
    case DType::i8:
      return Type::s8;
    case DType::u8:
    case DType::boolean:
      return Type::u8;
    default:
      return Type::undef;
  }
}

// Blocks of so many channels; undef: oneDNN has no name for it.
dnnl::memory::format_tag channel_tag(size_t rank, int64_t block) {
  using Tag = dnnl::memory::format_tag;
  static const std::map<std::pair<int64_t, size_t>, Tag> tags{
      {{4, 3}, Tag::nCw4c},   {{4, 4}, Tag::nChw4c},   {{4, 5}, Tag::nCdhw4c},
      {{8, 3}, Tag::nCw8c},   {{8, 4}, Tag::nChw8c},   {{8, 5}, Tag::nCdhw8c},
      {{16, 3}, Tag::nCw16c}, {{16, 4}, Tag::nChw16c}, {{16, 5}, Tag::nCdhw16c}};
  const auto tag = tags.find({block, rank});
  return tag == tags.end() ? Tag::undef : tag->second;
}

class Described final : public BlockedLayout {
 public:
  explicit Described(dnnl::memory::desc desc) : desc_(std::move(desc)) {}
  const dnnl::memory::desc& desc() const { return desc_; }
  size_t bytes() const override { return desc_.get_size(); }
  // A block of all channels has them last.
  bool equals(const BlockedLayout& other) const override {
    const auto* same = dynamic_cast<const Described*>(&other);
    if (!same || desc_.get_dims() != same->desc_.get_dims()) return false;
    const int64_t channels = desc_.get_dims().size() > 1 ? desc_.get_dims()[1] : 0;
    const bool all = channels_in_row() == channels && same->channels_in_row() == channels;
    const bool last = all && channels > 0;
    return same->desc_ == desc_ || (last && desc_.get_data_type() == same->desc_.get_data_type());
  }
  bool only_elements() const override { return is_compact(desc_); }
  int64_t channels_in_row() const override {
    if (channels_last()) return desc_.get_dims()[1];
    const dnnl::memory::dims dims = desc_.get_dims(), strides = desc_.get_strides();
    const auto axes = desc_.get_inner_idxs(), blocks = desc_.get_inner_blks();
    if (axes.size() != 1 || axes[0] != 1 || !only_elements()) return 0;
    dnnl::memory::dims outer = dims, expected(dims.size(), blocks[0]);
    outer[1] /= blocks[0];
    for (size_t i = dims.size(); i-- > 1;) expected[i - 1] = expected[i] * outer[i];
    return strides == expected ? blocks[0] : 0;
  }
  std::optional<Layout> of(const Sizes& sizes) const override {
    const int64_t block = channel_block();
    const auto tag =
        channels_last() ? channels_last_tag(sizes.size()) : channel_tag(sizes.size(), block);
    const bool fits = block == 0 || sizes[1] % block == 0;
    if (tag == dnnl::memory::format_tag::undef || !fits || element_count(sizes) == 0)
      return std::nullopt;
    return layout_of(dnnl::memory::desc(sizes, desc_.get_data_type(), tag));
  }
  bool channels_last() const override {
    const auto tag = channels_last_tag(static_cast<size_t>(desc_.get_ndims()));
    if (tag == dnnl::memory::format_tag::undef || desc_.get_inner_nblks() > 0) return false;
    return desc_ == dnnl::memory::desc(desc_.get_dims(), desc_.get_data_type(), tag);
  }
  // Its axes from the outermost in, those that are blocked in capitals, then its blocks.
  std::string text() const override {
    const dnnl::memory::dims strides = desc_.get_strides();
    std::vector<size_t> order(strides.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    const auto axes = desc_.get_inner_idxs(), sizes = desc_.get_inner_blks();
    std::string text;
    for (const size_t axis : order) {
      const bool blocked = std::count(axes.begin(), axes.end(), static_cast<int64_t>(axis)) > 0;
      text += static_cast<char>((blocked ? 'A' : 'a') + static_cast<char>(axis));
    }
    for (size_t i = 0; i < axes.size(); ++i)
      text += format("{}{}", sizes[i], static_cast<char>('a' + static_cast<char>(axes[i])));
    return text;
  }
  std::optional<Layout> of(DType dtype) const override {
    const auto type = stored_type(dtype);
    if (type == dnnl::memory::data_type::undef) return std::nullopt;
    if (type == desc_.get_data_type()) return layout_of(desc_);
    if (desc_.get_inner_nblks() == 0)
      return layout_of(dnnl::memory::desc(desc_.get_dims(), type, desc_.get_strides()));
    const auto tag = channel_tag(static_cast<size_t>(desc_.get_ndims()), channel_block());
    if (tag == dnnl::memory::format_tag::undef) return std::nullopt;
    return layout_of(dnnl::memory::desc(desc_.get_dims(), type, tag));
  }
  std::unique_ptr<Kernel> from_plain() const override {
    return std::make_unique<ReorderKernel>(plain(), desc_, "reorder to " + text());
  }
  std::unique_ptr<Kernel> to_plain() const override {
    return std::make_unique<ReorderKernel>(desc_, plain(), "reorder from " + text());
  }
  std::unique_ptr<Kernel> to(const BlockedLayout& other) const override {
    const auto* target = dynamic_cast<const Described*>(&other);
    if (!target) return nullptr;
    return std::make_unique<ReorderKernel>(desc_, target->desc_,
                                           "reorder " + text() + " to " + target->text());
  }

 private:
  dnnl::memory::desc plain() const {
    const dnnl::memory::dims dims = desc_.get_dims();
    return {dims, desc_.get_data_type(), strides_of(dims)};
  }

  dnnl::memory::desc desc_;
};

}  // namespace

Layout layout_of(const dnnl::memory::desc& desc) {
  if (is_row_major(desc)) return {};
  return Layout(std::make_shared<const Described>(desc));
}

Layout channels_last(const Sizes& sizes, DType dtype) {
  const auto type = stored_type(dtype);
  const auto tag = channels_last_tag(sizes.size());
  const bool known =
      type != dnnl::memory::data_type::undef && tag != dnnl::memory::format_tag::undef;
  if (!known || element_count(sizes) == 0) return {};
  return layout_of(dnnl::memory::desc(sizes, type, tag));
}

dnnl::memory::desc desc_of(const Operand& operand) {
  if (const auto* described = dynamic_cast<const Described*>(operand.layout.blocked()))
    return described->desc();
  return dense_desc(operand.sizes, operand.dtype);
}

std::shared_ptr<const dnnl::memory> packed(const void* data, const dnnl::memory::desc& desc,
                                           const dnnl::memory::desc& wanted) {
  struct Pack {
    dnnl::memory::desc desc, wanted;
    std::weak_ptr<const dnnl::memory> memory;
  };
  static std::mutex mutex;
  static auto& packs = *new std::multimap<const void*, Pack>;
  std::lock_guard lock(mutex);
  std::erase_if(packs, [](const auto& entry) { return entry.second.memory.expired(); });
  const auto [first, last] = packs.equal_range(data);
  for (auto it = first; it != last; ++it)
    if (it->second.desc == desc && it->second.wanted == wanted)
      if (auto found = it->second.memory.lock()) return found;
  auto made = std::make_shared<dnnl::memory>(wanted, cpu_engine());
  dnnl::memory plain(desc, cpu_engine(), const_cast<void*>(data));
  dnnl::reorder(plain, *made).execute(cpu_stream(), plain, *made);
  packs.emplace(data, Pack{desc, wanted, made});
  return made;
}

PrimitiveKernel::PrimitiveKernel(dnnl::primitive primitive, dnnl::memory::desc scratchpad,
                                 std::vector<Argument> arguments, std::string name,
                                 std::optional<After> after)
    : primitive_(std::move(primitive)),
      scratchpad_(std::move(scratchpad)),
      arguments_(std::move(arguments)),
      name_(std::move(name)),
      after_(std::move(after)) {
  const auto reserve = [&](size_t bytes) {
    const size_t at = scratch_;
    scratch_ += (bytes + 63) / 64 * 64;
    return at;
  };
  reserve(scratchpad_.get_size());
  for (Argument& a : arguments_) {
    a.any_layout = a.any_layout && (!reordered(a) || is_compact(a.wanted));
    const bool same_bytes = reordered(a) && is_row_major(a.desc) && is_row_major(a.wanted);
    if (same_bytes || (a.any_layout && reordered(a))) a.desc = a.wanted;
    if (a.wanted == a.desc) a.wanted = {};
    if (!reordered(a)) continue;
    if (a.constant) {
      a.pack = packed(a.constant, a.desc, a.wanted);
      continue;
    }
    a.scratch = reserve(a.wanted.get_size());
    const auto& from = a.output ? a.wanted : a.desc;
    const auto& to = a.output ? a.desc : a.wanted;
    a.reorder = dnnl::reorder({cpu_engine(), from, cpu_engine(), to});
  }
}

Layout PrimitiveKernel::layout_of_operand(size_t index, bool output) const {
  for (const Argument& a : arguments_)
    if (a.any_layout && a.index == index && a.output == output) return layout_of(a.desc);
  return {};
}

// The processor notices what such an activation has wrong: a maximum of a NaN, which it loses, and
// what overflows raise a flag of the thread. Threads of others may be gone with theirs, so this is
// for one.
void PrimitiveKernel::execute(Memories& memories) const {
  constexpr int kFlags = FE_INVALID | FE_OVERFLOW;
  if (after_ && after_->bare) {
    if (omp_get_max_threads() > 1) return run_bare(memories);
    std::feclearexcept(kFlags);
  }
  primitive_.execute(cpu_stream(), memories);
  if (!after_) return;
  if (!after_->bare) return activate_result(memories);
  if (std::fetestexcept(kFlags) != 0) run_bare(memories);
}

void PrimitiveKernel::run_bare(Memories& memories) const {
  std::call_once(made_, [&] { bare_ = after_->bare(); });
  memories[DNNL_ARG_SCRATCHPAD] = dnnl::memory(bare_.scratchpad, cpu_engine());
  bare_.primitive.execute(cpu_stream(), memories);
  activate_result(memories);
}

void PrimitiveKernel::activate_result(const Memories& memories) const {
  const dnnl::memory& y = memories.at(DNNL_ARG_DST);
  const bool wide = y.get_desc().get_data_type() == dnnl::memory::data_type::f32;
  const bool bfloat = y.get_desc().get_data_type() == dnnl::memory::data_type::bf16;
  const DType dtype = wide ? DType::f32 : bfloat ? DType::bf16 : DType::f16;
  activate(after_->activation, dtype, y.get_data_handle(),
           static_cast<int64_t>(y.get_desc().get_size() / size_of(dtype)));
}

void PrimitiveKernel::run(const Args& args) const {
  with_onednn("to run", [&] {
    char* scratch = static_cast<char*>(args.scratch);
    Memories memories;
    const auto outside = [&](const Argument& a) {
      return dnnl::memory(a.desc, cpu_engine(), a.output ? args.out[a.index] : args.in[a.index]);
    };
    for (const Argument& a : arguments_) {
      if (a.pack) {
        memories.emplace(a.id, *a.pack);
        continue;
      }
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
    execute(memories);
    for (const Argument& a : arguments_) {
      if (!reordered(a) || !a.output) continue;
      dnnl::memory given = outside(a);
      a.reorder.execute(cpu_stream(), memories.at(a.id), given);
    }
  });
}

}  // namespace ort::cpu
