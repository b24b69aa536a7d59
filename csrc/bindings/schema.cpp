// The op set in Python: the op table's completeness test and docs/ops.md read it.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/ops.h"

namespace py = pybind11;

namespace ort {

void bind_schema(py::module_& m) {
  m.def("schemas", [] {
    py::list result;
    for (const OpSchema* schema : default_ops().all()) {
      py::dict entry;
      std::vector<std::string> in, out, attrs, host, epilogues;
      for (const auto& port : schema->inputs()) in.push_back(port.name);
      for (const auto& port : schema->outputs()) out.push_back(port.name);
      for (const auto& attr : schema->attrs()) attrs.push_back(attr.name);
      for (const auto& port : schema->inputs())
        if (port.host) host.push_back(port.name);
      for (const auto& joins : schema->epilogues()) epilogues.emplace_back(name_of(joins.epilogue));
      entry["name"] = schema->qualified();
      entry["inputs"] = in;
      entry["outputs"] = out;
      entry["attrs"] = attrs;
      entry["since"] = schema->since_opset();
      entry["definition"] = static_cast<bool>(schema->definition());
      entry["gradient"] = static_cast<bool>(schema->gradient_rule());
      entry["differentiable"] = schema->is_differentiable();
      entry["staged"] = schema->allocates_results() || !schema->bodies().empty();
      entry["view"] = schema->is_view();
      entry["constant"] = schema->is_constant() || schema->is_sizes();
      entry["cheap"] = schema->is_cheap();
      entry["host"] = host;
      entry["epilogues"] = epilogues;
      entry["elementwise"] = schema->is_elementwise();
      result.append(entry);
    }
    return result;
  });
  // The bits of values that are no tensor in a set of types, by how ONNX writes their types.
  m.attr("KINDS") =
      std::map<std::string, TypeSet>{{"seq", kSequence}, {"optional", kOptional}, {"map", kMap}};
}

}  // namespace ort
