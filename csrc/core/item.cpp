// Items that are shared until one of their holders changes them, and what they weigh.
#include "csrc/core/item.h"

#include <algorithm>
#include <utility>

#include "csrc/core/meter.h"

namespace ort {

struct Sequence::Held {
  std::vector<Item> items;
  Charge charge;

  explicit Held(std::vector<Item> given)
      : items(std::move(given)), charge(items.capacity() * sizeof(Item)) {}
  void make_room() {
    if (items.size() < items.capacity()) return;
    const size_t room = std::max<size_t>(4, 2 * items.capacity());
    charge.set(room * sizeof(Item));
    items.reserve(room);
  }
};

Sequence::Sequence(std::vector<Item> items) : held_(std::make_shared<Held>(std::move(items))) {}

const std::vector<Item>& Sequence::items() const {
  static const std::vector<Item> none;
  return held_ ? held_->items : none;
}

Sequence::Held& Sequence::own() {
  if (!held_ || held_.use_count() > 1) held_ = std::make_shared<Held>(items());
  return *held_;
}

void Sequence::insert(size_t at, Item item) {
  Held& held = own();
  held.make_room();
  held.items.insert(held.items.begin() + static_cast<std::ptrdiff_t>(at), std::move(item));
}

void Sequence::push(Item item) {
  insert(size(), std::move(item));
}

void Sequence::erase(size_t at) {
  Held& held = own();
  held.items.erase(held.items.begin() + static_cast<std::ptrdiff_t>(at));
}

std::vector<Item> Sequence::take() && {
  std::vector<Item> items = std::move(own().items);
  held_.reset();
  return items;
}

Optional Optional::of(Item item) {
  struct Held {
    Item item;
    Charge charge;
  };
  const auto held = std::make_shared<const Held>(std::move(item), Charge(sizeof(Held)));
  return {{held, &held->item}};
}

namespace {

size_t bytes_of(const Tensor& tensor) {
  size_t bytes = tensor.bytes() + tensor.sizes.size() * sizeof(int64_t);
  if (tensor.dtype == DType::string)
    for (int64_t i = 0; i < tensor.count(); ++i)
      bytes += sizeof(std::string) + text_of(tensor, i).size();
  return bytes;
}

size_t bytes_of(const std::vector<Item>& items) {
  size_t bytes = 0;
  for (const Item& item : items) bytes += ort::bytes_of(item);
  return bytes;
}

Tensor own_memory(Tensor tensor) {
  if (tensor.dtype == DType::string) return own_strings(tensor);
  if (tensor.owner && tensor.owner.use_count() == 1) return tensor;
  Tensor copy = Tensor::unwritten(tensor.dtype, tensor.sizes);
  if (copy.bytes() > 0) std::memcpy(copy.data, tensor.data, copy.bytes());
  return copy;
}

Sequence own_memory(Sequence sequence) {
  std::vector<Item> items = std::move(sequence).take();
  for (Item& item : items) item = ort::own_memory(std::move(item));
  return Sequence(std::move(items));
}

bool all_numbers(const std::vector<Item>& items) {
  return std::all_of(items.begin(), items.end(), [&](const Item& item) {
    return item.is_tensor() && item.tensor().sizes.empty() &&
           item.tensor().dtype != DType::string && item.tensor().dtype == items[0].tensor().dtype;
  });
}

// A map's numbers, which are many and small, lie in one block.
Sequence own_values(Sequence sequence) {
  if (sequence.size() == 0 || !all_numbers(sequence.items()))
    return own_memory(std::move(sequence));
  std::vector<Item> items = std::move(sequence).take();
  const DType dtype = items[0].tensor().dtype;
  const Tensor block = Tensor::unwritten(dtype, {static_cast<int64_t>(items.size())});
  char* at = static_cast<char*>(block.data);
  for (Item& item : items) {
    auto& number = std::get<Tensor>(item);
    std::memcpy(at, number.data, size_of(dtype));
    number.data = at;
    number.owner = block.owner;
    at += size_of(dtype);
  }
  return Sequence(std::move(items));
}

}  // namespace

size_t bytes_of(const Item& item) {
  size_t bytes = sizeof(Item);
  if (const auto* tensor = std::get_if<Tensor>(&item)) bytes += bytes_of(*tensor);
  if (const auto* sequence = std::get_if<Sequence>(&item)) bytes += bytes_of(sequence->items());
  if (const auto* map = std::get_if<Map>(&item))
    bytes += bytes_of(map->keys) + bytes_of(map->values.items());
  if (const auto* optional = std::get_if<Optional>(&item))
    bytes += optional->held ? bytes_of(*optional->held) : 0;
  return bytes;
}

Item own_memory(Item item) {
  if (auto* tensor = std::get_if<Tensor>(&item)) return own_memory(std::move(*tensor));
  if (auto* sequence = std::get_if<Sequence>(&item)) return own_memory(std::move(*sequence));
  if (auto* map = std::get_if<Map>(&item))
    return Map{own_memory(std::move(map->keys)), own_values(std::move(map->values))};
  auto* optional = std::get_if<Optional>(&item);
  if (!optional || !optional->held) return item;
  Item held = *optional->held;
  optional->held.reset();  // so that what it alone held has one holder
  return Optional::of(own_memory(std::move(held)));
}

}  // namespace ort
