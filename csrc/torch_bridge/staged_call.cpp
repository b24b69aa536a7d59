// A call whose sizes depend on data: its forward runs in stages, its backward has a plan of its
// own.
#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

std::vector<at::Tensor> Call::run_stages(const std::shared_ptr<Program>& program) {
  std::vector<Item> inputs;
  for (const at::Tensor& input : inputs_) inputs.push_back(item_of(input, key_));
  const ProgramHalves* halves = program->halves();
  const std::vector<Item> made =
      (halves ? *halves->forward : *program).run(inputs, *run_state_, profile());
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < program->n_outputs(); ++i) outputs.push_back(tensor_of(made[i]));
  if (halves) keep_stash(program, made, outputs);
  return outputs;
}

// The backward is bound now that the sizes are known.
void Call::keep_stash(const std::shared_ptr<Program>& program, const std::vector<Item>& made,
                      const std::vector<at::Tensor>& outputs) {
  const AutogradHistory& history = state_->history;
  const Indices read = history.saved_outputs(wanted_.defined);
  halves_ = program->halves();
  Stash stash = stash_of(*halves_, inputs_, made, outputs, read, state_->n_user_outputs);
  shared_outputs_ = stash.outputs;
  planned_.program = {program, halves_->backward.get()};
  planned_.plan = planned_.program->plan(stash.sizes);
  input_types_.clear();
  for (const at::Tensor& input : inputs_)
    input_types_.push_back(input.defined() ? Operand{dtype_of(input.scalar_type()),
                                                     input.sizes().vec(),
                                                     true,
                                                     {},
                                                     device_of(input.device())}
                                           : Operand{});
  for (const size_t i : stash.inputs)  // those that are copied
    if (inputs_[i].defined() &&
        (contains(state_->written, i) || !history.saves_input(i, wanted_.defined)))
      stash.bytes += inputs_[i].nbytes();
  const size_t bytes = run_state_->keep(stash.bytes);
  const auto& budget = state_->options.memory_budget;
  check(!budget || bytes <= *budget,
        "memory_budget is {} bytes; where sizes depend on data nothing of the forward is "
        "recomputed, and the backward is to read {} bytes",
        budget.value_or(0), bytes);
  stash_ = std::move(stash);
}

// The backward's plan writes over nothing of the stash: each backward has a frame of its own.
void Call::bind_stash(BackwardFrame& bound, bool keep) {
  bound.frame = std::make_shared<Frame>(*planned_.plan->core, native(stream_));
  bound.frame->set_run_state(&*run_state_);
  bound.stash = keep ? stash_->items : std::move(stash_->items);
  for (size_t place = 0; place < bound.stash.size(); ++place) {
    Item& item = bound.stash[place];
    if (halves_->given[place].from == ProgramHalves::Given::From::input)
      bound.frame->set_input(place, input_data(halves_->given[place].index));
    else if (item.is_tensor())
      bound.frame->set_input(place, item.tensor().data);
    else if (item.present())  // whose reader frees it as it goes
      bound.frame->set_object(place, std::move(std::get<Opaque>(item)));
  }
  if (!keep) stash_.reset();
}

}  // namespace ort::bridge
