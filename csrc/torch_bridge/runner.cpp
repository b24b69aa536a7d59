// The way of a call: tensors in, forward, write-backs, history.
#include "csrc/torch_bridge/runner.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/graph/schema.h"
#include "csrc/torch_bridge/autograd/nodes.h"

namespace ort::bridge {
namespace {

// Until a backward has shown which outputs get a gradient: the first scalar alone (a loss), else
// all.
Indices guess_defined(const Graph& graph, const AutogradHistory& history) {
  Indices all;
  for (size_t i = 0; i < history.outputs.size(); ++i) {
    if (!history.outputs[i]) continue;
    const Type& type = graph.value(graph.outputs()[i].value).type();
    if (type.dims && type.dims->empty()) return {i};
    all.push_back(i);
  }
  return all;
}

}  // namespace

Runner::Runner(std::shared_ptr<const Graph> graph, std::vector<Source> inputs,
               size_t n_user_outputs, std::vector<WriteBack> write_backs,
               std::map<size_t, Indices> orders, std::vector<size_t> wrt,
               std::optional<AutogradHistory> history, pybind11::object second_forward,
               CompileOptions options)
    : state_(std::make_shared<CapturedState>()),
      inputs_(std::move(inputs)),
      write_backs_(std::move(write_backs)),
      second_forward_(std::move(second_forward)) {
  check(inputs_.size() == graph->inputs().size(), "the capture names {} inputs, its graph has {}",
        inputs_.size(), graph->inputs().size());
  state_->graph = graph;
  state_->options = std::move(options);
  state_->options.errors = std::make_shared<DeferredErrors>();
  state_->wrt = std::move(wrt);
  state_->n_user_outputs = n_user_outputs;
  state_->orders = std::move(orders);
  state_->history = history ? std::move(*history)
                            : AutogradHistory::of_graph(*graph, state_->wrt, n_user_outputs);
  state_->topology = Topology(state_->history, state_->wrt);
  state_->second_forward = ort::bridge::second_forward(second_forward_);
  state_->predicted.defined = guess_defined(*graph, state_->history);
  for (size_t i = 0; i < inputs_.size(); ++i)
    for (const WriteBack& write : write_backs_)
      if (write.target.user >= 0 ? write.target.user == inputs_[i].user
                                 : write.target.fixed.is(inputs_[i].fixed)) {
        state_->written.push_back(i);
        if (write.read_there) state_->read_there.push_back({write.output, i});
      }
  for (const Node* node : graph->order()) {
    const Effect effect = node->schema->effect(*node);
    state_->has_effects =
        state_->has_effects || effect == Effect::random || effect == Effect::python;
    state_->is_linear = state_->is_linear && node->schema->has_linear_gradient(*node);
    for (const ValueId id : node->out)
      state_->has_float16 =
          state_->has_float16 || (id != kNone && graph->value(id).type().dtype == DType::f16);
  }
  for (const ValueId id : graph->inputs()) needs_key_ = needs_key_ || graph->role(id) == Role::key;
}

at::Tensor Runner::resolve(const Source& source, const std::vector<at::Tensor>& user) const {
  if (source.user >= 0) return user.at(static_cast<size_t>(source.user));
  return source.fixed ? THPVariable_Unpack(source.fixed.ptr()) : at::Tensor();
}

void Runner::replace(const pybind11::object& old, const pybind11::object& now) {
  std::unique_lock lock(sources_mutex_, std::defer_lock);
  {
    const pybind11::gil_scoped_release waiting;  // whoever holds the lock may need the GIL
    lock.lock();
  }
  const auto replace_in = [&](Source& source) {  // `old` outlives it, so nothing is freed here
    if (source.fixed.is(old)) source.fixed = now;
  };
  for (Source& source : inputs_) replace_in(source);
  for (WriteBack& write : write_backs_) replace_in(write.target);
}

int Runner::visit(visitproc visit, void* arg) const {
  for (const Source& source : inputs_) Py_VISIT(source.fixed.ptr());
  for (const WriteBack& write : write_backs_) Py_VISIT(write.target.fixed.ptr());
  Py_VISIT(second_forward_.ptr());
  return 0;
}

// Where the inputs of the first call lie those of each one do: devices are in a call's key.
void Runner::find_device(const std::vector<at::Tensor>& tensors) {
  const auto on_host = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.is_cpu();
  };
  CompileOptions& options = state_->options;
  for (const at::Tensor& tensor : tensors) {
    if (on_host(tensor)) continue;
    const Device device = device_of(tensor.device());
    check(options.device.is_host() || options.device == device,
          "the module's tensors lie on {} and {}", options.device, device);
    options.device = device;
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!options.device.is_host() && on_host(tensors[i])) options.host_inputs.insert(i);
}

void Runner::compile(const std::vector<at::Tensor>& user) {
  std::vector<at::Tensor> tensors;
  for (const Source& source : inputs_) tensors.push_back(resolve(source, user));
  find_device(tensors);
  std::vector<Sizes> sizes;
  for (const at::Tensor& tensor : tensors)
    sizes.push_back(tensor.defined() ? tensor.sizes().vec() : Sizes{1});
  const auto program =
      state_->program(at::GradMode::is_enabled() ? state_->predicted : Wanted{}, sizes);
  if (!program->is_staged()) program->plan(sizes);
}

