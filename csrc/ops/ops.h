// The op families, a file each. default_ops() is the one OpSet that the engine builds graphs with.
#pragma once

#include "csrc/core/families.h"
#include "csrc/graph/expr.h"
#include "csrc/graph/schema.h"

namespace ort {

const OpSet& default_ops();

// Shape rules that several families share.
Shape like(size_t input);             // output 0 has the type of that input
Shape dims_attr(size_t dtype_input);  // output 0 has attribute "dims" and that input's dtype
// Of a product over the last two axes, and of Conv over windows; each with what it costs.
void infer_matmul(InferContext& c);
double matmul_cost(const Sized& node);
void infer_conv(InferContext& c);
double conv_cost(const Sized& node);
OpSchema& window_attrs(OpSchema& schema);  // those of Conv
// What a product is written in: attribute "to" where it has one that is not 0, else input 0's.
DType written_dtype(const InferContext& c);
// Tensors whose types attribute "types" tells as text; one output more is opaque.
void told_types(InferContext& c);
std::vector<std::string> types_told(const Node& node);
void same_dims(InferContext& c, size_t output, size_t input);
// Refuses an input (when it is there and its rank is known) whose shape cannot be the expected one.
void expect_dims(InferContext& c, size_t input, const Dims& expected);
// Refuses a key that is not one number, whatever its rank.
void expect_key(InferContext& c, size_t input);
// As expect_dims of a shape that broadcasts to `to`, without making it wider.
void expect_stretches(InferContext& c, size_t input, const Dims& to);

// Refuses numbers of windows (strides, pads and the like) with which positions would overflow.
void expect_small(InferContext& c, std::string_view name, const std::vector<int64_t>& numbers);

// Windows along an axis under auto_pad SAME_*. Where they would leave out two elements or more,
// onnxruntime starts them at another element for each op, so that is refused.
Dim same_windows(InferContext& c, const Dim& size, const Dim& reach, int64_t stride);

// [N, .., C] as [N, C, ..], and back.
Value channels_first(Value x);
Value channels_last(Value x);

// The one number of an input that a definition must know before a run; `what`: its op and name.
Dim number_in(const OpCall& c, size_t input, std::string_view what);

// 0, 1, .. to `size`, int64.
Value positions(Graph& graph, const Dim& size);

// A list attribute, or `count` times `otherwise` where it is absent or empty.
std::vector<int64_t> ints_or(const Attrs& attrs, std::string_view name, size_t count,
                             int64_t otherwise);

}  // namespace ort
