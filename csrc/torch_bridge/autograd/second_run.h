// The forward of a call once more, by torch's own operators: what a backward under create_graph
// differentiates, as torch can differentiate that any number of times. backward_run.cpp asks for
// it.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <optional>
#include <vector>

#include "csrc/torch_bridge/autograd/history.h"
#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::bridge {

// From the graph's inputs and the random key to its outputs, by number; undefined where no gradient
// flows. `passed(output, tensor)` gives the tensor from which others are computed, of an output
// that their gradient passes.
using Passed = std::function<at::Tensor(size_t, const at::Tensor&)>;
using SecondForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs,
                                                            uint64_t key, const Passed& passed)>;
// `run` is ortmodule/capture/second_run.py's object. Called with the GIL held; what is made takes
// it.
SecondForward second_forward(const pybind11::object& run);

// A tensor with this value whose gradient goes along the edge.
at::Tensor stand_in(const at::Tensor& value, const GradientEdge& edge);

// Where the gradients of inputs (by position in wrt) and of outputs go, in a later backward too.
struct Edges {
  std::vector<GradientEdge> inputs, outputs;
};

struct SecondRun {
  // inputs: those of wrt; passed: the outputs as others are computed from them.
  std::vector<at::Tensor> inputs, outputs, passed;

  using Arrived = std::vector<std::optional<at::Tensor>>;  // by output, what its gradient is
  // What the outputs that have arrived give to these inputs; not by way of others that they pass.
  std::vector<at::Tensor> of_inputs(const Arrived& arrived, const Indices& asked) const;
  // The same for an output that they pass.
  at::Tensor of_passed(const Arrived& arrived, size_t output) const;
};

}  // namespace ort::bridge
