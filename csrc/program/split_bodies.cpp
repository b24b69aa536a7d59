// Attributes and graphs of a node and of its gradient's.
#include "csrc/program/split_bodies.h"

#include "csrc/program/split.h"

namespace ort {
namespace {

// Inputs of a body that are operands of the gradient's node.
std::set<size_t> given_inputs(const Node& forward, const Node& gradient) {
  std::set<size_t> given;
  for (const int64_t i : gradient.attrs.ints("operands"))
    given.insert(static_cast<size_t>(i) - forward.schema->body_places().first_input);
  return given;
}

template <class Kind>
std::vector<int64_t> as_pairs(const std::vector<Halves::Item<Kind>>& items) {
  std::vector<int64_t> pairs;
  for (const auto& [kind, index] : items)
    pairs.insert(pairs.end(), {static_cast<int64_t>(kind), static_cast<int64_t>(index)});
  return pairs;
}

void split_body(Node& forward, Node& gradient, const std::string& name, PassOptions& passes) {
  const Graph& body = forward.body(name);
  Halves halves = split(gradient.body(name), body.inputs().size(), body.outputs().size(),
                        given_inputs(forward, gradient), passes);
  forward.attrs.set(name + "_kept", as_pairs(halves.kept));
  gradient.attrs.set(name + "_reads", as_pairs(halves.reads));
  forward.graph->set_body(&forward, name + std::string(kRecorded), std::move(halves.forward));
  gradient.graph->set_body(&gradient, name, std::move(halves.backward));
}

}  // namespace

void split_bodies(Graph& graph, PassOptions& passes) {
  for (Node* node : graph.order()) {
    const bool of_bodies = node->owns_bodies() && node->has_input(0) &&
                           node->input(0).type().kind == Type::Kind::opaque;
    Node* forward = of_bodies ? node->input(0).producer() : nullptr;
    if (!forward || forward->find_body(node->schema->bodies()[0] + std::string(kRecorded)))
      continue;
    for (const std::string& name : node->schema->bodies())
      split_body(*forward, *node, name, passes);
  }
}

}  // namespace ort
