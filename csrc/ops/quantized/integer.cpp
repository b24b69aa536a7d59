// Products of bytes, whose sums are integers of 32 bits. ort::IntegerMatMul and ort::IntegerConv
// know of no zero points: MatMulInteger and ConvInteger take them off beside these.
#include "csrc/ops/quantized/linear.h"

namespace ort {

using namespace quantized;

namespace {

// Sums of so many products of a byte and an int8 are below 2^24, which float32 holds; float64 holds
// the rest.
constexpr int64_t kExactTerms = (int64_t{1} << 24) / (255 * 128);

DType exact_for(const Dim& terms) {
  const auto known = terms.value();
  return known && *known <= kExactTerms ? DType::f32 : DType::f64;
}

// In a float that holds the sums.
Value integer_matmul(const OpCall& c) {
  const DType dtype = exact_for(c.x(0).dim(-1));
  return cast(matmul(cast(c.x(0), dtype), cast(c.x(1), dtype)), DType::i32);
}

Value integer_conv(const OpCall& c) {
  Dim terms = 1;
  const Dims d = c.x(1).dims();
  for (size_t i = 1; i < d.size(); ++i) terms = terms * d[i];
  const DType dtype = exact_for(terms);
  Attrs attrs = c.attrs();
  attrs.erase("to");
  const Value y = c.graph().emit1("Conv", {cast(c.x(0), dtype), cast(c.x(1), dtype)}, attrs);
  return cast(y, DType::i32);
}

// --- zero points ---------------------------------------------------------------------------------

// Absent where every one of them is known to be `number`.
Value unless(Value zero_points, double number) {
  const Tensor* known = zero_points ? constant_of(zero_points) : nullptr;
  if (!known) return zero_points;
  for (int64_t i = 0; i < known->count(); ++i)
    if (element_as_double(*known, i) != number) return zero_points;
  return {};
}

// x of uint8 moved by 128: its first bit is the sign of int8 turned round.
Value moved_to_signed(Value x) {
  const Value moved = x.graph->emit1("BitwiseXor", {x, x.graph->scalar(128, DType::u8)});
  return x.graph->emit1("BitCast", {moved}, {{"to", static_cast<int64_t>(DType::i8)}});
}

// A weight as int8 with its zero points as int32: of uint8 both are moved by 128.
struct Weight {
  Value w, zero;
};

Weight signed_weight(Value w, Value zero_points) {
  const bool moves = w.dtype() == DType::u8;
  const double middle = moves ? 128.0 : 0.0;
  if (!zero_points && moves) zero_points = w.graph->scalar(0, DType::u8);
  const Value zero = unless(zero_points, middle);
  return {moves ? moved_to_signed(w) : w, zero ? cast(zero, DType::i32) - middle : zero};
}

// Sums over the last axis of a, [.., M, 1], and over the last but one of b, [.., 1, N]: of a weight
// they are found once.
Value row_sums(Value a) {
  return a.graph->emit1("ort::IntegerMatMul", {a, full(*a.graph, {a.dim(-1), 1}, 1.0, DType::i8)});
}
Value column_sums(Value b) {
  return b.graph->emit1("ort::IntegerMatMul", {full(*b.graph, {1, b.dim(-2)}, 1.0, DType::i8), b});
}

Value product_of_vectors(Value a, Value b, Value a_zero, Value b_zero) {
  if (a.rank() > 1) a_zero = of_rows(a_zero);
  const Value left = centred(a, a_zero, DType::i32), right = centred(b, b_zero, DType::i32);
  return matmul(left, right);
}

}  // namespace

// sum (a - za) (b - zb) = sum a b - za sum b - zb sum a + K za zb
Value quantized::integer_product(Value a, Value b, Value a_zero, Value b_zero) {
  if (a.rank() < 2 || b.rank() < 2) return product_of_vectors(a, b, a_zero, b_zero);
  Graph& g = *a.graph;
  const Weight weight = signed_weight(b, b_zero);
  const Value known = unless(a_zero, 0.0);
  const Value za = known ? cast(of_rows(known), DType::i32) : known;
  Value sums = g.emit1("ort::IntegerMatMul", {a, weight.w});
  if (za) sums = sums - za * column_sums(weight.w);
  if (!weight.zero) return sums;
  Value rows = row_sums(a);
  if (za) rows = rows - za * cast(g.size(a.dim(-1)), DType::i32);
  return sums - rows * weight.zero;
}

namespace {

// What each spatial axis is padded with, before and behind it.
std::vector<std::pair<Dim, Dim>> pads_of(Value x, Value w, const Attrs& attrs) {
  check(x.rank() >= 3 && x.rank() == w.rank(),
        "[ConvInteger] x has shape {}, w has shape {}, expected one rank of at least 3", x.dims(),
        w.dims());
  const auto n = static_cast<size_t>(x.rank() - 2);
  const std::vector<int64_t> given = ints_or(attrs, "pads", 2 * n, 0);
  const std::vector<int64_t> strides = ints_or(attrs, "strides", n, 1);
  const std::vector<int64_t> dilations = ints_or(attrs, "dilations", n, 1);
  const bool steps = std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s > 0; });
  check(given.size() == 2 * n && strides.size() == n && dilations.size() == n && steps,
        "[ConvInteger] pads {}, strides {} and dilations {} do not fit {} spatial axes", given,
        strides, dilations, n);
  const std::string& mode = attrs.s("auto_pad");
  std::vector<std::pair<Dim, Dim>> pads;
  for (size_t i = 0; i < n; ++i) {
    pads.emplace_back(mode == "NOTSET" ? given[i] : 0, mode == "NOTSET" ? given[n + i] : 0);
    if (mode != "SAME_UPPER" && mode != "SAME_LOWER") continue;
    const Dim size = x.dim(static_cast<int64_t>(i) + 2), taps = w.dim(static_cast<int64_t>(i) + 2);
    const Dim windows = floor_div(size + (strides[i] - 1), strides[i]);
    const Dim reach = (windows - 1) * strides[i] + (taps - 1) * dilations[i] + 1;
    const Dim all = max(reach - size, 0), less = floor_div(all, 2);
    pads.back() = mode == "SAME_UPPER" ? std::pair(less, all - less) : std::pair(all - less, less);
  }
  return pads;
}

