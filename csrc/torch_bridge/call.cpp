// Running a call: pointers into the frame, segments of the backward, retained graphs.
#include "csrc/torch_bridge/call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <numeric>

namespace ort::bridge {
namespace {

constexpr size_t kKeptPrograms = 16;

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// Torch's generator in an earlier state, for one scope.
class Rewound {
 public:
  explicit Rewound(const at::Tensor& state) : now_(state.defined() ? generator_state() : state) {
    set(state);
  }
  ~Rewound() { set(now_); }
  Rewound(const Rewound&) = delete;

 private:
  static void set(const at::Tensor& state) {
    if (!state.defined()) return;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
  at::Tensor now_;
};

// Gives the axes another order in place, so that the tensor is a view of none.
void reorder(const at::Tensor& tensor, const Indices& order) {
  Sizes sizes(order.size()), strides(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    sizes[order[k]] = tensor.size(static_cast<int64_t>(k));
    strides[order[k]] = tensor.stride(static_cast<int64_t>(k));
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<uint32_t>(tensor._version()) : 0;
}

}  // namespace

std::shared_ptr<Program> Shared::program(const Wanted& wanted, const std::vector<Sizes>& sizes) {
  std::lock_guard lock(mutex);
  const auto symbols = [&] { return solve_symbols(*graph, sizes, sizes.size()); };
  const std::pair key(wanted, options.memory_budget ? symbols() : Symbols{});
  const auto found = programs.find(key);
  if (found != programs.end()) {
    latest = found->second;
  } else {
    Indices defined = wanted.defined;
    const auto rank = [&](size_t output) {
      return std::find(topology.order.begin(), topology.order.end(), output);
    };
    if (!wanted.cuts.empty())  // the order in which their gradients come
      std::sort(defined.begin(), defined.end(),
                [&](size_t a, size_t b) { return rank(a) < rank(b); });
    const Indices shared = history.saved_outputs(defined);
    grad::StashOptions stash{symbols(), {}, {}, {shared.begin(), shared.end()}};
    for (size_t i = 0; i < graph->inputs().size(); ++i)
      if (!history.saves_input(i, defined)) stash.copied.insert(graph->inputs()[i]);
    latest = std::make_shared<Program>(*graph, options, defined.empty() ? Indices{} : wrt, defined,
                                       stash, wanted.cuts);
    programs.emplace(key, latest);
  }
  if (programs.size() > kKeptPrograms)
    std::erase_if(programs, [&](const auto& item) {
      if (item.second != latest) dropped_plans += item.second->plans();
      return item.second != latest;
    });
  return latest;
}

at::Tensor Shared::in_memory_order(size_t output, const at::Tensor& gradient) const {
  const auto found = orders.find(output);
  if (found == orders.end()) return gradient;
  return gradient.permute(std::vector<int64_t>(found->second.begin(), found->second.end()));
}

at::Tensor Shared::in_tensor_order(size_t output, const at::Tensor& gradient) const {
  const auto found = orders.find(output);
  if (found == orders.end()) return gradient;
  std::vector<int64_t> inverse(found->second.size());
  for (size_t k = 0; k < inverse.size(); ++k) inverse[found->second[k]] = static_cast<int64_t>(k);
  return gradient.permute(inverse);
}

bool Shared::unsettled() {
  std::lock_guard lock(mutex);
  return !confirmed || reruns > 0 || varied;
}

Call::Call(std::shared_ptr<Shared> shared, std::vector<at::Tensor> inputs, uint64_t key,
           std::shared_ptr<Profile> profile)
    : shared_(std::move(shared)),
      originals_(std::move(inputs)),
      key_(key),
      profile_(std::move(profile)) {
  for (const at::Tensor& tensor : originals_)
    inputs_.push_back(tensor.defined() ? contiguous(tensor.detach()) : at::Tensor());
  if (at::GradMode::is_enabled())  // the backward reads what was there before the call wrote
    for (const size_t i : shared_->written) {
      inputs_[i] = originals_[i].detach().clone(at::MemoryFormat::Contiguous);
      originals_[i] = at::Tensor();
    }
}

std::vector<Sizes> Call::input_sizes() const {
  std::vector<Sizes> sizes;
  for (const at::Tensor& input : inputs_)
    sizes.push_back(input.defined() ? input.sizes().vec() : Sizes{1});
  return sizes;
}

void Call::bind_inputs() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    frame_->set_input(
        i, inputs_[i].defined() ? inputs_[i].data_ptr() : static_cast<const void*>(&key_));
}

std::vector<at::Tensor> Call::forward(const Wanted& wanted) {
  wanted_ = wanted;
  spent_ = false;
  const std::vector<Sizes> sizes = input_sizes();
  program_ = shared_->program(wanted, sizes);
  plan_ = program_->plan(sizes);
  frame_ = std::make_unique<Frame>(*plan_);
  bind_inputs();
  if (shared_->has_effects && !wanted.defined.empty() && !generator_state_.defined())
    generator_state_ = generator_state();
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < program_->n_outputs(); ++i) {
    const Operand& type = plan_->outputs.types[i];
    outputs.push_back(empty(type.sizes, scalar_type_of(type.dtype)));
    frame_->set_output(i, outputs.back().data_ptr());
  }
  share_outputs(outputs);
  run(*plan_, *frame_, 0, plan_->forward_steps, profile());
  for (const auto& [output, order] : shared_->orders) reorder(outputs[output], order);
  return outputs;
}

// Held as storages: a returned tensor holds this call.
void Call::share_outputs(const std::vector<at::Tensor>& outputs) {
  shared_outputs_.clear();
  for (const size_t i : program_->layout().shared)
    shared_outputs_.emplace_back(i, outputs[i].storage());
}

// Where they are now: an owner may have resized one.
void Call::bind_shared_outputs(Frame& frame) {
  for (const auto& [i, storage] : shared_outputs_) {
    const Operand& type = plan_->outputs.types[i];
    const size_t bytes = static_cast<size_t>(element_count(type.sizes)) * size_of(type.dtype);
    check(storage.nbytes() >= bytes,
          "output {} of the module, which the backward reads, has {} bytes now, expected {}", i,
          storage.nbytes(), bytes);
    frame.set_output(i, storage.mutable_data());
  }
}

size_t Call::segment_of(int output) const {
  const size_t gradient = static_cast<size_t>(output) - program_->n_outputs();
  const size_t last = plan_->segment_ends.size() - 1;
  return std::min(last, std::max(plan_->output_segments[static_cast<size_t>(output)],
                                 static_cast<size_t>(program_->gradient_segments()[gradient])));
}

void Call::expect_backward(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& tensor : originals_) versions_.push_back(version_of(tensor));
  for (size_t i = 0; i < shared_->n_user_outputs; ++i)
    output_versions_.emplace_back(outputs[i].unsafeGetTensorImpl()->version_counter(),
                                  version_of(outputs[i]));
  save_inputs();
  if (const std::vector<size_t>& all = shared_->topology.order;
      all.size() > 1 && shared_->unsettled())
    keep_inputs(all);
}

