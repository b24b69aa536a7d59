// Products with weights of few bits, as model builders and the quantizers of language models write
// them: blocks along K, each with a scale. N columns, K rows.
#include "csrc/ops/quantized/linear.h"
#include "csrc/ops/quantized/quantized.h"

namespace ort::microsoft {
namespace {

constexpr TypeSet kWeights = bit(DType::f32) | bit(DType::f16) | bit(DType::bf16);
constexpr TypeSet kByte = bit(DType::u8);

// Whether a weight may have so many rows and columns: their product is far from overflow.
bool fits_memory(int64_t n, int64_t k) {
  return n > 0 && k > 0 && n <= (int64_t{1} << 40) / k;
}

void expect_bits(int64_t bits, std::string_view op) {
  check(bits == 2 || bits == 4 || bits == 8, "[{}] bits is {}, expected 2, 4 or 8", op, bits);
}

// --- MatMulNBits ---------------------------------------------------------------------------------

struct Blocks {
  int64_t n, k, bits, size;
  int64_t count() const { return (k + size - 1) / size; }
};

Blocks blocks_of(const Attrs& attrs) {
  const Blocks blocks{attrs.i("N"), attrs.i("K"), attrs.i("bits"), attrs.i("block_size")};
  expect_bits(blocks.bits, "MatMulNBits");
  check(fits_memory(blocks.n, blocks.k) && blocks.size >= 16 && blocks.size <= (1 << 20) &&
            (blocks.size & (blocks.size - 1)) == 0,
        "[MatMulNBits] N is {}, K is {} and block_size is {}, expected positive sizes and a power "
        "of two from 16 on",
        blocks.n, blocks.k, blocks.size);
  return blocks;
}

// Of each place along K its group's block, absent where the blocks lie in their order. Gather would
// count negative ones from the end.
Value groups_of(const OpCall& c, const Blocks& b) {
  if (!c.has(4)) return {};
  const Value given = c.x(4);
  if (const Tensor* known = constant_of(given))
    for (int64_t i = 0; i < known->count(); ++i)
      check(known->as<int32_t>()[i] >= 0 && known->as<int32_t>()[i] < b.count(),
            "[MatMulNBits] element {} of g_idx is {}, expected 0 to {}", i, known->as<int32_t>()[i],
            b.count() - 1);
  const int64_t padded = b.count() * b.size;
  const bool longer = given.rank() == 1 && given.dim(0).is(padded);
  const Value groups = longer ? slice(given, 0, 0, b.k) : reshape(given, {b.k});
  return where(groups < 0.0, number(static_cast<double>(b.count()), groups), groups);
}

// [N, K]: of each block its number, or of each place that of its group.
Value along_rows(Value each, Value groups, const Blocks& b) {
  if (groups) return each.graph->emit1("Gather", {each, groups}, {{"axis", int64_t{1}}});
  return quantized::of_blocks(each, 1, b.size, b.k);
}

Value zero_points(const OpCall& c, const Blocks& b) {
  const Value given = c.x(3);
  if (given.dtype() != DType::u8) return reshape(given, {b.n, b.count()});
  const int64_t bytes = (b.count() * b.bits + 7) / 8;
  return slice(unpacked(reshape(given, {b.n, bytes}), b.bits), 1, 0, b.count());
}

// The weight [N, K] in float32.
Value weight(const OpCall& c, const Blocks& b) {
  const Value bytes = reshape(c.x(1), {b.n, b.count() * b.size * b.bits / 8});
  const Value codes = cast(slice(unpacked(bytes, b.bits), 1, 0, b.k), DType::f32);
  const Value groups = groups_of(c, b);
  const Value centre = c.has(3) ? along_rows(cast(zero_points(c, b), DType::f32), groups, b)
                                : number(static_cast<double>(int64_t{1} << (b.bits - 1)), codes);
  const Value scales = reshape(cast(c.x(2), DType::f32), {b.n, b.count()});
  return (codes - centre) * along_rows(scales, groups, b);
}

// With the weight kept in its bits.
Value product_of_blocks(const OpCall& c, const Blocks& b) {
  const Dims each{Dim(b.n * b.count())};
  std::vector<Value> in{c.x(0), reshape(c.x(1), {b.n * b.k * b.bits / 8}),
                        reshape(cast(c.x(2), DType::f32), each)};
  if (c.has(3)) {
    const Value zeros = reshape(zero_points(c, b), each);
    in.push_back(zeros.dtype() == DType::u8 ? zeros : cast(zeros, DType::f32));
  }
  return c.graph().emit("ort::QuantizedLinear", in,
                        {{"block", b.size},
                         {"columns", b.k},
                         {"format", format("uint{}", b.bits)},
                         {"rows", b.n}})[0];
}

Value product_of_bits(const OpCall& c) {
  check(c.attrs().i("weight_prepacked") == 0,
        "[MatMulNBits] weight_prepacked is {}: B is bound to the machine that packed it",
        c.attrs().i("weight_prepacked"));
  const Blocks b = blocks_of(c.attrs());
  const bool fits = b.k % b.size == 0 && !c.has(4);
  const Value y = fits ? product_of_blocks(c, b)
                       : matmul(c.x(0), swap_last(cast(weight(c, b), c.x(0).dtype())));
  return c.has(5) ? y + reshape(c.x(5), {b.n}) : y;
}

// --- MatMulBnb4 ----------------------------------------------------------------------------------

// Of the flat weight [N K], in blocks: a scale for each, and two codes to a byte, the first in the
// upper bits.
struct TableBlocks {
  int64_t n, k, size, type;
  int64_t count() const { return (n * k + size - 1) / size; }
  QuantizedFormat format() const { return type == 1 ? QuantizedFormat::nf4 : QuantizedFormat::fp4; }
};

TableBlocks table_blocks_of(const Attrs& attrs) {
  const TableBlocks b{attrs.i("N"), attrs.i("K"), attrs.i("block_size"), attrs.i("quant_type")};
  check(fits_memory(b.n, b.k), "[MatMulBnb4] N is {} and K is {}, expected positive sizes", b.n,
        b.k);
  check(b.size > 0 && b.size <= (1 << 20),
        "[MatMulBnb4] block_size is {}, expected a positive size", b.size);
  check(b.type == 0 || b.type == 1, "[MatMulBnb4] quant_type is {}, expected 0 or 1", b.type);
  return b;
}

// [N, K] in float32.
Value table_weight(Value codes, Value scales, const TableBlocks& b) {
  const Value numbers = slice(looked_up(codes, b.format()), 0, 0, b.n * b.k);
  return reshape(numbers * quantized::of_blocks(scales, 0, b.size, b.n * b.k), {b.n, b.k});
}

Value product_of_tables(const OpCall& c) {
  const TableBlocks b = table_blocks_of(c.attrs());
  const bool forward = c.attrs().i("transB") != 0;
  const Value codes = reshape(c.x(1), {(b.n * b.k + 1) / 2});  // bitsandbytes has [.., 1]
  const Value scales = reshape(cast(c.x(2), DType::f32), {b.count()});
  if (b.size % 16 == 0 && b.n * b.k % b.size == 0)
    return c.graph().emit1("ort::QuantizedLinear", {c.x(0), codes, scales},
                           {{"block", b.size},
                            {"columns", b.k},
                            {"format", std::string(b.type == 1 ? "nf4" : "fp4")},
                            {"rows", b.n},
                            {"transposed", int64_t{!forward}}});
  const Value w = cast(table_weight(codes, scales, b), c.x(0).dtype());
  return matmul(c.x(0), forward ? swap_last(w) : w);
}

// --- GatherBlockQuantized ------------------------------------------------------------------------

int64_t axis_of(const Attrs& attrs, std::string_view name, int64_t rank) {
  const int64_t axis = attrs.i(name);
  check(axis >= -rank && axis < rank, "[GatherBlockQuantized] {} is {}, data has rank {}", name,
        axis, rank);
  return (axis + rank) % rank;
}

// Slices of tables along an axis; what an index outside them gives is zeros in the end.
struct Gathered {
  int64_t axis;
  Dim size;
  Value index, outside;

