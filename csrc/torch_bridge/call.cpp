// Running a call: pointers into the frame, segments of the backward, retained graphs.
#include "csrc/torch_bridge/call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

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

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<uint32_t>(tensor._version()) : 0;
}

}  // namespace

std::shared_ptr<Program> Shared::program(const std::vector<size_t>& defined,
                                         const std::vector<Sizes>& sizes) {
  std::lock_guard lock(mutex);
  const auto symbols = [&] { return solve_symbols(*graph, sizes, sizes.size()); };
  auto& slot = programs[{defined, options.memory_budget ? symbols() : Symbols{}}];
  if (!slot) {
    grad::StashOptions stash{symbols(), {}, {}, eager_saves_outputs(defined)};
    for (size_t i = 0; i < graph->inputs().size(); ++i)
      if (!eager_saves_input(i, defined)) stash.copied.insert(graph->inputs()[i]);
    slot = std::make_shared<Program>(*graph, options, defined.empty() ? std::vector<size_t>{} : wrt,
                                     defined, stash);
  }
  latest = slot;
  if (programs.size() > kKeptPrograms)
    std::erase_if(programs, [&](const auto& item) {
      if (item.second != latest) dropped_plans += item.second->plans();
      return item.second != latest;
    });
  return latest;
}

bool Shared::eager_saves_input(size_t input, const std::vector<size_t>& defined) const {
  return !saved || std::any_of(defined.begin(), defined.end(), [&](size_t output) {
    const std::vector<size_t>& inputs = saved->at(output).inputs;
    return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  });
}

std::set<size_t> Shared::eager_saves_outputs(const std::vector<size_t>& defined) const {
  std::set<size_t> result;
  for (const size_t output : saved ? defined : std::vector<size_t>{})
    result.insert(saved->at(output).outputs.begin(), saved->at(output).outputs.end());
  return result;
}

Call::Call(std::shared_ptr<Shared> shared, std::vector<at::Tensor> inputs, uint64_t key)
    : shared_(std::move(shared)), originals_(std::move(inputs)), key_(key) {
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

std::vector<at::Tensor> Call::bind_outputs(size_t first, size_t last) {
  std::vector<at::Tensor> outputs;
  Frame& frame = backward_frame_ ? *backward_frame_ : *frame_;
  for (size_t i = first; i < last; ++i) {
    const Operand& type = plan_->outputs.types[i];
    outputs.push_back(empty(type.sizes, scalar_type_of(type.dtype)));
    frame.set_output(i, outputs.back().data_ptr());
  }
  return outputs;
}

std::vector<at::Tensor> Call::forward(const std::vector<size_t>& defined) {
  defined_ = defined;
  const std::vector<Sizes> sizes = input_sizes();
  program_ = shared_->program(defined, sizes);
  plan_ = program_->plan(sizes);
  frame_ = std::make_unique<Frame>(*plan_);
  bind_inputs();
  if (shared_->has_effects && !defined.empty() && !generator_state_.defined())
    generator_state_ = generator_state();
  std::vector<at::Tensor> outputs = bind_outputs(0, program_->n_outputs());
  share_outputs(outputs);
  run(*plan_, *frame_, 0, plan_->forward_steps, shared_->profile.get());
  return outputs;
}

// Held as storages: a returned tensor holds this call.
void Call::share_outputs(const std::vector<at::Tensor>& outputs) {
  shared_outputs_.clear();
  for (const size_t i : program_->layout().shared)
    shared_outputs_.emplace_back(i, outputs[i].storage());
}

// Where they are now: an owner may have resized one.
void Call::bind_shared_outputs() {
  for (const auto& [i, storage] : shared_outputs_) {
    const Operand& type = plan_->outputs.types[i];
    const size_t bytes = static_cast<size_t>(element_count(type.sizes)) * size_of(type.dtype);
    check(storage.nbytes() >= bytes,
          "output {} of the module, which the backward reads, has {} bytes now, expected {}", i,
          storage.nbytes(), bytes);
    frame_->set_output(i, storage.mutable_data());
  }
}

void Call::assign_gradients() {
  const size_t last = plan_->segment_ends.size() - 1;
  handed_.resize(last + 1);
  size_t gradient = 0;
  for (size_t w = 0; w < program_->gradient_outputs().size(); ++w) {
    const int output = program_->gradient_outputs()[w];
    size_t segment = last;
    if (output >= 0)
      segment =
          std::min(last, std::max(plan_->output_segments[static_cast<size_t>(output)],
                                  static_cast<size_t>(program_->gradient_segments()[gradient++])));
    handed_[segment].push_back(w);
  }
}

void Call::expect_backward(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& tensor : originals_) versions_.push_back(version_of(tensor));
  for (size_t i = 0; i < shared_->n_user_outputs; ++i)
    output_versions_.emplace_back(outputs[i].unsafeGetTensorImpl()->version_counter(),
                                  version_of(outputs[i]));
  save_inputs();
  assign_gradients();
}

