// Nodes are keyed by op, inputs and attributes, and compared whole.
#include "csrc/passes/cse.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "csrc/graph/schema.h"
#include "csrc/passes/named_sizes.h"

namespace ort {
namespace {

constexpr size_t kLong = 64;  // items; a longer list is keyed by a hash of them

template <class Item>
size_t hash_of(const std::vector<Item>& items) {
  size_t hash = items.size();
  for (const Item& item : items) hash = hash * 0x9e3779b97f4a7c15 + std::hash<Item>()(item);
  return hash;
}

std::string key_of(const Attr& attr) {
  return std::visit(
      [&]<class T>(const T& value) {
        if constexpr (requires { hash_of(value); } && !std::is_same_v<T, Dims>)
          if (value.size() > kLong) return std::to_string(hash_of(value));
        return attr_text(attr);
      },
      attr);
}

std::string key_of(const Node& node) {
  std::string key = node.qualified() + "(";
  for (const ValueId id : node.in) key += std::to_string(id) + ",";
  for (const auto& [name, attr] : node.attrs) key += name + "=" + key_of(attr) + ";";
  return key + format("{}|{}", node.segment, node.out.size());
}

// An opaque value is used up by its one reader: the nodes that make two of them stay two.
bool makes_opaque(const Node& node) {
  return std::any_of(node.out.begin(), node.out.end(), [&](ValueId id) {
    return id != kNone && node.graph->value(id).type().kind == Type::Kind::opaque;
  });
}

bool mergeable(const Node& node) {
  return !node.schema->has_effect(node) && !node.owns_bodies() && !makes_opaque(node) &&
         sizes_named_by(node).empty();
}

// Whether a gradient goes through the node and may be another one then; `passed`: the values that
// one passes, to which the node's are added.
bool changes_gradient(const Node& node, std::unordered_set<ValueId>& passed) {
  if (std::none_of(node.in.begin(), node.in.end(), [&](ValueId id) { return passed.count(id); }))
    return false;
  bool any = false;
  for (const ValueId id : node.out) {
    if (id == kNone || !is_floating(node.graph->value(id).type().dtype)) continue;
    passed.insert(id);
    any = true;
  }
  return any && !node.schema->is_view() && !node.schema->is_permutation();
}

using MayMerge = std::function<bool(const Node&)>;

size_t merge(Graph& graph, const MayMerge& may_merge) {
  std::unordered_map<std::string, std::vector<Node*>> seen;
  size_t merged = 0;
  for (Node* node : graph.order()) {
    if (!may_merge(*node)) continue;
    auto& twins = seen[key_of(*node)];
    Node* twin = nullptr;
    for (Node* candidate : twins)
      if (candidate->attrs == node->attrs) twin = candidate;
    if (!twin) {
      twins.push_back(node);
      continue;
    }
    for (size_t i = 0; i < node->out.size(); ++i) {
      if (node->out[i] == kNone) continue;
      const Value mine = node->output(i);
      if (i >= twin->out.size() || twin->out[i] == kNone) graph.ensure_output(twin, i);
      graph.replace(mine, twin->output(i), "cse");
    }
    graph.erase(node);
    ++merged;
  }
  return merged;
}

}  // namespace

size_t merge_equal(Graph& graph) {
  return merge(graph, mergeable);
}

size_t merge_undifferentiated(Graph& graph, const std::vector<ValueId>& wrt) {
  std::unordered_set<ValueId> passed(wrt.begin(), wrt.end());
  return merge(
      graph, [&](const Node& node) { return !changes_gradient(node, passed) && mergeable(node); });
}

}  // namespace ort
