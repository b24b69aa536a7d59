// Python's Options as CompileOptions, for both extension modules.
#include <pybind11/stl.h>

#include <algorithm>

#include "csrc/bindings/bindings.h"
#include "csrc/core/env.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/pipeline.h"
#include "csrc/program/options.h"

namespace py = pybind11;

namespace ort {
namespace {

template <class T>
T either(T given, T otherwise) {
  return given.empty() ? std::move(otherwise) : std::move(given);
}

// The first of `names` that is none of `known`, as an error says it; empty: there is none.
std::string unknown_name(const char* kinds, const std::vector<std::string>& names,
                         std::vector<std::string> known) {
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  for (const std::string& name : names)
    if (!std::binary_search(known.begin(), known.end(), name)) {
      std::string all;
      for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
      return format("no {} is called '{}', known: {}", kinds, name, all);
    }
  return {};
}

// A name that nothing has would switch nothing off, and nobody would notice.
std::string why_not_off(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::vector<std::string> known = rule_names(default_ops());
  for (std::string& pass : pass_names()) known.push_back(std::move(pass));
  return unknown_name("rule or pass", names, std::move(known));
}

std::string why_not_near(const std::string& name) {
  if (name.empty()) return {};
  return unknown_name("rule", {name}, rule_names(default_ops()));
}

void check_name(const char* variable, const std::string& reason) {
  check(reason.empty(), "{}: {}", variable, reason);
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
  if (off.empty()) check_name("ORTMODULE_OFF", why_not_off(env::off()));
  check_name("ORTMODULE_NEAR", why_not_near(env::near()));
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
  m.def("check_off", [](const std::vector<std::string>& off) {
    if (const std::string reason = why_not_off(off); !reason.empty()) throw py::value_error(reason);
  });
}

}  // namespace ort