// What eager keeps too may not change; of anything else the backward reads a copy.
void Call::save_inputs() {
  for (const size_t i : plan_->saved_inputs) {
    if (i >= originals_.size() || !originals_[i].defined()) continue;
    if (shared_->eager_saves_input(i, defined_))
      saved_.emplace_back(i, torch::autograd::SavedVariable(originals_[i], false));
    else if (inputs_[i].is_alias_of(originals_[i]))
      inputs_[i] = inputs_[i].clone();
  }
}

void Call::check_outputs(const std::vector<size_t>& defined) const {
  if (!shared_->saved) return;
  for (const size_t output : defined)
    for (const size_t i : shared_->saved->at(output).outputs) {
      const auto& [counter, version] = output_versions_[i];
      check(counter.current_version() == version,
            "one of the variables needed for gradient computation has been modified by an inplace "
            "operation: output {} of the module is at version {}, expected version {}",
            i, counter.current_version(), version);
    }
}

void Call::run_forward_again(const std::vector<size_t>& defined) {
  for (size_t i = 0; i < originals_.size(); ++i)
    check(version_of(originals_[i]) == versions_[i],
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: input {} of "
          "the module changed before a backward that needs other outputs' gradients than the one "
          "before",
          i);
  {
    const Rewound generator(generator_state_);
    forward(defined);
  }
  ran_again_ = true;
  std::lock_guard lock(shared_->mutex);
  shared_->predicted = defined;
}

void Call::begin_backward(const std::vector<at::Tensor>& output_gradients, bool keep) {
  check(!consumed_,
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they "
        "have already been freed). Saved intermediate values of the graph are freed when you call "
        ".backward() or "
        "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a "
        "second time or if you "
        "need to access saved tensors after calling backward.");
  std::vector<size_t> defined;
  for (size_t i = 0; i < output_gradients.size(); ++i)
    if (output_gradients[i].defined()) defined.push_back(i);
  check_outputs(defined);
  end_backward();  // one that was asked for some inputs only may have stopped early
  for (auto& [index, variable] : saved_) {
    const at::Tensor now = variable.unpack(nullptr);
    if (!now.is_same(originals_[index])) inputs_[index] = contiguous(now.detach());
  }
  if (defined != defined_) run_forward_again(defined);
  consumed_ = !keep;
  bind_inputs();
  bind_shared_outputs();
  if (keep) backward_frame_ = Frame::retained(*plan_, *frame_);
  Frame& frame = backward_frame_ ? *backward_frame_ : *frame_;
  output_gradients_.clear();
  for (size_t k = 0; k < program_->gradient_inputs().size(); ++k) {
    const size_t output = program_->gradient_inputs()[k];
    output_gradients_.push_back(contiguous(output_gradients[output].detach()));
    frame.set_input(program_->n_inputs() + k, output_gradients_.back().data_ptr());
  }
  gradients_ = bind_outputs(program_->n_outputs(), plan_->outputs.types.size());
}

std::vector<std::pair<size_t, at::Tensor>> Call::run_segment(size_t segment) {
  const size_t first = segment == 0 ? plan_->forward_steps : plan_->segment_ends[segment - 1];
  const size_t end = ran_again_ ? plan_->steps.size() : plan_->segment_ends[segment];
  if (segment == 0 || !ran_again_)
    run(*plan_, backward_frame_ ? *backward_frame_ : *frame_, first, end, shared_->profile.get());
  std::vector<std::pair<size_t, at::Tensor>> results;
  for (const size_t w : handed_[segment]) {
    const int output = program_->gradient_outputs()[w];
    if (output >= 0)
      results.emplace_back(
          w, std::move(gradients_[static_cast<size_t>(output) - program_->n_outputs()]));
  }
  return results;
}

void Call::end_backward() {
  backward_frame_.reset();
  output_gradients_.clear();
  gradients_.clear();
}

void Call::release() {
  consumed_ = true;
  saved_.clear();
  shared_outputs_.clear();
  frame_.reset();
  inputs_.clear();
  originals_.clear();
}

}  // namespace ort::bridge
