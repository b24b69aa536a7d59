// The Python module ortmodule._optim: a function a rule, from an optimizer's options to its
// factors. The classes beside this file call it.
#include <pybind11/pybind11.h>

#include <cmath>

#include "optim/group.h"
#include "optim/rows.h"
#include "optim/rules.h"

namespace py = pybind11;

namespace ort::optim {
namespace {

// Checks the rows; without the GIL from there.
template <class FactorsOf, class Run>
void step_group(const Rows& rows, FactorsOf factors_of, Run run) {
  Group group = rows.group();
  py::gil_scoped_release release;
  group.step(factors_of, run);
}

// A run of one kernel.
auto run_of(Range range) {
  return [range](std::span<const Parameter> parameters, const auto&) { step(parameters, range); };
}

void step_adam(const Rows& rows, double lr, double beta1, double beta2, double eps,
               double weight_decay, bool decoupled, bool maximize) {
  const auto factors = [=](double step, bool) -> AdamFactors {
    return {decoupled ? lr * weight_decay : 0.0,
            decoupled ? 0.0 : weight_decay,
            beta1,
            beta2,
            lr / (1.0 - std::pow(beta1, step)),
            std::sqrt(1.0 - std::pow(beta2, step)),
            eps,
            maximize};
  };
  step_group(rows, factors, run_of(adam()));
}

void step_sgd(const Rows& rows, double lr, double momentum, double dampening, double weight_decay,
              bool nesterov, bool maximize) {
  const auto factors = [=](double, bool fresh) -> SgdFactors {
    return {weight_decay, momentum, lr, fresh ? 1.0 : 1.0 - dampening, nesterov, maximize};
  };
  step_group(rows, factors, run_of(sgd()));
}

void step_lion(const Rows& rows, double lr, double beta1, double beta2, double weight_decay,
               bool maximize) {
  const auto factors = [=](double, bool) -> LionFactors {
    return {lr * weight_decay, beta1, beta2, lr, maximize};
  };
  step_group(rows, factors, run_of(lion()));
}

// |param| / |direction|; 1 where either is none, as a parameter that starts at zeros must move.
double trust_ratio(const Squares& sums) {
  const bool both = sums.param > 0 && sums.direction > 0;
  return both ? std::sqrt(sums.param) / std::sqrt(sums.direction) : 1.0;
}

void step_lamb(const Rows& rows, double lr, double beta1, double beta2, double eps,
               double weight_decay, bool maximize) {
  const auto factors = [=](double step, bool) -> LambFactors {
    return {weight_decay,
            beta1,
            beta2,
            1.0 / (1.0 - std::pow(beta1, step)),
            std::sqrt(1.0 - std::pow(beta2, step)),
            eps,
            0.0,
            maximize};
  };
  const auto run = [&](std::span<const Parameter> parameters, std::vector<LambFactors>& each) {
    const std::vector<Squares> sums = squares(parameters, lamb_squares());
    for (size_t i = 0; i < sums.size(); ++i) each[i].rate = lr * trust_ratio(sums[i]);
    step(parameters, lamb());
  };
  step_group(rows, factors, run);
}

}  // namespace
}  // namespace ort::optim

PYBIND11_MODULE(_optim, m) {
  using ort::optim::Rows;
  using py::arg;
  // _torch, always loaded before, translates ort::Error: a second translator would take it over.
  m.doc() =
      "Fused optimizer steps over torch tensors on the CPU: Rows gathers what a step takes, a "
      "function a rule steps them.";
  py::class_<Rows>(m, "Rows")
      .def(py::init<std::string, py::list, py::dict, py::tuple, bool, bool>(), arg("name"),
           arg("params"), arg("state"), arg("states"), arg("counted"), arg("masters"))
      .def("__len__", &Rows::size)
      .def_property_readonly("lacking", &Rows::lacking)
      .def_property_readonly("any_sparse", &Rows::any_sparse)
      .def("complete", &Rows::complete, arg("row"), arg("made"));
  m.def("adam", &ort::optim::step_adam, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("eps"), arg("weight_decay"), arg("decoupled"), arg("maximize"));
  m.def("sgd", &ort::optim::step_sgd, arg("rows"), py::kw_only(), arg("lr"), arg("momentum"),
        arg("dampening"), arg("weight_decay"), arg("nesterov"), arg("maximize"));
  m.def("lion", &ort::optim::step_lion, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("weight_decay"), arg("maximize"));
  m.def("lamb", &ort::optim::step_lamb, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("eps"), arg("weight_decay"), arg("maximize"));
}
