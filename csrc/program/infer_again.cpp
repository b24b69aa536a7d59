// What is found of a size at its node is said wherever the size was named.
#include "csrc/program/infer_again.h"

#include <algorithm>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

using Found = std::map<std::string, Dim>;

Dim written_out(const Dim& dim, const Found& found);

Dim written_out(const Atom& atom, const Found& found) {
  if (atom.kind == Atom::Kind::symbol) {
    const auto at = found.find(atom.name);
    return at == found.end() ? Dim::symbol(atom.name) : at->second;
  }
  const Dim a = written_out(atom.a, found), b = written_out(atom.b, found);
  switch (atom.kind) {
    case Atom::Kind::floor_div:
      return floor_div(a, b);
    case Atom::Kind::mod:
      return mod(a, b);
    case Atom::Kind::min:
      return min(a, b);
    case Atom::Kind::max:
      return max(a, b);
    default:
      return broadcast_size(a, b);
  }
}

Dim written_out(const Dim& dim, const Found& found) {
  Dim sum = 0;
  for (const auto& [atoms, coefficient] : dim.terms()) {
    Dim term = coefficient;
    for (const Atom* atom : atoms) term = term * written_out(*atom, found);
    sum = sum + term;
  }
  return sum;
}

void write_out(Node& node, const Found& found) {
  const Attrs attrs = node.attrs;
  for (const auto& [name, value] : attrs) {
    const auto* dims = std::get_if<Dims>(&value);
    if (!dims) continue;
    Dims now;
    for (const Dim& dim : *dims) now.push_back(written_out(dim, found));
    node.attrs.set(name, std::move(now));
  }
  for (auto& [name, body] : node.bodies)
    for (Node* inside : body->order()) write_out(*inside, found);
}

// Of sizes that passes wrote one may come to 0, which in a list of a file's would copy an axis.
void keep_zeros(Node& node) {
  for (auto& [name, body] : node.bodies)
    for (Node* inside : body->order()) keep_zeros(*inside);
  if (!node.schema->numbered()) return;
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Node* list = node.has_input(i) ? node.input(i).producer() : nullptr;
    if (!list || !list->schema->is_sizes()) continue;
    const Dims& dims = std::get<Dims>(*list->attrs.find("dims"));
    const bool deduced = std::find(dims.begin(), dims.end(), Dim(-1)) != dims.end();
    if (!deduced) node.schema->numbered()(node, node.attrs);
  }
}

std::vector<std::optional<Dims>> dims_of(const Node& node) {
  std::vector<std::optional<Dims>> dims;
  for (const ValueId id : node.out)
    dims.push_back(id == kNone ? std::nullopt : node.graph->value(id).type().dims);
  return dims;
}

void compare(const std::optional<Dims>& before, const std::optional<Dims>& now, Found& found) {
  if (!before || !now || before->size() != now->size()) return;
  for (size_t i = 0; i < before->size(); ++i)
    if (const auto name = (*before)[i].symbol_name();
        name && Graph::is_fresh(*name) && (*now)[i] != (*before)[i])
      found.emplace(*name, (*now)[i]);
}

}  // namespace

void infer_again(Graph& graph) {
  Found found;
  for (Node* node : graph.order()) keep_zeros(*node);
  for (Node* node : graph.order()) {
    if (!found.empty()) write_out(*node, found);
    const auto before = dims_of(*node);
    graph.infer(node);
    const auto now = dims_of(*node);
    for (size_t i = 0; i < now.size(); ++i) compare(before[i], now[i], found);
  }
}

}  // namespace ort
