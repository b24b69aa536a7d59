// Torch makes a view's node of autograd where it makes the view, which is after the nodes of what
// was computed from it. So the view gets a node of the engine's, to which these lead. It stays a
// view of its base: a write to either does what it does in eager.
#include "csrc/torch_bridge/autograd/viewed.h"

#include <torch/csrc/utils/pybind.h>

#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::bridge {
namespace {

// `own`: a tensor of the view's size whose node it is.
void give_node(const at::Tensor& view, const at::Tensor& own) {
  if (own.requires_grad()) GradientEdge::of(own).lead(view);
}

}  // namespace

void bind_viewed(pybind11::module_& m) {
  m.def("give_node", &give_node, pybind11::arg("view"), pybind11::arg("own"));
}

}  // namespace ort::bridge
