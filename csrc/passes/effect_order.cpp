// One walk in program order, with the last effect of each class, on each value, and of Python's.
#include "csrc/passes/effect_order.h"

#include <map>
#include <utility>
#include <vector>

#include "csrc/graph/schema.h"
#include "csrc/passes/alias.h"

namespace ort {
namespace {

class EffectOrder {
 public:
  using Then = std::function<void(const Node&, const Node&)>;
  EffectOrder(const Graph& graph, const Then& then) : then_(then), sources_(sources(graph)) {}

  void add(const Node& node, Effect effect) {
    if (python_) follow(*python_, node);
    const auto last = last_.find({node.segment, effect});
    if (last != last_.end()) follow(*last->second, node);
    for (const ValueId id : node.in) {
      if (id == kNone) continue;
      const auto [object, added] = last_on_.try_emplace(sources_[static_cast<size_t>(id)], &node);
      if (!added) follow(*std::exchange(object->second, &node), node);
    }
    if (effect == Effect::python) {
      for (const auto& [key, earlier] : last_) follow(*earlier, node);
      python_ = &node;
    }
    last_.insert_or_assign({node.segment, effect}, &node);
  }

 private:
  // Segments are in order anyway; what comes in an earlier one waits for nothing of a later one.
  void follow(const Node& first, const Node& node) {
    if (&first != &node && first.segment <= node.segment) then_(first, node);
  }

  const Then& then_;
  std::vector<ValueId> sources_;
  std::map<std::pair<int, Effect>, const Node*> last_;
  std::map<ValueId, const Node*> last_on_;
  const Node* python_ = nullptr;
};

}  // namespace

void each_in_effect_order(const Graph& graph,
                          const std::function<void(const Node& first, const Node& then)>& f) {
  EffectOrder order(graph, f);
  for (const Node* node : graph.order())
    if (const Effect effect = node->schema->effect(*node); effect != Effect::none)
      order.add(*node, effect);
}

}  // namespace ort
