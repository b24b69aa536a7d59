// Types that a file declares, and those that are inferred.
#include "csrc/onnx/ports.h"

#include <algorithm>

#include "csrc/core/log.h"

namespace ort {

bool types_agree(const Type& declared, const Type& made) {
  if (declared.kind != made.kind && declared.kind == Type::Kind::optional)
    return types_agree(declared.held(), made);
  if (declared.kind != made.kind && made.kind == Type::Kind::optional)
    return types_agree(declared, made.held());
  const bool dtypes = declared.dtype == made.dtype || declared.dtype == DType::undefined ||
                      made.dtype == DType::undefined;
  const bool ranks = !declared.dims || !made.dims || declared.dims->size() == made.dims->size();
  if (declared.kind != made.kind || !dtypes || !ranks) return false;
  return !declared.inner || !made.inner || types_agree(*declared.inner, *made.inner);
}

void describe_input(const RawGraph& raw, const RawValue& input, ModelHead& head) {
  constexpr int64_t kFirstIrThatOverrides = 4;
  const bool has_value =
      std::any_of(raw.initializers.begin(), raw.initializers.end(),
                  [&](const RawTensor& tensor) { return tensor.name == input.name; });
  if (!has_value)
    head.inputs.push_back({input.name, input.type});
  else if (head.ir_version >= kFirstIrThatOverrides)
    head.overridable.push_back({input.name, input.type});
}

Type output_type(const RawValue& output, const Type& made) {
  if (!output.typed) return made;
  Type type = output.type;
  if (!type.is_tensor() || !made.is_tensor() || !made.dims) return type;
  if (!type.dims || type.dims->size() != made.dims->size()) {
    type.dims = made.dims;
    return type;
  }
  for (size_t i = 0; i < type.dims->size(); ++i) {
    Dim& dim = (*type.dims)[i];
    const bool named = dim.symbol_name() && !Graph::is_fresh(*dim.symbol_name());
    if ((*made.dims)[i].value() || !(dim.value() || named)) dim = (*made.dims)[i];
  }
  return type;
}

void check_declared(const RawValue& output, const Type& made) {
  if (!output.typed || types_agree(output.type, made)) return;
  Type open = output.type;
  open.dims.reset();
  const std::string what = format("graph output '{}' is declared {}, what makes it gives {}",
                                  output.name, output.type.text(), made.text());
  check(types_agree(open, made), "{}", what);
  log("warning: {}", what);
}

}  // namespace ort
