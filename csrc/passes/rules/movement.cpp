// Views become Reshape, and chains of views and transposes become one or none.
#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

Verdict ranked(Value value) {
  return require(value.type().dims.has_value(), "the rank is not known");
}

Verdict same_dims(const Match& m) {
  const Value root = m.root().output();
  return require(root.type() == m["x"].type(), "{} becomes {}", m["x"].type().text(),
                 root.type().text());
}

Rule as_reshape(std::string name, std::string op, bool has_axes) {
  return rule(std::move(name))
      .match([op, has_axes](Pattern& p) {
        return has_axes ? p.op(op, {p["x"], p["axes"]}) : p.op(op, {p["x"]});
      })
      .when([](const Match& m) { return ranked(m.root().output()); })
      .rewrite([](const Match& m) { return reshape(m["x"], m.root().output().dims()); });
}

std::vector<int64_t> perm_of(const Node& node) {
  if (node.attrs.has("perm")) return node.attrs.ints("perm");
  std::vector<int64_t> perm;
  for (int64_t i = node.input(0).rank(); i-- > 0;) perm.push_back(i);
  return perm;
}

Rule squeeze_as_reshape() {
  return as_reshape("squeeze_as_reshape", "Squeeze", true);
}
Rule unsqueeze_as_reshape() {
  return as_reshape("unsqueeze_as_reshape", "Unsqueeze", true);
}
Rule flatten_as_reshape() {
  return as_reshape("flatten_as_reshape", "Flatten", false);
}

Rule same_shape_reshape() {
  return rule("same_shape_reshape")
      .match([](Pattern& p) { return p.op("Reshape", {p["x"], p["shape"]}); })
      .when(same_dims)
      .rewrite([](const Match& m) { return m["x"]; });
}

Rule reshape_of_reshape() {
  return rule("reshape_of_reshape")
      .shared()
      .match([](Pattern& p) {
        return p.op("Reshape", {p.op("Reshape", {p["x"], p["inner"]}), p["outer"]});
      })
      .when([](const Match& m) { return ranked(m.root().output()); })
      .rewrite([](const Match& m) { return reshape(m["x"], m.root().output().dims()); });
}

Rule same_shape_expand() {
  return rule("same_shape_expand")
      .match([](Pattern& p) { return p.op("Expand", {p["x"], p["shape"]}); })
      .when(same_dims)
      .rewrite([](const Match& m) { return m["x"]; });
}

Rule transpose_of_transpose() {
  return rule("transpose_of_transpose")
      .shared()
      .match([](Pattern& p) {
        return p.named("outer", p.op("Transpose", {p.named("inner", p.op("Transpose", {p["x"]}))}));
      })
      .when([](const Match& m) { return ranked(m["x"]); })
      .rewrite([](const Match& m) {
        const auto inner = perm_of(m.node("inner")), outer = perm_of(m.node("outer"));
        std::vector<int64_t> both;
        for (const int64_t axis : outer) both.push_back(inner[static_cast<size_t>(axis)]);
        return transpose(m["x"], both);
      });
}

Rule identity_transpose() {
  return rule("identity_transpose")
      .match([](Pattern& p) { return p.named("t", p.op("Transpose", {p["x"]})); })
      .when([](const Match& m) {
        if (const Verdict known = ranked(m["x"]); !known) return known;
        const auto perm = perm_of(m.node("t"));
        for (size_t i = 0; i < perm.size(); ++i)
          if (perm[i] != static_cast<int64_t>(i))
            return Verdict::no(format("perm {} moves axes", perm));
        return Verdict::yes();
      })
      .rewrite([](const Match& m) { return m["x"]; });
}

}  // namespace

Rules movement_rules() {
  return {
      squeeze_as_reshape(), unsqueeze_as_reshape(), flatten_as_reshape(), same_shape_reshape(),
      reshape_of_reshape(), same_shape_expand(),    identity_transpose(), transpose_of_transpose(),
  };
}

}  // namespace ort::rules
