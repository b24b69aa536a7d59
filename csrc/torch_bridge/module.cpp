// The Python module ortmodule._torch: the engine's side of LibTorch. Loaded by ortmodule/_native.py
// after it has checked that the torch in the process is the one named here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/core/error.h"
#include "csrc/core/version.h"
#include "csrc/torch_bridge/autograd/accumulated.h"
#include "csrc/torch_bridge/autograd/nodes.h"
#include "csrc/torch_bridge/autograd/viewed.h"
#include "csrc/torch_bridge/ddp/reduction.h"
#include "csrc/torch_bridge/guards/collected.h"
#include "csrc/torch_bridge/guards/observer.h"
#include "csrc/torch_bridge/guards/repeat.h"
#include "csrc/torch_bridge/guards/signature.h"
#include "csrc/torch_bridge/guards/surroundings.h"
#include "csrc/torch_bridge/guards/watch.h"
#include "csrc/torch_bridge/internals/function_apply.h"
#include "csrc/torch_bridge/runner.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

// _C and _torch have different pybind11s: a graph crosses as a capsule over a shared_ptr, options
// as one over a copy.
std::shared_ptr<const Graph> graph_of(const py::capsule& capsule) {
  return *static_cast<std::shared_ptr<Graph>*>(capsule.get_pointer());
}

const CompileOptions& options_of(const py::capsule& capsule) {
  return *static_cast<const CompileOptions*>(capsule.get_pointer());
}

Runner::Source source_of(const py::handle& item) {
  if (item.is_none()) return {};
  if (py::isinstance<py::int_>(item)) return {item.cast<int>(), {}};
  check(THPVariable_Check(item.ptr()), "a graph input is given no tensor");
  return {-1, py::reinterpret_borrow<py::object>(item)};
}

std::optional<AutogradHistory> history_of(const py::object& items) {
  if (items.is_none()) return {};
  using Row = std::tuple<Indices, Indices, Indices, Indices>;
  using Node = std::tuple<Indices, Indices, Indices, Indices, Indices, Indices, size_t>;
  using Results = std::vector<std::optional<size_t>>;
  using Leaf = std::tuple<size_t, size_t, size_t>;
  using Source = std::tuple<Indices, std::optional<int64_t>, int64_t, Indices, Indices>;
  const auto [rows, nodes, origins, accumulated, sources] =
      items.cast<std::tuple<std::vector<std::optional<Row>>, std::vector<Node>,
                            std::vector<Results>, std::vector<Leaf>, std::vector<Source>>>();
  AutogradHistory history;
  for (const auto& row : rows) {
    history.outputs.emplace_back();
    if (row) history.outputs.back() = std::make_from_tuple<OutputHistory>(*row);
  }
  for (const Node& node : nodes) history.used_up.push_back(std::make_from_tuple<UsedUp>(node));
  for (const Results& results : origins) history.origins.push_back({results});
  for (const Leaf& leaf : accumulated)
    history.accumulated.push_back(std::make_from_tuple<Accumulated>(leaf));
  for (const Source& source : sources)
    history.sources.push_back(std::make_from_tuple<GradientSource>(source));
  return history;
}

std::shared_ptr<Runner> make_runner(const py::capsule& graph, const py::list& inputs,
                                    size_t n_user_outputs, const py::list& write_backs,
                                    const std::vector<std::pair<size_t, Indices>>& orders,
                                    std::vector<size_t> wrt, const py::object& history,
                                    const py::capsule& options, const py::object& second_forward) {
  std::vector<Runner::Source> sources;
  for (const py::handle& item : inputs) sources.push_back(source_of(item));
  std::vector<Runner::WriteBack> writes;
  for (const py::handle& item : write_backs) {
    const auto write = item.cast<py::tuple>();
    writes.push_back({write[0].cast<size_t>(), source_of(write[1]), write[2].cast<bool>(),
                      write[3].cast<bool>()});
  }
  return std::make_shared<Runner>(graph_of(graph), std::move(sources), n_user_outputs,
                                  std::move(writes), std::map(orders.begin(), orders.end()),
                                  std::move(wrt), history_of(history), second_forward,
                                  options_of(options));
}

