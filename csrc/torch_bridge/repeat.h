// Recognises a call that differs from an earlier one in nothing but its tensors' contents, so that
// neither tree nor key nor sizes need a second look. ortmodule/module.py asks before its slow path.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

namespace ort::bridge {

class Repeat {
 public:
  // None of a call with anything but tensors, None, bool, int, float, str, and tuples, lists and
  // dicts with str keys of them: such a call takes the slow path always.
  static std::unique_ptr<Repeat> of(pybind11::handle args, pybind11::handle kwargs);
  // The call's tensors in the order of tree.flatten, or None when it is another call.
  pybind11::object match(pybind11::handle args, pybind11::handle kwargs) const;

 private:
  struct Modes {
    bool grad, inference, autocast_cpu, autocast_cuda;
    at::ScalarType default_dtype;
    bool operator==(const Modes&) const = default;
  };
  struct Facts {
    at::ScalarType dtype;
    at::Device device;
    bool requires_grad;
    std::vector<int64_t> sizes, strides;
    size_t same, shared;  // the first tensor that is this one, or lies in the same memory
  };
  // What the walk over a call meets, in order. A container stands before its items.
  struct Item {
    PyTypeObject* type;
    pybind11::object value;  // a constant, or the key of the item that follows
    Py_ssize_t count = 0;    // of a container's items
  };
  struct Seen;

  static Modes modes();
  bool record(PyObject* value, std::vector<at::Tensor>& tensors);
  bool matches(PyObject* value, Seen& seen) const;
  bool matches_items(PyObject* value, Seen& seen) const;
  bool matches_tensor(PyObject* value, Seen& seen) const;

  Modes modes_ = modes();
  std::vector<Item> items_;
  std::vector<Facts> tensors_;
};

void bind_repeat(pybind11::module_& m);

}  // namespace ort::bridge
