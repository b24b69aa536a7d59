// Which constants are equal is found by a sample of their bytes, then by all of them.
#include "csrc/session/constants.h"

#include <cstring>
#include <map>

#include "csrc/core/mutex.h"
#include "csrc/graph/schema.h"
#include "providers/constant.h"

namespace ort {
namespace {

// Of some words of it, evenly apart: what is found by it is compared whole.
uint64_t sampled(const Tensor& tensor) {
  constexpr size_t kWords = 64, kWord = sizeof(uint64_t);
  const size_t words = tensor.bytes() / kWord;
  uint64_t hash = static_cast<uint64_t>(tensor.dtype) + 0x9e3779b97f4a7c15u;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  for (const int64_t size : tensor.sizes) mix(static_cast<uint64_t>(size));
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, tensor.as<char>() + words * i / kWords * kWord, kWord);
    mix(word);
  }
  return hash;
}

// A tensor as long as others hold it.
struct Known {
  DType dtype;
  Sizes sizes;
  void* data;
  std::weak_ptr<const void> owner;
  Tensor tensor() const { return {dtype, sizes, data, owner.lock()}; }
};

bool is_gone(const Known& known) {
  return known.owner.expired();
}

bool equal(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  const auto left = hold(a), right = hold(b);
  return std::memcmp(left.get(), right.get(), a.bytes()) == 0;
}

template <class F>
void each_constant(const Graph& graph, const F& f) {
  for (Node* node : graph.order()) {
    if (node->schema->is_constant()) f(*node);
    for (const auto& [name, body] : node->bodies) each_constant(*body, f);
  }
}

}  // namespace

Tensor shared_constant(const Tensor& tensor) {
  constexpr size_t kMost = 4;  // of one sample: hostile files must not make this slow
  static auto& mutex = *new Mutex;
  static auto& known = *new std::map<uint64_t, std::vector<Known>>;
  static size_t many = 0;
  if (!is_discardable(tensor)) return tensor;
  const auto held = hold(tensor);
  const uint64_t sample = sampled(tensor);
  const std::lock_guard lock(mutex);
  if (known.size() > many) {
    for (auto& [unused, alike] : known) std::erase_if(alike, is_gone);
    std::erase_if(known, [](const auto& entry) { return entry.second.empty(); });
    many = 2 * known.size() + kMost;
  }
  std::vector<Known>& alike = known[sample];
  std::erase_if(alike, is_gone);
  for (const Known& each : alike)
    if (const Tensor other = each.tensor(); other.owner && equal(tensor, other)) return other;
  if (alike.size() < kMost)
    alike.push_back({tensor.dtype, tensor.sizes, tensor.data, tensor.owner});
  return tensor;
}

void share_constants(Graph& graph) {
  each_constant(graph, [](Node& node) {
    const Tensor& own = *constant_of(node.output());
    Tensor shared = shared_constant(own);
    if (shared.data != own.data) node.attrs.set("value", std::move(shared));
  });
}

HeldConstants hold_constants(const Graph& graph) {
  HeldConstants held;
  each_constant(graph, [&](Node& node) { held.push_back(hold(*constant_of(node.output()))); });
  return held;
}

}  // namespace ort
