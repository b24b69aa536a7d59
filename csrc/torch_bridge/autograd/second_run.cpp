// Stand-ins for a call's inputs, and torch's own gradient of what was computed from them.
#include "csrc/torch_bridge/autograd/second_run.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "csrc/torch_bridge/autograd/make_node.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class StandIn : public Node {
 public:
  std::string name() const override { return "ORTModuleInput"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

// Python's error as torch's engine hands it on.
[[noreturn]] void pass_on(py::error_already_set& error) {
  error.restore();
  python_error found;
  found.persist();
  throw found;
}

std::vector<at::Tensor> gradients(const SecondRun& run, const SecondRun::Arrived& arrived,
                                  const std::vector<at::Tensor>& targets) {
  variable_list roots, with;
  for (size_t i = 0; i < arrived.size(); ++i) {
    const bool given = arrived[i] && arrived[i]->defined();
    if (!given || !run.outputs[i].defined()) continue;
    roots.push_back(run.outputs[i]);
    with.push_back(*arrived[i]);
  }
  if (roots.empty() || targets.empty()) return std::vector<at::Tensor>(targets.size());
  return torch::autograd::grad(roots, targets, with, /*retain_graph=*/true, /*create_graph=*/true,
                               /*allow_unused=*/true);
}

}  // namespace

SecondForward second_forward(const py::object& run) {
  const std::shared_ptr<py::object> held(new py::object(run), [](py::object* object) {
    const py::gil_scoped_acquire gil;
    delete object;
  });
  return [held](const std::vector<at::Tensor>& inputs, uint64_t key, const Passed& passed) {
    const py::gil_scoped_acquire gil;
    try {
      std::vector<at::Tensor> outputs;
      for (const py::handle& output : (*held)(inputs, key, py::cpp_function(passed)))
        outputs.push_back(output.is_none() ? at::Tensor() : output.cast<at::Tensor>());
      return outputs;
    } catch (py::error_already_set& error) {
      pass_on(error);
    }
  };
}

at::Tensor stand_in(const at::Tensor& value, const torch::autograd::Edge& edge) {
  at::Tensor result = value.detach();
  auto node = make_node<StandIn>();
  node->set_next_edges({edge});
  torch::autograd::set_history(result, node);
  return result;
}

std::vector<at::Tensor> SecondRun::of_inputs(const Arrived& arrived, const Indices& asked) const {
  variable_list targets;
  for (const size_t i : asked) targets.push_back(inputs[i]);
  return gradients(*this, arrived, targets);
}

at::Tensor SecondRun::of_passed(const Arrived& arrived, size_t output) const {
  if (!passed[output].defined()) return {};
  return gradients(*this, arrived, {passed[output]})[0];
}

}  // namespace ort::bridge
