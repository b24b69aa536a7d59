// See gradients.h. Called by module.cpp for the classes beside this file.
#include "optim/gradients.h"

#include <ATen/ops/isfinite.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "csrc/core/error.h"
#include "optim/drive.h"
#include "optim/group.h"

namespace py = pybind11;

namespace ort::optim {
namespace {

bool is_kernels(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

Gradients::Gradients(const std::string& name, const py::list& params) : name_(name) {
  tensors_.reserve(params.size());
  for (const py::handle param : params) {
    if (!THPVariable_Check(param.ptr())) fail("[{}] a parameter is no tensor", name_);
    const at::Tensor& grad = THPVariable_Unpack(param.ptr()).grad();
    if (!grad.defined()) continue;
    tensors_.push_back(grad);
    if (grad.is_sparse())
      any_sparse_ = true;  // whose error has a text of the optimizer's own
    else
      check_place(name_, "grad", grad);
  }
}

double Gradients::norm() const {
  std::vector<at::Tensor> laid;
  std::vector<Gradient> each;
  each.reserve(tensors_.size());
  for (const at::Tensor& t : tensors_) {
    check(is_kernels(t.scalar_type()), "[{}] grad is {}, expected float32, float64 or a half",
          name_, at::toString(t.scalar_type()));
    const bool dense = t.is_non_overlapping_and_dense() && !t.is_neg();
    if (!dense) laid.push_back(t.resolve_neg().contiguous());
    const at::Tensor& from = dense ? t : laid.back();
    each.push_back({dtype_of(t.scalar_type()), from.const_data_ptr(), t.numel()});
  }
  const py::gil_scoped_release release;
  return std::sqrt(squares(std::span<const Gradient>(each)));
}

bool Gradients::all_finite(double norm) const {
  if (std::isfinite(norm)) return true;
  const py::gil_scoped_release release;
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [](const at::Tensor& t) { return at::isfinite(t).all().item<bool>(); });
}

void Gradients::check_zeroed() const {
  for (const at::Tensor& t : tensors_) check_written(name_, "grad", t);
}

bool Gradients::overlap() const {
  return optim::overlap(tensors_);
}

void Gradients::zero() const {
  for (const at::Tensor& t : tensors_) {
    if (t.requires_grad()) at::Tensor(t).detach_();
    t.zero_();
  }
}

}  // namespace ort::optim
