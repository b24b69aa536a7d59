// What a call is, beside its constants: the modes around it and the facts of its tensors. Said once
// here: a Signature, the part of a call's key that capture is for (ortmodule/calls/call.py), leaves
// out the sizes; a Repeat (repeat.h) asks for the same facts and for the sizes too.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "csrc/torch_bridge/internals/autocast.h"

namespace ort::bridge {

struct Modes {
  bool grad, inference;
  Autocast autocast;
  at::ScalarType default_dtype;
  bool deterministic, only_warns, fills_new_memory;  // torch.use_deterministic_algorithms
  bool operator==(const Modes&) const = default;
  static Modes now();
};

struct TensorFacts {
  PyTypeObject* type;
  at::ScalarType dtype;
  at::Device device;
  at::Layout layout;
  bool requires_grad;
  bool conjugate, negative;  // views whose elements are not as they lie in memory
  const char* foreign;       // why it is more than its elements in memory
  size_t same, shared;  // the first tensor of the call that is this one, or lies in the same memory
  bool operator==(const TensorFacts&) const = default;
};

// Of the tensor that follows `before` among a call's.
TensorFacts facts_of(PyObject* value, const std::vector<at::Tensor>& before);

// What somebody put on a tensor, by name; null where nothing is.
PyObject* attributes_of(PyObject* tensor);

// Equal for the tensors of calls that one capture may serve, whatever their sizes.
class Signature {
 public:
  explicit Signature(const pybind11::list& tensors);
  bool operator==(const Signature& other) const = default;
  size_t hash() const;

 private:
  using Axes = std::vector<int64_t>;
  struct Entry {
    TensorFacts facts;
    int64_t rank;
    // As far as sizes do not tell how it lies in memory: axes from the outermost in, else strides.
    Axes order, strides;
    std::vector<std::string> attributes;
    bool operator==(const Entry&) const = default;
  };
  static Entry entry_of(PyObject* value, const std::vector<at::Tensor>& before);

  Modes modes_ = Modes::now();
  std::vector<Entry> tensors_;
};

void bind_signature(pybind11::module_& m);

}  // namespace ort::bridge
