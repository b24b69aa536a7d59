// One backward of a call, in whatever order torch's engine visits its nodes. A run that was begun
// before all gradients were there serves the groups that it had all for; the next begins another.
#include "csrc/torch_bridge/backward.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "csrc/torch_bridge/batched.h"
#include "csrc/torch_bridge/surroundings.h"

namespace ort::bridge {
namespace {

using torch::autograd::Node;

constexpr const char* kSecondTime =
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward.";

// With inputs=: what is to be done at a node. Null: the backward does everything.
const torch::autograd::GraphTask::ExecInfo* request(const Node* node) {
  const auto& requests = *torch::autograd::get_current_graph_task_exec_info();
  const auto found = requests.find(const_cast<Node*>(node));
  return found == requests.end() ? nullptr : &found->second;
}

bool is_partial() {
  const auto* requests = torch::autograd::get_current_graph_task_exec_info();
  return requests && !requests->empty();
}

}  // namespace

Backward::Backward(std::shared_ptr<Call> call)
    : call_(std::move(call)),
      receivers_(call_->shared().history.outputs.size()),
      targets_(call_->shared().wrt.size()),
      used_(call_->shared().history.used_up.size()),
      arrived_(receivers_.size()) {}

void Backward::begin(int task) {
  task_ = task;
  keep_ = torch::autograd::get_current_graph_task_keep_graph();
  std::fill(arrived_.begin(), arrived_.end(), std::nullopt);
  finish();
  run_.reset();
  find_requested();
  cuts_ = asked();
}

// --- what this backward asks for
// ------------------------------------------------------------------

bool Backward::is_asked(size_t output) const {
  Node* node = receivers_[output];
  if (!node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty() ||
      !node->pre_hooks().empty() || !node->post_hooks().empty())
    return true;
  const auto* info = is_partial() ? request(node) : nullptr;
  return info && info->captures_;
}

// Whether this backward will run the output's node, or has.
bool Backward::takes_part(size_t output) const {
  Node* node = receivers_[output];
  if (!node) return false;
  if (arrived_[output]) return true;
  if (!torch::autograd::get_current_graph_task_nodes_in_graph()->count(node)) return false;
  const auto* info = is_partial() ? request(node) : nullptr;
  return !is_partial() || (info && info->needed_);
}

// The outputs on the way of others whose gradient somebody will look at.
Indices Backward::asked() const {
  const auto& outputs = call_->shared().history.outputs;
  Indices result;
  for (size_t h = 0; h < outputs.size(); ++h) {
    if (!receivers_[h] || !is_asked(h)) continue;
    if (!torch::autograd::get_current_graph_task_nodes_in_graph()->count(receivers_[h])) continue;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] && contains(outputs[i]->through, h) && receivers_[i]) {
        result.push_back(h);
        break;
      }
  }
  return result;
}

void Backward::find_requested() {
  requested_.reset();
  if (!is_partial()) return;
  requested_.emplace();
  for (size_t w = 0; w < targets_.size(); ++w) {
    const auto* info = targets_[w] ? request(targets_[w]) : nullptr;
    if (info && info->should_execute()) requested_->push_back(call_->shared().wrt[w]);
  }
  std::sort(requested_->begin(), requested_->end());
}

bool Backward::executes(const UsedUp& node) const {
  if (!requested_) return true;
  const auto is_requested = [&](size_t output) {
    const auto* info = receivers_[output] ? request(receivers_[output]) : nullptr;
    return info && info->should_execute();
  };
  return std::any_of(node.reaches.begin(), node.reaches.end(),
                     [&](size_t w) { return contains(*requested_, w); }) ||
         std::any_of(node.behind.begin(), node.behind.end(), is_requested);
}

// As eager's nodes: one that has let go of what it saved raises.
void Backward::use_up(size_t output) {
  const Shared& shared = call_->shared();
  for (const size_t n : shared.topology.used_up_by[output]) {
    if (!executes(shared.history.used_up[n])) continue;
    check(used_[n] == 0 || used_[n] == 1 + task_, "{}", kSecondTime);
    if (!keep_) used_[n] = 1 + task_;
  }
}

bool Backward::usable(size_t output) const {
  const Indices& nodes = call_->shared().topology.used_up_by[output];
  return receivers_[output] &&
         (nodes.empty() ||
          std::any_of(nodes.begin(), nodes.end(), [&](size_t n) { return used_[n] == 0; }));
}

