// Running a call: pointers into the frame, what is saved for the backward, retained graphs.
#include "csrc/torch_bridge/call.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <numeric>

#include "csrc/torch_bridge/internals/engine.h"
#include "csrc/torch_bridge/internals/modes.h"
#include "csrc/torch_bridge/internals/new_tensor.h"

namespace ort::bridge {
namespace {

// A frame for a backward that leaves the other's stash untouched, and holds it.
std::shared_ptr<Frame> retained(const Planned& planned, const std::shared_ptr<Frame>& base) {
  auto frame = Frame::retained(*planned.plan->core, planned.plan->retained, *base);
  return {frame.release(), [base](Frame* retained) { delete retained; }};
}

}  // namespace

void reorder(const at::Tensor& tensor, const Indices& order) {
  Sizes sizes(order.size()), strides(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    sizes[order[k]] = tensor.size(static_cast<int64_t>(k));
    strides[order[k]] = tensor.stride(static_cast<int64_t>(k));
  }
  set_sizes_and_strides(tensor, sizes, strides);
}

at::Tensor make_output(const Plan& plan, Frame& frame, size_t i) {
  at::Tensor output;
  with_memory(plan, [&] { output = empty(plan.outputs.types[i]); });
  frame.set_output(i, output.data_ptr());
  return output;
}

Call::Call(std::shared_ptr<CapturedState> state, const std::vector<at::Tensor>& given, uint64_t key,
           std::shared_ptr<Profile> profile)
    : state_(std::move(state)), lent_(given.size()), key_(key), profile_(std::move(profile)) {
  inputs_.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    inputs_.push_back(given[i].defined() ? contiguous(given[i].variable_data()) : at::Tensor());
    if (given[i].defined() && !given[i].is_contiguous()) strides_[i] = dense_strides(given[i]);
  }
  if (at::GradMode::is_enabled())  // the backward reads what was there before the call wrote
    for (const size_t i : state_->written)
      inputs_[i] = given[i].detach().clone(at::MemoryFormat::Contiguous);
}

std::vector<Sizes> Call::input_sizes() const {
  std::vector<Sizes> sizes;
  sizes.reserve(inputs_.size());
  for (const at::Tensor& input : inputs_)
    sizes.push_back(input.defined() ? input.sizes().vec() : Sizes{1});
  return sizes;
}

const void* Call::input_data(size_t i) const {
  return inputs_[i].defined() ? inputs_[i].data_ptr() : static_cast<const void*>(&key_);
}

void Call::bind_inputs(Frame& frame) const {
  for (size_t i = 0; i < inputs_.size(); ++i) frame.set_input(i, input_data(i));
}

std::vector<at::Tensor> Call::forward(const Wanted& wanted) {
  wanted_ = wanted;
  const std::vector<Sizes> sizes = input_sizes();
  const std::shared_ptr<Program> program = state_->program(wanted, sizes);
  run_state_.emplace();
  if (at::GradMode::is_enabled() || !wanted.defined.empty())  // a backward may run it again
    run_state_->remember(&once_);
  stream_ = current_stream(device());
  if (state_->has_effects && !wanted.defined.empty() && !generator_state_.known())
    generator_state_ = RandomState::now(device());
  std::vector<at::Tensor> outputs =
      program->is_staged() ? run_stages(program) : run_plan(program, sizes);
  for (const auto& [output, order] : state_->orders) reorder(outputs[output], order);
  state_->stash_bytes = run_state_->kept();
  return outputs;
}

std::vector<at::Tensor> Call::run_plan(const std::shared_ptr<Program>& program,
                                       const std::vector<Sizes>& sizes) {
  planned_ = {program, program->plan(sizes)};
  const Plan& plan = *planned_.plan->core;
  auto frame = std::make_shared<Frame>(plan, native(stream_));
  frame->set_run_state(&*run_state_);
  run_state_->keep(planned_.plan->stash_bytes);
  bind_inputs(*frame);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < program->n_outputs(); ++i) outputs.push_back(make_output(plan, *frame, i));
  share_outputs(outputs);
  run(plan, *frame, 0, planned_.plan->forward_steps, profile());
  frame_ = std::move(frame);  // what has run to its end
  return outputs;
}

void Call::share_outputs(const std::vector<at::Tensor>& outputs) {
  shared_outputs_.clear();
  for (const size_t i : planned_.program->lowered().options.shared)
    if (i < state_->n_user_outputs) shared_outputs_.push_back({i, outputs[i].storage(), {}});
}

