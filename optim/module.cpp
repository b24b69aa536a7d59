// The Python module ortmodule._optim: torch tensors to the kernels of this folder. adamw.py calls
// it.
#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include "csrc/core/error.h"
#include "optim/adamw.h"

namespace py = pybind11;

namespace ort::optim {
namespace {

// One parameter and its state, as tuples in Python.
struct State {
  at::Tensor param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, master, step;
};

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

struct Hyper {
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
};

// Steps are counted in tensors, as torch's state_dict has them.
double count_step(const at::Tensor& step) {
  if (step.scalar_type() == at::kDouble) return *step.mutable_data_ptr<double>() += 1;
  check(step.scalar_type() == at::kFloat, "[AdamW] step has dtype {}, expected float32 or float64",
        at::toString(step.scalar_type()));
  return *step.mutable_data_ptr<float>() += 1;
}

AdamWFactors factors_of(const Hyper& h, double step) {
  return {1.0 - h.lr * h.weight_decay,
          h.beta1,
          h.beta2,
          h.lr / (1.0 - std::pow(h.beta1, step)),
          std::sqrt(1.0 - std::pow(h.beta2, step)),
          h.eps,
          h.maximize};
}

struct Named {
  const char* name;
  at::Tensor* tensor;
};

// Those that there are; param and grad first.
std::vector<Named> tensors_of(State& s) {
  std::vector<Named> all = {{"param", &s.param},
                            {"grad", &s.grad},
                            {"exp_avg", &s.exp_avg},
                            {"exp_avg_sq", &s.exp_avg_sq}};
  if (s.max_exp_avg_sq.defined()) all.push_back({"max_exp_avg_sq", &s.max_exp_avg_sq});
  if (s.master.defined()) all.push_back({"master", &s.master});
  return all;
}

// The elements of all lie in one order without gaps, so that the kernel may walk memory.
bool one_layout(State& s) {
  if (!s.param.is_non_overlapping_and_dense()) return false;
  for (const auto& [name, tensor] : tensors_of(s))
    if (tensor->strides() != s.param.strides()) return false;
  return true;
}

void check_state(State& s) {
  const at::ScalarType own = s.param.scalar_type();
  check(!s.master.defined() || is_half(own),
        "[AdamW] param with a master has dtype {}, expected a half", at::toString(own));
  for (const auto& [name, tensor] : tensors_of(s)) {
    const bool is_state = tensor != &s.param && tensor != &s.grad;
    const at::ScalarType type = is_state && s.master.defined() ? at::kFloat : own;
    check(tensor->is_cpu() && tensor->layout() == at::kStrided, "[AdamW] {} is on {}, expected cpu",
          name, tensor->device().str());
    check(tensor->scalar_type() == type, "[AdamW] {} has dtype {}, expected {} ({})", name,
          at::toString(tensor->scalar_type()), at::toString(type),
          type == own ? "its parameter's" : "its master's");
    check(tensor->sizes() == s.param.sizes(),
          "[AdamW] {} has shape {}, expected {} (its parameter's)", name, tensor->sizes().vec(),
          s.param.sizes().vec());
  }
}

void step_halves(std::vector<State>& states, const std::vector<AdamWFactors>& factors) {
  std::vector<AdamWHalves> tensors;
  for (size_t i = 0; i < states.size(); ++i) {
    const State& s = states[i];
    if (!is_half(s.param.scalar_type())) continue;
    const auto data = [](const at::Tensor& t) {
      return t.defined() ? t.mutable_data_ptr() : nullptr;
    };
    tensors.push_back({s.param.scalar_type() == at::kHalf ? DType::f16 : DType::bf16,
                       static_cast<uint16_t*>(data(s.param)),
                       static_cast<const uint16_t*>(s.grad.const_data_ptr()),
                       static_cast<float*>(data(s.master)), data(s.exp_avg), data(s.exp_avg_sq),
                       data(s.max_exp_avg_sq), s.param.numel(), factors[i]});
  }
  adamw(tensors);
}

template <class T>
void step_all(std::vector<State>& states, const std::vector<AdamWFactors>& factors) {
  std::vector<AdamWTensors<T>> tensors;
  for (size_t i = 0; i < states.size(); ++i) {
    const State& s = states[i];
    if (s.param.scalar_type() != at::CppTypeToScalarType<T>::value) continue;
    const at::Tensor& max = s.max_exp_avg_sq;
    tensors.push_back({s.param.mutable_data_ptr<T>(), s.grad.const_data_ptr<T>(),
                       s.exp_avg.mutable_data_ptr<T>(), s.exp_avg_sq.mutable_data_ptr<T>(),
                       max.defined() ? max.mutable_data_ptr<T>() : nullptr, s.param.numel(),
                       factors[i]});
  }
  adamw(tensors);
}

// One step of one group; all checks come before the first write.
void adamw_step(std::vector<State> states, const Hyper& hyper) {
  for (State& s : states) {
    const at::ScalarType type = s.param.scalar_type();
    check(is_half(type) || type == at::kFloat || type == at::kDouble,
          "[AdamW] param has dtype {}, expected float32, float64 or a half", at::toString(type));
    check_state(s);
  }
  std::vector<AdamWFactors> factors;
  for (const State& s : states) factors.push_back(factors_of(hyper, count_step(s.step)));
  std::vector<std::pair<State, size_t>> copied;  // what lies in another order, and whose it is
  for (size_t i = 0; i < states.size(); ++i) {
    if (one_layout(states[i])) continue;
    copied.emplace_back(states[i], i);
    for (const auto& [name, tensor] : tensors_of(states[i])) *tensor = tensor->contiguous();
  }
  step_all<float>(states, factors);
  step_all<double>(states, factors);
  step_halves(states, factors);
  for (auto& [original, i] : copied) {
    const std::vector<Named> from = tensors_of(states[i]), to = tensors_of(original);
    for (size_t k = 0; k < to.size(); ++k)
      if (k != 1 && !to[k].tensor->is_same(*from[k].tensor)) to[k].tensor->copy_(*from[k].tensor);
    states[i].param = original.param;
  }
  // A backward that saved the parameter before must notice, as with torch's own step.
  for (const State& s : states)
    if (!s.param.is_inference()) s.param.unsafeGetTensorImpl()->bump_version();
}

void step(const std::vector<std::vector<std::optional<at::Tensor>>>& rows, double lr, double beta1,
          double beta2, double eps, double weight_decay, bool maximize) {
  std::vector<State> states;
  for (const auto& row : rows)
    states.push_back({*row.at(0), *row.at(1), *row.at(2), *row.at(3),
                      row.at(4).value_or(at::Tensor()), row.at(5).value_or(at::Tensor()),
                      *row.at(6)});
  py::gil_scoped_release release;
  adamw_step(std::move(states), {lr, beta1, beta2, eps, weight_decay, maximize});
}

}  // namespace
}  // namespace ort::optim

PYBIND11_MODULE(_optim, m) {
  // _torch, always loaded before, translates ort::Error: a second translator would take it over.
  m.doc() = "Fused optimizer steps over torch tensors on the CPU.";
  m.def("adamw", &ort::optim::step, py::arg("rows"), py::arg("lr"), py::arg("beta1"),
        py::arg("beta2"), py::arg("eps"), py::arg("weight_decay"), py::arg("maximize"),
        "One AdamW step. rows: (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq or None, "
        "master or None, step).");
}
