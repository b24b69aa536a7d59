// The fast half of a capture's guards: whether anything that a Snapshot (ortmodule/guards.py)
// watches was replaced. Python says what it was; this only says that nothing was.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace ort::bridge {

// Watches dicts, lists and sets by the identity of their items, and tensors by their facts. The
// items are borrowed: the Snapshot's own copies keep them alive.
class Watch {
 public:
  Watch(const pybind11::list& containers, std::vector<at::Tensor> tensors);
  // With the GIL held; pointer comparisons only.
  bool unchanged() const;
  // Takes the present state as the expected one.
  void refresh();

 private:
  struct Facts {
    at::ScalarType dtype;
    bool requires_grad;
    std::vector<int64_t> sizes, strides;
    bool operator==(const Facts&) const = default;
  };
  static Facts facts_of(const at::Tensor& tensor);
  static bool same(const at::Tensor& tensor, const Facts& facts);

  std::vector<pybind11::object> containers_;
  std::vector<PyObject*> items_;  // of all containers, one after the other
  std::vector<size_t> ends_;      // where each container's end
  std::vector<at::Tensor> tensors_;
  std::vector<Facts> facts_;
};

void bind_watch(pybind11::module_& m);

}  // namespace ort::bridge
