// What onnxruntime's optimizer writes in place of several ops of ai.onnx, by those ops: products
// with a transpose, activations with a bias, products and convolutions with an activation.
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr TypeSet kFusedFloats = bit(DType::f32) | bit(DType::f64) | bit(DType::f16);

// --- activations ---------------------------------------------------------------------------------

Value gelu(Value x) {
  return unary("Gelu", x);
}

Value fast_gelu(Value x) {
  return x.graph->emit1("Gelu", {x}, {{"approximate", std::string("tanh")}});
}

Value clip(Value x, const std::vector<double>& bounds) {
  check(bounds.size() == 2, "activation 'Clip' has {} numbers, expected 2", bounds.size());
  return x.graph->emit1("Clip", {x, number(bounds[0], x), number(bounds[1], x)});
}

// The element-wise op `name` of x; an empty name is none. Its attributes are `numbers`, in the
// order of its entry; what they leave out has its default.
Value activated(Value x, const std::string& name, const std::vector<double>& numbers) {
  if (name.empty()) return x;
  if (name == "Clip") return clip(x, numbers);
  const OpSchema* op = x.graph->ops().find(name);
  check(op && op->is_elementwise() && op->inputs().size() == 1, "activation '{}' is not known",
        name);
  check(numbers.size() <= op->attrs().size(), "activation '{}' has {} numbers, expected {}", name,
        numbers.size(), op->attrs().size());
  Attrs attrs;
  for (size_t i = 0; i < numbers.size(); ++i) attrs.set(op->attrs()[i].name, numbers[i]);
  return x.graph->emit1(name, {x}, attrs);
}

// --- products ------------------------------------------------------------------------------------

