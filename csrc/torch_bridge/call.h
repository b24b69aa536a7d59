// One forward call and what its backward needs: the frame, the saved variables, the inputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/torch_bridge/captured_state.h"
#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/exchange/random.h"
#include "csrc/torch_bridge/internals/saved_tensor.h"
#include "csrc/torch_bridge/internals/tensor_impl.h"
#include "csrc/torch_bridge/staged.h"

namespace ort::bridge {

// What one backward of a call runs on. It holds what the frame points to.
struct BackwardFrame {
  Planned planned;
  std::vector<at::Tensor> inputs;
  std::vector<SharedOutput> outputs;
  std::vector<Item> stash;  // of a forward in stages
  std::shared_ptr<Frame> frame;
  bool filled = false;  // zeros stand for outputs that have no gradient
};

// New memory for an output of a plan, bound to a frame.
at::Tensor make_output(const Plan& plan, Frame& frame, size_t i);

// Gives the axes another order in place, so that the tensor is a view of none.
void reorder(const at::Tensor& tensor, const Indices& order);

class Call {
 public:
  Call(std::shared_ptr<CapturedState> state, const std::vector<at::Tensor>& given, uint64_t key,
       std::shared_ptr<Profile> profile);

  // Runs the forward for such a backward; returns every graph output.
  std::vector<at::Tensor> forward(const Wanted& wanted);
  // After the forward's writes: keeps what the backward reads, in a way that notices later writes.
  void expect_backward(const std::vector<at::Tensor>& given,
                       const std::vector<at::Tensor>& outputs);
  // A frame for a backward of what is wanted, with inputs and shared outputs in place; the forward
  // runs again where it ran for something else. Where it cannot, as an input has changed, but had
  // more outputs in mind, the gradients of the others are to be zeros. `keep`: the call keeps what
  // it has for another one.
  BackwardFrame begin_backward(const Wanted& wanted, bool keep);
  // For a backward of these outputs under create_graph: the forward once more, by torch's
  // operators.
  SecondRun run_again(const Indices& outputs, const Edges& edges);
  // Copies the inputs that eager's backward of one of `outputs` does not read: writes are allowed.
  void keep_inputs(const Indices& outputs);
  // Raises where eager's node would, as something that it saved was written to.
  void check_saved_by(const UsedUp& node) const;
  void release();
  bool released() const { return inputs_.empty(); }

  const CapturedState& state() const { return *state_; }
  CapturedState& state() { return *state_; }
  const Planned& planned() const { return planned_; }
  const Operand& input_type(size_t i) const {
    return input_types_.empty() ? planned_.plan->core->inputs.types[i] : input_types_[i];
  }
  Profile* profile() const { return profile_.get(); }
  // Torch's stream on which the forward ran, and a backward is to run.
  std::optional<c10::Stream> stream() const { return stream_; }

 private:
  Device device() const { return state_->options.device; }
  std::vector<Sizes> input_sizes() const;
  std::vector<at::Tensor> run_plan(const std::shared_ptr<Program>& program,
                                   const std::vector<Sizes>& sizes);
  std::vector<at::Tensor> run_stages(const std::shared_ptr<Program>& program);
  void keep_stash(const std::shared_ptr<Program>& program, const std::vector<Item>& made,
                  const std::vector<at::Tensor>& outputs);
  const void* input_data(size_t i) const;
  void bind_inputs(Frame& frame) const;
  void bind_frame(BackwardFrame& bound, bool keep);
  void bind_stash(BackwardFrame& bound, bool keep);
  void share_outputs(const std::vector<at::Tensor>& outputs);
  void bind_shared_outputs(Frame& frame);
  void bind_read_there(BackwardFrame& bound);
  void save_inputs(const std::vector<at::Tensor>& given);
  void own_input(size_t i);
  void unpack_inputs(const Indices& defined);
  void check_outputs(const Indices& saved) const;
  void check_input(size_t i) const;
  void run_forward_again(const Wanted& wanted);
  at::Tensor as_given(size_t i) const;
  // The first input that a second run would read and that is not as it was.
  std::optional<size_t> changed_input(const Wanted& wanted) const;
  bool covers(const Wanted& wanted) const;

  std::shared_ptr<CapturedState> state_;
  Planned planned_;  // of a forward in stages: its backward's
  std::optional<c10::Stream> stream_;
  std::optional<RunState> run_state_;  // of the latest forward, all its programs and its backwards
  RunState::Once once_;                // what Python gave, which a second forward does not run
  // Of a forward that ran to its end; null: a backward has it, and may have overwritten the stash.
  std::shared_ptr<Frame> frame_;
  const ProgramHalves* halves_ = nullptr;  // of a forward in stages, which `planned_` keeps
  std::optional<Stash> stash_;             // none: as of the frame
  std::vector<Operand> input_types_;       // of a forward in stages
  std::vector<at::Tensor> inputs_;         // contiguous; kept while the call lives
  std::map<size_t, Sizes> strides_;        // of inputs that were not
  // By input: whether its memory is the caller's. The caller's tensors are not held, but where
  // eager holds them: torch.utils.swap_tensors takes only a tensor that nobody else has.
  std::vector<bool> lent_;
  struct Saved {
    size_t input;
    SavedTensor tensor;
    int unpacked_in = -1;  // the backward; hooks may allow it once in each
  };
  std::vector<Saved> saved_;
  std::vector<SharedOutput> shared_outputs_;
  std::map<size_t, at::Tensor> read_there_;  // what is there now, by input
  Wanted wanted_;
  bool hooked_ = false;                                    // the user's hooks give what was saved
  std::vector<Version> input_versions_, output_versions_;  // when the forward had run
  uint64_t key_;
  std::shared_ptr<Profile> profile_;
  RandomState generator_state_;  // before a forward that may draw; a second one draws the same
};

}  // namespace ort::bridge
