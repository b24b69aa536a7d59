// A graph differentiated as a whole, cut into a forward and a backward that run apart: what the one
// has kept the other reads.
#pragma once

#include <set>

#include "csrc/passes/pipeline.h"

namespace ort {

// What an item of the stash is: an input of the forward half, or an output.
enum class Kept : int64_t { input, output };
// What an input of the backward half is: an item of the stash; an input of the forward, which the
// caller still has; one of the sizes that are the last item of the stash; a gradient, in the order
// of the joint graph's inputs.
enum class Read : int64_t { stash, input, size, gradient };

struct Halves {
  template <class Kind>
  struct Item {
    Kind kind;
    size_t index;
  };
  std::unique_ptr<Graph> forward;  // its outputs, then those that are kept
  std::unique_ptr<Graph> backward;
  std::vector<Item<Kept>> kept;
  std::vector<Item<Read>> reads;  // by input of the backward
};

// Cuts a joint graph whose segments and stash are chosen; its first inputs and outputs are the
// forward's. `given`: inputs that the caller still has when the backward runs. `in_segments`: the
// backward's nodes keep theirs.
Halves cut_in_halves(const Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given,
                     bool in_segments);

// Optimises the joint graph, chooses what is kept as a minimum cut over bytes, and cuts there; the
// backward is one segment.
Halves split(Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given,
             PassOptions& passes);

}  // namespace ort
