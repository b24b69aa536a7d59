// Losses over class indices, and the binary one.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// logits [N, C, D1..] or [C]; one value for each target, or a scalar.
void infer_cross_entropy(InferContext& c) {
  const DType wide = c.node().schema->compute_dtype(c.node());
  if (!c.ranked(1)) {
    c.out(1, wide, std::nullopt);
    return c.out(0, c.dtype(), std::nullopt);
  }
  if (c.ranked(0))
    c.require(c.rank(0) == c.rank(1) + 1,
              "logits have shape {}, target has shape {}, expected logits "
              "[N, C, D1..] and target [N, D1..]",
              c.dims(0), c.dims(1));
  if (c.ranked(0)) {
    const Dims& logits = c.dims(0);
    const size_t classes = logits.size() == 1 ? 0 : 1;
    expect_dims(c, 2, {logits[classes]});
    Dims rows = logits;
    rows.erase(rows.begin() + static_cast<int64_t>(classes));
    expect_dims(c, 1, rows);
  }
  const std::string& reduction = c.attrs().s("reduction");
  c.require(reduction == "none" || reduction == "sum" || reduction == "mean",
            "reduction is '{}', expected none, sum or mean", reduction);
  c.out(0, c.dtype(), reduction == "none" ? c.dims(1) : Dims{});
  Dims parts = c.dims(1);
  parts.push_back(2);
  c.out(1, wide, std::move(parts));
}

// dloss is a scalar, or has a value for each target; parts has two.
void infer_cross_entropy_grad(InferContext& c) {
  same_dims(c, 0, 1);
  if (!c.ranked(1)) return;
  Dims rows = c.dims(1);
  const size_t classes = rows.size() == 1 ? 0 : 1;
  c.require(!rows.empty(), "logits have shape {}, expected [N, C, D1..]", rows);
  expect_dims(c, 4, {rows[classes]});
  rows.erase(rows.begin() + static_cast<int64_t>(classes));
  expect_dims(c, 2, rows);
  Dims parts = rows;
  parts.push_back(2);
  expect_dims(c, 3, parts);
  if (c.attrs().s("reduction") == "none") return expect_dims(c, 0, rows);
  c.assume_scalar(0, "elements of dloss");
}

Outputs cross_entropy_gradient(const Backward& b) {
  check(!b.dy(1), "[ort::CrossEntropy] no gradient flows through its parts");
  const std::vector<Value> in{b.dy(), b.x(0), b.x(1), b.y(1), b.has(2) ? b.x(2) : Value{}};
  return b.graph().emit("ort::CrossEntropyGrad", in, b.attrs(), 1);
}

OpSchema& cross_entropy_attrs(OpSchema& schema) {
  return schema.cost([](const Sized& node) { return 8 * node.x(0); })
      .computes_in(DType::f32)
      .attr("ignore_index", int64_t{-100})
      .attr("reduction", std::string("mean"))
      .attr("label_smoothing", 0.0);
}

// ONNX's losses: input [N, C, D1..], target [N, D1..], weight [C].
void infer_class_loss(InferContext& c) {
  infer_cross_entropy(c);
  if (c.wants(1)) c.out(1, c.dtype(), c.type(0).dims);
}

// -w[t] x[t] of log-probabilities x; an ignored target weighs nothing.
Value class_loss(const OpCall& c, Value x) {
  const Value target = c.x(1);
  Value index = target, ignored;
  if (c.attrs().has("ignore_index")) {
    ignored = equal(target, number(static_cast<double>(c.attrs().i("ignore_index")), target));
    index = where(ignored, number(0.0, target), target);
  }
  Graph& g = c.graph();
  const Value picked =
      g.emit1("GatherElements", {x, unsqueeze(index, {1})}, {{"axis", int64_t{1}}});
  Value weight =
      c.has(2) ? g.emit1("Gather", {c.x(2), index}) : full(g, target.dims(), 1.0, x.dtype());
  if (ignored) weight = where(ignored, number(0.0, weight), weight);
  Value loss = -squeeze(picked, {1}) * weight;
  if (ignored) loss = where(ignored, number(0.0, loss), loss);  // it may be infinite
  const std::string& reduction = c.attrs().s("reduction");
  if (reduction == "none") return loss;
  const Value total = reduce_sum(loss, all_axes(loss), false);
  return reduction == "sum" ? total : total / reduce_sum(weight, all_axes(weight), false);
}

