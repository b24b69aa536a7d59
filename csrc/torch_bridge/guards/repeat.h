// Recognises a call that differs from an earlier one in nothing but its tensors' contents, so that
// neither tree nor key nor sizes need a second look. ortmodule/dispatch/dispatcher.py asks before
// its slow path.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "csrc/torch_bridge/guards/signature.h"

namespace ort::bridge {

class Repeat {
 public:
  // None of a call with anything but tensors, None, bool, int, float, str, and tuples, lists and
  // dicts with str keys of them: such a call takes the slow path always.
  static std::unique_ptr<Repeat> of(pybind11::handle args, pybind11::handle kwargs);
  // The call's tensors in the order of tree.flatten, or None when it is another call.
  pybind11::object match(pybind11::handle args, pybind11::handle kwargs) const;

 private:
  struct Exact {
    TensorFacts facts;
    std::vector<int64_t> sizes, strides;
  };
  // What the walk over a call meets, in order. A container stands before its items.
  struct Item {
    PyTypeObject* type;
    pybind11::object value;  // a constant, or the key of the item that follows
    Py_ssize_t count = 0;    // of a container's items
  };
  struct Seen;

  bool record(PyObject* value, std::vector<at::Tensor>& tensors);
  bool matches(PyObject* value, Seen& seen) const;
  bool matches_items(PyObject* value, Seen& seen) const;
  bool matches_tensor(PyObject* value, Seen& seen) const;

  Modes modes_ = Modes::now();
  std::vector<Item> items_;
  std::vector<Exact> tensors_;
};

void bind_repeat(pybind11::module_& m);

}  // namespace ort::bridge