std::vector<at::Tensor> Runner::call(const std::vector<at::Tensor>& user) {
  std::vector<at::Tensor> tensors, targets;
  {
    std::lock_guard lock(sources_mutex_);
    tensors.reserve(inputs_.size());
    for (const Source& source : inputs_) tensors.push_back(resolve(source, user));
    for (const WriteBack& write : write_backs_) targets.push_back(resolve(write.target, user));
  }
  Wanted wanted;
  std::shared_ptr<Profile> profile;
  {
    std::lock_guard lock(state_->mutex);
    if (at::GradMode::is_enabled()) wanted = state_->predicted;
    profile = state_->profile;
  }
  auto call = std::make_shared<Call>(state_, tensors,
                                     needs_key_ ? draw_key(state_->options.device) : 0, profile);
  std::vector<at::Tensor> outputs;
  {
    at::NoGradGuard no_grad;
    outputs = call->forward(wanted);
    for (size_t i = 0; i < targets.size(); ++i)
      (write_backs_[i].bumps ? targets[i] : targets[i].variable_data())
          .copy_(outputs.at(write_backs_[i].output));
  }
  if (!wanted.defined.empty()) {
    call->expect_backward(tensors, outputs);
    add_nodes(call, tensors, outputs);
  }
  outputs.resize(state_->n_user_outputs);
  return outputs;
}

std::shared_ptr<Program> Runner::latest() const {
  return state_->programs.latest();
}

double Runner::planned_us() const {
  const auto program = latest();
  return program ? program->planned_us() : 0;
}

std::vector<std::shared_ptr<const TrainingPlan>> Runner::plans_of_latest() const {
  std::vector<std::shared_ptr<const TrainingPlan>> plans;
  const auto program = latest();
  if (program && program->halves()) plans.push_back(program->halves()->forward->latest());
  if (program) plans.push_back(program->latest());
  std::erase(plans, nullptr);
  return plans;
}

std::tuple<size_t, size_t, size_t> Runner::memory() const {
  size_t casts = 0, arenas = 0;
  for (const auto& plan : plans_of_latest()) {
    casts += plan->cast_bytes;
    arenas += plan->core->arena_bytes();
  }
  return {state_->stash_bytes, casts, arenas};
}

void Runner::add_steps(const TrainingPlan& plan, bool backward,
                       std::vector<StepInfo>& steps) const {
  const std::vector<Step>& made = plan.core->steps;
  const size_t first = steps.size();
  for (size_t i = 0; i < made.size(); ++i)
    steps.push_back({made[i].name, std::string(made[i].provider), layout_of(*plan.core, made[i]),
                     backward || i >= plan.forward_steps, std::nullopt,
                     estimate(*plan.core, made[i], *plan.lowered, plan.symbols)});
  if (const auto profile = this->profile())
    for (const Profile::Event& event : profile->events())
      if (event.plan == plan.core.get() && event.step < made.size() &&
          made[event.step].name == event.name)
        steps[first + event.step].us = event.duration_us;
}

std::vector<Runner::StepInfo> Runner::steps() const {
  std::vector<StepInfo> result;
  const auto program = latest();
  if (program && program->is_staged())
    for (const Node* node : state_->graph->order())
      if (node->schema->allocates_results(*node))  // between the plans
        result.push_back({node->qualified(), "host", "", false, std::nullopt});
  const auto plans = plans_of_latest();
  for (size_t i = 0; i < plans.size(); ++i) add_steps(*plans[i], i > 0, result);
  return result;
}

// Of the latest program; of one that is run stage by stage, as captured.
std::vector<const Node*> Runner::nodes() const {
  std::vector<const Node*> result;
  const auto program = latest();
  if (program && program->is_staged()) {
    const std::vector<Node*> captured = state_->graph->order();
    result.assign(captured.begin(), captured.end());
  } else if (program) {
    for (const Claim& claim : program->lowered().partition.claims)
      result.insert(result.end(), claim.region.nodes.begin(), claim.region.nodes.end());
  }
  return result;
}

std::vector<Runner::Operator> Runner::operators() const {
  std::vector<Operator> result;
  for (const Node* node : nodes())
    if (node->schema->is_foreign() && node->schema->is_differentiable())
      result.push_back({node->attrs.s("schema"), node->attrs.s("reason", ""),
                        node->where ? *node->where : Where{}});
  return result;
}

std::map<Runner::Typed, int> Runner::typed() const {
  std::map<Typed, int> result;
  const auto dtype_of = [](const Node& node, const std::vector<ValueId>& ids) {
    const bool any = !ids.empty() && ids[0] != kNone;
    return std::string(name_of(any ? node.graph->value(ids[0]).dtype() : DType::undefined));
  };
  for (const Node* node : nodes())
    ++result[{node->qualified(), dtype_of(*node, node->in), dtype_of(*node, node->out)}];
  return result;
}

int Runner::plans() const {
  int count = state_->dropped_plans;
  for (const auto& program : state_->programs.all()) count += program->plans();
  return count;
}

int Runner::replays() const {
  int count = 0;
  for (const auto& plan : plans_of_latest())
    if (plan->core->recordings) count += plan->core->recordings->replays();
  return count;
}

int Runner::reruns() const {
  std::lock_guard lock(state_->mutex);
  return state_->reruns;
}

void Runner::start_profile() {
  auto profile = std::make_shared<Profile>();
  std::lock_guard lock(state_->mutex);
  state_->profile.swap(profile);
}

std::shared_ptr<const Profile> Runner::profile() const {
  std::lock_guard lock(state_->mutex);
  return state_->profile;
}

}  // namespace ort::bridge
