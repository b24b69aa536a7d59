// oneDNN's descriptions as layouts.
#include <algorithm>
#include <map>

#include "csrc/core/mutex.h"
#include "providers/cpu/onednn/onednn.h"

namespace ort::cpu {

bool is_compact(const dnnl::memory::desc& desc) {
  const dnnl::memory::dims dims = desc.get_dims();
  const dnnl::memory::desc plain(dims, desc.get_data_type(), strides_of(dims));
  return dims == desc.get_padded_dims() && desc.get_size() == plain.get_size();
}

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

namespace {

class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(dnnl::memory::desc from, dnnl::memory::desc to, std::string name)
      : from_(std::move(from)), to_(std::move(to)), name_(std::move(name)) {
    const NoFork making;
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

}  // namespace ort::cpu
