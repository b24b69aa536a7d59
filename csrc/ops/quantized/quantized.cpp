// Products with a frozen weight that is kept in blocks of few bits, each block with a scale.
#include "csrc/ops/quantized/quantized.h"

#include <algorithm>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Of a weight, in elements, so that no count of bytes overflows.
constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr int64_t kLeastBlock = 16;  // elements, whose codes fill bytes in every format

// The codes of [rows, columns] elements, and a scale (a zero point) for each of their blocks.
void check_weight(InferContext& c, QuantizedFormat format) {
  const int64_t rows = c.attrs().i("rows"), columns = c.attrs().i("columns");
  const int64_t block = c.attrs().i("block");
  c.require(rows > 0 && columns > 0 && rows <= kMostElements / columns,
            "w has {} rows and {} columns, expected some, and less than {} elements", rows, columns,
            kMostElements);
  c.require(block > 0 && block % kLeastBlock == 0, "block is {}, expected a multiple of {}", block,
            kLeastBlock);
  const int64_t count = rows * columns;
  c.require(count % block == 0, "w has {} elements, expected blocks of {}", count, block);
  const DType type = format == QuantizedFormat::int8 ? DType::i8 : DType::u8;
  c.require(c.dtype(1) == type, "codes are {}, expected {}", name_of(c.dtype(1)), name_of(type));
  expect_dims(c, 1, {code_count(format, count)});
  expect_dims(c, 2, {count / block});
  if (!c.has(3)) return;
  c.require(is_unsigned(format), "format {} has no zero points", c.attrs().s("format"));
  expect_dims(c, 3, {count / block});
}

// x [.., K] with w [N, K], or where it is transposed x [.., N].
void infer_quantized(InferContext& c) {
  const QuantizedFormat format = quantized_format(c.attrs().s("format"));
  check_weight(c, format);
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  const int64_t rows = c.attrs().i("rows"), columns = c.attrs().i("columns");
  Dims dims = c.dims(0);
  const bool transposed = c.attrs().i("transposed") != 0;
  const int64_t inner = transposed ? rows : columns;
  c.require(!dims.empty(), "x has shape {}, expected [.., {}]", dims, inner);
  c.require(!dims.back().value() || *dims.back().value() == inner,
            "x has shape {}, expected [.., {}]", dims, inner);
  c.assume(equal_sizes(dims.back(), Dim(inner)), "inner sizes");
  dims.back() = transposed ? columns : rows;
  c.out(0, c.dtype(), std::move(dims));
}

// A weight, given by its codes, scales and zero points (or none).
struct Blocks {
  Value codes, scales, zeros;
  const Attrs& attrs;

  // [blocks, elements of one], float32: what is multiplied by the scales.
  Value numbers() const {
    const QuantizedFormat format = quantized_format(attrs.s("format"));
    const int64_t block = attrs.i("block");
    const Dims dims{Dim(attrs.i("rows") * attrs.i("columns") / block), Dim(block)};
    if (is_by_table(format)) return reshape(looked_up(codes, format), dims);
    if (!is_unsigned(format)) return reshape(cast(codes, DType::f32), dims);
    const Value found = reshape(cast(unpacked(codes, bits_of(format)), DType::f32), dims);
    return zeros ? found - unsqueeze(cast(zeros, DType::f32), {1}) : found - middle_of(format);
  }
  Value weight() const {
    return reshape(numbers() * unsqueeze(cast(scales, DType::f32), {1}),
                   {attrs.i("rows"), attrs.i("columns")});
  }
};

// The gradient of the weight by its blocks, in float32: [blocks, elements of one].
Value block_gradients(const Backward& b) {
  const auto rows_of = [](Value v) {
    Dim count = 1;
    for (int64_t axis = 0; axis + 1 < v.rank(); ++axis) count = count * v.dim(axis);
    return cast(reshape(v, {count, v.dim(-1)}), DType::f32);
  };
  const Attrs& attrs = b.attrs();
  const bool transposed = attrs.i("transposed") != 0;
  const Value left = rows_of(transposed ? b.x(0) : b.dy());
  const Value right = rows_of(transposed ? b.dy() : b.x(0));
  const int64_t block = attrs.i("block");
  return reshape(matmul(swap_last(left), right),
                 {attrs.i("rows") * attrs.i("columns") / block, block});
}

