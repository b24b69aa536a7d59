// What torch's DDP does with a bucket of gradients that is complete, and where the backward finds
// the buckets. ortmodule.distributed.DataParallel has one.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "csrc/torch_bridge/ddp/destinations.h"
#include "csrc/torch_bridge/internals/reducer.h"

namespace ort::bridge {

class Reduction : public ReduceHook, public std::enable_shared_from_this<Reduction> {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  using Store = c10::intrusive_ptr<c10d::Store>;
  // Takes the one place that `reducer` has for a communication hook. `store`: of all processes; a
  // reduce that fails looks there for the ranks that fail with it.
  static std::shared_ptr<Reduction> of(const pybind11::object& reducer, Group group, Store store);

  // The user's own hook, which gets gradients that nobody has divided.
  void use(std::unique_ptr<ReduceHook> hook) { hook_ = std::move(hook); }
  void reduce_in(Group group) { group_ = std::move(group); }
  // Within a backward, in its thread. Empty functions: nobody asks.
  struct Watch {
    std::function<void()> begins;  // before the first reduce after a forward; may throw
    // With those parameters of a bucket whose gradients lie in it, when its reduce has ended: as
    // soon as a later one starts, or at the end, before DDP waits for them. What it throws is
    // thrown at the end, when this process has taken part in all reduces.
    std::function<void(const std::vector<at::Tensor>&)> reduced;
  };
  void watch(Watch watch) { watch_ = std::move(watch); }
  // With processes that have no more input: the mean is over those that have.
  void count_those_with_input(bool on) { counted_ = on; }
  void has_input(bool yes) { has_input_ = yes; }

  // At a forward whose backward will be reduced: gradients are written into the buckets.
  void expect_backward();
  // At one whose backward will not.
  void expect_no_reduce();

  Future reduce(Bucket bucket) override;
  at::Tensor result(const c10::IValue& reduced) override;

 private:
  // A bucket whose reduce has begun.
  struct Begun {
    at::Tensor buffer;
    std::vector<at::Tensor> parameters;
    Future future;
  };

  Reduction(const pybind11::object& reducer, Group group, Store store)
      : reducer_(reducer), group_(std::move(group)), store_(std::move(store)) {}
  bool is_bound_to(Buckets& buckets) const;
  void divide(Bucket bucket);
  double mean_factor() const;
  Future start(Bucket bucket);
  void begin_backward();
  void forget_backward();
  void end_backward();
  void take_reduced(bool all);
  void tell_reduced(const Begun& bucket);

  Reducer reducer_;
  Group group_;
  Store store_;
  std::unique_ptr<ReduceHook> hook_;
  std::shared_ptr<Destinations> destinations_;
  std::vector<at::Tensor> buffers_;  // that the destinations lie in
  Watch watch_;
  std::deque<Begun> begun_;
  std::exception_ptr error_;  // of the watch
  bool in_backward_ = false;  // some of its buckets have come, and its end will be told
  bool is_watched_ = false;   // the watch knows that it has begun
  bool counted_ = false, has_input_ = true;
};

void bind_reduction(pybind11::module_& m);

}  // namespace ort::bridge