// --- gradients come in
// ----------------------------------------------------------------------------

void Backward::receive(size_t output, const at::Tensor& gradient) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != task_) begin(task);
  use_up(output);
  const char* why = gradient.defined() && !is_batched(gradient) ? foreign(gradient) : nullptr;
  check(!why, "the gradient of output {} {}, expected a plain tensor", output, why ? why : "");
  arrived_[output] = gradient;
  if (run_ && run_->frame) give(output);
}

// In time only where no segment has read the place yet.
void Backward::give(size_t output) {
  const std::vector<size_t>& inputs = call_->program().gradient_inputs();
  const auto found = std::find(inputs.begin(), inputs.end(), output);
  const at::Tensor& gradient = *arrived_[output];
  if (found == inputs.end()) {
    if (!gradient.defined()) run_->given.push_back(output);
  } else {
    const auto k = static_cast<size_t>(found - inputs.begin());
    if (run_->segments > static_cast<size_t>(call_->program().first_reads()[k])) return;
    if (gradient.defined()) {
      run_->output_gradients[k] =
          contiguous(call_->shared().in_memory_order(output, gradient.detach()));
      run_->frame->set_input(call_->program().n_inputs() + k, run_->output_gradients[k].data_ptr());
    }
    run_->given.push_back(output);
  }
  std::sort(run_->given.begin(), run_->given.end());
}

// A hook of this backward may have begun another over the same call, or another thread has.
void Backward::expect_own() const {
  check(torch::autograd::get_current_graph_task_id() == task_,
        "a backward began within another one over the same call of the module, which ORTModule "
        "does not keep apart; run this module in eager, or begin the other one afterwards");
}

at::Tensor Backward::passed_on(size_t output) {
  expect_own();
  if (!contains(cuts_, output)) return {};
  const auto& outputs = call_->shared().history.outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && contains(outputs[i]->through, output) && takes_part(i) && !arrived_[i])
      return {};
  const auto had_in_time = [&] {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] && contains(outputs[i]->through, output) && arrived_[i] &&
          !contains(run_->given, i))
        return false;
    return true;
  };
  if (!run_ || !had_in_time()) start();
  const Indices& cuts = run_->wanted.cuts;
  const auto k = std::lower_bound(cuts.begin(), cuts.end(), output) - cuts.begin();
  const int at = call_->program().cut_outputs()[static_cast<size_t>(k)];
  if (at < 0) return {};
  run_until(call_->segment_of(at));
  return call_->shared().in_tensor_order(output, gradient_at(at));
}

// --- gradients go out
// -----------------------------------------------------------------------------

bool Backward::serves(const Group& group) const {
  return run_ && std::all_of(group.outputs.begin(), group.outputs.end(),
                             [&](size_t i) { return !arrived_[i] || contains(run_->given, i); });
}

std::vector<at::Tensor> Backward::hand_over(size_t group, const Indices& wrt) {
  expect_own();
  const Shared& shared = call_->shared();
  const Group& members = shared.topology.groups[group];
  std::vector<at::Tensor> results(wrt.size());
  const bool any = std::any_of(members.outputs.begin(), members.outputs.end(),
                               [&](size_t i) { return arrived_[i] && arrived_[i]->defined(); });
  if (!any) return results;
  if (!serves(members)) start();
  for (size_t k = 0; k < wrt.size(); ++k) {
    const int output = call_->program().gradient_outputs()[wrt[k]];
    if (output >= 0) {
      run_until(call_->segment_of(output));
      results[k] = std::move(gradient_at(output));
      check(!run_->filled || results[k].isfinite().all().item<bool>(),
            "an input of the module was modified by an inplace operation before a backward of "
            "other outputs than before: its gradient cannot be told, as others' are not finite");
    } else if (shared.history.known) {  // eager reaches it, so by a derivative that is zero
      const Operand& type = call_->plan().inputs.types[shared.wrt[wrt[k]]];
      results[k] = empty(type.sizes, scalar_type_of(type.dtype)).zero_();
    }
  }
  return results;
}

at::Tensor& Backward::gradient_at(int output) {
  return run_->gradients[static_cast<size_t>(output) - call_->program().n_outputs()];
}

Wanted Backward::wanted_now() const {
  Wanted wanted{{}, cuts_};
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (arrived_[i] ? arrived_[i]->defined() || contains(cuts_, i)
                    : !cuts_.empty() && (takes_part(i) || contains(cuts_, i)))
      wanted.defined.push_back(i);
  return wanted;
}

