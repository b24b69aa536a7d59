// What exists only while running: a tensor, or what holds tensors. Type (csrc/graph) says which.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "csrc/core/tensor.h"

namespace ort {

struct Item;

// Items that several may hold: the only holder changes them in place, another one copies first. So
// a loop that appends to a state moves nothing.
class Sequence {
 public:
  Sequence() = default;
  explicit Sequence(std::vector<Item> items);
  const std::vector<Item>& items() const;
  size_t size() const;
  void insert(size_t at, Item item);
  void push(Item item);
  void erase(size_t at);
  std::vector<Item> take() &&;  // moved where nobody else holds them

 private:
  struct Held;
  Held& own();
  std::shared_ptr<Held> held_;  // null: empty
};
struct Optional {
  std::shared_ptr<const Item> held;  // null: empty
  static Optional of(Item item);
};
struct Map {
  Tensor keys;      // int64 or string, one axis
  Sequence values;  // in the order of the keys
};
using Opaque = std::shared_ptr<void>;  // what only its maker reads: a history

struct Item : std::variant<std::monostate, Tensor, Sequence, Optional, Map, Opaque> {
  using variant::variant;
  bool present() const { return !std::holds_alternative<std::monostate>(*this); }
  bool is_tensor() const { return std::holds_alternative<Tensor>(*this); }
  // The tensor or sequence that it must be; the type was checked before the run.
  const Tensor& tensor() const { return std::get<Tensor>(*this); }
  const std::vector<Item>& items() const { return std::get<Sequence>(*this).items(); }
};

inline size_t Sequence::size() const {
  return items().size();
}

// With all that it holds, and its own size.
size_t bytes_of(const Item& item);
// The item in memory that nothing else points to: what a session gives. Copies what is shared.
Item own_memory(Item item);

// What an input of role `shape` is given: sizes without elements.
inline Tensor shape_of(Sizes sizes) {
  Tensor tensor;
  tensor.sizes = std::move(sizes);
  return tensor;
}

}  // namespace ort
