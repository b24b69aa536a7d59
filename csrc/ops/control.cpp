// Ops without a meaning of their own here: every operator of ATen is one schema, and so is the
// gradient of each.
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"

namespace ort {

std::vector<std::string> types_told(const Node& node) {
  const Attr* attr = node.attrs.find("types");
  check(attr != nullptr, "[{}] attribute 'types' is missing; {}", node.qualified(),
        node.describe());
  const auto* types = std::get_if<std::vector<std::string>>(attr);
  return types ? *types : std::vector<std::string>{};  // an empty list has no kind
}

// The tensors that attribute 'types' tells of; one output more is the operator's own history.
void told_types(InferContext& c) {
  const std::vector<std::string> types = types_told(c.node());
  for (size_t i = 0; i < types.size(); ++i) {
    const Type type = parse_type(types[i]);
    c.out(i, type.dtype, type.dims);
  }
  c.out_opaque(types.size());
}

namespace {

// aten::backward: the operator's history and the gradients of its outputs (absent ones are zero)
// give those of the inputs that need one.
Outputs gradient_of_operator(const Backward& b) {
  const Node& node = b.node();
  const size_t outputs = types_told(node).size();
  std::vector<Value> in{b.y(outputs)};
  for (size_t i = 0; i < outputs; ++i) in.push_back(b.dy(i));
  std::vector<int64_t> needed;
  if (node.attrs.has("history_of"))
    needed = node.attrs.ints("history_of");
  else
    for (size_t i = 0; i < node.in.size(); ++i)
      if (b.needs(i)) needed.push_back(static_cast<int64_t>(i));
  std::vector<std::string> types;
  for (const int64_t i : needed) types.push_back(b.x(static_cast<size_t>(i)).type().text());
  Attrs attrs{{"schema", node.attrs.s("schema")}, {"of", needed}, {"types", types}};
  if (node.attrs.has("once")) attrs.set("once", node.attrs.i("once"));
  const std::vector<Value> gradients =
      b.graph().emit("aten::backward", in, attrs, static_cast<int>(needed.size()));
  Outputs contributions(node.in.size());
  for (size_t k = 0; k < needed.size(); ++k)
    contributions[static_cast<size_t>(needed[k])] = gradients[k];
  return contributions;
}

}  // namespace

static void register_control(OpSet& ops) {
  // "schema" names the operator, "types" its outputs' types as text, "effect" what it does
  // besides: draw from torch's generator ("random"), or raise ("check"). Its other arguments are
  // attributes under their own names ("history_of": of which inputs a backward asks for gradients,
  // where it is in another graph or may be in another program; "once": it runs once a call,
  // however often the forward does, and what it raises is the user's): a size that is no number is
  // text, a list of tensors the count of them among the inputs.
  ops.op("aten::*")
      .in_variadic("x", kAny, "*")
      .out_variadic("y")
      .attr_required("schema")
      .attr_required("types")
      .attr("effect", std::string("none"))
      .foreign()
      .effect([](const Node& node) { return effect_named(node.attrs.s("effect", "none")); })
      .linear_gradient(
          [](const Node& node) { return node.attrs.s("schema").starts_with("aten::"); })
      .shape(told_types)
      .gradient(gradient_of_operator);
  // "of": the inputs of the operator whose gradients come out.
  ops.op("aten::backward")
      .foreign()
      .in("history")
      .in_variadic("dy", kAny, "*")
      .out_variadic("dx")
      .attr_required("schema")
      .attr_required("of")
      .attr_required("types")
      .attr_optional("once")
      .users_backward([](const Node& node) { return node.attrs.has("once"); })
      .shape(told_types)
      .not_differentiable();
  // An error where an element of `ok` is false; runs although nobody reads what it passes on.
  ops.op("ort::Check")
      .in("ok", kBool)
      .out("y")
      .attr_required("error")
      .effect(Effect::check)
      .shape([](InferContext& c) { same_dims(c, 0, 0); })
      .not_differentiable();
}

const Family<OpSet> kControlOps("ops", "control", register_control);

}  // namespace ort
