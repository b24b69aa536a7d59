// Memory in which the gradients of parameters are to lie, as the buckets that are reduced between
// processes (reduction.h, whose Reduction owns it). A BackwardRun asks for it when its run begins.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "csrc/core/mutex.h"
#include "csrc/torch_bridge/internals/autograd_graph.h"
#include "csrc/torch_bridge/internals/tensor_impl.h"
#include "providers/kernel.h"

namespace ort::bridge {

class Destinations : public std::enable_shared_from_this<Destinations> {
 public:
  // A parameter, and contiguous memory of its sizes and dtype.
  struct Place {
    at::Tensor leaf, memory;
  };
  static std::shared_ptr<Destinations> over(const std::vector<Place>& places);
  ~Destinations();
  Destinations(const Destinations&) = delete;

  // From now on gradients are written there; where it can be done in the products, times `factor`.
  void open(double factor);
  void close();
  // Whether the gradient of `leaf` lies there with the factor; forgets the answer. Throws where
  // another was added to it.
  bool take_scaled(const at::Tensor& leaf);

 private:
  friend struct Destination;
  friend std::vector<std::optional<struct Destination>> destinations_of(
      const std::vector<std::atomic<const AnyNode*>>& targets);
  struct Entry {
    at::Tensor leaf, memory;
    GradientEdge accumulator;
    std::optional<Version> scaled;  // of the tensor that was handed over
  };
  Destinations() = default;

  Mutex mutex_;
  std::vector<Entry> entries_;
  std::unordered_map<const c10::TensorImpl*, size_t> entry_of_;  // by leaf
  std::optional<double> factor_;
};

// Where the gradient of one input is to be written.
struct Destination {
  std::shared_ptr<Destinations> owner;
  size_t entry;
  at::Tensor memory;
  double factor;

  bool fits(const Operand& type) const;
  // The gradient, to be handed over as torch's engine takes it over without a copy.
  at::Tensor handed_over(bool scaled) const;
};

// By target: none where nobody asked for one, or where others than the owner would come to see or
// overwrite the memory: a gradient that is there already, a second node that adds to it, a hook.
// Called in a backward; each target is only compared.
std::vector<std::optional<Destination>> destinations_of(
    const std::vector<std::atomic<const AnyNode*>>& targets);

}  // namespace ort::bridge
