// Recurrent layers over [T, B, I], as in ONNX; gates of an LSTM in the order i, o, f, c.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

void infer_lstm(InferContext& c) {
  const DType wide = c.node().schema->compute_dtype(c.node());
  if (!c.ranked(0) || !c.ranked(2)) {
    for (size_t i = 0; i < 4; ++i) c.out(i, i == 3 ? wide : c.dtype(), std::nullopt);
    return;
  }
  const Dims &x = c.dims(0), &r = c.dims(2);
  c.require(x.size() == 3 && r.size() == 3,
            "x has shape {}, r has shape {}, expected [T, B, I] and [D, 4H, H]", x, r);
  c.require(c.attrs().i("layout") == 0, "layout 1 is not supported");
  const Dim directions = r[0], hidden = r[2];
  const int64_t size = c.attrs().i("hidden_size", hidden.value().value_or(0));
  c.assume(equal_sizes(hidden, c.attrs().has("hidden_size") ? Dim(size) : hidden), "hidden_size");
  expect_dims(c, 1, {directions, hidden * 4, x[2]});
  expect_dims(c, 2, {directions, hidden * 4, hidden});
  expect_dims(c, 3, {directions, hidden * 8});
  expect_dims(c, 4, {x[1]});
  expect_dims(c, 5, {directions, x[1], hidden});
  expect_dims(c, 6, {directions, x[1], hidden});
  expect_dims(c, 7, {directions, hidden * 3});
  const std::string& direction = c.attrs().s("direction");
  c.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
            "direction is '{}', expected forward, reverse or bidirectional", direction);
  c.require(!directions.value() || directions.is(direction == "bidirectional" ? 2 : 1),
            "r has shape {}, which direction {} does not fit", r, direction);
  c.assume(equal_sizes(directions, direction == "bidirectional" ? 2 : 1), "directions");
  c.out(0, c.dtype(), Dims{x[0], directions, x[1], hidden});
  c.out(1, c.dtype(), Dims{directions, x[1], hidden});
  c.out(2, c.dtype(), Dims{directions, x[1], hidden});
  // gates and cell states of every step, which the gradient reads
  c.out(3, wide, Dims{x[0], directions, x[1], hidden * 5});
}

// Each step of each sequence meets both weights, [D, 4H, I] and [D, 4H, H].
double lstm_cost(const Sized& node, size_t x, size_t w) {
  const double steps = node.ranked(x) ? node.size(x, 0) * node.size(x, 1) : 1;
  return 2 * steps * (node.x(w) + node.x(w + 1));
}

// What the gradient reads of the forward and of its outputs' gradients.
void expect_lstm_states(InferContext& c) {
  if (!c.ranked(3) || !c.ranked(5) || c.rank(3) != 3 || c.rank(5) != 3) return;
  const Dims &x = c.dims(3), &r = c.dims(5);
  const Dim directions = r[0], hidden = r[2];
  expect_dims(c, 4, {directions, hidden * 4, x[2]});
  for (const size_t i : {0, 8}) expect_dims(c, i, {x[0], directions, x[1], hidden});
  for (const size_t i : {1, 2, 6, 7}) expect_dims(c, i, {directions, x[1], hidden});
  expect_dims(c, 9, {x[0], directions, x[1], hidden * 5});
}

Outputs lstm_gradient(const Backward& b) {
  check(!b.has(4) && !b.has(7), "[LSTM] no gradient with sequence lengths or peepholes");
  check(!b.attrs().has("clip") && !b.attrs().i("input_forget"),
        "[LSTM] no gradient with clip or input_forget");
  const Attr* activations = b.attrs().find("activations");
  const auto* names = activations ? std::get_if<std::vector<std::string>>(activations) : nullptr;
  for (size_t i = 0; names && i < names->size(); ++i)
    check((*names)[i] == (i % 3 == 0 ? "Sigmoid" : "Tanh"), "[LSTM] no gradient with activation {}",
          (*names)[i]);
  Graph& g = b.graph();
  const auto or_zero = [&](size_t i) { return b.dy(i) ? b.dy(i) : zeros_like(b.y(i)); };
  const Value h0 = b.has(5) ? b.x(5) : zeros_like(b.y(1)),
              c0 = b.has(6) ? b.x(6) : zeros_like(b.y(2));
  const std::vector<Value> in{or_zero(0), or_zero(1), or_zero(2), b.x(0), b.x(1),
                              b.x(2),     h0,         c0,         b.y(0), b.y(3)};
  const auto out = g.emit("ort::LSTMGrad", in, {{"direction", b.attrs().s("direction")}});
  return {out[0], out[1], out[2], b.needs(3) ? out[3] : Value{}, Value{}, out[4], out[5], Value{}};
}

}  // namespace

static void register_rnn(OpSet& ops) {
  ops.op("LSTM")
      .in("x", kFloating)
      .in("w", kFloating)
      .in("r", kFloating)
      .in_optional("b", kFloating)
      .in_optional("sequence_lens", bit(DType::i32), "L")
      .in_optional("initial_h", kFloating)
      .in_optional("initial_c", kFloating)
      .in_optional("p", kFloating)
      .out("y")
      .out("y_h")
      .out("y_c")
      .out("gates")
      .since(7)
      .attr_optional("activations")
      .attr_optional("activation_alpha")
      .attr_optional("activation_beta")
      .attr_optional("clip")
      .attr("direction", std::string("forward"))
      .attr_optional("hidden_size")
      .attr("input_forget", int64_t{0})
      .attr("layout", int64_t{0})
      .cost([](const Sized& node) { return lstm_cost(node, 0, 1); })
      .computes_in(DType::f32)
      .shape(infer_lstm)
      .differentiable_inputs({0, 1, 2, 3, 5, 6})
      .gradient(lstm_gradient);
  ops.op("ort::LSTMGrad")
      .in("dy", kFloating)
      .in("dy_h", kFloating)
      .in("dy_c", kFloating)
      .in("x", kFloating)
      .in("w", kFloating)
      .in("r", kFloating)
      .in("initial_h", kFloating)
      .in("initial_c", kFloating)
      .in("y", kFloating)
      .in("gates", kFloating, "U")
      .out("dx")
      .out("dw")
      .out("dr")
      .out("db")
      .out("dh0")
      .out("dc0")
      .attr("direction", std::string("forward"))
      .cost([](const Sized& node) { return 2 * lstm_cost(node, 3, 4); })
      .computes_in(DType::f32)
      .shape([](InferContext& c) {
        same_dims(c, 0, 3);
        same_dims(c, 1, 4);
        same_dims(c, 2, 5);
        if (c.ranked(4)) c.out(3, c.dtype(4), Dims{c.dims(4)[0], c.dims(4)[1] * 2});
        same_dims(c, 4, 6);
        same_dims(c, 5, 7);
        expect_lstm_states(c);
      });
}

const Family<OpSet> kFamily("ops", "rnn", register_rnn);

}  // namespace ort
