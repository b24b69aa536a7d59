// A Program: a graph compiled for one set of needed gradients; it gives a Plan for each set of
// sizes.
#pragma once

#include <atomic>
#include <memory>

#include "csrc/core/item.h"
#include "csrc/core/run_state.h"
#include "csrc/passes/folded_bytes.h"
#include "csrc/program/bound_plan.h"
#include "csrc/program/dump.h"
#include "csrc/program/item_provider.h"
#include "csrc/program/options.h"
#include "csrc/program/plan_cache.h"
#include "csrc/program/prologue.h"
#include "gradient_graph/stash.h"

namespace ort {

struct ProgramHalves;

class Program {
 public:
  // Compiles a copy of `graph`. `wrt`: indices of graph inputs that need a gradient; `defined`:
  // indices of graph outputs whose gradient will be given. Both empty: forward alone. `stash`: what
  // to know when choosing what to keep; a memory budget holds for its sizes. `cuts`: outputs among
  // `defined` whose gradient is handed out before it goes on; then the gradients of `defined` may
  // be given one after the other, in this order. `in_stages`: sizes depend on data, so what has
  // gradients is compiled as halves, and no budget can choose what is kept.
  Program(const Graph& graph, const CompileOptions& options, std::vector<size_t> wrt,
          std::vector<size_t> defined, grad::StashOptions stash = {},
          const std::vector<size_t>& cuts = {}, bool in_stages = false);

  // One run of the forward: stage by stage, then what is left as one plan, which may be timed.
  // Thread-safe.
  std::vector<Item> run(std::vector<Item> inputs, RunState& state, Profile* profile = nullptr);
  // Its plan for these inputs, bound to them and to memory for its outputs; null where parts run
  // before the sizes are known, or an output is not a tensor of numbers.
  std::unique_ptr<BoundPlan> bind(std::span<const Item> inputs, std::span<const Tensor> into);
  // Whether a part must run before the rest can be planned; plan() is of programs that are not.
  bool is_staged() const { return prologue_ || halves_; }
  // Whether a plan is all that a run needs: neither a part before it nor a body is compiled later.
  bool is_one_plan() const { return !is_staged() && !items_; }
  // Null: no gradients, or one plan for both directions.
  const ProgramHalves* halves() const { return halves_.get(); }

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
  // Of the k-th gradient that is given: its place among the inputs.
  size_t gradient_input(size_t k) const { return first_gradient_.value_or(n_inputs_) + k; }
  // For each of the cuts: what the other outputs add to its gradient, or -1.
  const std::vector<int>& cut_outputs() const { return cut_outputs_; }
  const std::vector<int>& gradient_segments() const { return segments_; }  // by gradient output
  // By gradient input: the first segment that reads it.
  const std::vector<int>& first_reads() const { return first_reads_; }
  const LoweredGraph& lowered() const { return *lowered_; }
  int plans() const;
  // What the newest plan took, from unknown sizes to kernels prepared and memory placed; of halves
  // that of the backward.
  double planned_us() const;
  std::shared_ptr<const TrainingPlan> latest();  // the plan used last; null before the first

 private:
  // What only stages know: an item of no plan passes from the inputs to the outputs.
  void set_aside_items(Graph& graph);
  // The backward half of a joint program.
  Program(std::unique_ptr<Graph> half, const Program& joint, const CompileOptions& options,
          std::vector<const Provider*> providers);
  void cut_in_halves(const Graph& joint, const CompileOptions& options,
                     const std::vector<const Provider*>& providers);
  void lower(std::unique_ptr<Graph> graph, const CompileOptions& options,
             std::vector<const Provider*> providers, std::set<size_t> shared);
  std::vector<Item> run_plan(std::span<const Item> inputs, RunState& state, Profile* profile);
  std::shared_ptr<const TrainingPlan> plan_for(std::span<const Item> inputs);
  std::vector<Sizes> taken_sizes(std::span<const Item> inputs) const;
  void set_inputs(BoundPlan& bound, std::span<const Item> inputs) const;
  std::shared_ptr<const TrainingPlan> make(const Symbols& symbols);
  void report(const Plan& plan, double seconds) const;
  void compile_gradient(Graph& graph, const CompileOptions& options, const std::vector<size_t>& wrt,
                        const std::vector<size_t>& defined, const std::vector<size_t>& cuts);
  void assign_segments(Graph& graph, const CompileOptions& options, const std::vector<size_t>& wrt,
                       bool one_by_one, grad::StashOptions& stash);

  std::unique_ptr<ItemProvider> items_;  // null: no node takes items
  std::unique_ptr<Prologue> prologue_;   // null: one plan is the whole
  std::unique_ptr<const ProgramHalves> halves_;
  Mutex last_mutex_;
  std::shared_ptr<Program> last_;  // what the prologue was followed by last
  std::vector<size_t> taken_;      // of a run's inputs, those that the plan takes
  std::vector<int> passed_;        // by output of a run: the input that it is, or -1
  size_t n_inputs_ = 0, n_outputs_ = 0;
  std::optional<size_t> first_gradient_;  // of a backward half: where among its inputs
  std::vector<size_t> gradient_inputs_;
  std::vector<int> gradient_outputs_, cut_outputs_, segments_, first_reads_;
  std::shared_ptr<const LoweredGraph> lowered_;
  Dump dump_;
  FoldedBytes folded_;
  size_t nodes_ = 0;    // before partition
  double seconds_ = 0;  // from the capture to the lowered
  PlanCache cache_;
  std::atomic<int> plans_ = 0;
  std::atomic<double> planned_us_ = 0;
};

// Forward and backward of a program with gradients, where the forward runs in stages.
struct ProgramHalves {
  // What the backward is given.
  struct Given {
    enum class From : uint8_t {
      input,     // of the forward
      output,    // of the forward
      size,      // an element of an output of the forward, as a size
      gradient,  // of the backward's gradient inputs
    } from;
    size_t index;
    size_t element = 0;
  };
  std::unique_ptr<Program> forward;   // outputs: the graph's, then those for the backward alone
  std::unique_ptr<Program> backward;  // one plan, in segments: bound when the forward has run
  std::vector<Given> given;           // by input of the backward
};

}  // namespace ort
