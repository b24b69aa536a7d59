// A plan that is run in parts: the forward, then the backward segment by segment, on the memory of
// the forward or, where that is to stay as it is, on a second one. What only autograd knows is
// here.
#pragma once

#include "csrc/plan/plan.h"

namespace ort {

struct TrainingPlan {
  std::shared_ptr<const LoweredGraph> lowered;  // what it is made of, and the sizes it is for
  Symbols symbols;
  std::unique_ptr<const Plan> core;
  Placement retained;                   // for a backward with retain_graph
  size_t forward_steps = 0;             // the rest are backward, by segment
  std::vector<size_t> segment_ends;     // of the backward: the step after each segment's last
  std::vector<size_t> output_segments;  // the backward's segment that completes each output
  std::vector<size_t> saved_inputs;     // inputs that a backward step reads
  // By segment of the backward: the outputs after the forward's whose memory it touches first.
  std::vector<std::vector<size_t>> begun_outputs;
  // Of the arenas' values that the backward reads of the forward: of activations, and of what is
  // made of the model's state alone, as casts of its parameters are.
  size_t stash_bytes = 0, cast_bytes = 0;
};

std::unique_ptr<TrainingPlan> make_training_plan(std::shared_ptr<const LoweredGraph> lowered,
                                                 const Symbols& symbols);

}  // namespace ort
