// A node belongs to the first segment that needs it.
#include "gradient_graph/segments.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "csrc/graph/schema.h"

namespace ort::grad {
namespace {

class Marker {
 public:
  explicit Marker(Graph& graph) {
    for (Node* node : graph.order()) {
      position_.emplace(node, static_cast<int>(position_.size()));
      nodes_.push_back(node);
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
  void mark_before(int position, int segment) {
    for (int i = 0; i < position; ++i) mark(nodes_[static_cast<size_t>(i)], segment);
  }
  int position(const Node* node) const { return position_.at(node); }

 private:
  std::map<const Node*, int> position_;
  std::vector<Node*> nodes_;
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

// What the backward comes to, in order: a gradient, by its number, is complete, or a user's part of
// it begins.
struct Event {
  int level, position;
  Node* last;
  std::optional<size_t> gradient;
};

std::vector<Event> events(const Graph& graph, size_t n_forward, const Marker& marker,
                          std::map<ValueId, int>& level_of) {
  std::vector<Event> result;
  for (Node* node : graph.order()) {
    if (!node->schema->is_users_backward(*node)) continue;
    int level = 0;
    for (const ValueId id : node->out) level = std::max(level, level_of[id]);
    result.push_back({level, marker.position(node), node, {}});
  }
  for (size_t i = n_forward; i < graph.outputs().size(); ++i) {
    const Value value = graph.value(graph.outputs()[i].value);
    Node* last = value.producer();
    result.push_back({level_of[value.id], last ? marker.position(last) : -1, last, i - n_forward});
  }
  std::stable_sort(result.begin(), result.end(), [](const Event& a, const Event& b) {
    return std::pair(a.level, a.position) < std::pair(b.level, b.position);
  });
  while (!result.empty() && !result.back().gradient) result.pop_back();
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
  std::vector<int> segments(outputs.size() - n_forward, 0);
  std::map<int, int> first_of;  // by level: the segment of its first gradient
  int segment = 0;
  size_t complete = 0;
  std::optional<int> level;  // of the segment's latest gradient
  for (const Event& event : events(graph, n_forward, marker, level_of)) {
    if (level && (complete > segment_bytes || *level != event.level || !event.gradient)) {
      if (!event.gradient) marker.mark_before(event.position, segment);  // what reads inputs too
      ++segment;
      complete = 0;
      level.reset();
    }
    if (event.last) marker.mark(event.last, segment);
    if (!event.gradient) continue;
    segments[*event.gradient] = segment;
    first_of.emplace(event.level, segment);
    complete += bytes[*event.gradient];
    level = event.level;
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
