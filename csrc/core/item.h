// What exists only while running: a tensor, or what holds tensors. Type (csrc/graph) says which.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "csrc/core/tensor.h"

namespace ort {

struct Item;

struct Sequence {
  std::vector<Item> items;
};
struct Optional {
  std::shared_ptr<const Item> held;  // null: empty
};
struct Map {
  Tensor keys;               // int64 or string, one axis
  std::vector<Item> values;  // in the order of the keys
};
using Opaque = std::shared_ptr<void>;  // what only its maker reads: a history

struct Item : std::variant<std::monostate, Tensor, Sequence, Optional, Map, Opaque> {
  using variant::variant;
  bool present() const { return !std::holds_alternative<std::monostate>(*this); }
  bool is_tensor() const { return std::holds_alternative<Tensor>(*this); }
  // The tensor or sequence that it must be; the type was checked before the run.
  const Tensor& tensor() const { return std::get<Tensor>(*this); }
  const std::vector<Item>& items() const { return std::get<Sequence>(*this).items; }
};

// What an input of role `shape` is given: sizes without elements.
inline Tensor shape_of(Sizes sizes) {
  Tensor tensor;
  tensor.sizes = std::move(sizes);
  return tensor;
}

}  // namespace ort
