// Nodes are keyed by op, inputs and attributes, and compared whole.
#include "csrc/passes/cse.h"

#include <algorithm>
#include <map>
#include <unordered_map>

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

bool narrows(const Node& node) {
  if (node.in.size() != 1 || !node.has_input(0) || node.out.size() != 1) return false;
  const DType from = node.input(0).type().dtype, to = node.output().type().dtype;
  return is_floating(from) && is_floating(to) && size_of(to) < size_of(from);
}

bool mergeable(const Node& node, Narrowing narrowing) {
  if (narrowing == Narrowing::apart && narrows(node)) return false;
  return !node.schema->has_effect(node) && !node.owns_bodies() && !makes_opaque(node) &&
         sizes_named_by(node).empty();
}

}  // namespace

size_t merge_equal(Graph& graph, Narrowing narrowing) {
  std::unordered_map<std::string, std::vector<Node*>> seen;
  size_t merged = 0;
  for (Node* node : graph.order()) {
    if (!mergeable(*node, narrowing)) continue;
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

}  // namespace ort
