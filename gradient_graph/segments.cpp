// A node belongs to the first segment that needs it.
#include "gradient_graph/segments.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "csrc/graph/schema.h"

namespace ort::grad {
namespace {

class Marker {
 public:
  explicit Marker(Graph& graph) {
    for (Node* node : graph.order()) {
      position_.emplace(node, static_cast<int>(position_.size()));
      node->segment = kUnmarked;
    }
  }
  static constexpr int kUnmarked = 1 << 30;

  void mark(Value value, int segment) {
    if (value.producer()) mark(value.producer(), segment);
  }

  void mark(Node* last, int segment) {
    std::vector<Node*> stack{last};
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (node->segment <= segment) continue;
      node->segment = segment;
      for (size_t i = 0; i < node->in.size(); ++i)
        if (node->has_input(i) && node->input(i).producer())
          stack.push_back(node->input(i).producer());
    }
  }
  int position(Value value) const { return value.producer() ? position_.at(value.producer()) : -1; }

 private:
  std::map<const Node*, int> position_;
};

// By value: the last of the `late` inputs that it depends on, counted from 1; 0: none.
std::map<ValueId, int> levels(const Graph& graph, std::span<const ValueId> late) {
  std::map<ValueId, int> result;
  for (size_t k = 0; k < late.size(); ++k) result[late[k]] = static_cast<int>(k) + 1;
  if (late.empty()) return result;
  for (const Node* node : graph.order()) {
    int level = 0;
    for (size_t i = 0; i < node->in.size(); ++i)
      if (node->has_input(i)) level = std::max(level, result[node->in[i]]);
    for (const ValueId id : node->out)
      if (id != kNone) result[id] = level;
  }
  return result;
}

// A collective starts in the segment of what it reads, whoever waits for it; what only collectives
// need runs as early. `of_input`: the segment in which an input of the graph is there.
template <class F>
void place_collectives(Graph& graph, F&& of_input) {
  const std::vector<Node*> nodes = graph.order();
  std::set<const Node*> early;
  const auto for_early = [&](const Node& node) {
    return std::any_of(node.out.begin(), node.out.end(), [&](ValueId id) {
      if (id == kNone) return false;
      const auto& uses = graph.value(id).uses();
      return std::any_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return early.count(use.node) != 0; });
    });
  };
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it)
    if ((*it)->schema->effect(**it) == Effect::collective ||
        ((*it)->segment == Marker::kUnmarked && for_early(**it)))
      early.insert(*it);
  for (Node* node : nodes) {
    if (!early.count(node)) continue;
    int segment = -1;
    for (const ValueId id : node->in) {
      if (id == kNone) continue;
      const Node* producer = graph.value(id).producer();
      segment = std::max(segment, producer ? producer->segment : of_input(id));
    }
    node->segment = segment;
  }
}

}  // namespace

std::vector<int> assign_segments(Graph& graph, size_t n_forward, size_t segment_bytes,
                                 std::span<const size_t> bytes, std::span<const ValueId> late) {
  Marker marker(graph);
  std::map<ValueId, int> level_of = levels(graph, late);
  const auto& outputs = graph.outputs();
  for (size_t i = 0; i < n_forward; ++i) marker.mark(graph.value(outputs[i].value), -1);
  // what draws random numbers or checks does so where the program says, whoever reads its outputs;
  // what finds sizes is read by their names
  for (Node* node : graph.order()) {
    const Effect effect = node->schema->effect(*node);
    if (node->schema->allocates_results(*node)) marker.mark(node, -1);
    if (effect != Effect::none && effect != Effect::collective) marker.mark(node, -1);
  }
  std::vector<size_t> order(outputs.size() - n_forward);
  std::iota(order.begin(), order.end(), 0);
  const auto gradient = [&](size_t i) { return graph.value(outputs[n_forward + i].value); };
  const auto level = [&](size_t i) { return late.empty() ? 0 : level_of[gradient(i).id]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(level(a), marker.position(gradient(a))) <
           std::pair(level(b), marker.position(gradient(b)));
  });
  std::vector<int> segments(order.size(), 0);
  std::map<int, int> first_of;  // by level: the segment of its first gradient
  int segment = 0;
  size_t complete = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    marker.mark(gradient(order[k]), segment);
    segments[order[k]] = segment;
    first_of.emplace(level(order[k]), segment);
    complete += bytes[order[k]];
    if (k + 1 == order.size()) continue;
    if (complete <= segment_bytes && level(order[k]) == level(order[k + 1])) continue;
    ++segment;
    complete = 0;
  }
  place_collectives(graph, [&](ValueId input) {
    if (graph.role(input) != Role::gradient) return -1;
    const auto found = first_of.lower_bound(late.empty() ? 0 : level_of[input]);
    return found == first_of.end() ? segment : found->second;
  });
  for (Node* node : graph.order())
    if (node->segment == Marker::kUnmarked) node->segment = segment;
  return segments;
}

void wait_for_readers(const Graph& graph, std::span<const ValueId> wrt,
                      std::vector<int>& segments) {
  for (size_t i = 0; i < wrt.size(); ++i) {
    std::vector<ValueId> shown{wrt[i]};
    while (!shown.empty()) {
      const auto uses = graph.value(shown.back()).uses();
      shown.pop_back();
      for (const Use& use : uses) {
        if (!use.node) continue;
        segments[i] = std::max(segments[i], use.node->segment);
        if (use.node->schema->is_view()) shown.push_back(use.node->out[0]);
      }
    }
  }
}

}  // namespace ort::grad
