// What eager's autograd graph behind a module's outputs says
// (ortmodule/records/autograd_history.py), and the shape that the nodes of a call get by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "csrc/graph/graph.h"

namespace ort::bridge {

using Indices = std::vector<size_t>;  // sorted

inline bool contains(const Indices& indices, size_t i) {
  return std::binary_search(indices.begin(), indices.end(), i);
}

struct OutputHistory {
  Indices saved_inputs, saved_outputs;  // a write to one before the backward is an error
  Indices reaches;                      // the graph inputs whose gradient it gives
  Indices through;                      // other outputs that its gradient passes
};

// A node of eager's that saved tensors, and so can be run once only.
struct UsedUp {
  Indices outputs;                      // that reach it
  Indices reaches, behind;              // graph inputs and outputs that it reaches
  Indices made;                         // outputs that are results of its own
  Indices saved_inputs, saved_outputs;  // which must be as they were
  size_t before = 0;                    // how many of the origins come no later
};

// A node of eager's that made outputs: which output each of its results is, if it was returned.
struct Origin {
  std::vector<std::optional<size_t>> outputs;
};

// A graph input that is a leaf, when eager accumulates into it.
struct Accumulated {
  size_t input;
  size_t origins, used_up;  // how many of these come before
  Accumulated(size_t input, size_t origins, size_t used_up)
      : input(input), origins(origins), used_up(used_up) {}
};

// Inputs that the same outputs reach: a backward visits all of them or none.
struct Group {
  Indices outputs;
  Indices sources;  // of these, the ones whose node leads to the group's; the others pass one
  Indices wrt;      // positions in the list of inputs that need a gradient
};

// Where a gradient may come from: an output, or a tensor that a user's Function was given, which
// may give it None. What it reaches before it comes to another such Function.
struct GradientSource {
  Indices outputs;              // from which it is come to
  std::optional<int64_t> once;  // the step's number; none: an output
  int64_t tensor = 0;           // which of the step's
  Indices reaches, behind;      // graph inputs and outputs
};

struct AutogradHistory {
  std::vector<std::optional<OutputHistory>> outputs;  // none: requires no gradient
  // Both in the order in which torch's engine comes to them: what was made last first.
  std::vector<UsedUp> used_up;
  std::vector<Origin> origins;           // of every output that requires a gradient
  std::vector<Accumulated> accumulated;  // as eager's backward comes to them
  std::vector<GradientSource> sources;   // none: every gradient that eager reaches is there
  bool known = true;  // false: made up from the graph, every input counts as saved

  // As the graph has it, where the traced module does not show it.
  static AutogradHistory of_graph(const Graph& graph, const Indices& wrt, size_t n_user_outputs);

  bool saves_input(size_t input, const Indices& by_outputs) const;
  Indices saved_outputs(const Indices& by_outputs) const;
};

// Which node leads to which.
struct Topology {
  std::vector<size_t> order;  // differentiable outputs, each before those that it passes
  std::vector<Indices> next;  // by output: the outputs that it passes first
  std::vector<Group> groups;
  std::vector<Indices> used_up_by;  // by output: positions in AutogradHistory::used_up

  Topology() = default;
  Topology(const AutogradHistory& history, const Indices& wrt);
};

}  // namespace ort::bridge
