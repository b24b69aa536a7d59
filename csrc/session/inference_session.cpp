// Checking what is fed and asked, then one run of a plan.
#include "csrc/session/inference_session.h"

#include "csrc/runtime/executor.h"

namespace ort {
namespace {

std::string names_of(const std::vector<InferenceSession::Port>& ports) {
  std::string text;
  for (const auto& port : ports) text += (text.empty() ? "" : ", ") + port.name;
  return text;
}

}  // namespace

InferenceSession::InferenceSession(const Graph& graph, const CompileOptions& options)
    : program_(graph, options, {}, {}) {
  for (const ValueId id : graph.inputs())
    inputs_.push_back({graph.value(id).name(), graph.value(id).type()});
  for (const Output& output : graph.outputs())
    outputs_.push_back({output.name, graph.value(output.value).type()});
}

std::vector<const Tensor*> InferenceSession::order_feed(
    const std::map<std::string, Tensor>& feed) const {
  std::vector<const Tensor*> tensors;
  for (const Port& port : inputs_) {
    const auto found = feed.find(port.name);
    check(found != feed.end(), "input '{}' is missing; the model takes {}", port.name,
          names_of(inputs_));
    const Tensor& tensor = found->second;
    check(tensor.dtype == port.type.dtype, "input '{}' has dtype {}, expected {}", port.name,
          tensor.dtype, port.type.dtype);
    const bool rank = !port.type.dims || port.type.dims->size() == tensor.sizes.size();
    check(rank, "input '{}' has shape {}, expected {}", port.name, tensor.sizes,
          port.type.dims.value_or(Dims{}));
    tensors.push_back(&tensor);
  }
  for (const auto& [name, tensor] : feed) {
    bool known = false;
    for (const Port& port : inputs_) known = known || port.name == name;
    check(known, "'{}' is no input of the model, which takes {}", name, names_of(inputs_));
  }
  return tensors;
}

std::vector<size_t> InferenceSession::order_names(const std::vector<std::string>& names) const {
  std::vector<size_t> indices;
  if (names.empty())
    for (size_t i = 0; i < outputs_.size(); ++i) indices.push_back(i);
  for (const std::string& name : names) {
    size_t index = 0;
    while (index < outputs_.size() && outputs_[index].name != name) ++index;
    check(index < outputs_.size(), "'{}' is no output of the model, which gives {}", name,
          names_of(outputs_));
    indices.push_back(index);
  }
  return indices;
}

std::vector<Tensor> InferenceSession::run(const std::vector<std::string>& names,
                                          const std::map<std::string, Tensor>& feed) {
  const std::vector<const Tensor*> inputs = order_feed(feed);
  const std::vector<size_t> indices = order_names(names);
  std::vector<Sizes> sizes;
  for (const Tensor* tensor : inputs) sizes.push_back(tensor->sizes);
  const auto plan = program_.plan(sizes);
  Frame frame(*plan);
  for (size_t i = 0; i < inputs.size(); ++i) frame.set_input(i, inputs[i]->data);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < plan->outputs.types.size(); ++i) {
    outputs.push_back(Tensor::empty(plan->outputs.types[i].dtype, plan->outputs.types[i].sizes));
    frame.set_output(i, outputs.back().data);
  }
  ort::run(*plan, frame);
  std::vector<Tensor> asked;
  for (const size_t index : indices) asked.push_back(outputs[index]);
  return asked;
}

std::map<std::string, int> InferenceSession::providers() {
  std::map<std::string, int> counts;
  if (const auto plan = program_.latest())
    for (const Step& step : plan->steps) ++counts[std::string(step.provider)];
  return counts;
}

}  // namespace ort
