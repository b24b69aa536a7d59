// Ops without a meaning of their own here: every operator of ATen is one schema.
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"

namespace ort {

void register_control(OpSet& ops) {
  // attr "types" holds the outputs' types as text; "args" the call's other arguments as JSON.
  ops.op("aten::*")
      .in_variadic("x", kAny, "*")
      .out_variadic("y")
      .attr_required("types")
      .effect()
      .shape([](InferContext& c) {
        const Attr* attr = c.attrs().find("types");
        const auto* types = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
        c.require(types != nullptr, "attribute 'types' is missing");
        for (size_t i = 0; i < c.node().out.size() && i < types->size(); ++i) {
          const Type type = parse_type((*types)[i]);
          c.out(i, type.dtype, type.dims);
        }
      });
}

}  // namespace ort