Outputs quantized_gradient(const Backward& b) {
  Outputs grads(b.node().in.size());
  const Value zeros = b.has(3) ? b.x(3) : Value{};
  if (b.needs(0)) {
    std::vector<Value> in{b.dy(), b.x(1), b.x(2)};
    if (zeros) in.push_back(zeros);
    Attrs attrs = b.attrs();
    attrs.set("transposed", int64_t{attrs.i("transposed") == 0});
    grads[0] = b.graph().emit("ort::QuantizedLinear", in, attrs)[0];
  }
  if (!b.needs(2) && !b.needs(3)) return grads;
  const Value dw = block_gradients(b);
  const Blocks w{b.x(1), b.x(2), zeros, b.attrs()};
  if (b.needs(2)) grads[2] = reduce_sum(dw * w.numbers(), {1}, false);
  if (b.needs(3)) grads[3] = -(reduce_sum(dw, {1}, false) * b.x(2));
  return grads;
}

}  // namespace

QuantizedFormat quantized_format(std::string_view name) {
  constexpr std::pair<std::string_view, QuantizedFormat> kFormats[] = {
      {"nf4", QuantizedFormat::nf4},     {"fp4", QuantizedFormat::fp4},
      {"int8", QuantizedFormat::int8},   {"uint2", QuantizedFormat::uint2},
      {"uint4", QuantizedFormat::uint4}, {"uint8", QuantizedFormat::uint8}};
  const auto found =
      std::ranges::find(kFormats, name, [](const auto& entry) { return entry.first; });
  check(found != std::end(kFormats),
        "[ort::QuantizedLinear] format is '{}', expected nf4, fp4, int8, uint2, uint4 or uint8",
        name);
  return found->second;
}

Value looked_up(Value codes, QuantizedFormat format) {
  Tensor table = Tensor::empty(DType::f32, {16});
  std::ranges::copy(table_of(format), table.as<float>());
  Graph& g = *codes.graph;
  const Value upper = codes / 16.0;
  const Value pairs = concat({unsqueeze(upper, {1}), unsqueeze(codes - upper * 16.0, {1})}, 1);
  const Value index = cast(reshape(pairs, {product(pairs.dims())}), DType::i64);
  return g.emit1("Gather", {g.constant(std::move(table)), index}, {{"axis", int64_t{0}}});
}

Value unpacked(Value bytes, int64_t bits) {
  if (bits == 8) return bytes;
  Graph& g = *bytes.graph;
  const int64_t count = 8 / bits;
  std::vector<Value> parts;
  for (int64_t i = 0; i < count; ++i) {
    const Value shifted =
        i == 0 ? bytes
               : g.emit1("BitShift", {bytes, number(static_cast<double>(i * bits), bytes)},
                         {{"direction", std::string("RIGHT")}});
    const Value mask = number(static_cast<double>((int64_t{1} << bits) - 1), bytes);
    parts.push_back(unsqueeze(g.emit1("BitwiseAnd", {shifted, mask}), {-1}));
  }
  Dims dims = bytes.dims();
  dims.back() = dims.back() * Dim(count);
  return reshape(concat(parts, -1), dims);
}

static void register_quantized(OpSet& ops) {
  ops.op("ort::QuantizedLinear")
      .in("x", kFloating)
      .in("codes", kIntegers, "C")
      .in("scales", bit(DType::f32), "S")
      .in_optional("zero_points", bit(DType::u8) | bit(DType::f32), "Z")
      .out("y")
      .attr("format", std::string("nf4"))
      .attr("rows", int64_t{0})
      .attr("columns", int64_t{0})
      .attr("block", int64_t{64})
      .attr("transposed", int64_t{0})
      .cost([](const Sized& node) {
        const Attrs& attrs = node.attrs();
        return 2 * node.y() *
               static_cast<double>(attrs.i(attrs.i("transposed") != 0 ? "rows" : "columns"));
      })
      .computes_in(DType::f32)
      .shape(infer_quantized)
      .defined_as([](const OpCall& c) {
        const Blocks blocks{c.x(1), c.x(2), c.x(3), c.attrs()};
        const Value w = cast(blocks.weight(), c.x(0).dtype());
        return matmul(c.x(0), c.attrs().i("transposed") != 0 ? w : swap_last(w));
      })
      .gradient(quantized_gradient);
}

const Family<OpSet> kQuantizedOps("ops", "quantized", register_quantized);

}  // namespace ort
