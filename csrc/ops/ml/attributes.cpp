// Parameters and inputs of the ops of ai.onnx.ml.
#include "csrc/ops/ml/attributes.h"

namespace ort::ml {

Tensor tensor_of(const std::vector<double>& values, Sizes sizes, DType dtype) {
  Tensor made = Tensor::empty(dtype, std::move(sizes));
  check(made.count() == static_cast<int64_t>(values.size()), "{} numbers do not fill shape {}",
        values.size(), made.sizes);
  for (size_t i = 0; i < values.size(); ++i) set_element(made, static_cast<int64_t>(i), values[i]);
  return made;
}

Tensor tensor_of(const std::vector<std::string>& values) {
  return Tensor::of_strings(values, {static_cast<int64_t>(values.size())});
}

Tensor labels_of(const Attrs& attrs, const std::string& ints, const std::string& strings) {
  const auto& numbers = integers(attrs, ints);
  const auto& names = texts(attrs, strings);
  check(numbers.empty() != names.empty(), "it has {} {} and {} {}, expected one of the two",
        numbers.size(), ints, names.size(), strings);
  return numbers.empty() ? tensor_of(names) : Tensor::of(numbers);
}

Value rows_of(Value x) {
  const Value wide = x.dtype() == DType::f64 ? x : cast(x, DType::f32);
  if (x.rank() == 1) return unsqueeze(wide, {0});
  check(x.rank() == 2, "X has shape {}, expected [N, F]", x.dims());
  return wide;
}

}  // namespace ort::ml
