// Stand-ins for a call's inputs, and torch's own gradient of what was computed from them.
#include "csrc/torch_bridge/autograd/second_run.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "csrc/torch_bridge/internals/autograd_graph.h"
#include "csrc/torch_bridge/internals/engine.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

class StandIn : public AutogradNode {
 public:
  std::string name() const override { return "ORTModuleInput"; }
  Gradients apply(Gradients&& gradients) override { return std::move(gradients); }
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
  std::vector<at::Tensor> roots, with;
  for (size_t i = 0; i < arrived.size(); ++i) {
    const bool given = arrived[i] && arrived[i]->defined();
    if (!given || !run.outputs[i].defined()) continue;
    roots.push_back(run.outputs[i]);
    with.push_back(*arrived[i]);
  }
  if (roots.empty() || targets.empty()) return std::vector<at::Tensor>(targets.size());
  return differentiable_gradients(roots, with, targets);
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

at::Tensor stand_in(const at::Tensor& value, const GradientEdge& edge) {
  at::Tensor result = value.detach();
  const auto node = make_node<StandIn>();
  EdgeList next;
  next.add(edge);
  node->lead_to(std::move(next));
  GradientEdge(node, node->add_input(result)).lead(result);
  return result;
}

std::vector<at::Tensor> SecondRun::of_inputs(const Arrived& arrived, const Indices& asked) const {
  std::vector<at::Tensor> targets;
  for (const size_t i : asked) targets.push_back(inputs[i]);
  return gradients(*this, arrived, targets);
}

at::Tensor SecondRun::of_passed(const Arrived& arrived, size_t output) const {
  if (!passed[output].defined()) return {};
  return gradients(*this, arrived, {passed[output]})[0];
}

}  // namespace ort::bridge
