// Normalisations written by hand, over the last axis.
#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

// The reduction named `name` runs over the last axis alone and keeps it.
Verdict over_last_axis(const Match& m, const char* name) {
  const Node& node = m.node(name);
  const auto& axes = node.graph->contents(node.in[1]);
  const int64_t rank = m["x"].rank();
  const bool last = axes && axes->size() == 1 && ((*axes)[0].is(-1) || (*axes)[0].is(rank - 1));
  if (!last) return Verdict::no("the mean is not over the last axis");
  return require(node.attrs.i("keepdims") == 1, "the mean drops its axis");
}

Verdict vector_of_last(const Match& m, const char* name) {
  const Value v = m[name];
  return require(v.rank() == 1 && v.dim(0) == m["x"].dim(-1), "{} is {}, expected [{}]", name,
                 v.type().text(), m["x"].dim(-1));
}

Verdict scalar_constant(const Match& m, const char* name) {
  return require(scalar_of(m[name]).has_value(), "{} is no scalar constant", name);
}

Value mean(Pattern& p, const std::string& name, Value x) {
  return p.named(name, p.op("ReduceMean", {x, p[name + "_axes"]}));
}

// scale * (x * (1 / sqrt(mean(x x) + epsilon))): Llama and T5 in transformers.
Rule rms_norm_from_parts() {
  return rule("rms_norm_from_parts")
      .match([](Pattern& p) {
        const Value x = p["x"];
        const Value inverse = 1.0 / sqrt(mean(p, "mean", x * x) + p["epsilon"]);
        return p["scale"] * (x * inverse);
      })
      .when([](const Match& m) {
        for (const Verdict& v :
             {over_last_axis(m, "mean"), vector_of_last(m, "scale"), scalar_constant(m, "epsilon")})
          if (!v) return v;
        return Verdict::yes();
      })
      .rewrite([](const Match& m) {
        return m.graph().emit1("RMSNormalization", {m["x"], m["scale"]},
                               {{"epsilon", *scalar_of(m["epsilon"])}});
      });
}

// (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias: exporters before opset 17.
Rule layer_norm_from_parts() {
  return rule("layer_norm_from_parts")
      .match([](Pattern& p) {
        const Value centred = p["x"] - mean(p, "mean", p["x"]);
        const Value deviation = sqrt(mean(p, "variance", centred * centred) + p["epsilon"]);
        return centred / deviation * p["scale"] + p["bias"];
      })
      .when([](const Match& m) {
        for (const Verdict& v :
             {over_last_axis(m, "mean"), over_last_axis(m, "variance"), vector_of_last(m, "scale"),
              vector_of_last(m, "bias"), scalar_constant(m, "epsilon")})
          if (!v) return v;
        return Verdict::yes();
      })
      .rewrite([](const Match& m) {
        return m.graph().emit("LayerNormalization",
                              std::vector<Value>{m["x"], m["scale"], m["bias"]},
                              {{"epsilon", *scalar_of(m["epsilon"])}}, 1)[0];
      });
}

}  // namespace

Rules norm_rules() {
  return {
      rms_norm_from_parts(),
      layer_norm_from_parts(),
  };
}

}  // namespace ort::rules