void Backward::start() {
  const Wanted wanted = wanted_now();
  check(!call_->released(), "{}", kSecondTime);
  finish();
  run_.reset();
  const auto& order = call_->shared().topology.order;
  if (order.size() > 1) {
    Indices others;
    std::copy_if(order.begin(), order.end(), std::back_inserter(others),
                 [&](size_t output) { return usable(output); });
    call_->keep_inputs(others);
  }
  const bool batched = std::any_of(arrived_.begin(), arrived_.end(), [](const auto& gradient) {
    return gradient && is_batched(*gradient);
  });
  Frame& frame = call_->begin_backward(wanted, keep_ || batched);
  run_.emplace();
  run_->wanted = wanted;
  run_->filled = !call_->runs_for(wanted);
  run_->frame = &frame;
  if (batched)
    run_batched();
  else
    bind_gradients();
}

// Zeros stand for what is late; no group that has it in time reads them.
void Backward::bind_gradients() {
  bind_results();
  const Program& program = call_->program();
  for (const size_t output : program.gradient_inputs()) {
    run_->output_gradients.emplace_back();
    if (arrived_[output] && arrived_[output]->defined()) continue;
    const Operand& type = call_->plan().outputs.types[output];
    at::Tensor& zeros = run_->output_gradients.back();
    zeros = empty(type.sizes, scalar_type_of(type.dtype)).zero_();
    run_->frame->set_input(program.n_inputs() + run_->output_gradients.size() - 1,
                           zeros.data_ptr());
  }
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (arrived_[i]) give(i);
}

void Backward::bind_results() {
  const auto& types = call_->plan().outputs.types;
  run_->gradients.clear();
  for (size_t i = call_->program().n_outputs(); i < types.size(); ++i) {
    run_->gradients.push_back(empty(types[i].sizes, scalar_type_of(types[i].dtype)));
    run_->frame->set_output(i, run_->gradients.back().data_ptr());
  }
}

void Backward::run_until(size_t segment) {
  run_segments(segment + 1);
  if (run_->segments == call_->plan().segment_ends.size()) finish();
}

void Backward::run_segments(size_t count) {
  const Plan& plan = call_->plan();
  for (; run_->segments < count; ++run_->segments) {
    const size_t first =
        run_->segments == 0 ? plan.forward_steps : plan.segment_ends[run_->segments - 1];
    run(plan, *run_->frame, first, plan.segment_ends[run_->segments],
        call_->profile());
  }
}

// Every slice by itself; the gradients of all are batched again.
void Backward::run_batched() {
  check(cuts_.empty(),
        "a batched gradient (is_grads_batched, vmap) passes a returned output that has a hook, "
        "retains its gradient or is asked for; ORTModule does not run that");
  const auto batched = std::find_if(arrived_.begin(), arrived_.end(), [](const auto& gradient) {
    return gradient && is_batched(*gradient);
  });
  const at::Tensor like = **batched;
  const auto arrived = arrived_;
  std::vector<std::vector<at::Tensor>> slices;
  for (int64_t b = 0; b < batch_size(like); ++b) {
    if (b > 0) run_->frame = &call_->begin_backward(run_->wanted, true);
    for (size_t i = 0; i < arrived.size(); ++i)
      if (arrived[i]) arrived_[i] = slice_of(*arrived[i], b);
    run_->segments = 0;
    run_->output_gradients.clear();
    bind_gradients();
    run_segments(call_->plan().segment_ends.size());
    slices.resize(run_->gradients.size());
    for (size_t k = 0; k < slices.size(); ++k) slices[k].push_back(run_->gradients[k]);
  }
  arrived_ = arrived;
  for (size_t k = 0; k < slices.size(); ++k) run_->gradients[k] = batched_like(like, slices[k]);
  finish();
}

// The run needs its frame no more; what it made is still to be handed over.
void Backward::finish() {
  if (!run_ || !run_->frame) return;
  run_->frame = nullptr;
  run_->output_gradients.clear();
  const auto& order = call_->shared().topology.order;
  const auto may_follow = [&](size_t output) {
    return usable(output) || (!arrived_[output] && takes_part(output));
  };
  call_->end_backward();
  if (std::none_of(order.begin(), order.end(), may_follow)) call_->release();
}

}  // namespace ort::bridge
