// The vocabulary: one set of expressions on Value writes gradients, definitions, patterns and
// replacements. Each call emits nodes at its operands' graph's insertion point.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value a);
// Numbers take the dtype of the other side.
Value operator+(Value a, double b);
Value operator+(double a, Value b);
Value operator-(Value a, double b);
Value operator-(double a, Value b);
Value operator*(Value a, double b);
Value operator*(double a, Value b);
Value operator/(Value a, double b);
Value operator/(double a, Value b);
Value operator>(Value a, double b);
Value operator<(Value a, double b);
Value operator>=(Value a, double b);
Value operator<=(Value a, double b);
Value operator>(Value a, Value b);
Value operator<(Value a, Value b);
Value logical_and(Value a, Value b);
Value logical_not(Value a);

Value unary(std::string_view op, Value x);  // any op of one input without attributes
Value exp(Value x);
Value log(Value x);
Value sqrt(Value x);
Value erf(Value x);
Value tanh(Value x);
Value sigmoid(Value x);
Value sin(Value x);
Value cos(Value x);
Value abs(Value x);
Value sign(Value x);
Value reciprocal(Value x);
Value relu(Value x);
Value pow(Value x, Value y);
Value pow(Value x, double y);
Value maximum(Value a, Value b);
Value minimum(Value a, Value b);
Value equal(Value a, Value b);
Value where(Value condition, Value a, Value b);
Value cast(Value x, DType dtype);        // x itself when it has the dtype
Value widen(Value x, DType wide);        // cast where both are floating and x is the narrower
Value number(double value, Value like);  // 0-d constant of like's dtype
Value zeros_like(Value x);
Value full(Graph& graph, const Dims& dims, double value, DType dtype);

Value matmul(Value a, Value b);
Value transpose(Value x, std::vector<int64_t> perm);
Value swap_last(Value x);  // transposes the last two axes
Value reshape(Value x, Dims dims);
Value expand(Value x, Dims dims);
Value squeeze(Value x, std::vector<int64_t> axes);
Value unsqueeze(Value x, std::vector<int64_t> axes);
Value slice(Value x, int64_t axis, Dim start, Dim end, int64_t step = 1);  // of inner bounds
Value concat(std::vector<Value> values, int64_t axis);
Value pad_axis(Value x, int64_t axis, Dim before, Dim after);  // zeros

Value reduce(std::string_view op, Value x, std::vector<int64_t> axes, bool keepdims);
Value reduce_sum(Value x, std::vector<int64_t> axes, bool keepdims = true);
Value reduce_mean(Value x, std::vector<int64_t> axes, bool keepdims = true);
Value reduce_max(Value x, std::vector<int64_t> axes, bool keepdims = true);
Value softmax(Value x, int64_t axis);

// Sums a gradient back to the shape that was broadcast: x of dims -> `dims`.
Value sum_to(Value x, const Dims& dims);
Value stop_gradient(Value x);
std::vector<int64_t> all_axes(Value x);

}  // namespace ort
