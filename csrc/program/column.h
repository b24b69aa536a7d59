// What a loop keeps of its trips at one place: an item each. Small tensors of one type lie side by
// side in chunks, as a tensor of its own costs some 400 bytes.
#pragma once

#include <vector>

#include "csrc/core/item.h"
#include "csrc/core/meter.h"

namespace ort {

class Column {
 public:
  // Owns what it takes: memory that is borrowed is copied. Gives the bytes by which it grows.
  size_t push(const Item& item);
  Item at(size_t trip) const;  // keeps its chunk alive
  size_t size() const { return n_packed_ + apart_.size(); }
  void pop_to(size_t size);
  bool packs(const Item& item) const;  // or keeps it as it is

 private:
  size_t per_chunk() const;

  DType dtype_ = DType::undefined;  // of what is packed
  Sizes sizes_;
  size_t n_packed_ = 0;
  std::vector<std::shared_ptr<uint8_t[]>> chunks_;
  std::vector<Item> apart_;  // after what is packed
  Charge apart_charge_;
};

}  // namespace ort
