// A Plan: steps over slots, ready to run for one binding of the sizes.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "csrc/plan/facts.h"
#include "csrc/plan/partition.h"

namespace ort {

struct Step {
  const Kernel* kernel = nullptr;
  int in = 0, n_in = 0, out = 0, n_out = 0;  // ranges of Plan::operands; a slot, or -1 when absent
  int segment = -1;
  int claim = -1;  // of the partition; -1: a copy of the plan's own
  std::string name;
  std::string_view provider;
  Place node;  // the region's last: where an error is
};

// Where a slot's pointer comes from when a frame is set up.
struct Slot {
  enum class Kind : uint8_t { arena, second, input, output, constant, opaque };
  Kind kind = Kind::arena;
  size_t at = 0;  // offset, or index
};

// Where values lie. The second arena is used by a backward that must leave the stash as it is.
struct Placement {
  std::vector<Slot> slots;
  std::vector<size_t> scratch;  // of each step
  size_t bytes = 0;             // of the arena, or of the second one
};

// A value's place in the arena and the steps between which it is there: for reports.
struct Placed {
  size_t at, bytes;
  int first, last;
};

struct Operands {
  std::vector<std::string> names;
  std::vector<Operand> types;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<int> operands;
  Placement placement;
  std::vector<Placed> values;  // of the arena
  Placement retained;          // for a backward with retain_graph
  std::vector<Tensor> constants;
  std::vector<std::unique_ptr<Kernel>> kernels;
  Operands inputs, outputs;
  std::vector<std::vector<int>> input_slots, output_slots;  // whose pointer the caller gives
  size_t forward_steps = 0;                                 // the rest are backward, by segment
  std::vector<size_t> segment_ends;     // of the backward: the step after each segment's last
  std::vector<size_t> output_segments;  // the backward's segment that completes each output
  std::vector<size_t> saved_inputs;     // inputs that a backward step reads
  size_t total_bytes = 0;  // of the arena's values and scratch, were each its own memory
  size_t stash_bytes = 0;  // of the arena's values that the backward reads of the forward
  size_t opaque_count = 0;
};

// The graph after partition, the claims in their order: what does not depend on sizes.
struct Layout {
  std::unique_ptr<Graph> graph;
  Partition partition;
  std::vector<size_t> order;
  std::vector<SizeFact> facts;
  size_t forward_outputs = 0;  // graph outputs that the forward gives; the rest are gradients
  std::set<size_t> shared;     // of these, what the backward reads in the caller's memory
};

Layout lay_out(std::unique_ptr<Graph> graph, size_t forward_outputs,
               std::span<const Provider* const> providers, std::set<size_t> shared = {});

// Kernels, slots and offsets for these values of the symbols.
std::unique_ptr<Plan> make_plan(const Layout& layout, const Symbols& symbols);

// Values of the symbols that make the dims of the first `count` inputs these sizes; the verdict, or
// the error, names the input at fault.
Verdict match_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count,
                      Symbols& symbols);
Symbols solve_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count);

}  // namespace ort
