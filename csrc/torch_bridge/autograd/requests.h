// What one backward asks of a call's nodes, as torch's engine has it: which of them it visits, at
// which outputs somebody looks at the gradient, which inputs' gradients it is for.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "csrc/torch_bridge/autograd/history.h"
#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::bridge {

// The nodes of a call: what may be asked for.
struct Nodes {
  // The one that takes the gradient of an output, while it lives.
  std::vector<std::atomic<AnyNode*>> receivers;
  // Where the gradient of an input goes, by position in wrt; null where no output that is left
  // reaches it.
  std::vector<std::atomic<const AnyNode*>> targets;
  std::vector<uint32_t> target_places;  // which of its inputs

  GradientEdge target(size_t w) const;
  // The edges to the receivers, by output.
  std::vector<GradientEdge> receiving(const AutogradHistory& history) const;
};

// Made and asked while the engine runs that backward in this thread.
class Requests {
 public:
  Requests(const AutogradHistory& history, const Indices& wrt, const Nodes& nodes);

  // The outputs on the way of others whose gradient somebody looks at.
  const Indices& cuts() const { return cuts_; }
  // Whether it is for some inputs alone, and may give them to somebody else than the leaves.
  bool is_partial() const { return inputs_.has_value(); }
  // Whether the gradient at a position in wrt is added to a leaf's.
  bool accumulates(size_t w) const;
  bool wants(size_t input) const { return !inputs_ || contains(*inputs_, input); }
  bool visits(size_t output) const;
  bool executes(const UsedUp& node) const;

 private:
  bool is_asked(size_t output) const;

  const Nodes& nodes_;
  Indices cuts_;
  std::optional<Indices> inputs_;  // graph inputs that are asked for; none: all
};

}  // namespace ort::bridge
