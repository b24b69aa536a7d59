// Products of bytes, whose sums are integers of 32 bits: what the ops of quantised tensors are made
// of. Zero points are not theirs (csrc/ops/quantized/linear.h).
#include "csrc/ops/quantized/linear.h"

namespace ort {
namespace {

using quantized::kBytes;

// Sums of so many products of two bytes are below 2^24, which float32 holds; float64 holds the
// rest.
constexpr int64_t kExactTerms = (int64_t{1} << 24) / (255 * 255);

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
}

const Family<OpSet> kFamily("ops", "integer", register_integer);

}  // namespace ort