// Its first axis behind the batch, its last two axes swapped, as attributes ask.
Value transposed_as(Value x, bool batch, bool last) {
  const int64_t rank = x.rank();
  if (rank < 2) return x;
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  if (batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (last) std::swap(perm[perm.size() - 2], perm.back());
  return std::is_sorted(perm.begin(), perm.end()) ? x : transpose(x, perm);
}

Value fused_matmul(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const auto asks = [&](std::string_view name) { return attrs.i(name, 0) != 0; };
  const Value y = matmul(transposed_as(c.x(0), asks("transBatchA"), asks("transA")),
                         transposed_as(c.x(1), asks("transBatchB"), asks("transB")));
  const double alpha = attrs.f("alpha");
  return alpha == 1.0 ? y : y * alpha;
}

OpSchema& matmul_with_transposes(OpSchema& schema) {
  return schema.in("A", kFloating)
      .in("B", kFloating)
      .out("Y")
      .attr("alpha", 1.0)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .defined_as(fused_matmul);
}

// activation(alpha A B + beta C)
Value fused_gemm(const OpCall& c) {
  Attrs attrs = c.attrs();
  std::vector<double> numbers;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (attrs.has(name)) numbers.push_back(attrs.f(name));
  for (const char* name : {"activation", "activation_alpha", "activation_beta", "activation_gamma"})
    attrs.erase(name);
  const Value y = c.graph().emit1("Gemm", {c.x(0), c.x(1), c.x(2)}, attrs);
  return activated(y, c.attrs().s("activation"), numbers);
}

// activation(conv(X, W) + B + Z)
Value fused_conv(const OpCall& c) {
  Attrs attrs = c.attrs();
  const std::vector<double> numbers = attrs.list<double>("activation_params");
  for (const char* name : {"activation", "activation_params"}) attrs.erase(name);
  Value y = c.graph().emit1("Conv", {c.x(0), c.x(1), c.x(2)}, attrs);
  if (c.has(3)) y = y + c.x(3);
  return activated(y, c.attrs().s("activation"), numbers);
}

void register_products(OpSet& ops) {
  matmul_with_transposes(ops.op("com.microsoft::FusedMatMul"))
      .attr("transBatchA", int64_t{0})
      .attr("transBatchB", int64_t{0});
  matmul_with_transposes(ops.op("com.microsoft::TransposeMatMul"));  // its name before
  ops.op("com.microsoft::FusedGemm")
      .in("A", kNumeric)
      .in("B", kNumeric)
      .in_optional("C", kNumeric)
      .out("Y")
      .attr("activation", std::string())
      .attr_optional("activation_alpha")
      .attr_optional("activation_beta")
      .attr_optional("activation_gamma")
      .attr("alpha", 1.0)
      .attr("beta", 1.0)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .defined_as(fused_gemm);
  ops.op("com.microsoft::FusedConv")
      .in("X", kFusedFloats)
      .in("W", kFusedFloats)
      .in_optional("B", kFusedFloats)
      .in_optional("Z", kFusedFloats)
      .out("Y")
      .attr("activation", std::string())
      .attr_optional("activation_params")
      .attr("auto_pad", std::string("NOTSET"))
      .attr_optional("dilations")
      .attr("group", int64_t{1})
      .attr_optional("kernel_shape")
      .attr_optional("pads")
      .attr_optional("strides")
      .defined_as(fused_conv);
  ops.op("com.microsoft::GemmFastGelu")
      .in("X", kFloating)
      .in("W", kFloating)
      .in_optional("bias", kFloating)
      .out("Y")
      .defined_as([](const OpCall& c) {
        const Value y = matmul(c.x(0), c.x(1));
        return fast_gelu(c.has(2) ? y + c.x(2) : y);
      });
}

// --- a bias and what follows it ------------------------------------------------------------------

// softmax(data + bias) over all axes from `axis` on.
Value bias_softmax(const OpCall& c) {
  const Value x = c.x(0) + c.x(1);
  const int64_t rank = x.rank(), given = c.attrs().i("axis");
  check(given >= -rank && given < rank, "[BiasSoftmax] axis {} does not exist, data has rank {}",
        given, rank);
  const int64_t axis = (given + rank) % rank;
  if (axis == rank - 1) return softmax(x, -1);
  const Value rows = c.graph().emit1("Flatten", {x}, {{"axis", axis}});
  return reshape(softmax(rows, -1), x.dims());
}

// The left half of x + bias, times gelu of the right one.
Value bias_split_gelu(const OpCall& c) {
  const Value x = c.x(0) + c.x(1);
  const Dim size = x.dim(-1), half = floor_div(size, 2);
  return slice(x, -1, 0, half) * gelu(slice(x, -1, half, size));
}

void register_biases(OpSet& ops) {
  ops.op("com.microsoft::BiasGelu")
      .in("A", kFloating)
      .in("B", kFloating)
      .out("C")
      .defined_as([](Value a, Value b) { return gelu(a + b); });
  ops.op("com.microsoft::FastGelu")
      .in("X", kFloating)
      .in_optional("bias", kFloating)
      .out("Y")
      .defined_as([](const OpCall& c) { return fast_gelu(c.has(1) ? c.x(0) + c.x(1) : c.x(0)); });
  ops.op("com.microsoft::QuickGelu")
      .in("X", kFloating)
      .out("Y")
      .attr("alpha", 1.702)
      .defined_as([](const OpCall& c) {
        return c.graph().emit1("Swish", {c.x(0)}, {{"alpha", c.attrs().f("alpha")}});
      });
  ops.op("com.microsoft::BiasAdd")
      .in("X", kFloating)
      .in("bias", kFloating)
      .in("skip", kFloating)
      .out("Y")
      .defined_as([](Value x, Value bias, Value skip) { return x + bias + skip; });
  ops.op("com.microsoft::BiasSplitGelu")
      .in("X", kFloating)
      .in("bias", kFloating)
      .out("Y")
      .defined_as(bias_split_gelu);
  ops.op("com.microsoft::BiasSoftmax")
      .in("data", kFloating)
      .in("bias", kFloating)
      .out("output")
      .attr("axis", int64_t{1})
      .attr("is_inner_broadcast", int64_t{0})  // says how its shape broadcasts, which it does alike
      .defined_as(bias_softmax);
}

// --- what old exporters write --------------------------------------------------------------------

// The distances between the rows of A and those of B.
Value distances(const OpCall& c) {
  const std::string& metric = c.attrs().s("metric");
  check(metric == "sqeuclidean" || metric == "euclidean",
        "[CDist] metric is '{}', expected sqeuclidean or euclidean", metric);
  const Value difference = unsqueeze(c.x(0), {1}) - unsqueeze(c.x(1), {0});
  const Value squares = reduce_sum(difference * difference, {-1}, false);
  return metric == "euclidean" ? sqrt(squares) : squares;
}

Value dynamic_pad(const OpCall& c) {
  return c.graph().emit1("Pad", {c.x(0), reshape(c.x(1), {c.x(0).rank() * 2}), c.x(2)},
                         {{"mode", c.attrs().s("mode")}});
}

void register_others(OpSet& ops) {
  ops.op("com.microsoft::CDist")
      .in("A", bit(DType::f32) | bit(DType::f64))
      .in("B", bit(DType::f32) | bit(DType::f64))
      .out("C")
      .attr("metric", std::string("sqeuclidean"))
      .defined_as(distances);
  ops.op("com.microsoft::ExpandDims")
      .in("X")
      .in("axis", bit(DType::i32), "A")
      .host()
      .out("Y")
      .defined_as([](const OpCall& c) {
        const Value axis = reshape(cast(c.x(1), DType::i64), {1});
        return c.graph().emit1("Unsqueeze", {c.x(0), axis});
      });
  ops.op("com.microsoft::Pad")
      .in("data", kFusedFloats)
      .in("pads", kInt64, "P")
      .host()
      .in_optional("value", kFusedFloats)
      .out("output")
      .attr("mode", std::string("constant"))
      .defined_as(dynamic_pad);
}

}  // namespace

static void register_fused(OpSet& ops) {
  register_products(ops);
  register_biases(ops);
  register_others(ops);
}

const Family<OpSet> kFusedOps("ops", "microsoft_fused", register_fused);

}  // namespace ort
