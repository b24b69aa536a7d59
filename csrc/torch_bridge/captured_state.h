// What the calls of one capture share: its programs, and what their backwards were like.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "csrc/core/cache.h"
#include "csrc/core/mutex.h"
#include "csrc/program/program.h"
#include "csrc/runtime/executor.h"
#include "csrc/torch_bridge/autograd/history.h"
#include "csrc/torch_bridge/autograd/second_run.h"

namespace ort::bridge {

// The outputs whose gradient a backward gets, and those at which it is handed out on its way.
struct Wanted {
  Indices defined, cuts;
  auto operator<=>(const Wanted&) const = default;
};

// A program with its plan for the sizes of a call.
struct Planned {
  std::shared_ptr<Program> program;
  std::shared_ptr<const TrainingPlan> plan;
  // The segment after which the gradient at this output of the program is complete.
  size_t segment_of(int output) const;
};

// The inputs of a group whose gradients one segment completes.
struct Share {
  size_t segment, group;
  Indices wrt;  // positions in the list of inputs that need a gradient
};

struct CapturedState {
  std::shared_ptr<const Graph> graph;  // as captured
  CompileOptions options;
  Indices wrt;      // graph inputs that need a gradient
  Indices written;  // graph inputs that a call writes to afterwards
  // What is written, where eager's backward reads it there: the graph's output, the input.
  struct ReadThere {
    size_t output, input;
  };
  std::vector<ReadThere> read_there;
  size_t n_user_outputs = 0;
  // Of outputs whose axes are not in their tensor's order: the tensor's axes as they lie in memory.
  std::map<size_t, Indices> orders;
  AutogradHistory history;
  Topology topology;
  SecondForward second_forward;         // of a capture with gradients
  bool has_effects = false;             // a node may draw from torch's generator
  bool is_linear = true;                // the gradient, in those of the outputs
  bool has_float16 = false;             // whose smallest numbers lose digits
  std::atomic<size_t> stash_bytes = 0;  // that the latest forward kept, histories of loops too
  std::atomic<int> dropped_plans = 0;   // of programs that are no longer kept
  // By what is wanted and, under a memory budget, the sizes that it is to hold for.
  Cache<std::pair<Wanted, Symbols>, Program> programs{
      16, [this](const Program& program) { dropped_plans += program.plans(); }};
  Mutex mutex;                  // of what follows
  int reruns = 0;               // forwards that ran again, for a backward that was not expected
  Wanted predicted;             // what the last backward had
  bool confirmed = false;       // a backward came as predicted
  bool varied = false;          // one came that was not, and was made by zeros
  bool differentiable = false;  // a backward came under create_graph
  std::shared_ptr<Profile> profile;  // of the latest call that is timed; null: none is

  // The program for a backward like this; nothing defined: forward alone.
  std::shared_ptr<Program> program(const Wanted& wanted, const std::vector<Sizes>& sizes);
  std::shared_ptr<Program> compile(const Wanted& wanted, const Symbols& symbols);
  // A gradient of an output as the graph has it, and one of the graph's as the tensor has it.
  at::Tensor in_memory_order(size_t output, const at::Tensor& gradient) const;
  at::Tensor in_tensor_order(size_t output, const at::Tensor& gradient) const;
  // Whether a backward that runs the forward again is to be reckoned with: another than the
  // predicted one, or one under create_graph.
  bool may_run_again();
  // Whether sizes depend on data: then forwards are run stage by stage (staged.h), on the host.
  bool is_staged();
  // Of what is read there, what the backward of these outputs reads.
  std::vector<ReadThere> reads_there(const Indices& by_outputs) const;
  // What the nodes of a call hand over, by segment and group.
  std::shared_ptr<const std::vector<Share>> parts(const Planned& planned);

 private:
  Once asked_;
  bool staged_ = false;
  std::weak_ptr<const TrainingPlan> divided_;  // the plan that parts_ are of
  std::shared_ptr<const std::vector<Share>> parts_;
};

}  // namespace ort::bridge
