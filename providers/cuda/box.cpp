// A thread for each element; divisions by sizes that the text does not know.
#include "providers/cuda/box.h"

#include <algorithm>

namespace ort::cuda {
namespace {

const char* word(size_t bytes) {
  switch (bytes) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    case 16:
      return "b128";
    default:
      fail("cuda: elements of {} bytes cannot be moved", bytes);
  }
}

std::string text_of(size_t bytes, size_t axes, const char* index) {
  return format(R"(typedef {} index; typedef {} Word;
struct Args { const Word* from; Word* to; i64 count, sizes[{}], from_strides[{}], to_strides[{}]; };
ORT_KERNEL(run, Args) {
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
                index, word(bytes), axes, axes, axes, axes);
}

}  // namespace

BoxCopy::BoxCopy(Gpu& gpu, Sizes sizes, Sizes from_strides, Sizes to_strides, size_t element_bytes)
    : count_(element_count(sizes)), grid_(grid_for(gpu, count_, 256, 256)) {
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
  const std::string text = text_of(element_bytes, sizes_.size(), index);
  launch_ = Launch(Code::of(text, gpu.arch()), gpu, "run");
}

void BoxCopy::run(const void* from, void* to, ort::Stream& stream) const {
  if (count_ == 0) return;
  Words words;
  words.add(from);
  words.add(to);
  words.add(count_);
  for (const Sizes& numbers : {sizes_, from_, to_}) words.add(numbers);
  launch_(grid_, words, stream);
}

}  // namespace ort::cuda
