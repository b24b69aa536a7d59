// The open destinations of the process, by the node that accumulates into the leaf.
#include "csrc/torch_bridge/destinations.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

#include "csrc/core/error.h"
#include "csrc/torch_bridge/memory.h"

namespace ort::bridge {
namespace {

using torch::autograd::Node;

struct Known {
  std::weak_ptr<Destinations> owner;
  size_t entry;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const Node*, Known> known;
  static Registry& get() {
    static auto* registry = new Registry;  // outlives what Python frees at exit
    return *registry;
  }
};

// The reducer's own hook is the one that may come after the accumulation.
bool is_seen(Node& accumulator) {
  return !accumulator.tensor_pre_hooks().empty() || !accumulator.pre_hooks().empty() ||
         accumulator.tensor_post_acc_grad_hooks() || accumulator.post_hooks().size() > 1;
}

// How many nodes of this backward lead to each.
std::unordered_map<const Node*, int> contributors() {
  std::unordered_map<const Node*, int> counts;
  for (const Node* node : *torch::autograd::get_current_graph_task_nodes_in_graph())
    for (const auto& edge : node->next_edges())
      if (edge.is_valid()) ++counts[edge.function.get()];
  return counts;
}

}  // namespace

std::shared_ptr<Destinations> Destinations::over(const std::vector<Place>& places) {
  std::shared_ptr<Destinations> made(new Destinations);
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  for (const auto& [leaf, memory] : places) {
    if (!leaf.is_contiguous() || !memory.is_contiguous() || leaf.sizes() != memory.sizes() ||
        leaf.scalar_type() != memory.scalar_type() || leaf.device() != memory.device())
      continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
    if (!accumulator) continue;
    registry.known[accumulator.get()] = {made, made->entries_.size()};
    made->entries_.push_back({leaf, memory, std::move(accumulator), {}});
  }
  return made;
}

Destinations::~Destinations() {
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  for (const Entry& entry : entries_) {
    const auto found = registry.known.find(entry.accumulator.get());
    if (found != registry.known.end() && found->second.owner.expired()) registry.known.erase(found);
  }
}

void Destinations::open(double factor) {
  std::lock_guard lock(mutex_);
  factor_ = factor;
  for (Entry& entry : entries_) entry.scaled.reset();
}

void Destinations::close() {
  std::lock_guard lock(mutex_);
  factor_.reset();
}

bool Destinations::take_scaled(const at::Tensor& leaf) {
  std::lock_guard lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.leaf.is_same(leaf); });
  if (entry == entries_.end() || !entry->scaled) return false;
  c10::VariableVersion handed = *std::exchange(entry->scaled, std::nullopt);
  const at::Tensor& gradient = leaf.grad();
  check(gradient.defined(),
        "[DataParallel] the gradient of a parameter was taken away in backward");
  // What shares its counter is what was handed over; a sum with another's gradient is not.
  const uint32_t before = gradient._version();
  handed.bump();
  check(
      gradient._version() != before,
      "[DataParallel] a parameter of {} elements gets a gradient from outside the module too, at "
      "the root of the backward, which cannot be told from the module's: use it in the loss by an "
      "operation of its own (p * 1)",
      leaf.numel());
  return true;
}

bool Destination::fits(const Operand& type) const {
  return memory.sizes() == type.sizes && dtype_of(memory.scalar_type()) == type.dtype;
}

at::Tensor Destination::handed_over(bool scaled) const {
  at::Tensor gradient = memory.variable_data();  // with a counter of its own
  if (scaled) {
    std::lock_guard lock(owner->mutex_);
    owner->entries_[entry].scaled = gradient.unsafeGetTensorImpl()->version_counter();
  }
  return gradient;
}

std::vector<std::optional<Destination>> destinations_of(const std::vector<const Node*>& targets) {
  std::vector<std::optional<Destination>> result(targets.size());
  Registry& registry = Registry::get();
  std::optional<std::unordered_map<const Node*, int>> counts;
  std::lock_guard lock(registry.mutex);
  if (registry.known.empty()) return result;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto found = registry.known.find(targets[i]);
    const auto owner = found == registry.known.end() ? nullptr : found->second.owner.lock();
    if (!owner || !owner->factor_) continue;
    const Destinations::Entry& entry = owner->entries_[found->second.entry];
    if (entry.leaf.grad().defined() || is_seen(*entry.accumulator)) continue;
    if (!counts) counts = contributors();
    if (counts->at(targets[i]) == 1)
      result[i] = Destination{owner, found->second.entry, entry.memory, *owner->factor_};
  }
  return result;
}

}  // namespace ort::bridge
