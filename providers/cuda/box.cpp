// A thread for each element; divisions by sizes that the text does not know.
#include "providers/cuda/box.h"

#include <algorithm>

#include "providers/cuda/tile/form.h"

namespace ort::cuda {
namespace {

std::string text_of(size_t bytes, size_t axes, const char* index) {
  return format(R"(typedef {} index; typedef {} Word;
struct Args { const Word* from; Word* to; i64 count, sizes[{}], from_strides[{}], to_strides[{}]; };
ORT_KERNEL(run, Args, 256) {
  const index count = (index)a.count, step = (index)threads() * blocks();
  for (index i = (index)block() * threads() + thread(); i < count; i += step) {
    index rest = i;
    i64 from = 0, to = 0;
#pragma unroll
    for (int axis = {}; axis-- > 0;) {
      const index size = (index)a.sizes[axis], at = rest % size;
      rest /= size;
      from += (i64)at * a.from_strides[axis];
      to += (i64)at * a.to_strides[axis];
    }
    store(a.to, to, load(a.from, from));
  }
}
)",
                index, word_type(bytes), axes, axes, axes, axes);
}

}  // namespace

BoxCopy::BoxCopy(Gpu& gpu, Sizes sizes, Sizes from_strides, Sizes to_strides, size_t element_bytes)
    : count_(element_count(sizes)),
      element_bytes_(element_bytes),
      grid_(grid_for(gpu, count_, 256, 256)) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const bool runs_on = !sizes_.empty() && from_.back() == from_strides[i] * sizes[i] &&
                         to_.back() == to_strides[i] * sizes[i];
    if (runs_on) {
      sizes_.back() *= sizes[i];
      from_.back() = from_strides[i];
      to_.back() = to_strides[i];
    } else {
      sizes_.push_back(sizes[i]);
      from_.push_back(from_strides[i]);
      to_.push_back(to_strides[i]);
    }
  }
  if (sizes_.empty()) {
    sizes_ = {1};
    from_ = to_ = {0};
  }
  const char* index = index_type(count_ + (int64_t{1} << 23));
  const auto launch_of = [&](size_t bytes) {
    return Launch(Code::of(text_of(bytes, sizes_.size(), index), gpu.arch()), gpu, "run");
  };
  launch_ = launch_of(element_bytes);
  packed_ = packs_of(element_bytes);
  if (packed_ == 1) return;
  pack_bytes_ = element_bytes * static_cast<size_t>(packed_);
  packed_launch_ = launch_of(pack_bytes_);
  packed_grid_ = grid_for(gpu, count_ / packed_, 256, 256);
}

// How many elements may be moved as one, at most 16 bytes of the innermost axis.
int64_t BoxCopy::packs_of(size_t element_bytes) const {
  if (from_.back() != 1 || to_.back() != 1) return 1;
  int64_t count = 16 / static_cast<int64_t>(element_bytes);
  const auto fits = [&](const Sizes& strides) {
    return std::all_of(strides.begin(), strides.end() - 1,
                       [&](int64_t s) { return s % count == 0; });
  };
  while (count > 1 && !(sizes_.back() % count == 0 && fits(from_) && fits(to_))) count /= 2;
  return count;
}

// A stride may go backwards.
Reach BoxCopy::reach_of(const void* first, const Sizes& strides) const {
  int64_t below = 0, above = 0;
  for (size_t i = 0; i < sizes_.size(); ++i)
    (strides[i] < 0 ? below : above) += (sizes_[i] - 1) * strides[i];
  const auto bytes = static_cast<int64_t>(element_bytes_);
  return reach(static_cast<const char*>(first) + below * bytes, above - below + 1, element_bytes_);
}

void BoxCopy::run(const void* from, void* to, ort::Stream& stream) const {
  if (count_ == 0) return;
  const auto aligned = [&](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % pack_bytes_ == 0;
  };
  const bool packed = packed_ > 1 && aligned(from) && aligned(to);
  const int64_t by = packed ? packed_ : 1;
  Words words;
  words.add(Reach{from, 0});
  words.add(Reach{to, 0});
  words.reach(reach_of(from, from_));
  words.reach(reach_of(to, to_));
  words.add(count_ / by);
  for (size_t i = 0; i < sizes_.size(); ++i)
    words.add(i + 1 == sizes_.size() ? sizes_[i] / by : sizes_[i]);
  for (const Sizes& strides : {from_, to_})
    for (size_t i = 0; i < strides.size(); ++i)
      words.add(i + 1 == strides.size() ? strides[i] : strides[i] / by);
  packed ? packed_launch_(packed_grid_, words, stream) : launch_(grid_, words, stream);
}

}  // namespace ort::cuda
