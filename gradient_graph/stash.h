// Keep or recompute: what the backward reads of the forward.
#pragma once

#include <optional>
#include <set>

#include "csrc/graph/graph.h"

namespace ort::grad {

struct StashOptions {
  Symbols sizes;                 // of the call at hand; a symbol that is not here counts as 64
  std::optional<size_t> budget;  // bytes that may be kept
  std::set<ValueId> copied;      // graph inputs that would have to be copied to be read later
  std::set<size_t> shared;       // graph outputs that the backward reads in the caller's memory
  std::set<size_t> written;      // those of them from which nothing is computed a second time
  size_t* steps = nullptr;       // counts what is looked at, for tests
};

// Chooses the values to keep as a minimum cut over their bytes and clones into the backward the
// forward nodes that make the rest. Without a budget only what is cheap is recomputed: views,
// constants, element-wise nodes where they join a region of the backward, and everything marked
// `recompute`; with one, as little more as makes it fit, whole layers in the end. Throws when
// nothing does. Runs after assign_segments; CSE must not run afterwards. Returns how many nodes
// were cloned.
size_t choose_stash(Graph& graph, const StashOptions& options = {});

}  // namespace ort::grad
