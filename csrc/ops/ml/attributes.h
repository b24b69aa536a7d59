// How the ops of ai.onnx.ml have their parameters: as lists among the attributes.
#pragma once

#include "csrc/graph/expr.h"

namespace ort::ml {

constexpr TypeSet kInputs = bit(DType::f32) | bit(DType::f64) | bit(DType::i32) | bit(DType::i64);
constexpr TypeSet kLabels = bit(DType::i64) | bit(DType::string);

inline const std::vector<int64_t>& integers(const Attrs& attrs, std::string_view name) {
  return attrs.list<int64_t>(name);
}
inline const std::vector<double>& floats(const Attrs& attrs, std::string_view name) {
  return attrs.list<double>(name);
}
inline const std::vector<std::string>& texts(const Attrs& attrs, std::string_view name) {
  return attrs.list<std::string>(name);
}

// The same as tensors of their own memory.
Tensor tensor_of(const std::vector<double>& values, Sizes sizes, DType dtype);
Tensor tensor_of(const std::vector<std::string>& values);
template <class T>
Tensor copied(const std::vector<T>& values, DType dtype, Sizes sizes) {
  Tensor made = Tensor::empty(dtype, std::move(sizes));
  if (!values.empty()) std::memcpy(made.data, values.data(), values.size() * sizeof(T));
  return made;
}

// Labels of classes, int64 or strings: one of the two lists is there, and not both.
Tensor labels_of(const Attrs& attrs, const std::string& ints, const std::string& strings);

// X as rows of features, [N, F]: one row where it has one axis. In float64 where it was, else in
// float32.
Value rows_of(Value x);

}  // namespace ort::ml
