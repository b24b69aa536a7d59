// Products with a frozen weight that is kept in blocks of few bits, each block with a scale.
#include "csrc/ops/quantized/quantized.h"

#include <algorithm>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Of a weight, in elements, so that no count of bytes overflows.
constexpr int64_t kMostElements = int64_t{1} << 40;

// x [.., K] with w [N, K], or where it is transposed x [.., N].
void infer_quantized(InferContext& c) {
  const QuantizedFormat format = quantized_format(c.attrs().s("format"));
  const int64_t rows = c.attrs().i("rows"), columns = c.attrs().i("columns");
  c.require(rows > 0 && columns > 0 && rows <= kMostElements / columns,
            "w has {} rows and {} columns, expected some, and less than {} elements", rows, columns,
            kMostElements);
  const int64_t count = rows * columns;
  c.require(count % kQuantizedBlock == 0, "w has {} elements, expected blocks of {}", count,
            kQuantizedBlock);
  const DType type = format == QuantizedFormat::nf4 ? DType::u8 : DType::i8;
  c.require(c.dtype(1) == type, "codes are {}, expected {}", name_of(c.dtype(1)), name_of(type));
  expect_dims(c, 1, {code_count(format, count)});
  expect_dims(c, 2, {count / kQuantizedBlock});
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
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

// The 16 numbers that a weight is made of, by their codes.
Value table_of(Graph& graph) {
  Tensor table = Tensor::empty(DType::f32, {16});
  std::ranges::copy(kNormalFloats, table.as<float>());
  return graph.constant(std::move(table));
}

// Codes of two to a byte, the first in the upper bits, as one each.
Value unpacked(Value codes) {
  const Value upper = codes / 16.0;
  const Value pairs = concat({unsqueeze(upper, {1}), unsqueeze(codes - upper * 16.0, {1})}, 1);
  return cast(reshape(pairs, {product(pairs.dims())}), DType::i64);
}

Value dequantized(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value numbers =
      quantized_format(attrs.s("format")) == QuantizedFormat::nf4
          ? c.graph().emit1("Gather", {table_of(c.graph()), unpacked(c.x(1))}, {{"axis", 0}})
          : cast(c.x(1), DType::f32);
  const int64_t rows = attrs.i("rows"), columns = attrs.i("columns");
  const Value blocks = reshape(numbers, {rows * columns / kQuantizedBlock, kQuantizedBlock});
  return reshape(blocks * unsqueeze(cast(c.x(2), DType::f32), {1}), {rows, columns});
}

Outputs quantized_gradient(const Backward& b) {
  check(!b.needs(2), "[ort::QuantizedLinear] the scales of a frozen weight have no gradient");
  Attrs attrs = b.attrs();
  attrs.set("transposed", int64_t{attrs.i("transposed") == 0});
  Outputs grads(3);
  if (b.needs(0))
    grads[0] = b.graph().emit1("ort::QuantizedLinear", {b.dy(), b.x(1), b.x(2)}, attrs);
  return grads;
}

}  // namespace

QuantizedFormat quantized_format(std::string_view name) {
  check(name == "nf4" || name == "int8",
        "[ort::QuantizedLinear] format is '{}', expected nf4 or int8", name);
  return name == "nf4" ? QuantizedFormat::nf4 : QuantizedFormat::int8;
}

static void register_quantized(OpSet& ops) {
  ops.op("ort::QuantizedLinear")
      .in("x", kFloating)
      .in("codes", kIntegers, "C")
      .in("scales", bit(DType::f32), "S")
      .out("y")
      .attr("format", std::string("nf4"))
      .attr("rows", int64_t{0})
      .attr("columns", int64_t{0})
      .attr("transposed", int64_t{0})
      .cost([](const Sized& node) {
        const Attrs& attrs = node.attrs();
        return 2 * node.y() *
               static_cast<double>(attrs.i(attrs.i("transposed") != 0 ? "rows" : "columns"));
      })
      .computes_in(DType::f32)
      .shape(infer_quantized)
      .defined_as([](const OpCall& c) {
        const Value w = cast(dequantized(c), c.x(0).dtype());
        return matmul(c.x(0), c.attrs().i("transposed") != 0 ? w : swap_last(w));
      })
      .gradient(quantized_gradient);
}

const Family<OpSet> kFamily("ops", "quantized", register_quantized);

}  // namespace ort
