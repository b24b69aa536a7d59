// Python's Options as CompileOptions, for both extension modules.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/core/env.h"
#include "csrc/program/options.h"

namespace py = pybind11;

namespace ort {
namespace {

template <class T>
T either(T given, T otherwise) {
  return given.empty() ? std::move(otherwise) : std::move(given);
}

// Where nothing is given the environment says, and where that is silent too: the claimants.
CompileOptions compile_options(const std::vector<std::string>& claimants,
                               std::optional<std::vector<std::string>> providers,
                               size_t segment_bytes, std::optional<size_t> memory_budget,
                               bool check, std::optional<int> fuel, std::vector<std::string> off,
                               const std::optional<std::string>& dump) {
  CompileOptions options;
  options.providers =
      either(either(providers.value_or(std::vector<std::string>()), env::providers()), claimants);
  options.segment_bytes = segment_bytes;
  options.memory_budget = memory_budget;
  options.check = check || env::check();
  options.fuel = fuel ? fuel : env::fuel();
  options.off = either(std::move(off), env::off());
  options.dump = either(dump.value_or(""), env::dump());
  return options;
}

}  // namespace

void bind_options(py::module_& m) {
  const CompileOptions unset;
  py::class_<CompileOptions>(m, "CompileOptions")
      .def(py::init(&compile_options), py::arg("claimants"), py::kw_only(),
           py::arg("providers") = py::none(), py::arg("segment_bytes") = unset.segment_bytes,
           py::arg("memory_budget") = py::none(), py::arg("check") = false,
           py::arg("fuel") = py::none(), py::arg("off") = unset.off, py::arg("dump") = py::none())
      .def_readonly("check", &CompileOptions::check)
      .def_readonly("providers", &CompileOptions::providers)
      // For _torch, which has another pybind11.
      .def("capsule", [](const CompileOptions& options) {
        return py::capsule(new CompileOptions(options),
                           [](void* p) { delete static_cast<CompileOptions*>(p); });
      });
}

}  // namespace ort
