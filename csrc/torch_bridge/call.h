// One forward call and what its backward needs: the frame, the saved variables, the gradients'
// places.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <set>
#include <vector>

#include "csrc/runtime/executor.h"
#include "csrc/session/program.h"
#include "csrc/torch_bridge/memory.h"

namespace ort::bridge {

// The graph inputs and outputs that eager's backward of one output reads: a write to one of them
// between forward and backward is an error there, a write to any other is not.
struct SavedByEager {
  std::vector<size_t> inputs, outputs;
};

// What every call of one capture shares.
struct Shared {
  std::shared_ptr<const Graph> graph;  // as captured
  CompileOptions options;
  std::vector<size_t> wrt;           // graph inputs that need a gradient
  std::vector<bool> differentiable;  // by graph output
  std::vector<size_t> written;       // graph inputs that a call writes to afterwards
  size_t n_user_outputs = 0;
  std::optional<std::vector<SavedByEager>> saved;  // by user output; none: every input, no output
  bool has_effects = false;                        // a node may draw from torch's generator
  std::mutex mutex;
  // By the outputs with a gradient and, under a memory budget, the sizes that it is to hold for.
  std::map<std::pair<std::vector<size_t>, Symbols>, std::shared_ptr<Program>> programs;
  std::shared_ptr<Program> latest;
  int dropped_plans = 0;          // of programs that are no longer kept
  std::vector<size_t> predicted;  // outputs whose gradient the last backward had
  std::shared_ptr<Profile> profile;

  // The program for these outputs' gradients; none: forward alone.
  std::shared_ptr<Program> program(const std::vector<size_t>& defined,
                                   const std::vector<Sizes>& sizes);
  bool eager_saves_input(size_t input, const std::vector<size_t>& defined) const;
  std::set<size_t> eager_saves_outputs(const std::vector<size_t>& defined) const;
};

class Call {
 public:
  Call(std::shared_ptr<Shared> shared, std::vector<at::Tensor> inputs, uint64_t key);

  // Runs the forward for gradients of `defined`; returns every graph output.
  std::vector<at::Tensor> forward(const std::vector<size_t>& defined);
  // After the forward's writes: keeps what the backward reads, in a way that notices later writes,
  // and fixes which segment hands over which gradient.
  void expect_backward(const std::vector<at::Tensor>& outputs);

  // Called by the first backward node with the gradients of the differentiable outputs.
  void begin_backward(const std::vector<at::Tensor>& output_gradients, bool keep);
  // Runs one segment; returns the gradients that are handed over after it, by index in wrt.
  std::vector<std::pair<size_t, at::Tensor>> run_segment(size_t segment);
  void end_backward();
  void release();

  size_t n_segments() const { return handed_.size(); }
  const Program& program() const { return *program_; }
  const Shared& shared() const { return *shared_; }
  // Index in wrt of the gradients handed over after each segment; one that these outputs do not
  // give comes last, as it may turn out to be needed.
  const std::vector<std::vector<size_t>>& handed() const { return handed_; }

 private:
  std::vector<Sizes> input_sizes() const;
  void bind_inputs();
  std::vector<at::Tensor> bind_outputs(size_t first, size_t last);
  void share_outputs(const std::vector<at::Tensor>& outputs);
  void bind_shared_outputs();
  void assign_gradients();
  void save_inputs();
  void check_outputs(const std::vector<size_t>& defined) const;
  void run_forward_again(const std::vector<size_t>& defined);

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Program> program_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Frame> frame_;
  std::unique_ptr<Frame> backward_frame_;  // with retain_graph: the stash stays untouched
  std::vector<at::Tensor> inputs_;         // contiguous; kept while the call lives
  std::vector<at::Tensor> originals_;
  std::vector<std::pair<size_t, torch::autograd::SavedVariable>> saved_;
  std::vector<std::pair<size_t, c10::Storage>> shared_outputs_;
  std::vector<at::Tensor> output_gradients_, gradients_;
  std::vector<std::vector<size_t>> handed_;
  std::vector<size_t> defined_;
  std::vector<uint32_t> versions_;  // of originals_, when the forward had run
  std::vector<std::pair<c10::VariableVersion, uint32_t>> output_versions_;  // likewise
  uint64_t key_;
  at::Tensor generator_state_;  // before a forward that may draw; a second one draws the same
  bool ran_again_ = false;      // for other outputs: the first segment runs it all
  bool consumed_ = false;       // a backward may have overwritten the stash
};

}  // namespace ort::bridge