  // `table` may have one place for all.
  Value rows(Value table) const {
    Dims dims = table.dims();
    dims[static_cast<size_t>(axis)] = size;
    return table.graph->emit1("Gather", {expand(table, dims), index}, {{"axis", axis}});
  }
  Value zeroed(Value y) const {
    Dims dims = index.dims();
    dims.resize(dims.size() + static_cast<size_t>(y.rank() - axis - index.rank()), Dim(1));
    return where(reshape(outside, dims), number(0.0, y), y);
  }
};

Gathered gathered(Value indices, const Dim& size, int64_t axis) {
  const Value given = cast(indices, DType::i64), places = indices.graph->size(size);
  const Value below = -places > given, above = logical_not(places > given);
  const Value outside = logical_not(logical_and(logical_not(below), logical_not(above)));
  return {axis, size, where(outside, number(0.0, given), given), outside};
}

// Slices of a quantised table, made floats after they are gathered.
Value gather_quantized(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value data = c.x(0);
  const int64_t rank = data.rank(), bits = attrs.i("bits");
  const bool packs = data.dtype() == DType::u8;
  if (packs) expect_bits(bits, "GatherBlockQuantized");
  const int64_t along = axis_of(attrs, "gather_axis", rank);
  const int64_t blocks = axis_of(attrs, "quantize_axis", rank);
  check(along != blocks, "[GatherBlockQuantized] gather_axis and quantize_axis are both {}", along);
  for (const size_t i : {size_t{2}, size_t{3}})
    check(!c.has(i) || c.x(i).rank() == rank,
          "[GatherBlockQuantized] data has shape {}, {} have shape {}, expected one rank",
          data.dims(), i == 2 ? "scales" : "zero points", c.has(i) ? c.x(i).dims() : Dims{});
  const Gathered from = gathered(c.x(1), data.dim(along), along);
  const auto numbers = [&](Value table) {
    return packs ? unpacked(from.rows(table), bits) : from.rows(table);
  };
  const int64_t axis = blocks < along ? blocks : blocks + c.x(1).rank() - 1;
  const Value codes = cast(numbers(data), DType::f32);
  const Value scales = cast(from.rows(c.x(2)), DType::f32);
  const Dim places = codes.dim(axis), size = attrs.i("block_size");
  const auto wide = [&](Value each) {
    return quantized::of_blocks(each, axis, size.is(0) ? places : size, places);
  };
  Value centred = codes;
  if (c.has(3)) {
    // Those that are packed may have places more than blocks.
    const Value zeros = slice(numbers(c.x(3)), axis, 0, scales.dim(axis));
    centred = codes - wide(cast(zeros, DType::f32));
  } else if (packs) {
    centred = codes - static_cast<double>(int64_t{1} << (bits - 1));
  }
  return cast(from.zeroed(centred * wide(scales)), c.x(2).dtype());
}

}  // namespace

static void register_weights(OpSet& ops) {
  ops.op("com.microsoft::MatMulNBits")
      .in("A", kWeights)
      .in("B", kByte, "B")
      .in("scales", kWeights)
      .in_optional("zero_points", kByte | kWeights, "Z")
      .in_optional("g_idx", bit(DType::i32), "G")
      .in_optional("bias", kWeights)
      .out("Y")
      .attr_required("K")
      .attr_required("N")
      .attr("accuracy_level", int64_t{0})  // how inexact it may be: ours is exact
      .attr("bits", int64_t{4})
      .attr_required("block_size")
      .attr("weight_prepacked", int64_t{0})
      .differentiable_inputs({0, 2, 5})
      .defined_as(product_of_bits);
  ops.op("com.microsoft::MatMulBnb4")
      .in("A", kWeights)
      .in("B", kByte, "B")
      .in("absmax", kWeights)
      .out("Y")
      .attr_required("K")
      .attr_required("N")
      .attr_required("block_size")
      .attr_required("quant_type")
      .attr("training_mode", int64_t{0})
      .attr("transB", int64_t{1})
      .differentiable_inputs({0})
      .defined_as(product_of_tables);
  ops.op("com.microsoft::GatherBlockQuantized")
      .in("data",
          kByte | bit(DType::i4) | bit(DType::u4) | bit(DType::f8e4m3fn) | bit(DType::f8e4m3fnuz) |
              bit(DType::f8e5m2) | bit(DType::f8e5m2fnuz) | bit(DType::f4e2m1),
          "D")
      .in("indices", kIndex, "I")
      .in("scales", kWeights, "S")
      .in_optional("zero_points", kByte | bit(DType::i4) | bit(DType::u4), "D")
      .out("output", kWeights, "S")
      .attr("bits", int64_t{4})
      .attr("block_size", int64_t{128})
      .attr("gather_axis", int64_t{0})
      .attr("quantize_axis", int64_t{1})
      .not_differentiable()
      .defined_as(gather_quantized);
}

const Family<OpSet> kWeightsOps("ops", "microsoft_weights", register_weights);

}  // namespace ort::microsoft
