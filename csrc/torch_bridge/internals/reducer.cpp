// Hooks of ours as torch's, and the other way round. Of torch: what reducer.h says.
#include "csrc/torch_bridge/internals/reducer.h"

#include <torch/csrc/distributed/c10d/python_comm_hook.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <utility>

namespace py = pybind11;

namespace ort::bridge {
namespace {

// Ours, as the reducer calls it.
class Called final : public c10d::CommHookInterface {
 public:
  explicit Called(std::shared_ptr<ReduceHook> hook) : hook_(std::move(hook)) {}
  ReduceHook::Future runHook(c10d::GradBucket& bucket) override {
    return hook_->reduce(Bucket(bucket));
  }
  at::Tensor parseHookResult(const c10::IValue& reduced) override { return hook_->result(reduced); }

 private:
  const std::shared_ptr<ReduceHook> hook_;
};

class Python final : public ReduceHook {
 public:
  Python(py::object state, py::object hook) : hook_(std::move(state), std::move(hook)) {}
  Future reduce(Bucket bucket) override { return hook_.runHook(bucket.torchs()); }
  at::Tensor result(const c10::IValue& reduced) override { return hook_.parseHookResult(reduced); }

 private:
  c10d::PythonCommHook hook_;
};

}  // namespace

size_t Bucket::index() const {
  return bucket_->getIndex();
}

at::Tensor& Bucket::buffer() const {
  return bucket_->getBufferRef();
}

std::vector<at::Tensor> Bucket::gradients() const {
  return bucket_->getGradients();
}

std::vector<at::Tensor> Bucket::parameters() const {
  return bucket_->getParameters();
}

Buckets::Buckets(std::vector<c10d::GradBucket> all) : all_(std::move(all)) {}
Buckets::~Buckets() = default;
Buckets::Buckets(Buckets&&) noexcept = default;

size_t Buckets::size() const {
  return all_.size();
}

Bucket Buckets::operator[](size_t i) {
  return Bucket(all_[i]);
}

at::Tensor result_of_reduce(const c10::IValue& reduced) {
  return c10d::detail::parseCppCommHookResult(reduced);
}

std::unique_ptr<ReduceHook> python_hook(py::object state, py::object hook) {
  return std::make_unique<Python>(std::move(state), std::move(hook));
}

Reducer::Reducer(const py::object& reducer)
    : reducer_(reducer.cast<std::shared_ptr<c10d::Reducer>>()) {}

void Reducer::give(std::shared_ptr<ReduceHook> hook) {
  if (const auto reducer = reducer_.lock())
    reducer->register_comm_hook(std::make_unique<Called>(std::move(hook)));
}

std::optional<Buckets> Reducer::buckets() const {
  const auto reducer = reducer_.lock();
  if (!reducer) return {};
  try {
    return Buckets(reducer->get_grad_buckets(false));
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace ort::bridge
