// All gradients of one step, before it: their norm, whether all are finite, and zeroing them where
// no kernel does.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace ort::optim {

class Gradients {
 public:
  // Of the parameters that have one; `name` is the optimizer's, for messages.
  Gradients(const std::string& name, const pybind11::list& params);

  bool any_sparse() const { return any_sparse_; }
  // sqrt of the sum of squares, in double; the same whatever the number of threads.
  double norm() const;
  // `norm` is theirs: float64's squares may overflow where it is finite itself.
  bool all_finite(double norm) const;
  // Whether two of them share memory, so that one that is zeroed may still be read.
  bool overlap() const;
  // Fails for one that cannot be zeroed.
  void check_zeroed() const;
  void zero() const;

 private:
  std::string name_;
  std::vector<at::Tensor> tensors_;
  bool any_sparse_ = false;
};

}  // namespace ort::optim