// Without the GIL: who holds a lock of the runner's may wait for that.
using Unlocked = py::call_guard<py::gil_scoped_release>;

template <class Result>
Result asked(const Runner& runner, Result (Runner::*question)() const) {
  const py::gil_scoped_release waiting;
  return (runner.*question)();
}

py::list steps(const Runner& runner) {
  py::list result;
  for (const auto& step : asked(runner, &Runner::steps))
    result.append(py::make_tuple(step.name, step.provider, step.us, step.layout,
                                 step.work.operations, step.work.bytes, step.work.in,
                                 step.work.out));
  return result;
}

py::list operators(const Runner& runner) {
  py::list result;
  for (const auto& [name, reason, where] : asked(runner, &Runner::operators))
    result.append(py::make_tuple(name, reason, where.module, where.file, where.line));
  return result;
}

std::optional<std::string> trace(const Runner& runner) {
  const auto profile = runner.profile();
  return profile ? std::optional(profile->chrome_trace()) : std::nullopt;
}

}  // namespace
}  // namespace ort::bridge

PYBIND11_MODULE(_torch, m) {
  using ort::bridge::Runner;
  using ort::bridge::Unlocked;
  m.doc() = "The bridge between torch's autograd and the ortmodule engine.";
  m.def("version", &ort::version);
  m.def("torch_version", [] { return ORT_TORCH_VERSION; });
  m.def("accumulated", &ort::bridge::accumulated);
  const auto& error = py::register_exception<ort::Error>(m, "Error", PyExc_RuntimeError);
  py::register_exception<ort::DeferredError>(m, "DeferredError", error);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ort::OutOfMemory& error) {
      py::set_error(py::module_::import("torch").attr("OutOfMemoryError"), error.what());
    } catch (const c10::DistBackendError& error) {
      const py::object kind = py::module_::import("torch.distributed").attr("DistBackendError");
      py::set_error(kind, error.what_without_backtrace());
    }
  });
  ort::bridge::prepare_nodes();
  ort::bridge::bind_function_apply(m);
  ort::bridge::bind_observer(m);
  ort::bridge::bind_watch(m);
  ort::bridge::bind_reduction(m);
  ort::bridge::bind_repeat(m);
  ort::bridge::bind_signature(m);
  ort::bridge::bind_surroundings(m);
  ort::bridge::bind_viewed(m);
  py::class_<Runner, std::shared_ptr<Runner>>(m, "Runner", ort::bridge::collected<Runner>())
      .def(py::init(&ort::bridge::make_runner), py::arg("graph"), py::arg("inputs"),
           py::arg("n_user_outputs"), py::arg("write_backs"), py::arg("orders"), py::arg("wrt"),
           py::arg("history"), py::arg("options"), py::arg("second_forward") = py::none())
      .def("compile", &Runner::compile, Unlocked())
      .def("call", &Runner::call, Unlocked())
      .def("replace", &Runner::replace, py::arg("old"), py::arg("now"))
      .def("steps", &ort::bridge::steps)
      .def("operators", &ort::bridge::operators)
      .def("typed", &Runner::typed, Unlocked())
      .def("plans", &Runner::plans, Unlocked())
      .def("replays", &Runner::replays, Unlocked())
      .def("reruns", &Runner::reruns, Unlocked())
      .def("planned_us", &Runner::planned_us, Unlocked())
      .def("memory", &Runner::memory, Unlocked())
      .def("raise_deferred", &Runner::raise_deferred, Unlocked())
      .def("start_profile", &Runner::start_profile, Unlocked())
      .def("trace", &ort::bridge::trace, Unlocked());
}
