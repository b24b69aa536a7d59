// The open destinations of the process, by the node that accumulates into the leaf.
#include "csrc/torch_bridge/ddp/destinations.h"

#include <utility>

#include "csrc/core/error.h"
#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/internals/engine.h"

namespace ort::bridge {
namespace {

struct Known {
  std::weak_ptr<Destinations> owner;
  size_t entry;
};

struct Registry {
  Mutex mutex;
  std::unordered_map<const AnyNode*, Known> known;
  static Registry& get() {
    static auto* registry = new Registry;  // outlives what Python frees at exit
    return *registry;
  }
};

// The reducer's own hook is the one that may come after the accumulation.
bool is_seen(AnyNode& accumulator) {
  const HooksOf hooks = hooks_of(accumulator);
  return hooks.on_tensor || hooks.before || hooks.after_accumulation || hooks.after > 1;
}

// How many nodes of this backward lead to each; counted once for all calls that it passes.
const std::unordered_map<const AnyNode*, int>& contributors() {
  thread_local int counted = -1;
  thread_local std::unordered_map<const AnyNode*, int> counts;
  const int task = current_backward();
  if (task == counted) return counts;
  counted = task;
  counts.clear();
  for (const AnyNode* node : nodes_of_backward())
    for_next(*node, [&](AnyNode* next) { ++counts[next]; });
  return counts;
}

bool is_only_contributor(const AnyNode* target) {
  const auto& counts = contributors();
  const auto found = counts.find(target);
  return found != counts.end() && found->second == 1;
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
    auto accumulator = GradientEdge::into_leaf(leaf);
    if (!accumulator.is_valid()) continue;
    registry.known[accumulator.node()] = {made, made->entries_.size()};
    made->entry_of_[leaf.unsafeGetTensorImpl()] = made->entries_.size();
    made->entries_.push_back({leaf, memory, std::move(accumulator), {}});
  }
  return made;
}

Destinations::~Destinations() {
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  for (const Entry& entry : entries_) {
    const auto found = registry.known.find(entry.accumulator.node());
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
  const auto found = entry_of_.find(leaf.unsafeGetTensorImpl());
  if (found == entry_of_.end()) return false;
  auto& scaled = entries_[found->second].scaled;
  const at::Tensor& gradient = leaf.grad();
  if (!scaled || !gradient.defined()) return false;  // without one the bucket has zeros
  Version version = *std::exchange(scaled, std::nullopt);
  // What shares its counter and was not written since is what was handed over.
  const bool same = gradient._version() == version.then();
  version.bump();
  check(same && gradient._version() != version.then(),
        "[DataParallel] a parameter of {} elements gets a gradient from outside the module too, at "
        "the root of the backward or within a nested one, which cannot be told from the module's: "
        "use it in the loss by an operation of its own (p * 1)",
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
    owner->entries_[entry].scaled = Version(gradient);
  }
  return gradient;
}

std::vector<std::optional<Destination>> destinations_of(
    const std::vector<std::atomic<const AnyNode*>>& targets) {
  std::vector<std::optional<Destination>> result(targets.size());
  std::vector<std::shared_ptr<Destinations>> owners;  // the last of one goes without the lock
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  if (registry.known.empty()) return result;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto found = registry.known.find(targets[i]);
    if (found == registry.known.end()) continue;
    const auto& owner = owners.emplace_back(found->second.owner.lock());
    if (!owner) continue;
    std::lock_guard own_lock(owner->mutex_);
    const Destinations::Entry& entry = owner->entries_[found->second.entry];
    if (owner->factor_ && !entry.leaf.grad().defined() && !is_seen(*entry.accumulator.node()) &&
        is_only_contributor(targets[i]))
      result[i] = Destination{owner, found->second.entry, entry.memory, *owner->factor_};
  }
  return result;
}

}  // namespace ort::bridge
