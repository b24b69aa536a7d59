// The reducer of torch's DDP: its buckets of gradients, and who reduces one between processes.
//
// Of torch, in every version from 2.11 on: Reducer::register_comm_hook and get_grad_buckets
// (torch/csrc/distributed/c10d/reducer.hpp), GradBucket and CommHookInterface (comm.hpp), and
// PythonCommHook (python_comm_hook.h). After 2.11 get_grad_buckets throws where a bucket has no
// storage, as one of sparse gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

namespace c10d {
class GradBucket;
class Reducer;
}  // namespace c10d

namespace ort::bridge {

// Of the reducer's, while a hook has it or Buckets live.
class Bucket {
 public:
  explicit Bucket(c10d::GradBucket& bucket) : bucket_(&bucket) {}
  size_t index() const;
  at::Tensor& buffer() const;  // with all gradients
  std::vector<at::Tensor> gradients() const;
  std::vector<at::Tensor> parameters() const;
  c10d::GradBucket& torchs() const { return *bucket_; }

 private:
  c10d::GradBucket* bucket_;
};

class Buckets {
 public:
  explicit Buckets(std::vector<c10d::GradBucket> all);
  ~Buckets();
  Buckets(Buckets&&) noexcept;
  size_t size() const;
  Bucket operator[](size_t i);

 private:
  std::vector<c10d::GradBucket> all_;
};

// Called with each bucket that is complete.
class ReduceHook {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  virtual ~ReduceHook() = default;
  virtual Future reduce(Bucket bucket) = 0;
  // The tensor that a future has given.
  virtual at::Tensor result(const c10::IValue& reduced) = 0;
};

// As torch's own hooks in C++ have it.
at::Tensor result_of_reduce(const c10::IValue& reduced);
// A hook of the user's, as DDP.register_comm_hook takes it. Called with the GIL held.
std::unique_ptr<ReduceHook> python_hook(pybind11::object state, pybind11::object hook);

class Reducer {
 public:
  // Of a torch.distributed.Reducer, which DDP holds. Called with the GIL held.
  explicit Reducer(const pybind11::object& reducer);
  // In its one place for a hook.
  void give(std::shared_ptr<ReduceHook> hook);
  bool is_gone() const { return reducer_.expired(); }
  // None where one has no storage.
  std::optional<Buckets> buckets() const;

 private:
  std::weak_ptr<c10d::Reducer> reducer_;
};

}  // namespace ort::bridge