// What eager keeps too may not change; of anything else the backward reads a copy. A user's hooks
// on saved tensors must meet the same ones in each run: then all that eager keeps is saved.
void Call::save_inputs() {
  Indices saved = plan_->saved_inputs;
  std::vector<size_t> outputs = wanted_.defined;
  if (at::SavedTensorDefaultHooks::get_hooks().has_value()) {
    saved.resize(originals_.size());
    std::iota(saved.begin(), saved.end(), size_t{});
    outputs = shared_->topology.order;
  }
  for (const size_t i : saved) {
    if (i >= originals_.size() || !originals_[i].defined()) continue;
    if (shared_->history.saves_input(i, outputs))
      saved_.push_back({i, torch::autograd::SavedVariable(originals_[i], false)});
    else if (inputs_[i].is_alias_of(originals_[i]))
      inputs_[i] = inputs_[i].clone();
  }
}

void Call::keep_inputs(const Indices& outputs) {
  for (size_t i = 0; i < originals_.size(); ++i) {
    if (!originals_[i].defined() || !inputs_[i].is_alias_of(originals_[i])) continue;
    if (version_of(originals_[i]) != versions_[i]) continue;  // too late
    if (std::any_of(outputs.begin(), outputs.end(),
                    [&](size_t output) { return !shared_->history.saves_input(i, {output}); }))
      inputs_[i] = inputs_[i].clone();
  }
}

void Call::check_outputs(const Indices& defined) const {
  for (const size_t i : shared_->history.saved_outputs(defined)) {
    const auto& [counter, version] = output_versions_[i];
    check(counter.current_version() == version,
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: output {} of the module is at version {}, expected version {}",
          i, counter.current_version(), version);
  }
}

void Call::unpack_inputs(const Indices& defined) {
  const int task = torch::autograd::get_current_graph_task_id();
  for (Saved& saved : saved_) {
    if (saved.unpacked_in == task || !shared_->history.saves_input(saved.input, defined)) continue;
    saved.unpacked_in = task;
    const at::Tensor now = saved.variable.unpack(nullptr);
    if (!now.is_same(originals_[saved.input])) inputs_[saved.input] = contiguous(now.detach());
  }
}

std::optional<size_t> Call::changed_input(const Wanted& wanted) const {
  for (size_t i = 0; i < originals_.size(); ++i)
    if (originals_[i].defined() && version_of(originals_[i]) != versions_[i] &&
        (inputs_[i].is_alias_of(originals_[i]) || shared_->history.saves_input(i, wanted.defined)))
      return i;
  return {};
}

bool Call::covers(const Wanted& wanted) const {
  return wanted.cuts == wanted_.cuts &&
         std::includes(wanted_.defined.begin(), wanted_.defined.end(), wanted.defined.begin(),
                       wanted.defined.end());
}

// Reads every input once more: as it was, or a copy that was made in time.
void Call::run_forward_again(const Wanted& wanted) {
  const std::optional<size_t> changed = changed_input(wanted);
  check(!changed,
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: input {} of the module changed before a backward that needs other outputs' "
        "gradients than the one before",
        changed.value_or(0));
  {
    const Rewound generator(generator_state_);
    forward(wanted);
  }
  std::lock_guard lock(shared_->mutex);
  shared_->predicted = wanted;
  ++shared_->reruns;
}

Frame& Call::begin_backward(const Wanted& wanted, bool keep) {
  check_outputs(wanted.defined);
  unpack_inputs(wanted.defined);
  const bool other = wanted != wanted_;
  if (spent_ || (other && !(changed_input(wanted) && covers(wanted)))) {
    run_forward_again(wanted);
  } else {
    std::lock_guard lock(shared_->mutex);
    shared_->confirmed = true;
    shared_->varied = shared_->varied || other;
  }
  spent_ = !keep;
  bind_inputs();
  retained_ = keep ? Frame::retained(*plan_, *frame_) : nullptr;
  Frame& frame = keep ? *retained_ : *frame_;
  bind_shared_outputs(frame);
  return frame;
}

void Call::end_backward() {
  retained_.reset();
  if (spent_) frame_.reset();
}

void Call::release() {
  end_backward();
  saved_.clear();
  shared_outputs_.clear();
  frame_.reset();
  inputs_.clear();
  originals_.clear();
}

}  // namespace ort::bridge
