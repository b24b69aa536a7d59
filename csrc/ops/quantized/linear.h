// Quantised tensors by their parts: x = (q - zero_point) scale.
#pragma once

#include "csrc/ops/ops.h"

namespace ort::quantized {

inline constexpr TypeSet kBytes = bit(DType::i8) | bit(DType::u8);

// The least and the greatest integer.
std::pair<double, double> range_of(DType dtype);

// A scale or zero point along x, by attributes axis and block_size: of one element for all of it,
// of x's rank for blocks, of one axis for each place there.
Value along(Value scale, Value x, const Attrs& attrs, std::string_view op);

// A number for each block of `block` places along an axis as one for each of its `places`; the last
// block is cut off where they end.
Value of_blocks(Value each, int64_t axis, const Dim& block, const Dim& places);

// q - zero_point, which may be absent, in a dtype that holds it.
Value centred(Value q, Value zero_point, DType dtype);
// In float32 what is divided already: rounded to even, moved, saturated.
Value saturated(Value quotient, Value zero_point, DType dtype);

// x as uint8 with the scale and zero point that its range asks for.
struct Quantized {
  Value q, scale, zero_point;
};
Quantized dynamically(Value x);

// Sums of products of bytes, int32. Zero points may be absent; those of a are one or a row's each,
// those of b one or a column's, those of x one, those of w one or an output channel's each.
Value integer_product(Value a, Value b, Value a_zero, Value b_zero);
Value integer_convolution(Value x, Value w, Value x_zero, Value w_zero, Attrs attrs);

// A number for each row of a matrix, and for each channel of [N, C, ..] of that rank; or one.
Value of_rows(Value each);
Value of_channels(Value each, size_t rank);

// Where the node dequantises what another quantised, in float32 and with the same scale and zero
// point: the output of one node of ort::FakeQuantize in its place, through which gradients flow.
// Absent where it does not.
Value join_rounding(Node& dequantize);
// Of all nodes, those of bodies too.
void join_roundings(Graph& graph);

}  // namespace ort::quantized
