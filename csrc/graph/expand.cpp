// A definition is run on the node's own inputs, just before it.
#include "csrc/graph/expand.h"

#include <algorithm>

#include "csrc/graph/expr.h"

namespace ort {
namespace {

std::vector<Value> operands(const Node& node) {
  std::vector<Value> in;
  for (size_t i = 0; i < node.in.size(); ++i)
    in.push_back(widen(node.input(i), node.schema->compute_dtype(node)));
  return in;
}

// As its attribute says or strings that it has, as inputs that are of one dtype with it, or the
// first that it may have.
DType dtype_of_port(const Node& node, const OpSchema::Port& port) {
  const Attr* said = node.attrs.find(port.by_attr);
  const auto* texts = said ? std::get_if<std::vector<std::string>>(said) : nullptr;
  if (texts && !texts->empty()) return DType::string;
  const int64_t chosen = said && !texts ? node.attrs.i(port.by_attr) : 0;
  if (chosen != 0 && known_dtype(chosen) && (port.types & bit(static_cast<DType>(chosen))) != 0)
    return static_cast<DType>(chosen);
  for (size_t i = 0; i < node.in.size(); ++i)
    if (node.has_input(i) && !port.same.empty() && node.schema->input_port(i)->same == port.same)
      return node.input(i).dtype();
  for (int dtype = 1; dtype < kDTypes; ++dtype)
    if (port.types & bit(static_cast<DType>(dtype))) return static_cast<DType>(dtype);
  return node.input(0).dtype();
}

// f(), whose errors name the node.
auto naming(const Node& node, const auto& f) {
  try {
    return f();
  } catch (const NotAccepted&) {
    throw;  // it names its node, and who asked may do otherwise
  } catch (const NotAPattern&) {
    throw;
  } catch (const std::bad_variant_access&) {
    fail("[{}] an attribute has another type than the op says; {}", node.qualified(),
         node.describe());
  } catch (const Error& error) {
    fail_at(error, node.describe());
  }
}

Outputs outputs_of(const Node& node, const OpCall& call) {
  return naming(node, [&] { return node.schema->definition()(call); });
}

}  // namespace

bool knows_parts(const Node& node) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i) || !node.input(i).type().is_tensor()) continue;
    if (!node.input(i).type().dims) return false;
    if (node.schema->is_host(i) && !node.graph->contents(node.in[i])) return false;
  }
  return true;
}

namespace {

// Of what the definition may not ask, the dtypes alone.
std::vector<Type> types_by_definition(const Node& node) {
  std::vector<Type> types;
  if (!knows_parts(node)) {
    const auto& ports = node.schema->outputs();
    for (size_t i = 0; i < node.out.size(); ++i) {
      const OpSchema::Port& port = ports[std::min(i, ports.size() - 1)];  // the last is variadic
      types.push_back(Type::tensor(dtype_of_port(node, port), std::nullopt));
    }
    return types;
  }
  const auto parts = node.graph->new_body();
  parts->context.where = node.where;
  std::vector<Value> in;
  for (size_t i = 0; i < node.in.size(); ++i) {
    in.emplace_back();
    if (!node.has_input(i)) continue;
    in.back() = parts->input(format("%{}", i), node.input(i).type());
    parts->set_contents(in.back(), node.graph->contents(node.in[i]));
    in.back() = widen(in.back(), node.schema->compute_dtype(node));
  }
  const Outputs out = outputs_of(node, OpCall(*parts, std::move(in), node.attrs, node.out.size()));
  for (size_t i = 0; i < node.out.size(); ++i) {
    check(node.out[i] == kNone || (i < out.size() && out[i]),
          "[{}] its definition gives no output {}; {}", node.qualified(), i, node.describe());
    types.push_back(node.out[i] == kNone ? Type{} : out[i].type());
  }
  return types;
}

void infer_by_rule(Node& node) {
  const auto& rule = node.schema->infer();
  check(static_cast<bool>(rule), "[{}] has no shape rule", node.qualified());
  InferContext context(*node.graph, node);
  rule(context);
}

void infer_by_definition(Node& node) {
  const std::vector<Type> types = types_by_definition(node);
  for (size_t i = 0; i < types.size(); ++i)
    if (node.out[i] != kNone) node.graph->set_type(node.output(i), types[i]);
}

}  // namespace

void infer_outputs(Node& node) {
  naming(node,
         [&] { is_compound(*node.schema) ? infer_by_definition(node) : infer_by_rule(node); });
}

bool expand(Node& node) {
  if (!node.schema->definition()) return false;
  Graph& graph = *node.graph;
  const std::string by = "definition of " + node.qualified();
  Outputs out;
  const auto first_new = static_cast<ValueId>(graph.value_count());
  {
    Insertion here(graph, &node, by);
    if (node.part_of == 0) graph.begin_op();
    out = outputs_of(node, OpCall(graph, operands(node), node.attrs, node.out.size()));
    for (size_t i = 0; i < std::min(out.size(), node.out.size()); ++i)
      if (out[i] && node.out[i] != kNone && is_floating(out[i].dtype()))
        out[i] = cast(out[i], node.output(i).dtype());
  }
  // What the op assumed of its sizes may be more than its parts do.
  if (!out.empty() && out[0] && out[0].id >= first_new) {
    std::vector<Fact>& facts = out[0].producer()->facts;
    facts.insert(facts.end(), node.facts.begin(), node.facts.end());
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == kNone || graph.unused(node.out[i])) continue;
    check(i < out.size() && out[i], "[{}] its definition gives no output {}; {}", node.qualified(),
          i, node.describe());
    graph.replace(node.output(i), out[i], by);
  }
  graph.erase(&node);
  return true;
}

size_t expand_all(Graph& graph, const std::function<bool(const Node&)>& wanted) {
  size_t count = 0;
  for (bool again = true; again;) {
    again = false;
    for (Node* node : graph.order()) {
      if (node->dead || !wanted(*node) || !expand(*node)) continue;
      ++count;
      again = true;
    }
  }
  return count;
}

}  // namespace ort
