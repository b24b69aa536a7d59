// One forward call and what its backward needs: the frame, the saved variables, the inputs.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/runtime/executor.h"
#include "csrc/session/program.h"
#include "csrc/torch_bridge/history.h"
#include "csrc/torch_bridge/memory.h"

namespace ort::bridge {

// The outputs whose gradient a backward gets, and those at which it is handed out on its way.
struct Wanted {
  Indices defined, cuts;
  auto operator<=>(const Wanted&) const = default;
};

// What every call of one capture shares.
struct Shared {
  std::shared_ptr<const Graph> graph;  // as captured
  CompileOptions options;
  Indices wrt;      // graph inputs that need a gradient
  Indices written;  // graph inputs that a call writes to afterwards
  size_t n_user_outputs = 0;
  // Of outputs whose axes are not in their tensor's order: the tensor's axes as they lie in memory.
  std::map<size_t, Indices> orders;
  History history;
  Topology topology;
  bool has_effects = false;  // a node may draw from torch's generator
  std::mutex mutex;
  // By what is wanted and, under a memory budget, the sizes that it is to hold for.
  std::map<std::pair<Wanted, Symbols>, std::shared_ptr<Program>> programs;
  std::shared_ptr<Program> latest;
  int dropped_plans = 0;   // of programs that are no longer kept
  int reruns = 0;          // forwards that ran again, for a backward that was not expected
  Wanted predicted;        // what the last backward had
  bool confirmed = false;  // a backward came as predicted
  bool varied = false;     // one came that was not, and was made by zeros
  std::shared_ptr<Profile> profile;  // of the latest call that is timed; null: none is

  // The program for a backward like this; nothing defined: forward alone.
  std::shared_ptr<Program> program(const Wanted& wanted, const std::vector<Sizes>& sizes);
  // A gradient of an output as the graph has it, and one of the graph's as the tensor has it.
  at::Tensor in_memory_order(size_t output, const at::Tensor& gradient) const;
  at::Tensor in_tensor_order(size_t output, const at::Tensor& gradient) const;
  // Whether another backward than the predicted one is to be reckoned with.
  bool unsettled();
};

class Call {
 public:
  Call(std::shared_ptr<Shared> shared, std::vector<at::Tensor> inputs, uint64_t key,
       std::shared_ptr<Profile> profile);

  // Runs the forward for such a backward; returns every graph output.
  std::vector<at::Tensor> forward(const Wanted& wanted);
  // After the forward's writes: keeps what the backward reads, in a way that notices later writes.
  void expect_backward(const std::vector<at::Tensor>& outputs);
  // The frame for a backward of what is wanted, with inputs and shared outputs in place; the
  // forward runs again where it ran for something else. Where it cannot, as an input has changed,
  // but had more outputs in mind, the gradients of the others are to be zeros. `keep`: the frame is
  // the same afterwards.
  Frame& begin_backward(const Wanted& wanted, bool keep);
  // Copies the inputs that eager's backward of one of `outputs` does not read: writes are allowed.
  void keep_inputs(const Indices& outputs);
  void end_backward();  // gives back what cannot be used again
  void release();
  bool released() const { return inputs_.empty(); }

  const Shared& shared() const { return *shared_; }
  const Program& program() const { return *program_; }
  const Plan& plan() const { return *plan_; }
  Profile* profile() const { return profile_.get(); }
  // The segment after which the gradient at this output of the program is complete.
  size_t segment_of(int output) const;
  bool runs_for(const Wanted& wanted) const { return wanted == wanted_; }

 private:
  std::vector<Sizes> input_sizes() const;
  void bind_inputs();
  void share_outputs(const std::vector<at::Tensor>& outputs);
  void bind_shared_outputs(Frame& frame);
  void save_inputs();
  void unpack_inputs(const Indices& defined);
  void check_outputs(const Indices& defined) const;
  void run_forward_again(const Wanted& wanted);
  // The first input that a second run would read and that is not as it was.
  std::optional<size_t> changed_input(const Wanted& wanted) const;
  bool covers(const Wanted& wanted) const;

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Program> program_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Frame> frame_;
  std::unique_ptr<Frame> retained_;  // of a backward that leaves the stash untouched
  std::vector<at::Tensor> inputs_;   // contiguous; kept while the call lives
  std::vector<at::Tensor> originals_;
  struct Saved {
    size_t input;
    torch::autograd::SavedVariable variable;
    int unpacked_in = -1;  // the backward; hooks may allow it once in each
  };
  std::vector<Saved> saved_;
  std::vector<std::pair<size_t, c10::Storage>> shared_outputs_;
  Wanted wanted_;
  std::vector<uint32_t> versions_;  // of originals_, when the forward had run
  std::vector<std::pair<c10::VariableVersion, uint32_t>> output_versions_;  // likewise
  uint64_t key_;
  std::shared_ptr<Profile> profile_;
  at::Tensor generator_state_;  // before a forward that may draw; a second one draws the same
  bool spent_ = false;          // a backward may have overwritten the stash
};

}  // namespace ort::bridge
