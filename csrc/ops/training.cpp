// Steps of optimizers as ONNX has them (ai.onnx.preview.training 1), by their formulas. Each takes
// a rate R, a count of steps T, then N tensors, their N gradients and N of each state.
#include <cmath>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr TypeSet kFloats = bit(DType::f32) | bit(DType::f64);

// One tensor's part of a step.
struct Step {
  Value rate, count, x, gradient;
  std::vector<Value> states;
};

// Steps of the N tensors; results are the new tensors, then the new states, kind by kind.
template <class F>
Outputs steps(const OpCall& c, size_t states, F step) {
  const size_t kinds = 2 + states, count = c.count() - 2, n = count / kinds;
  check(count > 0 && count % kinds == 0,
        "[training] it has {} tensors, expected {} of each parameter", count, kinds);
  Outputs out(n * (kinds - 1));
  for (size_t i = 0; i < n; ++i) {
    const auto at = [&](size_t kind) { return c.x(2 + kind * n + i); };
    const DType dtype = at(0).dtype();
    Step one{cast(reshape(c.x(0), {}), dtype), reshape(c.x(1), {}), at(0), {}, {}};
    one.gradient = at(1) + at(0) * c.attrs().f("norm_coefficient");
    for (size_t kind = 2; kind < kinds; ++kind) one.states.push_back(at(kind));
    const Outputs made = step(one);
    for (size_t kind = 0; kind + 1 < kinds; ++kind) out[kind * n + i] = made[kind];
  }
  return out;
}

// Duchi et al. 2011: h = h + g^2, x = x - r g / (sqrt(h) + epsilon), r = R / (1 + T decay).
Outputs adagrad(const OpCall& c) {
  const double decay = c.attrs().f("decay_factor"), epsilon = c.attrs().f("epsilon");
  return steps(c, 1, [&](const Step& s) -> Outputs {
    const Value rate = s.rate / (1.0 + cast(s.count, s.x.dtype()) * decay);
    const Value h = s.states[0] + s.gradient * s.gradient;
    return {s.x - rate * s.gradient / (sqrt(h) + epsilon), h};
  });
}

// v = alpha v + b g, where b is 1 in the first step; x = x - R v, or x - R (g + alpha v).
Outputs momentum(const OpCall& c) {
  const double alpha = c.attrs().f("alpha"), beta = c.attrs().f("beta");
  const std::string& mode = c.attrs().s("mode");
  check(mode == "standard" || mode == "nesterov",
        "[Momentum] mode is '{}', expected standard or nesterov", mode);
  return steps(c, 1, [&](const Step& s) -> Outputs {
    const Value one = number(1.0, s.x);
    const Value factor = where(s.count > number(0.0, s.count), one * beta, one);
    const Value v = s.states[0] * alpha + factor * s.gradient;
    return {s.x - s.rate * (mode == "standard" ? v : s.gradient + v * alpha), v};
  });
}

// Kingma & Ba 2014, with the corrections for the first steps where T is not 0.
Outputs adam(const OpCall& c) {
  const double alpha = c.attrs().f("alpha"), beta = c.attrs().f("beta");
  const double epsilon = c.attrs().f("epsilon");
  const double kept = 1.0 - c.attrs().f("norm_coefficient_post");
  return steps(c, 2, [&](const Step& s) -> Outputs {
    const Value v = s.states[0] * alpha + s.gradient * (1.0 - alpha);
    const Value h = s.states[1] * beta + s.gradient * s.gradient * (1.0 - beta);
    const Value count = cast(s.count, s.x.dtype());
    const auto left = [&](double decay) { return 1.0 - pow(number(decay, s.x), count); };
    const Value corrected = s.rate * sqrt(left(beta)) / left(alpha);
    const Value rate = where(s.count > number(0.0, s.count), corrected, s.rate);
    return {(s.x - rate * v / (sqrt(h) + epsilon)) * kept, v, h};
  });
}

// A node's own inputs are the values at which it is asked, in the order of xs and zs; the captures
// are the values that these names have, then y.
void infer_gradient(InferContext& c) {
  const Attrs& attrs = c.attrs();
  const auto& xs = attrs.list<std::string>("xs");
  const size_t named = xs.size() + attrs.list<std::string>("zs").size();
  const size_t own = c.count() - static_cast<size_t>(attrs.i("captures", 0));
  c.require(!xs.empty(), "xs names no value");
  c.require(!attrs.s("y").empty(), "y names no value");
  c.require(own == named, "it has {} inputs, expected {}: one for each name of xs and zs", own,
            named);
  c.require(c.node().out.size() <= xs.size(), "it has {} outputs, expected up to {}: those of xs",
            c.node().out.size(), xs.size());
  for (size_t i = 0; i < own; ++i) {
    c.require(c.has(i), "input {} is missing", i);
    const Type &given = c.type(i), &meant = c.type(own + i);
    c.require(given.kind == meant.kind && given.dtype == meant.dtype,
              "input {} is {}, the value of its name is {}", i, given.text(), meant.text());
  }
  for (size_t i = 0; i < c.node().out.size(); ++i) {
    c.require(is_floating(c.dtype(i)), "'{}' of xs is {}, expected a floating dtype", xs[i],
              c.type(i).text());
    same_dims(c, i, i);
  }
  c.require(is_floating(c.dtype(own + named)), "y is {}, expected a floating dtype",
            c.type(own + named).text());
}

OpSchema& optimizer(OpSet& ops, const std::string& name) {
  return ops.op("ai.onnx.preview.training::" + name)
      .in("R", kFloats, "R")
      .in("T", kInt64, "I")
      .in_variadic("inputs", kFloats)
      .out_variadic("outputs")
      .not_differentiable();
}

}  // namespace

static void register_training(OpSet& ops) {
  optimizer(ops, "Adagrad")
      .attr("decay_factor", 0.0)
      .attr("epsilon", 1e-6)
      .attr("norm_coefficient", 0.0)
      .defined_as(adagrad);
  optimizer(ops, "Adam")
      .attr("alpha", 0.9)
      .attr("beta", 0.999)
      .attr("epsilon", 1e-6)
      .attr("norm_coefficient", 0.0)
      .attr("norm_coefficient_post", 0.0)
      .defined_as(adam);
  optimizer(ops, "Momentum")
      .attr_required("alpha")
      .attr_required("beta")
      .attr_required("mode")
      .attr_required("norm_coefficient")
      .defined_as(momentum);
  // d(sum of y) / dx for each x of xs, where zs are held; gradient_graph puts it in the place.
  ops.op("ai.onnx.preview.training::Gradient")
      .in_variadic("Inputs", kAny, "")
      .out_variadic("Outputs")
      .attr_required("y")
      .attr_required("xs")
      .attr_optional("zs")
      .names_values("xs")
      .names_values("zs")
      .names_values("y")
      .shape(infer_gradient);
}

const Family<OpSet> kTrainingOps("ops", "training", register_training);

}  // namespace ort
