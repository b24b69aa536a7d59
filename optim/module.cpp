// The Python module ortmodule._optim: a function a rule, from an optimizer's options to its
// factors. The classes beside this file call it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "optim/gradients.h"
#include "optim/group.h"
#include "optim/orthogonal.h"
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
               double weight_decay, bool decoupled) {
  const auto factors = [=](double step, bool) -> AdamFactors {
    return {.decay = decoupled ? lr * weight_decay : 0.0,
            .l2 = decoupled ? 0.0 : weight_decay,
            .beta1 = beta1,
            .beta2 = beta2,
            .step_size = lr / (1.0 - std::pow(beta1, step)),
            .second_root = std::sqrt(1.0 - std::pow(beta2, step)),
            .eps = eps};
  };
  step_group(rows, factors, run_of(adam()));
}

void step_sgd(const Rows& rows, double lr, double momentum, double dampening, double weight_decay,
              bool nesterov) {
  const auto factors = [=](double, bool fresh) -> SgdFactors {
    return {weight_decay, momentum, lr, fresh ? 1.0 : 1.0 - dampening, nesterov};
  };
  step_group(rows, factors, run_of(sgd()));
}

void step_lion(const Rows& rows, double lr, double beta1, double beta2, double weight_decay) {
  const auto factors = [=](double, bool) -> LionFactors {
    return {lr * weight_decay, beta1, beta2, lr};
  };
  step_group(rows, factors, run_of(lion()));
}

// |param| / |direction|; 1 where either is none, as a parameter that starts at zeros must move.
double trust_ratio(const Squares& sums) {
  const bool both = sums.param > 0 && sums.direction > 0;
  return both ? std::sqrt(sums.param) / std::sqrt(sums.direction) : 1.0;
}

void step_lamb(const Rows& rows, double lr, double beta1, double beta2, double eps,
               double weight_decay) {
  const auto factors = [=](double step, bool) -> LambFactors {
    return {.weight_decay = weight_decay,
            .beta1 = beta1,
            .beta2 = beta2,
            .first = 1.0 / (1.0 - std::pow(beta1, step)),
            .second_root = std::sqrt(1.0 - std::pow(beta2, step)),
            .eps = eps,
            .rate = 0.0};
  };
  const auto run = [&](std::span<const Parameter> parameters, std::vector<LambFactors>& each) {
    const std::vector<Squares> sums = squares(parameters, lamb_squares());
    for (size_t i = 0; i < sums.size(); ++i) each[i].rate = lr * trust_ratio(sums[i]);
    step(parameters, lamb());
  };
  step_group(rows, factors, run);
}

// What torch.finfo has for the states' dtype.
double epsilon(const Parameter& p) {
  if (p.dtype == DType::f64) return std::numeric_limits<double>::epsilon();
  if (p.master || p.dtype == DType::f32) return std::numeric_limits<float>::epsilon();
  return p.dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}

// `eps1` None is the dtype's. All rows are matrices, or none is.
void step_adafactor(const Rows& rows, double lr, double beta2_decay, std::optional<double> eps1,
                    double eps2, double clip, double weight_decay, bool matrices) {
  const auto factors = [=](double step, bool) -> AdafactorFactors {
    return {lr * weight_decay, std::pow(step, beta2_decay), eps1.value_or(0.0),
            std::min(lr, 1.0 / std::sqrt(step))};
  };
  const auto run = [&](std::span<const Parameter> parameters,
                       std::vector<AdafactorFactors>& factors_of) {
    for (size_t i = 0; i < parameters.size(); ++i)
      if (!eps1) factors_of[i].eps = epsilon(parameters[i]);
    if (matrices)
      return each(parameters, [&](const Parameter& p) { adafactor_matrices(p, {eps2, clip}); });
    const std::vector<Squares> sums = squares(parameters, adafactor_squares());
    for (size_t i = 0; i < sums.size(); ++i) {
      const double count = static_cast<double>(parameters[i].count);
      const double length = std::sqrt(sums[i].direction / count) / clip;
      factors_of[i].rate *=
          std::max(eps2, std::sqrt(sums[i].param / count)) / std::max(1.0, length);
    }
    step(parameters, adafactor());
  };
  step_group(rows, factors, run);
}

void step_muon(const Rows& rows, double lr, double momentum, double weight_decay, bool nesterov,
               std::array<double, 3> coefficients, double eps, int64_t steps, bool like_adamw) {
  const auto factors = [=](double, bool) -> MuonFactors {
    return {momentum, nesterov, lr * weight_decay, lr};
  };
  const auto [a, b, c] = coefficients;
  const NewtonSchulz iteration{a, b, c, eps, steps};
  const auto run = [&](std::span<const Parameter> parameters, std::vector<MuonFactors>& each) {
    muon_step(parameters, each, iteration, like_adamw);
  };
  step_group(rows, factors, run);
}

}  // namespace
}  // namespace ort::optim

PYBIND11_MODULE(_optim, m) {
  using ort::optim::Gradients;
  using ort::optim::Rows;
  using py::arg;
  // _torch, always loaded before, translates ort::Error: a second translator would take it over.
  m.doc() =
      "Fused optimizer steps over torch tensors on the CPU: Rows gathers what a step takes, a "
      "function a rule steps them.";
  py::class_<Rows>(m, "Rows")
      .def(py::init<std::string, py::list, py::dict, py::tuple, bool, bool, double,
                    std::optional<double>, bool>(),
           arg("name"), arg("params"), arg("state"), arg("states"), py::kw_only(), arg("counted"),
           arg("masters"), arg("grad_factor"), arg("ema_decay"), arg("zero_grad"))
      .def("__len__", &Rows::size)
      .def_property_readonly("lacking", &Rows::lacking)
      .def_property_readonly("any_sparse", &Rows::any_sparse)
      .def("complete", &Rows::complete, arg("row"), arg("made"))
      .def_property_readonly("states", &Rows::states)
      .def("check", [](const Rows& rows) { rows.group(); });
  py::class_<Gradients>(m, "Gradients")
      .def(py::init<std::string, py::list>(), arg("name"), arg("params"))
      .def_property_readonly("any_sparse", &Gradients::any_sparse)
      .def("norm", &Gradients::norm)
      .def("all_finite", &Gradients::all_finite, arg("norm"))
      .def("overlap", &Gradients::overlap)
      .def("check_zeroed", &Gradients::check_zeroed)
      .def("zero", &Gradients::zero);
  m.def("adam", &ort::optim::step_adam, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("eps"), arg("weight_decay"), arg("decoupled"));
  m.def("sgd", &ort::optim::step_sgd, arg("rows"), py::kw_only(), arg("lr"), arg("momentum"),
        arg("dampening"), arg("weight_decay"), arg("nesterov"));
  m.def("lion", &ort::optim::step_lion, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("weight_decay"));
  m.def("lamb", &ort::optim::step_lamb, arg("rows"), py::kw_only(), arg("lr"), arg("beta1"),
        arg("beta2"), arg("eps"), arg("weight_decay"));
  m.def("adafactor", &ort::optim::step_adafactor, arg("rows"), py::kw_only(), arg("lr"),
        arg("beta2_decay"), arg("eps1"), arg("eps2"), arg("clip"), arg("weight_decay"),
        arg("matrices"));
  m.def("muon", &ort::optim::step_muon, arg("rows"), py::kw_only(), arg("lr"), arg("momentum"),
        arg("weight_decay"), arg("nesterov"), arg("coefficients"), arg("eps"), arg("steps"),
        arg("like_adamw"));
}
