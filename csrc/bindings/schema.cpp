// The op set in Python: the op table's completeness test and docs/ops.md read it.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/ops.h"

namespace py = pybind11;

namespace ort {
namespace {

// Names of the dtypes that a port takes, and of kinds of values that are no tensor.
std::vector<std::string> names_of(TypeSet types) {
  std::vector<std::string> names;
  for (int i = 0; i < kDTypes; ++i)
    if (types & bit(static_cast<DType>(i))) names.emplace_back(name_of(static_cast<DType>(i)));
  for (const auto& [kind, name] :
       {std::pair{kSequence, "seq"}, {kOptional, "optional"}, {kMap, "map"}})
    if (types & kind) names.emplace_back(name);
  return names;
}

}  // namespace

void bind_schema(py::module_& m) {
  m.def("schemas", [] {
    py::list result;
    for (const OpSchema* schema : default_ops().all()) {
      py::dict entry;
      std::vector<std::string> in, out, attrs, host, epilogues;
      std::vector<std::vector<std::string>> types;
      for (const auto& port : schema->inputs()) in.push_back(port.name);
      for (const auto& port : schema->inputs()) types.push_back(names_of(port.types));
      for (const auto& port : schema->outputs()) out.push_back(port.name);
      for (const auto& attr : schema->attrs()) attrs.push_back(attr.name);
      for (const auto& port : schema->inputs())
        if (port.host) host.push_back(port.name);
      for (const auto& joins : schema->epilogues()) epilogues.emplace_back(name_of(joins.epilogue));
      entry["name"] = schema->qualified();
      entry["inputs"] = in;
      entry["types"] = types;
      entry["outputs"] = out;
      entry["attrs"] = attrs;
      entry["since"] = schema->since_opset();
      entry["definition"] = static_cast<bool>(schema->definition());
      entry["gradient"] = static_cast<bool>(schema->gradient_rule());
      entry["differentiable"] = schema->is_differentiable();
      entry["bodies"] = schema->bodies();
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