// Where they are now: an owner may have resized one.
void Call::bind_shared_outputs(Frame& frame) {
  const Plan& plan = *planned_.plan->core;
  for (const auto& [i, storage, input] : shared_outputs_) {
    const Operand& type = input ? plan.inputs.types[*input] : plan.outputs.types[i];
    const size_t bytes = static_cast<size_t>(element_count(type.sizes)) * size_of(type.dtype);
    check(storage.nbytes() >= bytes,
          "output {} of the module, which the backward reads, has {} bytes now, expected {}", i,
          storage.nbytes(), bytes);
    if (input)
      frame.set_input(*input, storage.data());
    else
      frame.set_output(i, storage.mutable_data());
  }
}

// What eager's backward reads where it was written: there another call may have written since. A
// program for more outputs than this backward has reads zeros for the rest.
void Call::bind_read_there(BackwardFrame& bound) {
  if (stash_ || halves_) return;
  for (const auto& [output, input] : state_->reads_there(wanted_.defined)) {
    const Operand& type = planned_.plan->core->outputs.types[output];
    const auto found = read_there_.find(input);
    const at::Tensor now = found == read_there_.end() ? empty(type).zero_() : found->second;
    check(
        now.sizes() == type.sizes && dtype_of(now.scalar_type()) == type.dtype,
        "input {} of the module, which the backward reads, was given other sizes or another dtype "
        "since: {} elements of {}, expected {} of {}",
        input, now.numel(), name_of(dtype_of(now.scalar_type())), element_count(type.sizes),
        name_of(type.dtype));
    bound.frame->set_output(output, now.data_ptr());
    bound.inputs.push_back(now);
  }
}

void Call::expect_backward(const std::vector<at::Tensor>& given,
                           const std::vector<at::Tensor>& outputs) {
  input_versions_.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const bool written = contains(state_->written, i);
    lent_[i] = !written && given[i].defined() && inputs_[i].is_alias_of(given[i]);
    input_versions_.emplace_back(written ? at::Tensor() : given[i]);
  }
  for (const auto& [output, i] : state_->read_there) input_versions_[i] = Version(given[i]);
  for (size_t i = 0; i < state_->n_user_outputs; ++i) output_versions_.emplace_back(outputs[i]);
  save_inputs(given);
  if (state_->may_run_again()) keep_inputs(state_->topology.order);
}

// What eager keeps too may not change; of anything else the backward reads a copy. A user's hooks
// on saved tensors must meet the same ones in each run: then all that eager keeps is saved.
void Call::save_inputs(const std::vector<at::Tensor>& given) {
  Indices saved = stash_ ? stash_->inputs : planned_.plan->saved_inputs;
  std::vector<size_t> outputs = wanted_.defined;
  hooked_ = SavedTensor::is_hooked();
  if (hooked_) {
    saved.resize(given.size());
    std::iota(saved.begin(), saved.end(), size_t{});
    outputs = state_->topology.order;
  }
  saved_.reserve(saved.size());
  for (const size_t i : saved) {
    if (i >= given.size() || !given[i].defined() || contains(state_->written, i)) continue;
    if (state_->history.saves_input(i, outputs))
      saved_.push_back({i, SavedTensor(given[i])});
    else if (lent_[i])
      own_input(i);
  }
  for (const auto& [output, i] : state_->reads_there(state_->topology.order))
    saved_.push_back({i, SavedTensor(given[i])});
}

void Call::own_input(size_t i) {
  inputs_[i] = inputs_[i].clone();
  lent_[i] = false;
}

void Call::keep_inputs(const Indices& outputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!lent_[i] || input_versions_[i].changed()) continue;  // changed: too late
    if (std::any_of(outputs.begin(), outputs.end(),
                    [&](size_t output) { return !state_->history.saves_input(i, {output}); }))
      own_input(i);
  }
}

void Call::check_saved_by(const UsedUp& node) const {
  check_outputs(node.saved_outputs);
  for (const size_t i : node.saved_inputs) check_input(i);
}

void Call::check_input(size_t i) const {
  check(hooked_ || !input_versions_[i].changed(),
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: input {} of the module is at version {}, expected version {}",
        i, input_versions_[i].now(), input_versions_[i].then());
}

void Call::check_outputs(const Indices& saved) const {
  for (const size_t i : saved) {
    const Version& version = output_versions_[i];
    check(!version.changed(),
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: output {} of the module is at version {}, expected version {}",
          i, version.now(), version.then());
  }
}

void Call::unpack_inputs(const Indices& defined) {
  const int task = current_backward();
  for (Saved& saved : saved_) {
    if (!state_->history.saves_input(saved.input, defined)) continue;
    if (saved.unpacked_in == task) {  // a second run: a hook may have stepped what the first gave
      check_input(saved.input);
      continue;
    }
    saved.unpacked_in = task;
    const at::Tensor now = saved.tensor.unpack();
    if (contains(state_->written, saved.input)) {
      read_there_[saved.input] = contiguous(now.detach());
      continue;
    }
    if (!hooked_) continue;
    at::Tensor unpacked = contiguous(now.detach());
    lent_[saved.input] = lent_[saved.input] && unpacked.is_alias_of(inputs_[saved.input]);
    inputs_[saved.input] = std::move(unpacked);
  }
}

