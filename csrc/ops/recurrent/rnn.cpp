// Recurrent layers as ONNX has them, over x [T, B, I], in layout 1 [B, T, I]. Gates of an LSTM in
// the order i, o, f, c, of a GRU z, r, h.
#include "csrc/ops/recurrent/layer.h"

namespace ort {
namespace {

using recurrent::Kind;

// Sizes of a layer's operands, from x and r.
struct LayerDims {
  Dim steps, batch, inputs, directions, hidden;
  bool batch_first;

  Dims sequence() const {
    return batch_first ? Dims{batch, steps, inputs} : Dims{steps, batch, inputs};
  }
  Dims all(int64_t numbers) const {  // `numbers` of H for each step
    if (batch_first) return {batch, steps, directions, hidden * numbers};
    return {steps, directions, batch, hidden * numbers};
  }
  Dims state() const {
    return batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  }
};

LayerDims layer_dims(InferContext& c, const Kind& kind, size_t x_at, size_t r_at) {
  const Dims &x = c.dims(x_at), &r = c.dims(r_at);
  c.require(x.size() == 3 && r.size() == 3,
            "x has shape {}, r has shape {}, expected {} and [D, {}, H]", x, r,
            c.attrs().i("layout") == 1 ? "[B, T, I]" : "[T, B, I]",
            kind.gates == 1 ? "H" : format("{}H", kind.gates));
  const bool batch_first = c.attrs().i("layout") == 1;
  return {x[batch_first ? 1 : 0], x[batch_first ? 0 : 1], x[2], r[0], r[2], batch_first};
}

void check_attributes(InferContext& c, const Kind& kind) {
  const Attrs& attrs = c.attrs();
  const std::string& direction = attrs.s("direction");
  c.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
            "direction is '{}', expected forward, reverse or bidirectional", direction);
  c.require(attrs.i("layout") == 0 || attrs.i("layout") == 1, "layout is {}, expected 0 or 1",
            attrs.i("layout"));
  c.require(attrs.f("clip", 0.0) >= 0.0, "clip is {}, expected 0 or more", attrs.f("clip", 0.0));
  try {
    recurrent::activations_of(kind, attrs, recurrent::directions_of(attrs));
  } catch (const Error& error) {
    c.require(false, "{}", error.what());
  }
}

void infer_layer(InferContext& c, const Kind& kind) {
  check_attributes(c, kind);
  const size_t saved = static_cast<size_t>(kind.states) + 1;
  const DType wide = c.node().schema->compute_dtype(c.node());
  if (!c.ranked(0) || !c.ranked(2)) {
    for (size_t i = 0; i <= saved; ++i) c.out(i, i == saved ? wide : c.dtype(), std::nullopt);
    return;
  }
  const LayerDims l = layer_dims(c, kind, 0, 2);
  const Dim hidden = l.hidden, rows = hidden * kind.gates;
  const int64_t size = c.attrs().i("hidden_size", hidden.value().value_or(0));
  c.assume(equal_sizes(hidden, c.attrs().has("hidden_size") ? Dim(size) : hidden), "hidden_size");
  expect_dims(c, 1, {l.directions, rows, l.inputs});
  expect_dims(c, 2, {l.directions, rows, hidden});
  expect_dims(c, 3, {l.directions, rows * 2});
  expect_dims(c, 4, {l.batch});
  for (size_t i = 5; i < 5 + static_cast<size_t>(kind.states); ++i) expect_dims(c, i, l.state());
  if (kind.states == 2) expect_dims(c, 7, {l.directions, hidden * 3});
  const int64_t directions = recurrent::directions_of(c.attrs());
  c.require(!l.directions.value() || l.directions.is(directions),
            "r has shape {}, which direction {} does not fit", c.dims(2), c.attrs().s("direction"));
  c.assume(equal_sizes(l.directions, directions), "directions");
  c.out(0, c.dtype(), l.all(1));
  for (size_t i = 1; i < saved; ++i) c.out(i, c.dtype(), l.state());
  c.out(saved, wide, l.all(kind.saved));  // what the gradient reads
}

// Where the operands of a gradient are: dy and those of the states, then x, w, r, the states, y.
struct GradientPorts {
  explicit GradientPorts(const Kind& kind)
      : states(static_cast<size_t>(kind.states)), x(states + 1), first(x + 3), y(first + states) {}
  size_t states, x, first, y;
  size_t saved() const { return y + 1; }
  size_t lengths() const { return y + 2; }
};

// What the gradient reads of the forward and of its outputs' gradients.
void infer_gradient(InferContext& c, const Kind& kind) {
  check_attributes(c, kind);
  const GradientPorts at(kind);
  for (size_t i = 0; i < 3; ++i) same_dims(c, i, at.x + i);
  const std::optional<Dims> weights = c.type(at.x + 1).dims;
  c.out(3, c.dtype(at.x + 1),
        weights ? std::optional(Dims{(*weights)[0], (*weights)[1] * 2}) : std::nullopt);
  for (size_t i = 0; i < at.states; ++i) same_dims(c, 4 + i, at.first + i);
  if (!c.ranked(at.x) || !c.ranked(at.x + 2)) return;
  const LayerDims l = layer_dims(c, kind, at.x, at.x + 2);
  expect_dims(c, at.x + 1, {l.directions, l.hidden * kind.gates, l.inputs});
  expect_dims(c, at.x + 2, {l.directions, l.hidden * kind.gates, l.hidden});
  for (const size_t i : {size_t{0}, at.y}) expect_dims(c, i, l.all(1));
  for (size_t i = 0; i < at.states; ++i) {
    expect_dims(c, 1 + i, l.state());
    expect_dims(c, at.first + i, l.state());
  }
  expect_dims(c, at.saved(), l.all(kind.saved));
  expect_dims(c, at.lengths(), {l.batch});
  if (kind.states == 2) {
    expect_dims(c, at.lengths() + 1, {l.directions, l.hidden * 3});
    c.out(6, c.dtype(at.x), Dims{l.directions, l.hidden * 3});
  }
}

// Each step of each sequence meets both weights, [D, G H, I] and [D, G H, H].
double layer_cost(const Sized& node, size_t x, size_t w) {
  const double steps = node.ranked(x) ? node.size(x, 0) * node.size(x, 1) : 1;
  return 2 * steps * (node.x(w) + node.x(w + 1));
}

Outputs layer_gradient(const Backward& b, const Kind& kind) {
  const size_t states = static_cast<size_t>(kind.states);
  const auto or_zero = [&](size_t i) { return b.dy(i) ? b.dy(i) : zeros_like(b.y(i)); };
  std::vector<Value> in;
  for (size_t i = 0; i <= states; ++i) in.push_back(or_zero(i));
  for (size_t i = 0; i < 3; ++i) in.push_back(b.x(i));
  for (size_t i = 5; i < 5 + states; ++i) in.push_back(b.has(i) ? b.x(i) : zeros_like(b.y(i - 4)));
  in.push_back(b.y(0));
  in.push_back(recurrent::reads_gates(kind, b.attrs()) ? b.y(states + 1) : Value{});
  const bool peepholes = states == 2 && b.has(7);
  in.push_back(b.has(4) ? b.x(4) : Value{});
  if (peepholes) in.push_back(b.x(7));
  while (!in.back()) in.pop_back();
  Attrs attrs = b.attrs();
  attrs.erase("hidden_size");
  const size_t made = 4 + states + (peepholes ? 1 : 0);
  const auto out = b.graph().emit(format("ort::{}Grad", kind.op), in, attrs, made);
  Outputs gradients{out[0], out[1], out[2], b.needs(3) ? out[3] : Value{}, Value{}};
  for (size_t i = 4; i < made; ++i) gradients.push_back(out[i]);
  return gradients;
}

OpSchema& with_attributes(OpSchema& op, const Kind& kind) {
  op.attr_optional("activations")
      .attr_optional("activation_alpha")
      .attr_optional("activation_beta")
      .attr_optional("clip")
      .attr("direction", std::string("forward"))
      .attr("layout", int64_t{0})
      .computes_in(DType::f32);
  if (kind.op == "LSTM") op.attr("input_forget", int64_t{0});
  if (kind.op == "GRU") op.attr("linear_before_reset", int64_t{0});
  return op;
}

void add_layer(OpSet& ops, const Kind& kind) {
  OpSchema& op = ops.op(kind.op);
  op.in("x", kFloating)
      .in("w", kFloating)
      .in("r", kFloating)
      .in_optional("b", kFloating)
      .in_optional("sequence_lens", bit(DType::i32), "L")
      .in_optional("initial_h", kFloating);
  if (kind.states == 2) op.in_optional("initial_c", kFloating).in_optional("p", kFloating);
  op.out("y").out("y_h");
  if (kind.states == 2) op.out("y_c");
  std::vector<int> differentiable{0, 1, 2, 3, 5};
  if (kind.states == 2) differentiable.insert(differentiable.end(), {6, 7});
  with_attributes(op, kind)
      .attr_optional("hidden_size")
      .out("gates")
      .since(7)
      .cost([](const Sized& node) { return layer_cost(node, 0, 1); })
      .shape([&kind](InferContext& c) { infer_layer(c, kind); })
      .differentiable_inputs(differentiable)
      .gradient([&kind](const Backward& b) { return layer_gradient(b, kind); });
}

void add_gradient(OpSet& ops, const Kind& kind) {
  OpSchema& op = ops.op(format("ort::{}Grad", kind.op));
  const std::vector<std::string> states =
      kind.states == 2 ? std::vector<std::string>{"h", "c"} : std::vector<std::string>{"h"};
  op.in("dy", kFloating);
  for (const std::string& state : states) op.in("dy_" + state, kFloating);
  op.in("x", kFloating).in("w", kFloating).in("r", kFloating);
  for (const std::string& state : states) op.in("initial_" + state, kFloating);
  op.in("y", kFloating).in_optional("gates", kFloating, "U");
  op.in_optional("sequence_lens", bit(DType::i32), "L");
  if (kind.states == 2) op.in_optional("p", kFloating);
  op.out("dx").out("dw").out("dr").out("db");
  for (const std::string& state : states) op.out("d" + state + "0");
  if (kind.states == 2) op.out("dp");
  with_attributes(op, kind)
      .cost([&kind](const Sized& node) {
        const size_t x = GradientPorts(kind).x;
        return 2 * layer_cost(node, x, x + 1);
      })
      .shape([&kind](InferContext& c) { infer_gradient(c, kind); });
}

// The sums of the inputs in place of x, w and b.
void infer_dynamic_lstm(InferContext& c) {
  const Kind& kind = recurrent::lstm();
  check_attributes(c, kind);
  const bool known = c.ranked(0) && c.ranked(1);
  if (!known) {
    for (size_t i = 0; i < 3; ++i) c.out(i, c.dtype(), std::nullopt);
    return;
  }
  const LayerDims l = layer_dims(c, kind, 0, 1);
  const Dim columns = l.hidden * kind.gates;
  const int64_t directions = recurrent::directions_of(c.attrs());
  c.require(!l.directions.value() || l.directions.is(directions),
            "r has shape {}, which direction {} does not fit", c.dims(1), c.attrs().s("direction"));
  expect_dims(c, 0, {l.steps, l.batch, columns * directions});
  expect_dims(c, 1, {directions, columns, l.hidden});
  expect_dims(c, 2, {directions, columns});
  expect_dims(c, 3, {l.batch});
  for (size_t i = 4; i < 6; ++i) expect_dims(c, i, l.state());
  expect_dims(c, 6, {directions, l.hidden * 3});
  c.out(0, c.dtype(), l.all(1));
  for (size_t i = 1; i < 3; ++i) c.out(i, c.dtype(), l.state());
}

// An LSTM that rounds each step's h of all sequences to bytes, as DynamicQuantizeLinear does, and
// multiplies it by r, whole numbers, whose scales are r_scale.
void add_dynamic_lstm(OpSet& ops) {
  OpSchema& op = ops.op("ort::DynamicQuantizeLSTM");
  op.in("sums", bit(DType::f32))
      .in("r", bit(DType::f32))
      .in("r_scale", bit(DType::f32))
      .in_optional("sequence_lens", bit(DType::i32), "L")
      .in_optional("initial_h", bit(DType::f32))
      .in_optional("initial_c", bit(DType::f32))
      .in_optional("p", bit(DType::f32))
      .out("y")
      .out("y_h")
      .out("y_c");
  with_attributes(op, recurrent::lstm())
      .cost([](const Sized& node) {
        const double steps = node.ranked(0) ? node.size(0, 0) * node.size(0, 1) : 1;
        return 2 * steps * node.x(1);
      })
      .not_differentiable()
      .shape(infer_dynamic_lstm);
}

}  // namespace

static void register_rnn(OpSet& ops) {
  for (const Kind* kind : {&recurrent::lstm(), &recurrent::gru(), &recurrent::rnn()}) {
    add_layer(ops, *kind);
    add_gradient(ops, *kind);
  }
  add_dynamic_lstm(ops);
}

const Family<OpSet> kRnnOps("ops", "rnn", register_rnn);

}  // namespace ort
