// Python's objects by its C interface: at 10,000 parameters a cast of each costs more than its
// step.
#include "optim/rows.h"

#include <torch/csrc/autograd/python_variable.h>

#include "csrc/core/error.h"

namespace py = pybind11;

namespace ort::optim {
namespace {

// Null: `dict` has none. A borrowed reference.
PyObject* find(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found && PyErr_Occurred()) throw py::error_already_set();
  return found;
}

}  // namespace

Rows::Rows(std::string name, const py::list& params, const py::dict& state, const py::tuple& states,
           bool counted, bool masters, double grad_factor, std::optional<double> ema_decay,
           bool zero_grad)
    : name_(std::move(name)),
      keys_(states),
      counted_(counted),
      has_means_(ema_decay.has_value()),
      around_{grad_factor, 1.0 - ema_decay.value_or(1.0), zero_grad} {
  for (const py::handle key : states) names_.push_back(py::cast<std::string>(key));
  check(names_.size() <= kStates, "[{}] a row has {} states, expected at most {}", name_,
        names_.size(), kStates);
  rows_.reserve(params.size());
  for (const py::handle param : params) {
    if (!THPVariable_Check(param.ptr())) fail("[{}] a parameter is no tensor", name_);
    const at::Tensor& tensor = THPVariable_Unpack(param.ptr());
    if (tensor.grad().defined()) add(param.ptr(), tensor, state, masters);
  }
}

void Rows::add(PyObject* param, const at::Tensor& tensor, const py::dict& state, bool masters) {
  Row& row = rows_.emplace_back();
  row.param = tensor;
  row.grad = tensor.grad();
  any_sparse_ |= row.grad.is_sparse();
  const at::ScalarType type = tensor.scalar_type();
  const bool has_master = masters && (type == at::kHalf || type == at::kBFloat16);
  py::list missing;
  take(row, find(state.ptr(), param), has_master, missing);
  if (!missing.empty())
    lacking_.append(py::make_tuple(rows_.size() - 1, py::handle(param), missing));
}

void Rows::take(Row& row, PyObject* state, bool has_master, py::list& missing) const {
  const auto want = [&](PyObject* key, at::Tensor& to) {
    if (!take_one(state, key, to)) missing.append(py::handle(key));
  };
  if (counted_) want(step_.ptr(), row.step);
  for (size_t k = 0; k < names_.size(); ++k)
    want(PyTuple_GET_ITEM(keys_.ptr(), static_cast<Py_ssize_t>(k)), row.states[k]);
  if (has_master) want(master_.ptr(), row.master);
  if (has_means_) want(mean_.ptr(), row.mean);
}

// None is lacking too: old state_dicts of torch's have it.
bool Rows::take_one(PyObject* state, PyObject* key, at::Tensor& to) const {
  if (!state) return false;
  if (!PyDict_Check(state)) fail("[{}] a parameter's state is no dict", name_);
  PyObject* found = find(state, key);
  if (!found || found == Py_None) return false;
  if (!THPVariable_Check(found))
    fail("[{}] {} is a {}, expected a tensor", name_, py::cast<std::string>(key),
         Py_TYPE(found)->tp_name);
  to = THPVariable_Unpack(found);
  return true;
}

void Rows::complete(size_t index, const py::dict& made) {
  check(index < rows_.size(), "[{}] row {} of {}, expected one of them", name_, index,
        rows_.size());
  Row& row = rows_[index];
  take_one(made.ptr(), step_.ptr(), row.step);
  take_one(made.ptr(), master_.ptr(), row.master);
  row.fresh_mean = take_one(made.ptr(), mean_.ptr(), row.mean);
  for (size_t k = 0; k < names_.size(); ++k)
    row.fresh |= take_one(made.ptr(), PyTuple_GET_ITEM(keys_.ptr(), static_cast<Py_ssize_t>(k)),
                          row.states[k]);
}

}  // namespace ort::optim
