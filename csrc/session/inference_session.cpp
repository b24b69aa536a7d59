// Checking what is fed and asked, then one run of a plan.
#include "csrc/session/inference_session.h"

#include <new>

#include "csrc/plan/estimate.h"
#include "csrc/plan/symbols.h"
#include "csrc/runtime/executor.h"
#include "csrc/session/free_sizes.h"

namespace ort {
namespace {

std::string names_of(const std::vector<InferenceSession::Port>& ports) {
  std::string text;
  for (const auto& port : ports) text += (text.empty() ? "" : ", ") + port.name;
  return text;
}

// Sizes that are numbers; names are only hints.
bool fits(const Sizes& sizes, const std::optional<Dims>& dims) {
  for (size_t i = 0; dims && i < sizes.size(); ++i)
    if ((*dims)[i].value().value_or(sizes[i]) != sizes[i]) return false;
  return true;
}

}  // namespace

InferenceSession::InferenceSession(const Graph& graph, const CompileOptions& options,
                                   SessionLimits limits)
    : graph_(graph.clone()), options_(options), limits_(limits), program_(graph, options, {}, {}) {
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
    check(rank && fits(tensor.sizes, port.type.dims), "input '{}' has shape {}, expected {}",
          port.name, tensor.sizes, port.type.dims.value_or(Dims{}));
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

Program& InferenceSession::program_for(const std::vector<Sizes>& sizes) {
  Symbols symbols;
  const bool as_named = match_symbols(*graph_, sizes, sizes.size(), symbols).ok;
  Program* free = as_named ? nullptr : free_program();
  std::lock_guard lock(mutex_);
  latest_ = free ? free : &program_;
  return *latest_;
}

Program* InferenceSession::free_program() {
  std::lock_guard lock(free_mutex_);
  if (!freed_) {
    if (const auto free = with_free_sizes(*graph_))
      free_program_ =
          std::make_unique<Program>(*free, options_, std::vector<size_t>{}, std::vector<size_t>{});
    freed_ = true;
  }
  return free_program_.get();
}

void InferenceSession::check_limits(const Program& program, const Plan& plan,
                                    const std::vector<Sizes>& sizes) const {
  if (limits_.bytes) {
    const size_t bytes = bytes_of(plan);
    check(bytes <= *limits_.bytes, "the run needs {} bytes, the session's limit is {}", bytes,
          *limits_.bytes);
  }
  if (!limits_.operations) return;
  const Symbols symbols = solve_symbols(*program.layout().graph, sizes, sizes.size());
  const double operations = estimated_operations(program.layout(), symbols);
  check(operations <= *limits_.operations,
        "the run needs about {} operations, the session's limit is {}", operations,
        *limits_.operations);
}

std::vector<Tensor> InferenceSession::run(const std::vector<std::string>& names,
                                          const std::map<std::string, Tensor>& feed) {
  try {
    return run_plan(names, feed);
  } catch (const std::bad_alloc&) {
    fail("out of memory while the model ran");
  }
}

std::vector<Tensor> InferenceSession::run_plan(const std::vector<std::string>& names,
                                               const std::map<std::string, Tensor>& feed) {
  const std::vector<const Tensor*> inputs = order_feed(feed);
  const std::vector<size_t> indices = order_names(names);
  std::vector<Sizes> sizes;
  for (const Tensor* tensor : inputs) sizes.push_back(tensor->sizes);
  Program& program = program_for(sizes);
  const auto plan = program.plan(sizes);
  check_limits(program, *plan->core, sizes);
  Frame frame(*plan->core);
  for (size_t i = 0; i < inputs.size(); ++i) frame.set_input(i, inputs[i]->data);
  std::vector<Tensor> outputs;
  for (const Operand& type : plan->core->outputs.types) {
    outputs.push_back(Tensor::empty(type.dtype, type.sizes));
    frame.set_output(outputs.size() - 1, outputs.back().data);
  }
  ort::run(*plan->core, frame);
  std::vector<Tensor> asked;
  for (const size_t index : indices) asked.push_back(own_strings(outputs[index]));
  return asked;
}

std::map<std::string, int> InferenceSession::providers() {
  std::map<std::string, int> counts;
  std::lock_guard lock(mutex_);
  if (const auto plan = latest_->latest())
    for (const Step& step : plan->core->steps) ++counts[std::string(step.provider)];
  return counts;
}

}  // namespace ort
