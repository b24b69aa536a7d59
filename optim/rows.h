// From a group's parameters and the state of its optimizer, as Python has them, to the rows that a
// kernel steps.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

#include "optim/group.h"

namespace ort::optim {

// Of those that have a gradient. Nothing is kept from one step to the next, as any of it may be
// replaced; so a row costs no more than looking its tensors up.
class Rows {
 public:
  // `states` are the rule's, in the kernel's order; `counted`: there is state "step"; `ema_decay`
  // of the parameters' means, if there are any.
  Rows(std::string name, const pybind11::list& params, const pybind11::dict& state,
       const pybind11::tuple& states, bool counted, bool masters, double grad_factor,
       std::optional<double> ema_decay, bool zero_grad);

  // (row, parameter, names of the states that it lacks) of each that lacks any.
  const pybind11::list& lacking() const { return lacking_; }
  // The states that a row lacked; its step is the first if one of them is the rule's.
  void complete(size_t row, const pybind11::dict& made);
  const std::vector<std::string>& states() const { return names_; }
  size_t size() const { return rows_.size(); }
  bool any_sparse() const { return any_sparse_; }

  Group group() const { return Group(name_, names_, rows_, around_); }

 private:
  void add(PyObject* param, const at::Tensor& tensor, const pybind11::dict& state, bool masters);
  // The tensors of `row` that `state` has; appends the names of those that it lacks.
  void take(Row& row, PyObject* state, bool has_master, pybind11::list& missing) const;
  bool take_one(PyObject* state, PyObject* key, at::Tensor& to) const;

  std::string name_;
  std::vector<std::string> names_;
  pybind11::tuple keys_;
  pybind11::str step_{"step"}, master_{"master"}, mean_{"ema"};
  bool counted_, has_means_, any_sparse_ = false;
  Around around_;
  std::vector<Row> rows_;
  pybind11::list lacking_;
};

}  // namespace ort::optim