// x with its zero point where a window reaches beyond it, which then counts as nothing.
Value padded(Value x, Value w, Value zero, Attrs& attrs) {
  Dims before(2, Dim(0)), behind(2, Dim(0));
  bool pads = false;
  for (const auto& [first, last] : pads_of(x, w, attrs)) {
    pads = pads || !first.is(0) || !last.is(0);
    before.push_back(first);
    behind.push_back(last);
  }
  attrs.erase("pads");
  attrs.set("auto_pad", std::string("NOTSET"));
  if (!pads) return x;
  before.insert(before.end(), behind.begin(), behind.end());
  return x.graph->emit1("Pad", {x, x.graph->sizes(before), reshape(zero, {})});
}

// The sum of what each window of a group sees, [N, O, ..].
Value window_sums(Value x, Value w, const Attrs& attrs) {
  Graph& g = *x.graph;
  const Dim groups = attrs.i("group"), outputs = w.dim(0);
  Dims taps = w.dims();
  taps[0] = groups;
  const Value sums = g.emit1("ort::IntegerConv", {x, full(g, taps, 1.0, DType::i8)}, attrs);
  if (groups == outputs) return sums;
  Dims apart = sums.dims(), together = apart;
  apart.insert(apart.begin() + 2, floor_div(outputs, groups));
  together[1] = outputs;
  return reshape(expand(unsqueeze(sums, {2}), apart), together);
}

}  // namespace

// As integer_product; the zero points of w are one, or an output channel's each.
Value quantized::integer_convolution(Value x, Value w, Value x_zero, Value w_zero, Attrs attrs) {
  Graph& g = *x.graph;
  const size_t rank = w.dims().size();
  Dim terms = 1;
  for (size_t i = 1; i < rank; ++i) terms = terms * w.dims()[i];
  const Weight weight = signed_weight(w, w_zero);
  Value zx = unless(x_zero, 0.0);
  if (zx) {
    x = padded(x, w, zx, attrs);
    zx = reshape(cast(zx, DType::i32), {});
  }
  Value sums = g.emit1("ort::IntegerConv", {x, weight.w}, attrs);
  if (zx) {
    const Value each = row_sums(reshape(weight.w, {w.dim(0), terms}));
    sums = sums - zx * of_channels(reshape(each, {w.dim(0)}), rank);
  }
  if (!weight.zero) return sums;
  Value seen = window_sums(x, weight.w, attrs);
  if (zx) seen = seen - zx * cast(g.size(terms), DType::i32);
  return sums - seen * of_channels(weight.zero, rank);
}

namespace {

void register_onnx_ops(OpSet& ops) {
  ops.op("MatMulInteger")
      .in("A", kBytes, "A")
      .in("B", kBytes, "B")
      .in_optional("a_zero_point", kBytes, "A")
      .in_optional("b_zero_point", kBytes, "B")
      .out("Y", bit(DType::i32), "Y")
      .since(10)
      .not_differentiable()
      .defined_as([](const OpCall& c) { return integer_product(c.x(0), c.x(1), c.x(2), c.x(3)); });
  window_attrs(ops.op("ConvInteger")
                   .in("x", kBytes, "X")
                   .in("w", kBytes, "W")
                   .in_optional("x_zero_point", kBytes, "X")
                   .in_optional("w_zero_point", kBytes, "W")
                   .out("y", bit(DType::i32), "Y"))
      .since(10)
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        return integer_convolution(c.x(0), c.x(1), c.x(2), c.x(3), c.attrs());
      });
}

}  // namespace

static void register_integer(OpSet& ops) {
  ops.op("ort::IntegerMatMul")
      .in("a", kBytes, "A")
      .in("b", bit(DType::i8), "B")
      .out("y", bit(DType::i32), "Y")
      .attr("to", static_cast<int64_t>(DType::i32))
      .cost(matmul_cost)
      .not_differentiable()
      .shape(infer_matmul)
      .defined_as(integer_matmul);
  window_attrs(ops.op("ort::IntegerConv")
                   .in("x", kBytes, "X")
                   .in("w", bit(DType::i8), "W")
                   .out("y", bit(DType::i32), "Y"))
      .attr("to", static_cast<int64_t>(DType::i32))
      .cost(conv_cost)
      .not_differentiable()
      .shape(infer_conv)
      .defined_as(integer_conv);
  register_onnx_ops(ops);
}

const Family<OpSet> kIntegerOps("ops", "integer", register_integer);

}  // namespace ort