std::optional<size_t> Call::changed_input(const Wanted& wanted) const {
  for (size_t i = 0; i < input_versions_.size(); ++i)
    if (input_versions_[i].changed() &&
        (lent_[i] || state_->history.saves_input(i, wanted.defined)))
      return i;
  return {};
}

bool Call::covers(const Wanted& wanted) const {
  return wanted.cuts == wanted_.cuts &&
         std::includes(wanted_.defined.begin(), wanted_.defined.end(), wanted.defined.begin(),
                       wanted.defined.end());
}

// With its axes in memory as they were, by which forward may see it in another shape.
at::Tensor Call::as_given(size_t i) const {
  const auto strides = strides_.find(i);
  if (strides == strides_.end())
    return contains(state_->written, i) ? inputs_[i].clone() : inputs_[i];
  return at::empty_strided(inputs_[i].sizes(), strides->second, inputs_[i].options())
      .copy_(inputs_[i]);
}

SecondRun Call::run_again(const Indices& outputs, const Edges& edges) {
  check_outputs(state_->history.saved_outputs(outputs));
  unpack_inputs(outputs);
  {
    std::lock_guard lock(state_->mutex);
    state_->differentiable = true;
  }
  for (size_t i = 0; i < input_versions_.size(); ++i)
    check(!lent_[i] || !input_versions_[i].changed(),
          "input {} of the module has been modified by an inplace operation: it is at version {}, "
          "expected version {}, as a backward under create_graph runs forward again. Another one "
          "will not need it",
          i, input_versions_[i].now(), input_versions_[i].then());
  SecondRun run;
  run.passed.resize(edges.outputs.size());
  std::vector<at::Tensor> inputs(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].defined()) inputs[i] = as_given(i).detach();
  for (size_t w = 0; w < edges.inputs.size(); ++w) {
    at::Tensor& input = inputs[state_->wrt[w]];
    run.inputs.push_back(input = stand_in(input, edges.inputs[w]));
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (lent_[i] && inputs[i].defined()) input_versions_[i].share(inputs[i]);
  const Rewound generators(generator_state_, device());
  const c10::OptionalStreamGuard as_the_forward(stream_);
  const WithoutTransforms plain;
  run.outputs = state_->second_forward(inputs, key_, [&](size_t output, const at::Tensor& tensor) {
    return run.passed[output] = stand_in(tensor, edges.outputs[output]);
  });
  // What it has saved of these shows what is there now, as eager's does; no version tells.
  for (const auto& [output, i] : state_->reads_there(outputs))
    inputs[i].variable_data().copy_(read_there_.at(i));
  run.outputs.resize(state_->n_user_outputs);
  return run;
}

// Reads every input once more: as it was, or a copy that was made in time.
void Call::run_forward_again(const Wanted& wanted) {
  const std::optional<size_t> changed = changed_input(wanted);
  check(!changed,
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: input {} of the module changed before a backward that needs other outputs' "
        "gradients than the one before",
        changed.value_or(0));
  frame_.reset();  // of another plan: where this run fails, the next backward runs forward again
  stash_.reset();
  {
    const Rewound generators(generator_state_, device());
    forward(wanted);
  }
  std::lock_guard lock(state_->mutex);
  state_->predicted = wanted;
  ++state_->reruns;
}

// Where eager's nodes are known, each has checked what it reads.
BackwardFrame Call::begin_backward(const Wanted& wanted, bool keep) {
  if (!state_->history.known) check_outputs(state_->history.saved_outputs(wanted.defined));
  unpack_inputs(wanted.defined);
  const bool other = wanted != wanted_;
  if (!(frame_ || stash_) || (other && !(changed_input(wanted) && covers(wanted)))) {
    run_forward_again(wanted);
  } else {
    std::lock_guard lock(state_->mutex);
    state_->confirmed = true;
    state_->varied = state_->varied || other;
  }
  BackwardFrame bound{planned_, inputs_, shared_outputs_, {}, nullptr, wanted != wanted_};
  stash_ ? bind_stash(bound, keep) : bind_frame(bound, keep);
  bind_shared_outputs(*bound.frame);
  bind_read_there(bound);
  return bound;
}

void Call::bind_frame(BackwardFrame& bound, bool keep) {
  bind_inputs(*frame_);
  bound.frame = frame_;
  const bool others = frame_.use_count() > 2;  // backwards under way that read the stash
  if (keep || others) bound.frame = retained(planned_, frame_);
  if (!keep) frame_.reset();
}

void Call::release() {
  saved_.clear();
  shared_outputs_.clear();
  read_there_.clear();
  frame_.reset();
  stash_.reset();
  once_.clear();
  inputs_.clear();
}

}  // namespace ort::bridge