OpSchema& class_loss_attrs(OpSchema& schema) {
  return schema.computes_in(DType::f32)
      .attr_optional("ignore_index")
      .attr("reduction", std::string("mean"))
      .shape(infer_class_loss)
      .differentiable_inputs({0});
}

void register_class_losses(OpSet& ops) {
  class_loss_attrs(ops.op("NegativeLogLikelihoodLoss")
                       .in("x", kFloating)
                       .in("target", kIndex, "I")
                       .in_optional("weight", kFloating)
                       .out("loss")
                       .since(13))
      .defined_as([](const OpCall& c) { return class_loss(c, c.x(0)); });
  class_loss_attrs(ops.op("SoftmaxCrossEntropyLoss")
                       .in("scores", kFloating)
                       .in("target", kIndex, "I")
                       .in_optional("weight", kFloating)
                       .out("loss")
                       .out("log_prob")
                       .since(13))
      .defined_as([](const OpCall& c) {
        const Value x = c.graph().emit1("LogSoftmax", {c.x(0)}, {{"axis", int64_t{1}}});
        return Outputs{class_loss(c, x), x};
      });
}

// -(t log x + (1 - t) log(1 - x)), each logarithm at least -100; the slope's divisor at least
// epsilon, and x's zero where both are.
void register_binary_cross_entropy(OpSet& ops) {
  ops.op("ort::BinaryCrossEntropy")
      .in("x", kFloating)
      .in("target", kFloating)
      .out("loss")
      .attr("epsilon", 1e-12)
      .elementwise()
      .computes_in(DType::f32)
      .defined_as([](const OpCall& c) {
        if (c.graph().is_pattern())
          throw NotAPattern("what a user wrote has another slope at 0, 1");
        const Value x = c.x(0), target = c.x(1), bound = number(-100.0, x);
        const Value rest = (target - 1.0) * maximum(unary("ort::Log1p", -x), bound);
        return rest - target * maximum(log(x), bound);
      })
      .gradient([](const Backward& b) {
        const Value x = b.x(0), target = b.x(1), rest = 1.0 - x;
        Outputs grads(2);
        const Value least = number(b.attrs().f("epsilon"), x);
        grads[0] = b.dy() * (x - target) / maximum(least, rest * x);
        if (b.needs(1)) grads[1] = b.dy() * (log(rest) - log(x));
        for (size_t i = 0; i < 2; ++i)
          if (grads[i]) grads[i] = sum_to(grads[i], b.x(i).dims());
        return grads;
      });
}

}  // namespace

static void register_loss(OpSet& ops) {
  register_class_losses(ops);
  register_binary_cross_entropy(ops);
  // parts: each row's maximum and the sum of exp(x - maximum); joined to one logarithm they would
  // lose what large logits differ by.
  cross_entropy_attrs(ops.op("ort::CrossEntropy")
                          .in("logits", kFloating)
                          .in("target", kIndex, "I")
                          .in_optional("weight", kFloating)
                          .out("loss")
                          .out("parts"))
      .standard_as([](const OpCall& c) {
        if (c.attrs().f("label_smoothing") != 0.0) return Value{};
        const std::vector<Value> in{c.x(0), c.x(1), c.x(2)};
        return c.graph().emit("SoftmaxCrossEntropyLoss", in,
                              {{"ignore_index", c.attrs().i("ignore_index")},
                               {"reduction", c.attrs().s("reduction")}},
                              1)[0];
      })
      .shape(infer_cross_entropy)
      .differentiable_inputs({0})
      .gradient(cross_entropy_gradient);
  cross_entropy_attrs(ops.op("ort::CrossEntropyGrad")
                          .in("dloss", kFloating)
                          .in("logits", kFloating)
                          .in("target", kIndex, "I")
                          .in("parts", kFloating, "U")
                          .in_optional("weight", kFloating)
                          .out("dlogits"))
      .shape(infer_cross_entropy_grad);
}

const Family<OpSet> kLossOps("ops", "loss", register_loss);

}  // namespace ort
