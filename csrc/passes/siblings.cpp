// Siblings are keyed by what they have to have in common, and joined where the first of them is if
// all that they read can be there, else at the last if nobody reads the others before.
#include "csrc/passes/siblings.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "csrc/graph/expr.h"
#include "csrc/graph/schema.h"

namespace ort {
namespace {

constexpr int64_t kThin = 64;     // columns
constexpr int64_t kOfShared = 8;  // the results that are split again are at most this part of it

using Joined = OpSchema::Siblings;

std::optional<Joined> thin(const Node& node) {
  if (node.out.size() != 1 || node.segment >= 0) return std::nullopt;
  std::optional<Joined> how = node.schema->siblings(node);
  if (!how) return std::nullopt;
  for (const auto& [input, axis] : how->joined)
    if (!node.has_input(input) || !node.input(input).type().dims) return std::nullopt;
  const auto& [input, axis] = how->joined.front();
  const std::optional<int64_t> width = node.input(input).dim(axis).value();
  const std::optional<int64_t> shared = node.input(how->shared).dim(-1).value();
  if (!width || !shared || *width < 1 || *width > std::min(kThin, *shared / kOfShared))
    return std::nullopt;
  return how;
}

std::string siblings_key(const Node& node, const Joined& how) {
  std::string key = format("{} {} {}", node.qualified(), node.in[how.shared], node.recompute);
  for (const auto& [name, attr] : node.attrs) key += format(" {}={}", name, attr_text(attr));
  for (const auto& [input, axis] : how.joined) {
    const Value x = node.input(input);
    Dims rest = x.dims();
    rest.at(static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)) = Dim(0);
    key += format(" {}: {}", input, Type::tensor(x.dtype(), rest).text());
  }
  return key;
}

class JoinSiblings {
 public:
  explicit JoinSiblings(Graph& graph) : graph_(graph) {}

  size_t run() {
    std::map<std::string, size_t> found;
    std::vector<std::vector<Node*>> groups;
    for (Node* node : graph_.order()) {
      place_[node] = static_cast<int64_t>(place_.size());
      const std::optional<Joined> how = thin(*node);
      if (!how) continue;
      const auto [at, is_new] = found.try_emplace(siblings_key(*node, *how), groups.size());
      if (is_new) groups.emplace_back();
      groups[at->second].push_back(node);
    }
    size_t count = 0;
    for (const auto& group : groups)
      if (group.size() > 1 && join(group)) count += group.size();
    return count;
  }

 private:
  // One that was made meanwhile is as late as any.
  int64_t place(const Node* node) const {
    const auto found = place_.find(node);
    return found == place_.end() ? std::numeric_limits<int64_t>::max() : found->second;
  }
  bool is_before(Value value, const Node* node) const {
    return !value || !value.producer() || place(value.producer()) < place(node);
  }

  // Whether the node that makes `value` can be put there, where it is not before.
  bool can_be_before(Value value, const Node* node) const {
    if (is_before(value, node)) return true;
    const Node& producer = *value.producer();
    if (producer.schema->has_effect(producer) || producer.owns_bodies()) return false;
    for (size_t i = 0; i < producer.in.size(); ++i)
      if (!is_before(producer.input(i), node)) return false;
    return true;
  }

  bool can_be_at_first(const std::vector<Node*>& group, const Joined& how) const {
    return std::all_of(group.begin(), group.end(), [&](const Node* node) {
      return std::all_of(how.joined.begin(), how.joined.end(), [&](const auto& joined) {
        return can_be_before(node->input(joined.first), group.front());
      });
    });
  }

  bool can_be_at_last(const std::vector<Node*>& group) const {
    return std::all_of(group.begin(), group.end(), [&](const Node* node) {
      const std::span<const Use> uses = node->output().uses();
      return std::all_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return place(use.node) > place(group.back()); });
    });
  }

  bool join(const std::vector<Node*>& group) {
    const Joined how = *thin(*group.front());
    if (can_be_at_first(group, how)) {
      for (const Node* node : group)
        for (const auto& [input, axis] : how.joined) put_before(node->input(input), group.front());
      write(group, how, group.front());
      return true;
    }
    if (!can_be_at_last(group)) return false;
    write(group, how, group.back());
    return true;
  }

  void put_before(Value value, Node* node) {
    if (is_before(value, node)) return;
    graph_.move_before(value.producer(), node);
    place_[value.producer()] = place(node) - 1;
  }

  void write(const std::vector<Node*>& group, const Joined& how, Node* at) {
    std::vector<Value> parts;
    {
      const Insertion here(graph_, at, "join_siblings");
      const Node& first = *group.front();
      std::vector<Value> in;
      for (size_t i = 0; i < first.in.size(); ++i) in.push_back(first.input(i));
      for (const auto& [input, axis] : how.joined) in[input] = side_by_side(group, input, axis);
      const Value joint = graph_.emit(first.qualified(), in, first.attrs)[0];
      parts = graph_.emit("Split", std::vector{joint, graph_.ints(widths(group, how))},
                          {{"axis", how.out_axis < 0 ? how.out_axis + joint.rank() : how.out_axis}},
                          static_cast<int>(group.size()));
    }
    for (size_t i = 0; i < group.size(); ++i) {
      graph_.replace(group[i]->output(), parts[i], "join_siblings");
      graph_.erase(group[i]);
    }
    place_[parts[0].producer()] = place(at);
  }

  Value side_by_side(const std::vector<Node*>& group, size_t input, int64_t axis) {
    std::vector<Value> values;
    for (const Node* node : group) values.push_back(node->input(input));
    return concat(values, axis < 0 ? axis + values[0].rank() : axis);
  }

  static std::vector<int64_t> widths(const std::vector<Node*>& group, const Joined& how) {
    const auto& [input, axis] = how.joined.front();
    std::vector<int64_t> result;
    for (const Node* node : group) result.push_back(*node->input(input).dim(axis).value());
    return result;
  }

  Graph& graph_;
  std::unordered_map<const Node*, int64_t> place_;  // in program order
};

}  // namespace

size_t join_siblings(Graph& graph) {
  return JoinSiblings(graph).run();
}

}  // namespace ort
