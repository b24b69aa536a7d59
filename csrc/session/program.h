// A Program: a graph compiled for one set of needed gradients; it gives a Plan for each set of
// sizes.
#pragma once

#include <atomic>
#include <memory>

#include "csrc/core/item.h"
#include "csrc/core/run_state.h"
#include "csrc/session/body_provider.h"
#include "csrc/session/dump.h"
#include "csrc/session/options.h"
#include "csrc/session/plan_cache.h"
#include "csrc/session/prologue.h"
#include "gradient_graph/stash.h"

namespace ort {

class Program {
 public:
  // Compiles a copy of `graph`. `wrt`: indices of graph inputs that need a gradient; `defined`:
  // indices of graph outputs whose gradient will be given. Both empty: forward alone. `stash`: what
  // to know when choosing what to keep; a memory budget holds for its sizes. `cuts`: outputs among
  // `defined` whose gradient is handed out before it goes on; then the gradients of `defined` may
  // be given one after the other, in this order.
  Program(const Graph& graph, const CompileOptions& options, std::vector<size_t> wrt,
          std::vector<size_t> defined, grad::StashOptions stash = {},
          const std::vector<size_t>& cuts = {});

  // One run of the forward: stage by stage, then what is left as one plan. Thread-safe.
  std::vector<Item> run(std::vector<Item> inputs, RunState& state);
  // Whether a part must run before the rest can be planned; plan() is of programs that are not.
  bool is_staged() const { return prologue_ != nullptr; }

  // The plan for inputs of these sizes (of the captured graph's inputs, in order). Kept, least
  // recently used dropped.
  std::shared_ptr<const TrainingPlan> plan(const std::vector<Sizes>& input_sizes);

  size_t n_inputs() const { return n_inputs_; }    // of the captured graph; gradient inputs follow
  size_t n_outputs() const { return n_outputs_; }  // of the captured graph; gradients follow
  const std::vector<size_t>& gradient_inputs() const {
    return gradient_inputs_;
  }  // output index of each
  const std::vector<int>& gradient_outputs() const {
    return gradient_outputs_;
  }  // for each of wrt, or -1
  // For each of the cuts: what the other outputs add to its gradient, or -1.
  const std::vector<int>& cut_outputs() const { return cut_outputs_; }
  const std::vector<int>& gradient_segments() const { return segments_; }  // by gradient output
  // By gradient input: the first segment that reads it.
  const std::vector<int>& first_reads() const { return first_reads_; }
  const Layout& layout() const { return layout_; }
  int plans() const { return plans_ + (prologue_ ? prologue_->plans() : 0); }
  // What the newest plan took, from unknown sizes to kernels prepared and memory placed.
  double planned_us() const { return planned_us_; }
  std::shared_ptr<const TrainingPlan> latest();  // the plan used last; null before the first

 private:
  // What only stages know: an item of no plan passes from the inputs to the outputs.
  void set_aside_items(Graph& graph);
  std::vector<Item> run_plan(std::span<const Item> inputs, RunState& state);
  std::shared_ptr<const TrainingPlan> make(const Symbols& symbols);
  void report(const Plan& plan, double seconds) const;
  void compile_gradient(Graph& graph, const CompileOptions& options, const std::vector<size_t>& wrt,
                        const std::vector<size_t>& defined, const std::vector<size_t>& cuts);
  void assign_segments(Graph& graph, const CompileOptions& options, const std::vector<size_t>& wrt,
                       bool one_by_one, grad::StashOptions& stash);

  std::unique_ptr<BodyProvider> bodies_;  // null: no node owns graphs
  std::unique_ptr<Prologue> prologue_;    // null: one plan is the whole
  std::mutex last_mutex_;
  std::shared_ptr<Program> last_;  // what the prologue was followed by last
  std::vector<size_t> taken_;      // of a run's inputs, those that the plan takes
  std::vector<int> passed_;        // by output of a run: the input that it is, or -1
  size_t n_inputs_ = 0, n_outputs_ = 0;
  std::vector<size_t> gradient_inputs_;
  std::vector<int> gradient_outputs_, cut_outputs_, segments_, first_reads_;
  Layout layout_;
  Dump dump_;
  size_t nodes_ = 0;    // before partition
  double seconds_ = 0;  // from the capture to the layout
  PlanCache cache_;
  std::atomic<int> plans_ = 0;
  std::atomic<double> planned_us_ = 0;
};

}  // namespace ort
