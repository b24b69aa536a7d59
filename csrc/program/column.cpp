// Packing of a loop's small tensors, and taking them off again.
#include "csrc/program/column.h"

#include <cstring>

namespace ort {
namespace {

constexpr size_t kLargestPacked = 4096;  // bytes
constexpr size_t kChunk = 4 * kLargestPacked;

Item owned(const Item& item) {
  if (!item.is_tensor() || item.tensor().owner || item.tensor().count() == 0) return item;
  Tensor copy = Tensor::unwritten(item.tensor().dtype, item.tensor().sizes);
  std::memcpy(copy.data, item.tensor().data, copy.bytes());
  return copy;
}

std::shared_ptr<uint8_t[]> new_chunk() {
  Charge charge(kChunk);
  return {new uint8_t[kChunk], [counted = std::move(charge)](const uint8_t* p) { delete[] p; }};
}

}  // namespace

size_t Column::per_chunk() const {
  return kChunk / (static_cast<size_t>(element_count(sizes_)) * size_of(dtype_));
}

bool Column::packs(const Item& item) const {
  if (!item.is_tensor() || !apart_.empty()) return false;
  const Tensor& tensor = item.tensor();
  const bool small = tensor.bytes() > 0 && tensor.bytes() <= kLargestPacked;
  if (!small || tensor.dtype == DType::string) return false;
  return n_packed_ == 0 || (tensor.dtype == dtype_ && tensor.sizes == sizes_);
}

size_t Column::push(const Item& item) {
  if (!packs(item)) {
    apart_charge_.set((apart_.size() + 1) * sizeof(Item));
    apart_.push_back(owned(item));
    return bytes_of(item);
  }
  const Tensor& tensor = item.tensor();
  if (n_packed_ == 0) {
    dtype_ = tensor.dtype;
    sizes_ = tensor.sizes;
  }
  const size_t at = n_packed_ % per_chunk(), before = chunks_.size();
  if (at == 0) chunks_.push_back(new_chunk());
  std::memcpy(chunks_.back().get() + at * tensor.bytes(), tensor.data, tensor.bytes());
  ++n_packed_;
  return (chunks_.size() - before) * kChunk;
}

Item Column::at(size_t trip) const {
  if (trip >= n_packed_) return apart_.at(trip - n_packed_);
  const auto& chunk = chunks_[trip / per_chunk()];
  Tensor tensor{dtype_, sizes_, nullptr, chunk};
  tensor.data = chunk.get() + trip % per_chunk() * tensor.bytes();
  return tensor;
}

void Column::pop_to(size_t size) {
  if (size >= n_packed_) {
    apart_.resize(std::min(apart_.size(), size - n_packed_));
    return;
  }
  apart_.clear();
  n_packed_ = size;
  chunks_.resize((size + per_chunk() - 1) / per_chunk());
}

}  // namespace ort
